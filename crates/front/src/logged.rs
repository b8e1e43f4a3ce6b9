//! Requests that are over, one way or another: each has one line in the access log.

use std::{cell::RefCell, rc::Rc};

use galgo_io::transport::Transport;
use galgo_service::{log::access::AccessEntry, request::Request};
use tokio::time::Instant;

use crate::{event_loop::EventLoop, site::Site};

/// A request that is being answered. The end of the server may drop it: then it is logged, and its
/// client sees that the response was cut.
pub(crate) struct Unfinished<'l, S: Site> {
    pub(crate) event_loop: &'l Rc<EventLoop<S>>,
    /// The connection, where nothing else would tell the client.
    pub(crate) sock: Option<Rc<Transport>>,
    pub(crate) entry: Rc<RefCell<AccessEntry>>,
    pub(crate) began: Instant,
    pub(crate) over: bool,
}

impl<S: Site> Drop for Unfinished<'_, S> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Some(sock) = &self.sock {
            sock.reset_on_close();
        }
        let mut entry = self.entry.borrow_mut();
        entry.outcome = "shutdown";
        if entry.status == 0 {
            entry.status = 503;
        }
        entry.total = self.began.elapsed();
        self.event_loop.log(&entry);
    }
}

/// The log line of a request whose program may still be ending: it is written when that is over, or when the server ends
/// before.
pub(crate) struct Line<S: Site> {
    event_loop: Rc<EventLoop<S>>,
    pub(crate) entry: Rc<RefCell<AccessEntry>>,
}

impl<S: Site> Line<S> {
    /// Of a request whose response is over, with so many bytes of body.
    pub(crate) fn new(event_loop: &Rc<EventLoop<S>>, request: &Request<'_>, sent: u64) -> Self {
        let mut entry = request.entry.borrow_mut();
        entry.bytes = sent;
        entry.total = event_loop.taken(request.began);
        Self {
            event_loop: event_loop.clone(),
            entry: request.entry.clone(),
        }
    }
}

impl<S: Site> Drop for Line<S> {
    fn drop(&mut self) {
        self.event_loop.log(&self.entry.borrow());
    }
}
