//! Logs requests that are over, in any way and over any protocol. Each request has one line in the access log, and only this
//! module writes it.

use std::{cell::RefCell, rc::Rc};

use galgo_io::transport::Transport;
use galgo_service::{
    body::Output, fault::Fault, link::Link, log::access::AccessEntry, request::Request,
};

use crate::{event_loop::EventLoop, site::SiteService};

/// A request that is being answered. If the end of the server drops it, it is logged, and its client sees that the response was
/// cut.
pub(crate) struct Unfinished<'l, S: SiteService> {
    pub(crate) event_loop: &'l Rc<EventLoop<S>>,
    /// The connection, if nothing else would tell the client.
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
        self.event_loop.log_request(&entry);
    }
}

/// Logs a response whose whole body was at hand. `bytes`: how many bytes of the body were sent; `Err`: the response was cut
/// after that many.
pub(crate) fn log_response<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    request: &Request<'_>,
    bytes: Result<u64, u64>,
) {
    let mut entry = request.entry.borrow_mut();
    entry.first_byte = event_loop.time_taken(request.began);
    entry.total = entry.first_byte;
    entry.bytes = bytes.unwrap_or_else(|bytes| {
        entry.outcome = "cut";
        bytes
    });
    event_loop.log_request(&entry);
}

/// Logs a request whose client has left before there was a response.
pub(crate) fn log_client_left<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    request: &Request<'_>,
) {
    let mut entry = request.entry.borrow_mut();
    entry.total = event_loop.time_taken(request.began);
    event_loop.log_request(&entry);
}

/// Creates the log entry of a message that is not a request.
pub(crate) fn create_refusal_entry<S: SiteService>(
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

/// Logs the answer to a message that is not a request, with this many bytes of body.
pub(crate) fn log_refusal<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    mut entry: AccessEntry,
    bytes: u64,
) {
    entry.bytes = bytes;
    entry.total = event_loop.time_taken(entry.began);
    event_loop.log_request(&entry);
}

/// The log line of a request whose program may still be ending. The line is written when the program has ended, or earlier if
/// the server ends first.
pub(crate) struct DeferredLogLine<S: SiteService> {
    event_loop: Rc<EventLoop<S>>,
    entry: Rc<RefCell<AccessEntry>>,
}

impl<S: SiteService> DeferredLogLine<S> {
    /// Creates the line of a request whose response is over, with this many bytes of body.
    pub(crate) fn new(event_loop: &Rc<EventLoop<S>>, request: &Request<'_>, sent: u64) -> Self {
        let mut entry = request.entry.borrow_mut();
        entry.bytes = sent;
        entry.total = event_loop.time_taken(request.began);
        Self {
            event_loop: event_loop.clone(),
            entry: request.entry.clone(),
        }
    }

    /// Lets the program go on to its end, because its response has been sent.
    pub(crate) fn finish(self, output: Output) {
        // If the output is not read to its end, the program may fail because of that.
        let whole = output.producer.has_output_ended();
        let source = output.source;
        output.producer.finish(Box::new(move |exit| {
            if whole {
                source.log_late_failure(exit);
            }
            self.entry.borrow_mut().exit = exit;
        }));
    }

    /// Ends the program of a response that was cut. `gone`: the client has left.
    pub(crate) fn abandon(self, output: Output, gone: bool) {
        let exited = move |exit| self.entry.borrow_mut().exit = exit;
        output.producer.abandon(gone, Box::new(exited));
    }
}

impl<S: SiteService> Drop for DeferredLogLine<S> {
    fn drop(&mut self) {
        self.event_loop.log_request(&self.entry.borrow());
    }
}
