//! A running instance, as the server sees it.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{Exit, Status};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown},
};

use super::Runtime;
use crate::wire::{Ended, Key, take_ended};

/// What ends a worker, and so its instances.
const SIGKILL: i32 = 9;

/// A running program. Its descriptor becomes readable when it has ended; dropping it ends it.
#[derive(Debug)]
pub struct Instance {
    control: OwnedFd,
    runtime: Arc<Runtime>,
    /// The worker it runs in, by the socket to it.
    link: Arc<OwnedFd>,
    key: Key,
    exit: Option<Exit>,
}

impl Instance {
    pub(super) fn new(
        control: OwnedFd,
        runtime: Arc<Runtime>,
        link: Arc<OwnedFd>,
        key: Key,
    ) -> Self {
        Self {
            control,
            runtime,
            link,
            key,
            exit: None,
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        self.exit.is_some() || matches!(poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// How it ended, or `None` while it runs; the same answer when asked again. A trap ends it by the
    /// signal that ends a native program of the same fault, the worker's death by SIGKILL.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() {
            self.exit = match take_ended(&self.control) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Ok(Some(Ended::Exit(exit))) => Some(exit),
                Ok(Some(Ended::NoCode)) => {
                    self.runtime.lost(&self.key);
                    Some(killed())
                }
                Ok(None) | Err(_) => {
                    self.runtime.died(&self.link);
                    Some(killed())
                }
            };
        }
        Ok(self.exit)
    }

    /// Ends it. Guests have no signals, so there is no asking first.
    pub fn end(&self) {
        // It fails only where the worker is gone.
        let _ = shutdown(&self.control, Shutdown::Write);
    }
}

fn killed() -> Exit {
    Exit {
        status: Status::Signal(SIGKILL),
        user: Duration::ZERO,
        system: Duration::ZERO,
        max_rss: 0,
    }
}

impl AsFd for Instance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

impl AsRawFd for Instance {
    fn as_raw_fd(&self) -> RawFd {
        self.control.as_raw_fd()
    }
}
