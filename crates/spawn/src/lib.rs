//! Starting, watching and ending the processes of galgo. No async runtime; the only crate with
//! `unsafe`.
//!
//! One way in: [`Spawner::start`] turns a [`Start`] into a [`Child`]. Dropping a [`Child`] ends its
//! whole process group. Linux 5.9 or later, x86_64 and aarch64.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod apart;
mod child;
mod claims;
mod direct;
mod domain;
mod env;
mod error;
mod exit;
mod file_id;
pub mod guard;
mod host_name;
pub mod identity;
mod inherited;
pub mod inspect;
mod key;
mod leftover;
mod listener;
mod memory;
mod own_child;
pub mod owners;
mod queue;
mod raw;
pub mod readable;
mod reaper;
mod refusable;
pub mod remote;
pub mod sandbox;
mod start;
pub mod template;
mod template_kind;
pub mod trusted_path;
pub mod words;

pub use apart::send_signal_to;
pub use child::{Child, group_members};
pub use direct::{Direct, leave_signals_to_others};
pub use domain::keeps_apart;
pub use env::{EnvBlock, STRING_MAX};
pub use error::{StartError, StartStage};
pub use exit::{Exit, Status};
pub use file_id::FileId;
pub use inherited::{first_is_from, inherited, may_close_ranges};
pub use listener::NamelessListener;
pub use memory::give_back_memory;
pub use own_child::kill;
pub use queue::unacknowledged;
pub use reaper::{end_orphans, keep_until_unread, wait_until_unread};
pub use refusable::limit_of;
pub use sandbox::{Outside, Sandbox};
pub use start::{FailedLaunch, Launch, LaunchOutcome, Limits, MORE_MAX, Priority, Start};

use std::{io, os::fd::BorrowedFd, sync::Arc};

/// Starts processes: vfork and exec from this process.
///
/// A spawner serves one thread; give each thread that starts programs its own, made early, while
/// descriptor numbers are low (see [`Direct`]).
#[derive(Debug)]
pub struct Spawner {
    /// `clone(CLONE_VM | CLONE_FILES | CLONE_PIDFD)`, with CLONE_VFORK or CLONE_CHILD_CLEARTID, and `execve`.
    direct: Direct,
    /// What starts the programs that are not to inherit what this thread has confined itself to.
    outside: Option<Arc<Outside>>,
}

impl Spawner {
    /// A spawner whose programs all inherit what the calling thread is confined to.
    pub fn direct() -> io::Result<Self> {
        let direct = Direct::several(1)?.pop();
        let direct = direct.ok_or(io::ErrorKind::Other)?;
        Ok(Self {
            direct,
            outside: None,
        })
    }

    /// A spawner of a process that has confined itself ([`sandbox::confine`]).
    pub fn new(direct: Direct, outside: Arc<Outside>) -> Self {
        Self {
            direct,
            outside: Some(outside),
        }
    }

    /// The file mode creation mask of programs, from the next start on; `None`, the default, is the server's.
    pub fn set_umask(&mut self, mask: Option<u32>) {
        self.direct.set_umask(mask);
    }

    /// The signal for when the thread that starts programs has ended; see [`Direct::set_orphaned`].
    pub fn set_orphaned(&mut self, signal: Option<i32>) {
        self.direct.set_orphaned(signal);
    }

    /// What it starts from now on enters no Landlock domain: for programs that make one of their own, with the same scopes.
    pub fn leave_domain_to_programs(&mut self) {
        self.direct.set_ruleset(None);
    }

    /// Starts a program in a process group of its own; when this returns, that group exists and the
    /// program has replaced the server's image. Blocks for the time of `execve`.
    pub fn start(&mut self, start: &Start<'_>) -> Result<Child, StartError> {
        let direct = &mut self.direct;
        match outside(&self.outside, start.sandbox, start.no_new_privs) {
            None => direct.start(start),
            Some(outside) => outside
                .start(|| direct.start(start))
                .unwrap_or_else(|| Err(StartError::errno(StartStage::Clone, libc::ESRCH))),
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
    ) -> Result<Child, Box<FailedLaunch>> {
        let direct = &mut self.direct;
        let Some(outside) = outside(&self.outside, launch.sandbox, launch.no_new_privs) else {
            return direct.launch(launch, stdio);
        };
        let mut launch = Some(launch);
        let started = outside.launch(|| launch.take().map(|launch| direct.launch(launch, stdio)));
        // INVARIANT: the thread lasts as long as the process, and has taken the launch.
        started.flatten().expect("the outside thread is there")
    }

    /// What has become of a start that this spawner launched. A failure is told once. Each call lets go of the
    /// descriptors of all that have begun.
    pub fn outcome(&mut self, child: &Child) -> LaunchOutcome {
        match child.remotely_started() {
            Some(remote) => remote.outcome(),
            None => self.direct.outcome(child),
        }
    }
}

/// What starts a program, where it is not the calling thread: a filter of system calls is only for those that can gain no
/// privileges, lest a program with privileges takes a refusal for something else.
fn outside(
    outside: &Option<Arc<Outside>>,
    sandbox: Sandbox,
    no_new_privs: bool,
) -> Option<&Outside> {
    let confined = sandbox == Sandbox::Standard && no_new_privs;
    outside.as_deref().filter(|_| !confined)
}
