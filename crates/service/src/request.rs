//! A request, as handlers see it.

use std::{cell::RefCell, rc::Rc};

use galgo_io::rate_allowance::Holding;
use galgo_proto::h1::{Head, Method};
use tokio::time::Instant;

use crate::{client::Client, id::Id, link::Link, log::access::AccessEntry, peer::Peer};

/// A front server's description of the program that it means (fcgiwrap's contract).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// SCRIPT_FILENAME.
    pub file: Option<Vec<u8>>,
    /// DOCUMENT_ROOT, which precedes SCRIPT_NAME if there is no SCRIPT_FILENAME.
    pub document_root: Option<Vec<u8>>,
    /// SCRIPT_NAME.
    pub script_name: Vec<u8>,
    /// PATH_INFO.
    pub path_info: Vec<u8>,
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Request<'a> {
    /// The request's head.
    pub head: Rc<Head>,
    /// The connection.
    pub link: &'a Link,
    /// The client.
    pub client: &'a mut dyn Client,
    /// The entry for the access log.
    pub entry: Rc<RefCell<AccessEntry>>,
    /// The time at which the head was complete.
    pub began: Instant,
    /// The program's text on standard error, for the page that shows a failure to its author.
    pub stderr: String,
    /// The file that a front server means by this request. Boxed, because most requests do not have it.
    pub named: Option<Box<Named>>,
    /// Variables from steps before the handler: passwords, rewrites, the authorizer.
    pub granted: Vec<(String, Vec<u8>)>,
    /// Bytes after this request cannot be trusted to be a request: the connection ends with its response.
    pub last: bool,
    /// The request was refused because the server is full.
    pub refused: bool,
    /// The permit of the request, once it has one.
    pub permit: Holding,
}

impl<'a> Request<'a> {
    /// Returns a request that has just come.
    pub fn new(
        head: Rc<Head>,
        link: &'a Link,
        client: &'a mut dyn Client,
        entry: Rc<RefCell<AccessEntry>>,
    ) -> Self {
        let began = entry.borrow().began;
        Self {
            head,
            link,
            client,
            entry,
            began,
            stderr: String::new(),
            named: None,
            granted: Vec::new(),
            last: false,
            refused: false,
            permit: Holding::default(),
        }
    }

    /// Starts the clock of the request anew.
    pub fn restart_clock(&mut self) {
        self.began = Instant::now();
        self.entry.borrow_mut().began = self.began;
    }

    /// Returns the request's id.
    pub fn id(&self) -> Id {
        self.entry.borrow().id
    }

    /// Whether a response to the request with this status has no body (RFC 9110, 6.4.1).
    pub fn is_bodiless(&self, status: u16) -> bool {
        self.head.method == Method::Head || matches!(status, 100..=199 | 204 | 304)
    }

    /// Returns the client as limits count it.
    pub fn peer(&self) -> Peer {
        Peer::from_address(self.link.remote_ip)
    }

    /// Notes that the request holds a permit that others may wait for: see [`Client::note_permit`].
    pub fn note_permit(&mut self, permit: Holding) {
        self.client.note_permit(permit.clone());
        self.permit = permit;
    }
}
