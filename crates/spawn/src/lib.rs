//! Starts, watches and ends the processes of galgo. There is no async runtime, and no other crate contains `unsafe`.
//!
//! The entry point is [`Spawner::start_program`], which turns a [`Start`] into a [`Child`]. Dropping a [`Child`] ends its whole process
//! group. Linux 5.9 or later, x86_64 and aarch64.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod apart;
mod child;
mod claims;
mod direct;
mod domain;
mod env;
mod exit;
mod file_id;
pub mod glob;
pub mod guard;
pub mod hanging;
mod helper;
mod host_name;
pub mod identity;
mod inherited;
pub mod inspect;
mod key;
mod leftover;
mod listener;
pub mod lock;
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
pub mod spawner;
mod standard_ruleset;
mod start;
mod start_error;
pub mod template;
mod template_failure;
mod template_kind;
pub mod trusted_path;
pub mod words;

pub use crate::start_error::{StartError, StartStage};
pub use apart::send_signal_to;
pub use child::{Child, group_members};
pub use direct::{Direct, leave_signals_to_others};
pub use domain::keeps_apart;
pub use env::{EnvBlock, STRING_MAX};
pub use exit::{Exit, Status};
pub use file_id::FileId;
pub use inherited::{first_socket_creator, may_close_ranges, take_inherited, take_spawner_socket};
pub use listener::NamelessListener;
pub use memory::give_back_memory;
pub use own_child::kill_by_pidfd;
pub use queue::unacknowledged_bytes;
pub use reaper::{end_orphans, keep_until_unread, wait_until_unread};
pub use refusable::resource_limit;
pub use remote::shortage::is_short;
pub use sandbox::{Outside, Sandbox};
pub use start::{FailedLaunch, Launch, LaunchOutcome, Limits, MORE_MAX, Priority, Start};

use std::{io, os::fd::BorrowedFd, sync::Arc};

/// Starts processes: vfork and exec from this process.
///
/// A spawner serves a single thread. Give each thread that starts programs its own, made early, while descriptor numbers are
/// low (see [`Direct`]).
#[derive(Debug)]
pub struct Spawner {
    /// `clone(CLONE_VM | CLONE_FILES | CLONE_PIDFD)`, with CLONE_VFORK or CLONE_CHILD_CLEARTID, and `execve`.
    direct: Direct,
    /// Starts programs that must not inherit the restrictions of this thread.
    outside: Option<Arc<Outside>>,
}

impl Spawner {
    /// Makes a spawner whose programs all inherit the restrictions of the calling thread.
    pub fn direct() -> io::Result<Self> {
        let direct = Direct::for_threads(1)?.pop();
        let direct = direct.ok_or(io::ErrorKind::Other)?;
        Ok(Self {
            direct,
            outside: None,
        })
    }

    /// Makes a spawner of a process that has confined itself ([`sandbox::confine`]).
    pub fn new(direct: Direct, outside: Arc<Outside>) -> Self {
        Self {
            direct,
            outside: Some(outside),
        }
    }

    /// Sets the file mode creation mask of programs, from the next start on; `None`, the default, keeps the server's.
    pub fn set_umask(&mut self, mask: Option<u32>) {
        self.direct.set_umask(mask);
    }

    /// Sets the signal that programs get when the thread that started them has ended; see [`Direct::set_orphaned`].
    pub fn set_orphaned(&mut self, signal: Option<i32>) {
        self.direct.set_orphaned(signal);
    }

    /// Starts programs in no Landlock domain from now on: for programs that make their own domain, with the same scopes.
    pub fn leave_domain_to_programs(&mut self) {
        self.direct.set_ruleset(None);
    }

    /// Starts a program in its own process group. When this returns, that group exists and the program has replaced the
    /// server's image. Blocks for the time of `execve`.
    pub fn start_program(&mut self, start: &Start<'_>) -> Result<Child, StartError> {
        let direct = &mut self.direct;
        match select_outside(&self.outside, start.sandbox, start.no_new_privs) {
            None => direct.start_program(start),
            Some(outside) => outside
                .run_start(|| direct.start_program(start))
                .unwrap_or_else(|| Err(StartError::from_errno(StartStage::Clone, libc::ESRCH))),
        }
    }

    /// Starts a program like [`start_program`](Self::start_program), without waiting for `execve`, which may take long if the program's file
    /// system does not answer. [`outcome`](Self::outcome) tells how the start ended. Until then the program's group may not
    /// exist. This process also keeps a copy of the ends of pipes that the program was given, so the other end does not see the
    /// end of file. This waits for no launch under way, and there is no limit on their number: the caller must limit them.
    pub fn launch(
        &mut self,
        launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Child, Box<FailedLaunch>> {
        let direct = &mut self.direct;
        let Some(outside) = select_outside(&self.outside, launch.sandbox, launch.no_new_privs)
        else {
            return direct.launch(launch, stdio);
        };
        let mut launch = Some(launch);
        let started =
            outside.run_launch(|| launch.take().map(|launch| direct.launch(launch, stdio)));
        // INVARIANT: the thread lasts as long as the process, and has taken the launch.
        started.flatten().expect("the outside thread is there")
    }

    /// Returns the outcome of a start that this spawner launched. A failure is reported only once. Each call closes this
    /// process's copies of the descriptors of all programs that have begun.
    pub fn outcome(&mut self, child: &Child) -> LaunchOutcome {
        match child.as_remote() {
            Some(remote) => remote.outcome(),
            None => self.direct.outcome(child),
        }
    }
}

/// Returns the threads that must start a program, if the calling thread must not. Only programs that can gain no privileges get
/// a filter of system calls: a program with privileges might take a refusal for another error.
fn select_outside(
    outside: &Option<Arc<Outside>>,
    sandbox: Sandbox,
    no_new_privs: bool,
) -> Option<&Outside> {
    let confined = sandbox == Sandbox::Standard && no_new_privs;
    outside.as_deref().filter(|_| !confined)
}
