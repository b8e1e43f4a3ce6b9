//! Describes a program to start.

use crate::{claims::MarkKind, env::EnvBlock, sandbox::Sandbox, start_error::StartError};
use std::{
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

/// Resource limits of a program (setrlimit(2)); `None` keeps the server's own limit. CORE is always 0.
///
/// Soft and hard limit are set alike, so that a program cannot raise them again. The hard limit of CPU is a second later, so
/// that the log shows SIGXCPU and not a bare SIGKILL. A value above the server's own hard limit becomes that hard limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// RLIMIT_CPU, seconds.
    pub cpu: Option<u64>,
    /// Percent of one processor, for all programs of a helper together. Enforced only by control groups, otherwise ignored.
    pub cpu_percent: Option<u32>,
    /// RLIMIT_AS, bytes.
    pub memory: Option<u64>,
    /// RLIMIT_FSIZE, bytes.
    pub file_size: Option<u64>,
    /// RLIMIT_NOFILE. A server that raised its own soft limit should set this: programs that use select(2) or close every
    /// possible descriptor expect 1024.
    pub open_files: Option<u64>,
    /// RLIMIT_NPROC. Counts every process and thread of the user. The server's own count, too, if it has no [ids of its
    /// own](crate::apart).
    pub processes: Option<u64>,
    /// Leftover processes outside of the program's group may outlive it, once the server has said so
    /// ([`Child::let_leftovers_stay`](crate::Child::let_leftovers_stay)). Otherwise they are ended
    /// ([`end_orphans`](crate::end_orphans)); they are known by RLIMIT_LOCKS, which Linux does not enforce.
    pub may_stay: bool,
    /// The program is a worker, which takes one request after another: its leftover processes may run as long as the worker
    /// does. With `may_stay` nothing ends them.
    pub is_worker: bool,
}

impl Limits {
    /// Returns whether some of these limits can be set on a control group.
    pub(crate) fn are_of_groups(&self) -> bool {
        self.memory.is_some() || self.processes.is_some() || self.cpu_percent.is_some()
    }

    /// Returns the kind of mark for the program and all that it starts; `None`: no mark.
    pub(crate) fn mark_kind(&self) -> Option<MarkKind> {
        match (self.may_stay, self.is_worker) {
            (true, true) => None,
            (true, false) => Some(MarkKind::Staying),
            (false, true) => Some(MarkKind::Lasting),
            (false, false) => Some(MarkKind::Program),
        }
    }

    /// Returns the limits that remain for each process, if a control group enforces the others.
    pub(crate) fn within_group(self) -> Self {
        Self {
            memory: None,
            processes: None,
            ..self
        }
    }
}

/// Number of descriptors that a program can be given besides the standard ones.
pub const MORE_MAX: usize = 4;

/// A program to start.
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
    /// Standard input, output and error. No other descriptor reaches the program, except `more`.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Descriptors of the program from 3 on, at most [`MORE_MAX`]; none for a program that answers a request.
    pub more: &'a [BorrowedFd<'a>],
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// Further restrictions.
    pub sandbox: Sandbox,
}

/// The priority of a program among others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The same as that of all processes.
    #[default]
    Normal,
    /// The program runs only when no other process wants the processor (SCHED_IDLE).
    Idle,
    /// The same as `Idle`, on all processors but one.
    IdleLeavingOne,
}

/// The request that a template's child gets.
#[derive(Debug)]
pub struct ChildRequest<'a> {
    /// The whole environment.
    pub env: &'a EnvBlock,
    /// The working directory, absolute, if it differs from the template's.
    pub dir: Option<&'a CStr>,
    /// The program's path, as in a cold start, because a helper checks the program of each request.
    pub program: &'a CStr,
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// RLIMIT_CPU, seconds. The child inherits all other limits from its template.
    pub cpu: Option<u64>,
    /// The priority among other programs.
    pub priority: Priority,
    /// The time that the server waits for the child: after that, a helper drops the request.
    pub patience: Duration,
    /// Whether the child reports the modules that it loaded: see [`PreloadReport`](crate::template::PreloadReport).
    pub learn: bool,
}

/// A program to start without waiting for it: like [`Start`], without the standard descriptors.
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
    /// Further restrictions.
    pub sandbox: Sandbox,
    /// The priority among other programs from its beginning.
    pub priority: Priority,
    /// Descriptors of the program from 3 on, like those in [`Start`].
    pub more: Vec<OwnedFd>,
    /// If the program cannot be executed, the child writes a zero byte to its standard output, once it has that, and ends. This
    /// tells a caller that waits for output.
    pub knocks: bool,
}

impl Launch {
    /// Returns the launch as a start, without the descriptors from 3 on.
    pub(crate) fn as_start<'a>(&'a self, stdio: [BorrowedFd<'a>; 3]) -> Start<'a> {
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
    /// The reason.
    pub error: StartError,
    /// The launch, to try again.
    pub launch: Launch,
}

/// The outcome of a launch.
#[derive(Debug)]
pub enum LaunchOutcome {
    /// The child has not executed its program yet.
    UnderWay,
    /// The program runs, or has run.
    Started,
    /// The program could not be executed; the child is gone.
    Failed(Box<FailedLaunch>),
}
