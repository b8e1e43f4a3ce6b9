//! Why a program did not start.

use std::{fmt, io};

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartStage {
    /// The environment or the arguments cannot be passed to any program; nothing was started.
    Environment,
    /// No process: the system's or the user's limit of processes or memory.
    Clone,
    /// Standard input, output and error could not be put in place.
    Descriptors,
    /// no_new_privs, or the domain that keeps it apart from other programs.
    Domain,
    /// Process group, signals or resource limits.
    Limits,
    /// The working directory.
    Chdir,
    /// `execve` itself.
    Exec,
    /// There is no helper that starts it as its user.
    Helper,
    /// It may not run as its user.
    Denied,
}

impl StartStage {
    /// For the one word that passes from the child to the server; see `direct::child_side`.
    pub(crate) const IN_CHILD: [Self; 5] = [
        Self::Descriptors,
        Self::Limits,
        Self::Chdir,
        Self::Exec,
        Self::Domain,
    ];

    /// For what a helper tells; see `owners::message`.
    const TOLD: [Self; 9] = [
        Self::Environment,
        Self::Clone,
        Self::Descriptors,
        Self::Domain,
        Self::Limits,
        Self::Chdir,
        Self::Exec,
        Self::Helper,
        Self::Denied,
    ];

    pub(crate) fn number(self) -> u64 {
        let at = Self::TOLD.iter().position(|stage| *stage == self);
        at.unwrap_or_default() as u64
    }

    pub(crate) fn numbered(number: u64) -> Option<Self> {
        Self::TOLD.get(usize::try_from(number).ok()?).copied()
    }
}

impl fmt::Display for StartStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "passing the environment",
            Self::Clone => "creating a process",
            Self::Descriptors => "handing over standard input, output and error",
            Self::Domain => "keeping it apart from other programs",
            Self::Limits => "setting limits",
            Self::Chdir => "entering the working directory",
            Self::Exec => "executing the program",
            Self::Helper => "asking for a helper",
            Self::Denied => "running it as another user",
        })
    }
}

/// Why a program did not start. [`inspect::diagnose`](crate::inspect::diagnose) says it to a
/// script's author.
#[derive(Debug)]
pub struct StartError {
    /// At which step.
    pub stage: StartStage,
    /// The system's error.
    pub source: io::Error,
}

impl StartError {
    /// The program's file is open for writing somewhere (ETXTBSY): it is being replaced in place.
    /// Trying again after some milliseconds may succeed.
    ///
    /// `start` does not wait by itself: the writer may take seconds, and the caller can wait
    /// without stopping a whole thread.
    pub fn is_busy(&self) -> bool {
        self.stage == StartStage::Exec && self.source.raw_os_error() == Some(libc::ETXTBSY)
    }

    pub(crate) fn descriptors(source: io::Error) -> Self {
        Self {
            stage: StartStage::Descriptors,
            source,
        }
    }

    pub(crate) fn errno(stage: StartStage, errno: i32) -> Self {
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
