//! A request, as handlers see it.

use std::{cell::RefCell, rc::Rc};

use galgo_io::rate_allowance::Holding;
use galgo_proto::h1::{Head, Method};
use tokio::time::Instant;

use crate::{client::Client, id::Id, link::Link, log::access::AccessEntry, peer::Peer};

/// What a front server says of the program it means (fcgiwrap's contract).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// SCRIPT_FILENAME.
    pub file: Option<Vec<u8>>,
    /// DOCUMENT_ROOT, in front of SCRIPT_NAME where there is no SCRIPT_FILENAME.
    pub document_root: Option<Vec<u8>>,
    /// SCRIPT_NAME.
    pub script_name: Vec<u8>,
    /// PATH_INFO.
    pub path_info: Vec<u8>,
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its head.
    pub head: Rc<Head>,
    /// Its connection.
    pub link: &'a Link,
    /// Its client.
    pub client: &'a mut dyn Client,
    /// What will be logged.
    pub entry: Rc<RefCell<AccessEntry>>,
    /// When its head was complete.
    pub began: Instant,
    /// What the program said on standard error, for the page that shows a failure to its author.
    pub stderr: String,
    /// The file that a front server means by this request. Boxed: most requests need no room for it.
    pub named: Option<Box<Named>>,
    /// Variables that steps before the handler have given: passwords, rewrites, the authorizer.
    pub granted: Vec<(String, Vec<u8>)>,
    /// Nothing behind this request can be trusted to be a request: the connection ends with its response.
    pub last: bool,
    /// It was refused for want of capacity.
    pub refused: bool,
    /// The permit that it holds, once it has one.
    pub permit: Holding,
}

impl<'a> Request<'a> {
    /// A request that has just come.
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

    /// Begins now: what came before is not counted.
    pub fn begin(&mut self) {
        self.began = Instant::now();
        self.entry.borrow_mut().began = self.began;
    }

    /// Its id.
    pub fn id(&self) -> Id {
        self.entry.borrow().id
    }

    /// Whether a response to it with this status has no body (RFC 9110, 6.4.1).
    pub fn is_bodiless(&self, status: u16) -> bool {
        self.head.method == Method::Head || matches!(status, 100..=199 | 204 | 304)
    }

    /// Its client, as limits count it.
    pub fn peer(&self) -> Peer {
        Peer::of(self.link.remote_ip)
    }

    /// It holds a permit that others may wait for: see [`Client::has_permit`].
    pub fn has_permit(&mut self, permit: Holding) {
        self.client.has_permit(permit.clone());
        self.permit = permit;
    }
}
