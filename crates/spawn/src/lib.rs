//! Starting, watching and ending the processes of galgo. No async runtime; the only crate with
//! `unsafe`.
//!
//! One way in: [`Spawner::start`] turns a [`Start`] into a [`Child`]. Dropping a [`Child`] ends its
//! whole process group. Linux 5.9 or later, x86_64 and aarch64.

mod child;
mod claims;
mod direct;
mod domain;
mod env;
mod error;
mod file_id;
pub mod identity;
pub mod inspect;
mod queue;
mod raw;
mod reaper;
pub mod template;
pub mod words;

pub use child::{Child, Exit, Status, group_members};
pub use direct::{Direct, Failed, Outcome};
pub use domain::keeps_apart;
pub use env::{EnvBlock, STRING_MAX, TooLong};
pub use error::{Stage, StartError};
pub use file_id::FileId;
pub use queue::unacknowledged;
pub use reaper::reap_strangers;
use std::{
    ffi::CString,
    io,
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
    /// RLIMIT_AS, bytes.
    pub memory: Option<u64>,
    /// RLIMIT_FSIZE, bytes.
    pub file_size: Option<u64>,
    /// RLIMIT_NOFILE. A server that raised its own soft limit should set this: programs that use
    /// select(2) or close every possible descriptor expect 1024.
    pub open_files: Option<u64>,
    /// RLIMIT_NPROC. Counts every process and thread of the user, the server's own among them.
    pub processes: Option<u64>,
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
}

/// What to start without waiting for it: as [`Start`], but for the standard descriptors.
#[derive(Debug)]
pub struct Launch {
    /// The arguments, `argv[0]` first, which is also the absolute path given to `execve`. Never empty.
    pub args: Vec<CString>,
    /// The whole environment.
    pub env: EnvBlock,
    /// The working directory, absolute.
    pub dir: CString,
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// Its descriptors from 3 on, as those of a [`Start`].
    pub more: Vec<OwnedFd>,
    /// Where the program cannot be executed the child writes one zero byte to its standard output, where it has that
    /// already, and ends: who waits for output learns of it.
    pub knocks: bool,
}

impl Launch {
    /// The same as a start, but for the descriptors from 3 on.
    fn start<'a>(&'a self, stdio: [BorrowedFd<'a>; 3]) -> Start<'a> {
        Start {
            path: &self.args[0],
            args: &self.args,
            env: &self.env,
            dir: &self.dir,
            stdio,
            more: &[],
            limits: self.limits,
            no_new_privs: self.no_new_privs,
        }
    }
}

/// How processes are started. Direct: vfork and exec from this process.
///
/// A spawner serves one thread; give each thread that starts programs its own, made early, while
/// descriptor numbers are low (see [`Direct`]).
#[derive(Debug)]
pub enum Spawner {
    /// `clone3(CLONE_VM | CLONE_FILES | CLONE_PIDFD | CLONE_CLEAR_SIGHAND)`, with CLONE_VFORK or CLONE_CHILD_CLEARTID,
    /// and `execve`; clone(2), where a filter of system calls keeps clone3 away.
    Direct(Direct),
}

impl Spawner {
    /// A spawner that starts programs from this process, with or without waiting.
    pub fn direct() -> io::Result<Self> {
        let direct = Direct::several(1)?.pop();
        direct
            .map(Self::Direct)
            .ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// The file mode creation mask of programs, from the next start on.
    pub fn set_umask(&mut self, mask: u32) {
        match self {
            Self::Direct(direct) => direct.set_umask(Some(mask)),
        }
    }

    /// What it starts from now on enters no Landlock domain: for programs that make one of their own, with the same scopes.
    pub fn leave_domain_to_programs(&mut self) {
        match self {
            Self::Direct(direct) => direct.leave_domain_to_programs(),
        }
    }

    /// Starts a program in a process group of its own; when this returns, that group exists and the
    /// program has replaced the server's image. Blocks for the time of `execve`.
    pub fn start(&mut self, start: &Start<'_>) -> Result<Child, StartError> {
        match self {
            Self::Direct(direct) => direct.start(start),
        }
    }
    /// Starts a program as [`start`](Self::start) does, without waiting for `execve`: that may take long where the
    /// program lies on a file system that does not answer. What has become of it is asked for by
    /// [`outcome`](Self::outcome): until then its group may not exist, and pipes whose ends it was given have another
    /// end here, so that their other end does not see the end of file. It waits for none of those that are under way,
    /// however many there are: whoever launches bounds them.
    pub fn launch(
        &mut self,
        launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Child, Box<Failed>> {
        match self {
            Self::Direct(direct) => direct.launch(launch, stdio),
        }
    }

    /// What has become of a start that this spawner launched. A failure is told once. Whoever asks for any lets go of the
    /// descriptors of all that have begun.
    pub fn outcome(&mut self, child: &Child) -> Outcome {
        match self {
            Self::Direct(direct) => direct.outcome(child),
        }
    }
}
