//! Which worker serves a connection.
//!
//! Each accepts connections from a queue of its own, or one of them does for all (`Listener::hands_over`). The kernel
//! fills the queues as it happens, and programs keep a worker busier than files do: so connections move, between
//! requests, to where there are fewer of their kind.

use std::{
    cell::Cell,
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    listen::Accepted,
    worker::{Handed, Peer, Server, Worker},
};

/// What a connection was asked for on the worker that had it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is new.
    Nothing,
    /// At least once for a program.
    Programs,
    /// For anything else.
    Other,
}

/// Connections of one worker. A line of the cache for each: they change with every connection.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Load {
    connections: AtomicUsize,
    /// Those that were asked for a program.
    programs: AtomicUsize,
}

impl Load {
    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn programs(&self) -> usize {
        self.programs.load(Ordering::Relaxed)
    }
}

/// A connection, counted among those of its worker until it ends or moves.
#[derive(Debug)]
pub struct Count<'w> {
    worker: &'w Worker,
    asked: Cell<Asked>,
}

impl<'w> Count<'w> {
    /// A connection that [`place`] or [`Count::hand_on`] gave to `worker`.
    pub fn new(worker: &'w Worker, asked: Asked) -> Self {
        Self {
            worker,
            asked: Cell::new(asked),
        }
    }

    /// A request on it starts a program.
    pub fn starts_program(&self) {
        if self.asked.replace(Asked::Programs) != Asked::Programs {
            self.load().programs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The worker that should have it now that a request is over, where that is another one.
    pub fn elsewhere(&self) -> Option<usize> {
        let (peers, own) = (&self.worker.server.peers, self.worker.index);
        match self.asked.get() {
            Asked::Programs => least(|i| peers[i].load.programs(), peers.len(), own),
            Asked::Nothing => {
                self.asked.set(Asked::Other);
                least(|i| peers[i].load.connections(), peers.len(), own)
            }
            Asked::Other => None,
        }
    }

    /// Gives it to another worker.
    pub fn hand_on(self, to: usize, accepted: Accepted) {
        let server = self.worker.server.clone();
        let asked = self.asked.get();
        // Counted off first: together they never seem to be one more.
        drop(self);
        give(&server, to, Accepted { asked, ..accepted });
    }

    fn load(&self) -> &Load {
        &self.worker.server.peers[self.worker.index].load
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        uncount(self.load(), self.asked.get());
    }
}

/// Whose load is the least, if it would be less than `own` has even with one of its.
fn least(load: impl Fn(usize) -> usize, workers: usize, own: usize) -> Option<usize> {
    let least = (0..workers).min_by_key(|&i| load(i))?;
    (load(own) > load(least) + 1).then_some(least)
}

/// Serves a new connection here, or where fewer connections start programs. Where `alone`, no other event loop
/// accepts from this listener: then it goes to where there are fewest, too.
pub fn place(worker: &Rc<Worker>, accepted: Accepted, alone: bool) {
    let server = &worker.server;
    let load = |i: usize| {
        let load = &server.peers[i].load;
        let connections = if alone { load.connections() } else { 0 };
        (load.programs(), connections)
    };
    let least = (0..server.peers.len()).min_by_key(|&i| load(i));
    match least {
        Some(least) if load(least) < load(worker.index) => give(server, least, accepted),
        _ => {
            count(&server.peers[worker.index].load, accepted.asked);
            crate::conn::start(worker.clone(), accepted);
        }
    }
}

fn give(server: &Server, to: usize, accepted: Accepted) {
    let Peer { load, give, .. } = &server.peers[to];
    let asked = accepted.asked;
    count(load, asked);
    // It takes none any more: the server drains.
    if give.send(Handed::Connection(accepted)).is_err() {
        uncount(load, asked);
    }
}

fn count(load: &Load, asked: Asked) {
    load.connections.fetch_add(1, Ordering::Relaxed);
    if asked == Asked::Programs {
        load.programs.fetch_add(1, Ordering::Relaxed);
    }
}

fn uncount(load: &Load, asked: Asked) {
    load.connections.fetch_sub(1, Ordering::Relaxed);
    if asked == Asked::Programs {
        load.programs.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_to_and_fro() {
        let load = |loads: [usize; 4]| move |i: usize| loads[i];
        assert_eq!(least(load([5, 3, 4, 9]), 4, 0), Some(1));
        assert_eq!(least(load([4, 3, 4, 4]), 4, 0), None);
        assert_eq!(least(load([3, 3, 3, 3]), 4, 2), None);
        assert_eq!(least(load([3, 1, 0, 0]), 4, 1), None);
    }
}
