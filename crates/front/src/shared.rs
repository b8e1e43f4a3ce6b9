//! What the event loops of a server share, and what they hand each other.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering},
};

use galgo_service::{log::Logs, phase::Phase};
use tokio::sync::{mpsc, watch};

use crate::{
    crowd::{Crowd, Shed},
    settings::Speaks,
    site::NewSite,
};

/// What all event loops share, whatever is configured.
#[derive(Debug)]
pub struct Shared<S> {
    /// The logs.
    pub logs: Logs,
    /// All event loops, each at its index.
    pub loops: Vec<Handle<S>>,
    /// All connections, by the address they come from.
    pub(crate) crowd: Crowd,
    /// Whether the server is still taking requests.
    pub phase: watch::Receiver<Phase>,
}

/// An event loop, as other threads reach it.
#[derive(Debug)]
pub struct Handle<S> {
    connections: Connections,
    give: mpsc::UnboundedSender<Handed<S>>,
}

/// What an event loop is handed.
pub enum Handed<S> {
    /// A site for the requests to come.
    Site(NewSite<S>),
    /// A connection to serve.
    Connection(Accepted),
    /// Another connection needs room: this one closes if it is still idle.
    Shed(Shed),
}

/// A connection that has been accepted and is not served yet.
#[derive(Debug)]
pub struct Accepted {
    /// The socket.
    pub fd: OwnedFd,
    /// The client; `None` for a Unix socket.
    pub remote: Option<SocketAddr>,
    /// Our address, where it is the same for all connections of the listener.
    pub local: Option<SocketAddr>,
    /// What is spoken on it.
    pub speaks: Speaks,
}

/// How many connections an event loop has. A cache line for each: they change with every connection.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Connections(AtomicUsize);

/// A connection, counted among those of its event loop until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted<'l>(&'l Connections);

impl<S> Shared<S> {
    /// No connection has come yet.
    pub fn new(logs: Logs, loops: Vec<Handle<S>>, phase: watch::Receiver<Phase>) -> Self {
        Self {
            logs,
            loops,
            crowd: Crowd::default(),
            phase,
        }
    }

    /// Has a connection closed. False where its event loop has ended.
    pub(crate) fn shed(&self, shed: Shed) -> bool {
        self.loops[shed.at.event_loop].hand(Handed::Shed(shed))
    }

    /// Whether no more requests are taken.
    pub(crate) fn draining(&self) -> bool {
        // Asked several times a request: one load, as long as there was no other phase.
        !matches!(self.phase.has_changed(), Ok(false)) && *self.phase.borrow() != Phase::Serving
    }
}

impl<S> Handle<S> {
    /// An event loop without connections, and where it is handed some.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Handed<S>>) {
        let (give, given) = mpsc::unbounded_channel();
        let handle = Self {
            connections: Connections::default(),
            give,
        };
        (handle, given)
    }

    /// Hands it something to do. False: it takes nothing any more, for the server drains.
    pub fn hand(&self, handed: Handed<S>) -> bool {
        let is_connection = matches!(handed, Handed::Connection(_));
        if is_connection {
            self.count();
        }
        let taken = self.give.send(handed).is_ok();
        if is_connection && !taken {
            drop(self.counted());
        }
        taken
    }

    /// How many connections it has.
    pub(crate) fn connections(&self) -> usize {
        self.connections.0.load(Ordering::Relaxed)
    }

    /// It has one connection more, which [`Handle::counted`] takes over.
    pub(crate) fn count(&self) {
        self.connections.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection that has been counted already.
    pub(crate) fn counted(&self) -> Counted<'_> {
        Counted(&self.connections)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
