//! The server's side of an upgrade: it asks the spawner to start the server that takes its place.

use super::front::Owners;
use crate::remote::{child::pid_of_pidfd, message::Order};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{os::fd::OwnedFd, sync::Arc};

/// Time for a server that has closed its socket to end.
const ENDS_WITHIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A server that the spawner has started. If it does not serve yet, dropping this value ends it.
#[derive(Debug)]
pub struct StartedServer {
    pid: i32,
    pidfd: OwnedFd,
    /// `None`: the end of the server is known, or is not up to this process.
    owners: Option<Arc<Owners>>,
}

impl Owners {
    /// Makes the spawner start another server in the place of this one. Returns that server, and a socket to it. Blocks until
    /// the server is executed.
    ///
    /// # Errors
    /// The server was not started. The error is a sentence for the log.
    pub fn upgrade(self: &Arc<Self>) -> Result<(StartedServer, OwnedFd), String> {
        let sent = self.send_order(Order::Upgrade)?;
        let sent = <[OwnedFd; 2]>::try_from(sent);
        let [line, pidfd] = sent.map_err(|_| "the spawner has sent no socket")?;
        let server = StartedServer {
            pid: pid_of_pidfd(&pidfd),
            pidfd,
            owners: Some(self.clone()),
        };
        Ok((server, line))
    }
}

impl StartedServer {
    /// Returns the server's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Keeps the server running when this value is dropped.
    pub fn let_go(mut self) {
        self.owners = None;
    }

    /// Returns how the server ended, after it has closed its socket. Ends the server if it still runs.
    pub fn end_and_describe(mut self) -> String {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&ENDS_WITHIN));
        self.cancel_upgrade()
            .unwrap_or_else(|| "it ended before it was ready".into())
    }

    fn cancel_upgrade(&mut self) -> Option<String> {
        let owners = self.owners.take()?;
        owners.send_order(Order::EndUpgrade).err()
    }
}

impl Drop for StartedServer {
    fn drop(&mut self) {
        self.cancel_upgrade();
    }
}
