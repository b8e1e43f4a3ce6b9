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
mod exit;
mod file_id;
pub mod identity;
pub mod inspect;
mod queue;
mod raw;
mod reaper;
mod start;
pub mod template;
pub mod words;

pub use child::{Child, group_members};
pub use direct::{Direct, Failed, LaunchOutcome};
pub use domain::keeps_apart;
pub use env::{EnvBlock, STRING_MAX, TooLong};
pub use error::{Stage, StartError};
pub use exit::{Exit, Status};
pub use file_id::FileId;
pub use queue::unacknowledged;
pub use reaper::reap_strangers;
pub use start::{Launch, Limits, MORE_MAX, Start};

use std::{io, os::fd::BorrowedFd};

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
    /// however many there are: the caller bounds them.
    pub fn launch(
        &mut self,
        launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Child, Box<Failed>> {
        match self {
            Self::Direct(direct) => direct.launch(launch, stdio),
        }
    }

    /// What has become of a start that this spawner launched. A failure is told once. Each call lets go of the
    /// descriptors of all that have begun.
    pub fn outcome(&mut self, child: &Child) -> LaunchOutcome {
        match self {
            Self::Direct(direct) => direct.outcome(child),
        }
    }
}
