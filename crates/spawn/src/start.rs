//! What to start.

use crate::{claims::MarkKind, env::EnvBlock, error::StartError, sandbox::Sandbox};
use std::{
    ffi::CString,
    os::fd::{BorrowedFd, OwnedFd},
};

/// Resource limits of a program (setrlimit(2)); `None` leaves the server's own. CORE is always 0.
///
/// Soft and hard limit are set alike, so that a program cannot raise them again; the hard limit of
/// CPU is a second later, so that the log shows SIGXCPU and not a bare SIGKILL. A value above the
/// server's own hard limit becomes that hard limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// RLIMIT_CPU, seconds.
    pub cpu: Option<u64>,
    /// Percent of one processor, for all programs of a helper together: where there are control groups, else not at all.
    pub cpu_percent: Option<u32>,
    /// RLIMIT_AS, bytes.
    pub memory: Option<u64>,
    /// RLIMIT_FSIZE, bytes.
    pub file_size: Option<u64>,
    /// RLIMIT_NOFILE. A server that raised its own soft limit should set this: programs that use
    /// select(2) or close every possible descriptor expect 1024.
    pub open_files: Option<u64>,
    /// RLIMIT_NPROC. Counts every process and thread of the user, the server's own among them if that has no [ids of its own](crate::apart).
    pub processes: Option<u64>,
    /// Processes that it leaves running outside of its group may outlive it. Otherwise they are ended
    /// ([`end_orphans`](crate::end_orphans)); they are known by RLIMIT_LOCKS, which Linux does not enforce.
    pub may_stay: bool,
    /// It is a worker, which takes one request after another: what it leaves running may run as long as it does.
    pub is_worker: bool,
}

impl Limits {
    /// Whether some can be limits of a control group.
    pub(crate) fn are_of_groups(&self) -> bool {
        self.memory.is_some() || self.processes.is_some() || self.cpu_percent.is_some()
    }

    /// What marks it and all that it starts; `None`: nothing.
    pub(crate) fn mark(&self) -> Option<MarkKind> {
        match (self.may_stay, self.is_worker) {
            (true, _) => None,
            (false, true) => Some(MarkKind::Lasting),
            (false, false) => Some(MarkKind::Program),
        }
    }

    /// What is left for each process, in a control group that has its limits.
    pub(crate) fn within_group(self) -> Self {
        Self {
            memory: None,
            processes: None,
            ..self
        }
    }
}

/// Descriptors a program can be given beside the standard ones.
pub const MORE_MAX: usize = 4;

/// What to start.
#[derive(Debug)]
pub struct Start<'a> {
    /// The absolute path given to `execve`.
    pub path: &'a CString,
    /// The arguments, `argv[0]` first.
    pub args: &'a [CString],
    /// The whole environment.
    pub env: &'a EnvBlock,
    /// The working directory, absolute.
    pub dir: &'a CString,
    /// Standard input, output and error. No other descriptor reaches the program, but for `more`.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Its descriptors from 3 on, at most [`MORE_MAX`]; none for a program that answers a request.
    pub more: &'a [BorrowedFd<'a>],
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// What it is kept from beside that.
    pub sandbox: Sandbox,
}

/// How a program stands to others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// As all do.
    #[default]
    Normal,
    /// It runs where no other process wants the processor (SCHED_IDLE).
    Idle,
    /// The same, on all processors but one.
    IdleLeavingOne,
}

/// What to start without waiting for it: as [`Start`], but for the standard descriptors.
#[derive(Debug)]
pub struct Launch {
    /// The absolute path given to `execve`; `None`: `argv[0]`.
    pub path: Option<CString>,
    /// The arguments, `argv[0]` first. Never empty.
    pub args: Vec<CString>,
    /// The whole environment.
    pub env: EnvBlock,
    /// The working directory, absolute.
    pub dir: CString,
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// What it is kept from beside that.
    pub sandbox: Sandbox,
    /// How it stands to other programs from its beginning.
    pub priority: Priority,
    /// Its descriptors from 3 on, as those of a [`Start`].
    pub more: Vec<OwnedFd>,
    /// Where the program cannot be executed the child writes one zero byte to its standard output, where it has that
    /// already, and ends: a caller that waits for output learns of it.
    pub knocks: bool,
}

impl Launch {
    /// The same as a start, but for the descriptors from 3 on.
    pub(crate) fn start<'a>(&'a self, stdio: [BorrowedFd<'a>; 3]) -> Start<'a> {
        Start {
            path: self.path.as_ref().unwrap_or(&self.args[0]),
            args: &self.args,
            env: &self.env,
            dir: &self.dir,
            stdio,
            more: &[],
            limits: self.limits,
            no_new_privs: self.no_new_privs,
            sandbox: self.sandbox,
        }
    }
}

/// A program that was not started.
#[derive(Debug)]
pub struct FailedLaunch {
    /// Why.
    pub error: StartError,
    /// What was to be started, to try again.
    pub launch: Launch,
}

/// What has become of a start.
#[derive(Debug)]
pub enum LaunchOutcome {
    /// The child has not executed its program yet.
    UnderWay,
    /// The program runs, or has run.
    Started,
    /// It could not be executed; the child is gone.
    Failed(Box<FailedLaunch>),
}
