//! What the event loops of a server share, and what they hand each other.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use galgo_service::{log::Logs, phase::Phase};
use tokio::sync::{mpsc, oneshot, watch};

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
    /// To be dropped when the event loop comes to it ([`all_come_to`]).
    Probe(Arc<oneshot::Sender<()>>),
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
        let given = self.loops[shed.at.event_loop].hand(Handed::Shed(shed));
        given.is_ok()
    }

    /// Whether each connection ends with the request that it has.
    pub(crate) fn draining(&self) -> bool {
        self.reached(Phase::HandedOver)
    }

    /// Whether connections that have had a request, and have none now, end.
    pub(crate) fn ends_idle(&self) -> bool {
        self.reached(Phase::Draining)
    }

    fn reached(&self, phase: Phase) -> bool {
        // Asked several times a request: one load, as long as there was no other phase.
        !matches!(self.phase.has_changed(), Ok(false)) && *self.phase.borrow() >= phase
    }
}

/// Ends when each of these event loops has come to what it was handed before, and knows of the phase of now.
pub fn all_come_to<S>(loops: &[Handle<S>]) -> oneshot::Receiver<()> {
    let (probe, dropped) = oneshot::channel();
    let probe = Arc::new(probe);
    for event_loop in loops {
        let _ = event_loop.hand(Handed::Probe(probe.clone()));
    }
    dropped
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

    /// Hands it something to do.
    ///
    /// # Errors
    /// It takes nothing any more, for the server drains: what it was to be handed.
    pub fn hand(&self, handed: Handed<S>) -> Result<(), Handed<S>> {
        let is_connection = matches!(handed, Handed::Connection(_));
        if is_connection {
            self.count();
        }
        let given = self.give.send(handed);
        if is_connection && given.is_err() {
            drop(self.counted());
        }
        given.map_err(|refused| refused.0)
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
