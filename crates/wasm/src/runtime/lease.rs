//! The lease of a worker for one request, as the server sees it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{Exit, Status};
use rustix::process::Signal;

use super::{
    fault::StartFault,
    shared::{Runtime, WorkerHandle},
};
use crate::wire::{self, Message, ModuleDigest, RunOutcome};

/// The lease of a worker for one request.
#[derive(Debug)]
pub struct WorkerLease {
    runtime: Arc<Runtime>,
    link: Arc<WorkerHandle>,
    key: ModuleDigest,
}

impl WorkerLease {
    pub(super) fn new(runtime: Arc<Runtime>, link: Arc<WorkerHandle>, key: ModuleDigest) -> Self {
        Self { runtime, link, key }
    }

    /// Which worker: connections to it are good for as long as it is this one.
    pub fn worker(&self) -> usize {
        self.link.number
    }

    /// The worker takes no requests: another takes its place.
    pub fn stuck(&self) {
        self.runtime.is_stuck(&self.link);
    }

    /// A new connection to the worker: variables, with a [`wire::Run`] among them, go over it next, of one request
    /// after the other.
    ///
    /// # Errors
    /// [`StartFault::Busy`] where trying again may help.
    pub fn connect(&self) -> Result<OwnedFd, StartFault> {
        let (ours, theirs) = wire::connection()?;
        let message = Message::Connect.encode();
        match wire::send_message(&self.link.socket, &message, &[theirs.as_fd()]) {
            Ok(()) => Ok(ours),
            Err(e) => Err(match e.kind() {
                // Full, or the worker has just died: another is on its way.
                io::ErrorKind::WouldBlock
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset => StartFault::Busy,
                _ => e.into(),
            }),
        }
    }

    /// How the instance ended, as the END_REQUEST record says. A trap ends it by the signal that ends a native
    /// program of the same fault.
    ///
    /// # Errors
    /// It has not begun, for want of a thread.
    pub fn ended(&self, more: &[u8]) -> Result<Exit, StartFault> {
        match RunOutcome::decode(more) {
            Some(RunOutcome::Exit(exit)) => Ok(exit),
            Some(RunOutcome::NoThread) => Err(StartFault::Short),
            Some(RunOutcome::NoCode) => {
                self.runtime.lost(&self.key);
                Ok(KILLED)
            }
            // The last two are said by a user's own worker.
            None | Some(RunOutcome::Denied | RunOutcome::Bad) => Ok(KILLED),
        }
    }

    /// Whether the worker has ended; requests go to the next one then. That a connection has ended says nothing
    /// about the worker: it closes one whose answer the server broke off.
    pub fn has_lost_its_worker(&self) -> bool {
        let ended = self.link.has_ended();
        if ended {
            self.runtime.died(&self.link);
        }
        ended
    }
}

/// The end of an instance that could not say how it ended, as of a process that is killed.
pub const KILLED: Exit = Exit {
    status: Status::Signal(Signal::KILL.as_raw()),
    user: Duration::ZERO,
    system: Duration::ZERO,
    max_rss: 0,
};
