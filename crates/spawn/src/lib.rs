//! Starting, watching and ending the processes of galgo. No async runtime; the only crate with `unsafe`.
//!
//! One way in: [`Spawner::start`] turns a [`Start`] into a [`Child`]. Dropping a [`Child`] ends its
//! whole process group.

use std::{
    ffi::CString,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

/// The environment of a process in the layout `execve` takes: `NAME=value\0` one behind the other.
#[derive(Debug, Clone, Default)]
pub struct EnvBlock {
    _bytes: Vec<u8>,
}

impl EnvBlock {
    /// Appends one variable.
    pub fn put(&mut self, _name: &[u8], _value: &[u8]) {
        todo!()
    }
    /// The variables as (name, value).
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        std::iter::empty()
    }
    /// Bytes of all variables, as counted against the kernel's limit for `execve`.
    pub fn size(&self) -> usize {
        todo!()
    }
}

/// Resource limits of a program (setrlimit(2)); `None` leaves the server's own. CORE is always 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// RLIMIT_CPU, seconds.
    pub cpu: Option<u64>,
    /// RLIMIT_AS, bytes.
    pub memory: Option<u64>,
    /// RLIMIT_FSIZE, bytes.
    pub file_size: Option<u64>,
    /// RLIMIT_NOFILE.
    pub open_files: Option<u64>,
    /// RLIMIT_NPROC.
    pub processes: Option<u64>,
}

/// What to start.
#[derive(Debug)]
pub struct Start<'a> {
    /// The absolute path given to `execve`.
    pub path: &'a CString,
    /// The arguments, argv[0] first.
    pub args: &'a [CString],
    /// The whole environment.
    pub env: &'a EnvBlock,
    /// The working directory, absolute.
    pub dir: &'a CString,
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Stage {
    Clone,
    Descriptors,
    Limits,
    Chdir,
    Exec,
}

/// Why a program did not start.
#[derive(Debug)]
pub struct StartError {
    /// At which step.
    pub stage: Stage,
    /// The system's error.
    pub source: io::Error,
}

/// How processes are started. Direct: vfork and exec from this process.
#[derive(Debug)]
pub enum Spawner {
    /// `clone3(CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD | CLONE_CLEAR_SIGHAND)` and `execve`.
    Direct(()),
}

impl Spawner {
    /// Starts a program in a process group of its own.
    pub fn start(&mut self, _start: &Start<'_>) -> Result<Child, StartError> {
        todo!()
    }
}

/// How a process ended, and what it used (getrusage(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, or signal number.
    pub status: Status,
    /// User CPU time.
    pub user: Duration,
    /// System CPU time.
    pub system: Duration,
    /// Peak resident set size, bytes.
    pub max_rss: u64,
}

/// Exit code or signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Status {
    Code(i32),
    Signal(i32),
}

/// A running process, head of its own process group. Dropping it kills the group and reaps the process.
#[derive(Debug)]
pub struct Child {
    _pidfd: OwnedFd,
}
