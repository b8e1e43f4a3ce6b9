//! State that the event loops of a server share, and the messages that they hand each other.

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
    front_settings::Speaks,
    site::NewSite,
};

/// State that all event loops share and no configuration changes.
#[derive(Debug)]
pub struct Shared<S> {
    /// The logs.
    pub logs: Logs,
    /// The event loops, by index.
    pub loops: Vec<Handle<S>>,
    /// The connections of the server, by the address they come from.
    pub(crate) crowd: Crowd,
    /// The phase of the server: it tells whether requests are still taken.
    pub phase: watch::Receiver<Phase>,
}

/// The handle of an event loop, for other threads.
#[derive(Debug)]
pub struct Handle<S> {
    connections: Connections,
    give: mpsc::UnboundedSender<Handed<S>>,
}

/// A message to an event loop.
pub enum Handed<S> {
    /// A site for later requests.
    Site(NewSite<S>),
    /// A connection to serve.
    Connection(Accepted),
    /// Another connection needs room: this one closes if it is still idle.
    Shed(Shed),
    /// Dropped when the event loop gets to this message ([`all_caught_up`]).
    Probe(Arc<oneshot::Sender<()>>),
}

/// A connection that has been accepted and is not served yet.
#[derive(Debug)]
pub struct Accepted {
    /// The socket.
    pub fd: OwnedFd,
    /// The client's address; `None` for a Unix socket.
    pub remote: Option<SocketAddr>,
    /// Our address, if it is the same for all connections of the listener.
    pub local: Option<SocketAddr>,
    /// The protocol of the connection.
    pub speaks: Speaks,
}

/// The number of connections of an event loop. It has a cache line of its own, because it changes with every connection.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Connections(AtomicUsize);

/// A connection that is counted for its event loop until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted<'l>(&'l Connections);

impl<S> Shared<S> {
    /// Creates the shared state, without connections.
    pub fn new(logs: Logs, loops: Vec<Handle<S>>, phase: watch::Receiver<Phase>) -> Self {
        Self {
            logs,
            loops,
            crowd: Crowd::default(),
            phase,
        }
    }

    /// Has a connection closed. Returns false if its event loop has ended.
    pub(crate) fn request_close(&self, shed: Shed) -> bool {
        let given = self.loops[shed.at.event_loop].send_message(Handed::Shed(shed));
        given.is_ok()
    }

    /// Returns whether each connection ends with its current request.
    pub(crate) fn is_draining(&self) -> bool {
        self.has_reached(Phase::HandedOver)
    }

    /// Returns whether a connection ends if it has had a request, and has none now.
    pub(crate) fn ends_idle(&self) -> bool {
        self.has_reached(Phase::Draining)
    }

    fn has_reached(&self, phase: Phase) -> bool {
        // Called several times a request. As long as the phase has never changed, this is one load.
        !matches!(self.phase.has_changed(), Ok(false)) && *self.phase.borrow() >= phase
    }
}

/// Resolves when each of these event loops has processed all that it was handed before, and knows the current phase.
pub fn all_caught_up<S>(loops: &[Handle<S>]) -> oneshot::Receiver<()> {
    let (probe, dropped) = oneshot::channel();
    let probe = Arc::new(probe);
    for event_loop in loops {
        let _ = event_loop.send_message(Handed::Probe(probe.clone()));
    }
    dropped
}

impl<S> Handle<S> {
    /// Creates an event loop's handle without connections, and the receiver of its messages.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Handed<S>>) {
        let (give, given) = mpsc::unbounded_channel();
        let handle = Self {
            connections: Connections::default(),
            give,
        };
        (handle, given)
    }

    /// Hands a message to the event loop.
    ///
    /// # Errors
    /// The event loop accepts no more messages, because the server drains. The error holds the message.
    pub fn send_message(&self, handed: Handed<S>) -> Result<(), Handed<S>> {
        let is_connection = matches!(handed, Handed::Connection(_));
        if is_connection {
            self.count_connection();
        }
        let given = self.give.send(handed);
        if is_connection && given.is_err() {
            drop(self.take_counted());
        }
        given.map_err(|refused| refused.0)
    }

    /// Returns how many connections the event loop has.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.0.load(Ordering::Relaxed)
    }

    /// Counts one more connection, which [`Handle::take_counted`] takes over.
    pub(crate) fn count_connection(&self) {
        self.connections.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes over a connection that has been counted already.
    pub(crate) fn take_counted(&self) -> Counted<'_> {
        Counted(&self.connections)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
