//! Which worker serves a connection.
//!
//! Each accepts connections from a queue of its own, which the kernel fills, or one of them does for all
//! (`Listener::hands_over`): that one hands each to where there are fewest.

use std::{
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    listen::Accepted,
    worker::{Handed, Peer, Worker},
};

/// Connections of one worker. A line of the cache for each: they change with every connection.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Load(AtomicUsize);

impl Load {
    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn uncount(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection, counted among those of its worker until it ends.
#[derive(Debug)]
pub struct Count<'w>(&'w Load);

impl<'w> Count<'w> {
    /// A connection that [`place`] gave to `worker`.
    pub fn new(worker: &'w Worker) -> Self {
        Self(&worker.server.peers[worker.index].load)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.uncount();
    }
}

/// Serves a new connection here; where no other event loop accepts from its listener (`alone`), on the worker that has
/// fewest.
pub fn place(worker: &Rc<Worker>, accepted: Accepted, alone: bool) {
    let peers = &worker.server.peers;
    let connections = |i: &usize| peers[*i].load.connections();
    let least = (0..peers.len()).min_by_key(connections);
    let elsewhere = |&least: &usize| alone && connections(&least) < connections(&worker.index);
    let Some(to) = least.filter(elsewhere) else {
        peers[worker.index].load.count();
        return crate::conn::start(worker.clone(), accepted);
    };
    let Peer { load, give, .. } = &peers[to];
    load.count();
    // It takes none any more: the server drains.
    if give.send(Handed::Connection(accepted)).is_err() {
        load.uncount();
    }
}
