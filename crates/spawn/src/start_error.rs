//! The reasons why a program did not start.

use std::{fmt, io};

/// The stage at which a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStage {
    /// The environment or the arguments cannot be passed to any program; nothing was started.
    Environment,
    /// No process could be made: the system's or the user's limit of processes or memory.
    Clone,
    /// Standard input, output and error could not be put in place.
    Descriptors,
    /// no_new_privs, or the domain that keeps the program apart from others.
    Domain,
    /// Process group, signals or resource limits.
    Limits,
    /// The working directory.
    Chdir,
    /// `execve` itself.
    Exec,
    /// No helper is there to start the program as its user.
    Helper,
    /// The program may not run as its user.
    Denied,
}

impl StartStage {
    /// Every stage, in order, and its work.
    const ALL: [(Self, &str); 9] = [
        (Self::Environment, "passing the environment"),
        (Self::Clone, "creating a process"),
        (
            Self::Descriptors,
            "handing over standard input, output and error",
        ),
        (Self::Domain, "keeping it apart from other programs"),
        (Self::Limits, "setting limits"),
        (Self::Chdir, "entering the working directory"),
        (Self::Exec, "executing the program"),
        (Self::Helper, "asking for a helper"),
        (Self::Denied, "running it as another user"),
    ];

    /// Returns the stage with this number (`stage as u64`), which a child (`direct::child_side`) or a helper
    /// (`remote::message`) reports.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        let found = Self::ALL.get(usize::try_from(number).ok()?);
        found.map(|(stage, _)| *stage)
    }
}

impl fmt::Display for StartStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL[*self as usize].1)
    }
}

/// The reason why a program did not start. [`inspect::diagnose`](crate::inspect::diagnose) explains it to a script's author.
#[derive(Debug)]
pub struct StartError {
    /// The stage that failed.
    pub stage: StartStage,
    /// The system's error.
    pub source: io::Error,
}

impl StartError {
    /// Returns whether a filter of system calls, or an old kernel, refuses a call that galgo itself makes before the program is
    /// executed.
    pub fn is_filtered(&self) -> bool {
        let refused = [Some(libc::EPERM), Some(libc::ENOSYS)].contains(&self.source.raw_os_error());
        refused
            && matches!(
                self.stage,
                StartStage::Descriptors | StartStage::Domain | StartStage::Limits
            )
    }

    /// Returns whether trying again after some milliseconds may succeed. Either the program's file is open for writing
    /// somewhere (ETXTBSY), because it is being replaced in place. Or a file that the program's sandbox lists has been replaced
    /// (ESTALE), and the next helper knows the new file.
    ///
    /// `start` does not wait by itself: the writer may take seconds, and the caller can wait without stopping a whole thread.
    pub fn is_busy(&self) -> bool {
        let busy = [
            (StartStage::Exec, Some(libc::ETXTBSY)),
            (StartStage::Helper, Some(libc::ESTALE)),
        ];
        busy.contains(&(self.stage, self.source.raw_os_error()))
    }

    pub(crate) fn descriptors(source: io::Error) -> Self {
        Self {
            stage: StartStage::Descriptors,
            source,
        }
    }

    pub(crate) fn from_errno(stage: StartStage, errno: i32) -> Self {
        Self {
            stage,
            source: io::Error::from_raw_os_error(errno),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.source)
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use crate::start_error::*;

    #[test]
    fn every_stage_is_told_by_its_number() {
        for (stage, words) in StartStage::ALL {
            assert_eq!(StartStage::from_number(stage as u64), Some(stage));
            assert_eq!(stage.to_string(), words);
        }
        assert_eq!(StartStage::from_number(9), None);
    }
}
