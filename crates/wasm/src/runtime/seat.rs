//! A connection to the worker, as the server sees it.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use galgo_spawn::{Exit, Status};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{Runtime, lock};
use crate::wire::{Ended, Key};

/// What ends a worker, and so its instances.
const SIGKILL: i32 = 9;

/// A connection that waits for its next request, and the worker it leads to.
#[derive(Debug)]
pub(super) struct Kept {
    fd: OwnedFd,
    pub(super) link: Arc<OwnedFd>,
}

impl Kept {
    /// The connection, unless it has been closed meanwhile.
    pub(super) fn open(self) -> Option<OwnedFd> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = recv(&self.fd, &mut [0_u8; 1][..], flags);
        matches!(peeked, Err(Errno::AGAIN)).then_some(self.fd)
    }
}

/// The place of one request at the worker.
#[derive(Debug)]
pub struct Seat {
    runtime: Arc<Runtime>,
    /// The worker it runs in, by the socket to it.
    link: Arc<OwnedFd>,
    key: Key,
}

impl Seat {
    pub(super) fn new(runtime: Arc<Runtime>, link: Arc<OwnedFd>, key: Key) -> Self {
        Self { runtime, link, key }
    }

    /// How the instance ended, as END_REQUEST says. A trap ends it by the signal that ends a native
    /// program of the same fault.
    pub fn ended(&self, more: &[u8]) -> Exit {
        match Ended::decode(more) {
            Some(Ended::Exit(exit)) => exit,
            Some(Ended::NoCode) => {
                self.runtime.lost(&self.key);
                KILLED
            }
            None => KILLED,
        }
    }

    /// The connection has ended before it said how: with the worker, which ends by SIGKILL.
    pub fn gone(&self) -> Exit {
        self.runtime.died(&self.link);
        KILLED
    }

    /// The request is over and nothing was wrong: keeps the connection for another.
    pub fn give_back(self, fd: OwnedFd) {
        let Self { runtime, link, .. } = self;
        let mut kept = lock(&runtime.kept);
        if kept.len() < runtime.settings.instances {
            kept.push(Kept { fd, link });
        }
    }
}

const KILLED: Exit = Exit {
    status: Status::Signal(SIGKILL),
    user: Duration::ZERO,
    system: Duration::ZERO,
    max_rss: 0,
};
