//! Which worker serves a connection.
//!
//! As many workers as there are processors accept connections, each from a queue of its own, and keep
//! them: files and constant answers gain nothing from more. A worker waits in clone3 for the execve of a program that
//! is fed a body; so connections whose requests start programs are spread over all workers, and while there are such,
//! those beyond the number of processors (`workers`) help to accept.

use std::{
    cell::Cell,
    ops::Range,
    rc::Rc,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    config,
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
    /// This worker has been asked to help accept.
    help: AtomicBool,
}

/// Without a program for this long, nobody helps to accept any more.
const HELP: Duration = Duration::from_secs(1);

/// A worker that does not accept connections helps one that does while that starts programs.
#[derive(Debug, Default)]
pub struct Help {
    asked: Notify,
    begins: Notify,
    ends: Notify,
}

impl Help {
    /// Another worker has started a program.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Help is wanted from now on.
    pub async fn begins(&self) {
        self.begins.notified().await;
    }

    /// Help has been wanted, and is no more.
    pub async fn ends(&self) {
        self.ends.notified().await;
    }

    /// Says when help is wanted of the worker with that load; never ends.
    pub async fn run(&self, load: &Load) {
        loop {
            self.asked.notified().await;
            self.begins.notify_waiters();
            while load.help.swap(false, Ordering::Relaxed) {
                tokio::time::sleep(HELP).await;
            }
            self.ends.notify_waiters();
        }
    }
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

/// How many of `workers` accept connections, the first of them.
pub fn accepting(workers: usize) -> usize {
    workers.min(config::cores())
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
        let Server {
            peers, accepting, ..
        } = &*self.worker.server;
        let accepting = *accepting;
        if self.worker.index >= accepting {
            return;
        }
        for helper in peers
            .iter()
            .skip(self.worker.index + accepting)
            .step_by(accepting)
        {
            let asked = &helper.load.help;
            // A worker that has ended needs no help asked of it.
            if !asked.load(Ordering::Relaxed) && !asked.swap(true, Ordering::Relaxed) {
                let _ = helper.give.send(Handed::Help);
            }
        }
    }

    /// The worker that should have it now that a request is over, where that is another one.
    pub fn elsewhere(&self) -> Option<usize> {
        let server = &self.worker.server;
        let (peers, own) = (&server.peers, self.worker.index);
        match self.asked.get() {
            Asked::Programs => least(|i| peers[i].load.programs(), 0..peers.len(), own),
            // The kernel's queues may have given one worker many, and another few.
            Asked::Nothing => {
                self.asked.set(Asked::Other);
                least(|i| peers[i].load.connections(), 0..server.accepting, own)
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
fn least(load: impl Fn(usize) -> usize, among: Range<usize>, own: usize) -> Option<usize> {
    let least = among.min_by_key(|&i| load(i))?;
    (load(own) > load(least) + 1).then_some(least)
}

/// Serves a new connection here, or where fewer connections start programs.
pub fn place(worker: &Rc<Worker>, accepted: Accepted) {
    let server = &worker.server;
    let programs = |i: usize| server.peers[i].load.programs();
    let least = (0..server.peers.len()).min_by_key(|&i| programs(i));
    match least {
        Some(least) if programs(least) < programs(worker.index) => give(server, least, accepted),
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
        assert_eq!(least(load([5, 3, 4, 9]), 0..4, 0), Some(1));
        assert_eq!(least(load([4, 3, 4, 4]), 0..4, 0), None);
        assert_eq!(least(load([3, 3, 3, 3]), 0..4, 2), None);
        assert_eq!(least(load([3, 3, 0, 0]), 0..2, 0), None);
        // A worker that only helps gives what it should not keep to one that accepts.
        assert_eq!(least(load([1, 0, 0, 2]), 0..2, 3), Some(1));
    }
}
