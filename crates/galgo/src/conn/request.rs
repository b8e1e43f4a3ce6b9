//! A request, as those who answer it have it.

use std::{cell::RefCell, rc::Rc};

use galgo_proto::h1::{Head, Version};
use tokio::time::Instant;

use super::{
    Link,
    input::{Input, RequestBody},
};
use crate::{
    admission::Holding, balance::Count, fault::Fault, id::Id, log::access::Entry, peer::Peer,
    route::Named, site::Site,
};

/// A request that is being answered.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its head.
    pub head: Rc<Head>,
    /// What answers it, and how.
    pub site: &'a Site,
    /// Its connection.
    pub link: &'a Link,
    /// Where its body comes from.
    pub input: &'a mut Input,
    /// How far its body has been taken in.
    pub body: &'a mut RequestBody,
    /// What will be logged.
    pub entry: Rc<RefCell<Entry>>,
    /// When its head was complete.
    pub began: Instant,
    /// What the program said on standard error, for the page that shows a failure to its author.
    pub stderr: String,
    /// A `100 Continue` is owed before the body is read.
    pub owes_continue: bool,
    /// The file that a front server means by this request.
    pub named: Option<Named>,
    /// Variables that the route's authorizer has given.
    pub granted: Vec<(String, Vec<u8>)>,
    /// Its connection among those of its worker; `galgo run` has none.
    pub count: Option<&'a Count<'a>>,
    /// Nothing behind this request can be trusted to be a request: the connection ends with its response.
    pub last: bool,
    /// Its place among the programs running, once it has one.
    pub place: Holding,
}

impl<'a> Request<'a> {
    /// A request that has just come and owes nothing to anybody.
    pub fn new(
        head: Rc<Head>,
        site: &'a Site,
        link: &'a Link,
        input: &'a mut Input,
        body: &'a mut RequestBody,
        entry: Rc<RefCell<Entry>>,
    ) -> Self {
        let began = entry.borrow().began;
        Self {
            head,
            site,
            link,
            input,
            body,
            entry,
            began,
            stderr: String::new(),
            owes_continue: false,
            named: None,
            granted: Vec::new(),
            count: None,
            last: false,
            place: Holding::default(),
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

    /// Who asks.
    pub fn peer(&self) -> Peer {
        Peer::of(self.link.remote_ip)
    }

    /// It has a place that others may wait for: from now on its client may be waited for less long.
    pub fn has_place(&mut self, place: Holding) {
        self.input.pace.has_place(place.clone());
        self.place = place;
    }

    /// Waits until the body is whole, or so much of it is here that who is to read it has something to do. Until then it
    /// needs no place.
    pub async fn body_ahead(&mut self) -> Result<(), Fault> {
        if self.body.is_here(&self.input.buf) {
            return Ok(());
        }
        self.send_continue();
        // Boxed: most bodies come with their head.
        Box::pin(self.input.read_ahead(self.body)).await
    }

    /// Somebody wants the body: sends the `100 Continue` that is owed, once, unless the body has begun
    /// to come anyway (RFC 9110, 10.1.1).
    pub fn send_continue(&mut self) {
        if std::mem::take(&mut self.owes_continue) && self.input.buf.is_empty() {
            self.interim(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// The client has shut down its sending side while no response has begun. An interim response
    /// means nothing to a client that is still there (RFC 9110, 15.2), and makes the kernel of one
    /// that is gone send a reset.
    pub fn probe(&self) {
        if self.head.version == Version::Http11 {
            self.interim(b"HTTP/1.1 102 Processing\r\n\r\n");
        }
    }

    fn interim(&self, head: &[u8]) {
        if let (Some(sock), true) = (&self.input.sock, self.input.wire.is_http()) {
            // Nothing has been sent yet that could fill the socket's buffer; what fails here fails again.
            let _ = sock.try_write(head);
        }
    }
}
