//! Requests that are over, one way or another, whatever their client speaks: each has one line in the access log, and only here
//! it is written.

use std::{cell::RefCell, rc::Rc};

use galgo_io::transport::Transport;
use galgo_service::{
    body::Output, fault::Fault, link::Link, log::access::AccessEntry, request::Request,
};

use crate::{event_loop::EventLoop, site::SiteService};

/// A request that is being answered. The end of the server may drop it: then it is logged, and its
/// client sees that the response was cut.
pub(crate) struct Unfinished<'l, S: SiteService> {
    pub(crate) event_loop: &'l Rc<EventLoop<S>>,
    /// The connection, where nothing else would tell the client.
    pub(crate) sock: Option<Rc<Transport>>,
    pub(crate) entry: Rc<RefCell<AccessEntry>>,
    pub(crate) over: bool,
}

impl<S: SiteService> Drop for Unfinished<'_, S> {
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
        entry.total = entry.began.elapsed();
        self.event_loop.log(&entry);
    }
}

/// A response whose body was there has been sent, with so many bytes of that. The error: with so many it was cut.
pub(crate) fn sent<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    request: &Request<'_>,
    bytes: Result<u64, u64>,
) {
    let mut entry = request.entry.borrow_mut();
    entry.first_byte = event_loop.taken(request.began);
    entry.total = entry.first_byte;
    entry.bytes = bytes.unwrap_or_else(|bytes| {
        entry.outcome = "cut";
        bytes
    });
    event_loop.log(&entry);
}

/// The client has left before there was a response.
pub(crate) fn left<S: SiteService>(event_loop: &Rc<EventLoop<S>>, request: &Request<'_>) {
    let mut entry = request.entry.borrow_mut();
    entry.total = event_loop.taken(request.began);
    event_loop.log(&entry);
}

/// The entry of what is no request.
pub(crate) fn refused<S: SiteService>(
    event_loop: &EventLoop<S>,
    link: &Link,
    fault: &Fault,
) -> AccessEntry {
    AccessEntry {
        status: fault.status(),
        outcome: fault.outcome(),
        ..AccessEntry::new(event_loop.ids.next(), link.remote.clone(), None)
    }
}

/// What was no request has been answered, with so many bytes of body.
pub(crate) fn refusal_sent<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    mut entry: AccessEntry,
    bytes: u64,
) {
    entry.bytes = bytes;
    entry.total = event_loop.taken(entry.began);
    event_loop.log(&entry);
}

/// The log line of a request whose program may still be ending: it is written when that is over, or when the server ends
/// before.
pub(crate) struct DeferredLogLine<S: SiteService> {
    event_loop: Rc<EventLoop<S>>,
    entry: Rc<RefCell<AccessEntry>>,
}

impl<S: SiteService> DeferredLogLine<S> {
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

    /// The response has been sent. Its program may go on to its end.
    pub(crate) fn finish(self, output: Output) {
        // A program whose output is not read to its end may fail for that.
        let whole = output.producer.output_ended();
        let source = output.source;
        output.producer.finish(Box::new(move |exit| {
            if whole {
                source.failed_behind(exit);
            }
            self.entry.borrow_mut().exit = exit;
        }));
    }

    /// The response was cut, by a client that has `gone` or by something else: its program is ended.
    pub(crate) fn abandon(self, output: Output, gone: bool) {
        let exited = move |exit| self.entry.borrow_mut().exit = exit;
        output.producer.abandon(gone, Box::new(exited));
    }
}

impl<S: SiteService> Drop for DeferredLogLine<S> {
    fn drop(&mut self) {
        self.event_loop.log(&self.entry.borrow());
    }
}
