//! The server's side of an upgrade: it has the spawner start the server that is to take its place.

use super::front::Owners;
use crate::remote::{child::number, message::Order};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{os::fd::OwnedFd, sync::Arc};

/// How long a server that has closed its socket may take to end.
const ENDS_WITHIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A server that the spawner has started. If it does not serve yet, it ends when this is dropped.
#[derive(Debug)]
pub struct StartedServer {
    pid: i32,
    pidfd: OwnedFd,
    /// `None`: its end is known, or not this one's to order.
    owners: Option<Arc<Owners>>,
}

impl Owners {
    /// Has the spawner start another server in the place of this one: that, and a socket to it. Blocks until it is executed.
    ///
    /// # Errors
    /// It was not started, in words.
    pub fn upgrade(self: &Arc<Self>) -> Result<(StartedServer, OwnedFd), String> {
        let sent = self.order(Order::Upgrade)?;
        let sent = <[OwnedFd; 2]>::try_from(sent);
        let [line, pidfd] = sent.map_err(|_| "the spawner has sent no socket")?;
        let server = StartedServer {
            pid: number(&pidfd),
            pidfd,
            owners: Some(self.clone()),
        };
        Ok((server, line))
    }
}

impl StartedServer {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it go on when this is gone.
    pub fn let_go(mut self) {
        self.owners = None;
    }

    /// It has closed its socket: how it ended. If it does not, it is ended.
    pub fn ended(mut self) -> String {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&ENDS_WITHIN));
        self.end()
            .unwrap_or_else(|| "it ended before it was ready".into())
    }

    fn end(&mut self) -> Option<String> {
        let owners = self.owners.take()?;
        owners.order(Order::EndUpgrade).err()
    }
}

impl Drop for StartedServer {
    fn drop(&mut self) {
        self.end();
    }
}
