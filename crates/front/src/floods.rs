//! Names clients that keep an event loop busy with small things, so that an operator can shut them out.

use std::{
    cell::Cell,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use galgo_io::turn::Went;
use galgo_service::log::Level;

use crate::{event_loop::EventLoop, site::SiteService};

/// Turns that a connection uses up within [`WITHIN`] before its client is named. Each such turn took a millisecond or more.
const MANY: u32 = 20;
const WITHIN: Duration = Duration::from_secs(1);

/// The turns that one connection has used up lately.
#[derive(Debug)]
pub(crate) struct Floods {
    client: Cell<Option<IpAddr>>,
    /// Start of the count, and the number of turns since.
    since: Cell<Option<Instant>>,
    turns: Cell<u32>,
}

impl Floods {
    /// Starts a count for a connection from `remote`.
    pub(crate) fn new(remote: Option<SocketAddr>) -> Self {
        Self {
            client: Cell::new(remote.map(|at| at.ip())),
            since: Cell::new(None),
            turns: Cell::new(0),
        }
    }

    /// Sets the address of the client behind the connection.
    pub(crate) fn set_client(&self, client: Option<IpAddr>) {
        self.client.set(client);
    }

    /// Counts one turn of the connection.
    pub(crate) fn count_turn(&self, event_loop: &EventLoop<impl SiteService>, went: Went) {
        match went {
            Went::Waits | Went::Transfers => {}
            Went::Floods => self.log_client(event_loop),
            Went::Busy => {
                if self.is_many() {
                    self.log_client(event_loop);
                }
            }
        }
    }

    fn is_many(&self) -> bool {
        let now = Instant::now();
        if self.since.get().is_none_or(|since| now - since >= WITHIN) {
            self.since.set(Some(now));
            self.turns.set(0);
        }
        self.turns.set(self.turns.get() + 1);
        self.turns.get() == MANY
    }

    /// Logs the client's address: at most once a second for each address and event loop.
    #[cold]
    fn log_client(&self, event_loop: &EventLoop<impl SiteService>) {
        let client = self.client.get();
        if event_loop.told.mark_as_named(client) {
            let who = client.map_or_else(|| "unix".to_owned(), |ip| ip.to_string());
            let words = "floods a connection with small requests, frames or chunks: other clients are served in between \
                         (block this client with a firewall or max_connections_per_client)";
            event_loop.shared.logs.error.write(Level::Warn, &who, words);
        }
    }
}
