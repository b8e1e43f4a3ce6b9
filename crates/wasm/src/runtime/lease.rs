//! The lease of a worker for one request, as the server sees it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{Exit, Status};
use rustix::process::Signal;

use super::fault::StartFault;
use crate::{
    runtime::runtime_state::{Runtime, WorkerHandle},
    wire::{self, Message, ModuleDigest, RunOutcome},
};

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

    /// Returns the number of the worker: a connection is valid as long as the number is the same.
    pub fn worker(&self) -> usize {
        self.link.number
    }

    /// Reports that the worker takes no requests, so that another worker replaces it.
    pub fn stuck(&self) {
        self.runtime.is_stuck(&self.link);
    }

    /// Opens a new connection to the worker. It carries requests one after the other, each beginning with
    /// variables, among them a [`wire::Run`].
    ///
    /// # Errors
    /// [`StartFault::Busy`] if trying again may help.
    pub fn connect(&self) -> Result<OwnedFd, StartFault> {
        let (ours, theirs) = wire::connection_pair()?;
        let message = Message::Connect.encode();
        match wire::send_message(&self.link.socket, &message, &[theirs.as_fd()]) {
            Ok(()) => Ok(ours),
            Err(e) => Err(match e.kind() {
                // The socket is full, or the worker has just died: another worker is on its way.
                io::ErrorKind::WouldBlock
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset => StartFault::Busy,
                _ => e.into(),
            }),
        }
    }

    /// Returns the exit of the instance from the END_REQUEST record. A trap ends the instance by the signal that
    /// ends a native program of the same fault.
    ///
    /// # Errors
    /// The instance has not begun, because the worker had no thread for it.
    pub fn ended(&self, more: &[u8]) -> Result<Exit, StartFault> {
        match RunOutcome::decode(more) {
            Some(RunOutcome::Exit(exit)) => Ok(exit),
            Some(RunOutcome::NoThread) => Err(StartFault::Short),
            Some(RunOutcome::NoCode) => {
                self.runtime.lost(&self.key);
                Ok(KILLED)
            }
            // Only a user's own worker sends the last two.
            None | Some(RunOutcome::Denied | RunOutcome::Bad) => Ok(KILLED),
        }
    }

    /// Whether the worker has ended; requests go to the next worker then. The end of a connection says nothing
    /// about the worker, which closes a connection whose answer the server broke off.
    pub fn has_lost_its_worker(&self) -> bool {
        let ended = self.link.has_ended();
        if ended {
            self.runtime.died(&self.link);
        }
        ended
    }
}

/// The exit of an instance that could not report how it ended: that of a killed process.
pub const KILLED: Exit = Exit {
    status: Status::Signal(Signal::KILL.as_raw()),
    user: Duration::ZERO,
    system: Duration::ZERO,
    max_rss: 0,
};
