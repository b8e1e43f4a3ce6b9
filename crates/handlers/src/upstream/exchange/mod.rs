//! A request and its response on one connection to an application. Both directions, the client and the clocks are watched at the
//! same time.

mod exchange_while_sending;
mod over;
mod taken;

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

use galgo_io::{out::Out, pool, sock::Sock};
use galgo_proto::{
    Parsed,
    fcgi::{self, Outcome, reply},
};
use galgo_service::{
    client::Client, fault::Fault, log::LogSource, producer::OutputEvent, spool::Stored,
};
use galgo_spawn::Exit;

use super::sending::{ID, Sending};
use crate::{
    relay::{clock::Clocks, pump::Fed, spill::Spill, stderr::StderrLog},
    upstream::lease::UpstreamLease,
};
use taken::{Untaken, poll_untaken};

/// Length of a response after which the rest is read into large buffers. If the previous response did not fit into a usual
/// buffer, all of this response is.
const LONG: usize = 256 << 10;

/// A request that an application, or an instance of a module, is answering.
#[derive(Debug)]
pub struct Exchange {
    /// The connection and its lease; `None` once the response has ended, unless they can serve another request.
    link: Option<Connected>,
    wire: ResponseFraming,
    sending: Sending,
    pub(crate) stderr: StderrLog,
    pub(crate) clocks: Clocks,
    /// Output that was received and not sent on yet.
    pub out: Out,
    /// Output that waits for a slow client; it follows the output in `out`.
    pub(crate) spill: Spill,
    heard: usize,
    /// Checks whether the worker of modules takes the request.
    untaken: Option<Untaken>,
    again: bool,
    /// Whether the connection ended before the application read the whole request.
    unread: bool,
    /// Fault in the way the response ended.
    verdict: Option<Fault>,
    /// Exit status of the instance; unknown for an application.
    pub(crate) exit: Option<Exit>,
    /// Whether to let an instance finish after the client has gone.
    run_to_completion: bool,
}

#[derive(Debug)]
struct Connected {
    conn: Sock,
    lease: ExchangeLease,
    /// Whether the response ended without a fault, so that the connection can serve another request.
    good: bool,
}

/// The lease of a request.
#[derive(Debug)]
pub enum ExchangeLease {
    /// Lease on an application that keeps running.
    Application(UpstreamLease),
    /// Lease on an instance in a worker of modules.
    Instance(Box<dyn InstanceLease>),
}

/// A lease on one connection to a worker of modules, for one request.
pub trait InstanceLease: std::fmt::Debug {
    /// Returns the number of bytes after END_REQUEST's own that tell how the instance ended.
    fn exit_length(&self) -> usize;

    /// Decodes the bytes that tell how the instance ended.
    ///
    /// # Errors
    /// The instance has not begun.
    fn decode_exit(&self, more: &[u8]) -> Result<Exit, Fault>;

    /// Returns how the instance ended, if the connection ended before it could tell.
    fn exit_without_report(&self) -> Exit;

    /// Reports that the worker did not take the request in time: another worker replaces it.
    fn report_stuck(&self);

    /// Keeps the connection for another request.
    fn give_back(self: Box<Self>, conn: Sock);
}

impl ExchangeLease {
    /// Returns the lease on an application; `None` for an instance.
    fn application(&self) -> Option<&UpstreamLease> {
        match self {
            Self::Application(lease) => Some(lease),
            Self::Instance(_) => None,
        }
    }

    /// Ends a request without a fault: keeps the connection for the next request.
    fn give_back(self, conn: Sock) {
        match self {
            Self::Application(lease) => lease.give_back(conn),
            Self::Instance(lease) => lease.give_back(conn),
        }
    }
}

/// Returns the connection until the response has ended.
fn open_link(link: &Option<Connected>) -> Option<&Connected> {
    link.as_ref().filter(|link| !link.good)
}

#[derive(Debug)]
enum ResponseFraming {
    /// Records of FastCGI.
    Fastcgi(reply::ReplyReader),
    /// No framing: the response ends with the connection.
    Scgi,
}

/// Parameters for the start of an exchange.
#[derive(Debug)]
pub struct ExchangeStart {
    /// The connection.
    pub conn: Sock,
    /// Whether the request may be repeated if the connection turns out to be stale. A connection can be stale if it has served
    /// another request before, or if its worker may die.
    pub again: bool,
    /// Lease on the connection.
    pub lease: ExchangeLease,
    /// Clocks that are running already.
    pub clocks: Clocks,
    /// Limit for the bytes of standard error that go to the log.
    pub max_stderr: usize,
    /// Name of the application in the log.
    pub source: LogSource,
    /// Spooled body of the request.
    pub file: Option<Stored>,
    /// Whether the request is sent without its body.
    pub bodiless: bool,
    /// Whether to let an instance finish after the client has gone.
    pub run_to_completion: bool,
}

impl Exchange {
    /// Sends a request over FastCGI; `put` writes the variables.
    ///
    /// # Errors
    /// The error of `put`.
    pub fn over_fastcgi<E>(
        start: ExchangeStart,
        role: fcgi::Role,
        keep: bool,
        put: impl FnOnce(&mut fcgi::Params<'_>) -> Result<(), E>,
    ) -> Result<Box<Self>, E> {
        let mut head = pool::take_buffer();
        head.extend_from_slice(&fcgi::begin_request(ID, role, keep));
        let mut params = fcgi::Params::new(ID, &mut head);
        put(&mut params)?;
        params.finish();
        // An instance reports its end after END_REQUEST.
        let more = match start.lease {
            ExchangeLease::Application(_) => 0,
            ExchangeLease::Instance(ref lease) => lease.exit_length(),
        };
        let wire = ResponseFraming::Fastcgi(reply::ReplyReader::with_extra_bytes(ID, more));
        Ok(Self::new(start, wire, head))
    }

    /// Sends a request over SCGI: `head` is the netstring, and `body` follows it.
    pub fn over_scgi(start: ExchangeStart, head: Vec<u8>) -> Box<Self> {
        Self::new(start, ResponseFraming::Scgi, head)
    }

    /// Boxes the exchange from the beginning, because it is large and moves often.
    fn new(start: ExchangeStart, wire: ResponseFraming, head: Vec<u8>) -> Box<Self> {
        // Check only requests without a body: an instance need not read a body, and the kernel cannot tell an unread body from a
        // request that is not taken.
        let is_whole = start.bodiless && start.file.is_none();
        let untaken = match start.lease {
            ExchangeLease::Instance(_) if is_whole => {
                Untaken::within(start.clocks.first_length(), head.len())
            }
            _ => None,
        };
        let framed = matches!(wire, ResponseFraming::Fastcgi(_));
        let sending = Sending::new(head, framed, start.file, start.bodiless);
        Box::new(Self {
            link: Some(Connected {
                conn: start.conn,
                lease: start.lease,
                good: false,
            }),
            wire,
            sending,
            stderr: StderrLog::new(start.max_stderr, start.source),
            clocks: start.clocks,
            out: Out::default(),
            spill: Spill::default(),
            heard: 0,
            untaken,
            again: start.again,
            unread: false,
            verdict: None,
            exit: None,
            run_to_completion: start.run_to_completion,
        })
    }

    /// Returns whether the connection turned out to be stale: no part of a response came. An instance that received the request
    /// may have acted on it. For an application, only requests that may be repeated use a connection that may be stale.
    pub fn is_stale(&self) -> bool {
        let undone = self.unread || self.exit.is_none();
        self.again && undone && self.heard == 0 && self.output_ended()
    }

    /// Returns whether the connection may be stale and nothing was received yet.
    pub fn may_be_stale(&self) -> bool {
        self.again && self.heard == 0 && !self.output_ended()
    }

    /// Returns whether the response has ended.
    pub fn output_ended(&self) -> bool {
        open_link(&self.link).is_none() && self.spill.is_empty()
    }

    /// Returns the fault in the way the response ended.
    pub fn verdict(&self) -> Option<Fault> {
        self.verdict.clone()
    }

    /// Returns the last lines on standard error for the log.
    pub fn stderr_tail(&self) -> String {
        self.stderr.last_lines()
    }

    /// Waits for output while everything else goes on.
    pub async fn next_event(&mut self, client: &mut dyn Client) -> Result<OutputEvent, Fault> {
        loop {
            if !self.spill.is_empty() {
                // Box the future, because few requests have output that waits.
                return Box::pin(self.pull_spilled(client)).await;
            }
            let Some(link) = open_link(&self.link) else {
                return Ok(OutputEvent::End);
            };
            if self.heard >= LONG || link.lease.application().is_some_and(UpstreamLease::is_long) {
                self.out.reserve_large();
            }
            let raw = self.out.buffer();
            let (sending, clocks) = (&mut self.sending, &mut self.clocks);
            let untaken = &mut self.untaken;
            let read = poll_fn(|cx| match link.conn.poll_read_later(raw, cx) {
                Poll::Ready(read) => Poll::Ready(Ok(Some(read))),
                Poll::Pending => {
                    if let ExchangeLease::Instance(lease) = &link.lease
                        && poll_untaken(untaken, &link.conn, cx).is_ready()
                    {
                        lease.report_stuck();
                        // Act as if the worker had ended, so that the next one is asked.
                        let ended = io::ErrorKind::ConnectionReset.into();
                        return Poll::Ready(Ok(Some(Err(ended))));
                    }
                    poll_pump(sending, clocks, &link.conn, client, cx).map_ok(|()| None)
                }
            });
            let Some(read) = read.await? else {
                return Ok(OutputEvent::HalfClosed);
            };
            self.clocks.record_move();
            let before = self.out.len();
            self.receive(read);
            if self.out.len() > before {
                return Ok(OutputEvent::Output);
            }
        }
    }

    /// Takes available output without waiting, until the buffer of `out` is full or the response ends.
    pub fn drain_ready(&mut self) {
        while let Some(link) = open_link(&self.link)
            && !self.out.is_full()
            && self.spill.is_empty()
        {
            match link.conn.try_read(self.out.buffer()) {
                Ok(None) => return,
                Ok(Some(n)) => self.receive(Ok(n)),
                Err(e) => self.receive(Err(e)),
            }
        }
    }

    /// Handles the bytes that one read put into `out`.
    fn receive(&mut self, read: io::Result<usize>) {
        match read {
            Ok(0) => {
                self.unread = !self.sending.begun;
                self.end_response(self.end_at_close());
            }
            Err(e) => {
                // A Unix socket tells with this error that its peer has not read everything.
                self.unread = e.kind() == io::ErrorKind::ConnectionReset;
                let words = format!("the connection to the application broke: {e}");
                self.end_response(Err(Fault::Script(words)));
            }
            Ok(n) => {
                self.heard = self.heard.saturating_add(n);
                if let Some(Connected { lease, .. }) = &mut self.link
                    && let ExchangeLease::Application(lease) = lease
                {
                    lease.record_response();
                }
                let end = match &mut self.wire {
                    ResponseFraming::Fastcgi(reply) => {
                        decode(reply, &mut self.stderr, &mut self.out)
                    }
                    ResponseFraming::Scgi => {
                        self.out.keep_all();
                        None
                    }
                };
                if let Some(end) = end {
                    self.end_response(end);
                }
            }
        }
    }
}

/// End of a response: `Ok` tells whether the connection may be used again, `Err` is the fault.
type ResponseEnd = Result<bool, Fault>;

/// Decodes records; returns `Some` when the response has ended or a record is invalid.
fn decode(
    reply: &mut reply::ReplyReader,
    stderr: &mut StderrLog,
    out: &mut Out,
) -> Option<ResponseEnd> {
    loop {
        let raw = out.unseen();
        let (event, used) = match reply.next_event(raw) {
            Ok(Parsed::Partial) => {
                out.skip_bytes(raw.len());
                return None;
            }
            Ok(Parsed::Complete(event, used)) => (event, used),
            Err(e) => {
                let words = format!("the application breaks the FastCGI protocol: {e}");
                return Some(Err(Fault::Script(words)));
            }
        };
        out.skip_bytes(used);
        match event {
            reply::ReplyEvent::Stdout(n) => out.keep_bytes(n),
            reply::ReplyEvent::Stderr(n) => {
                stderr.log_bytes(&out.unseen()[..n]);
                out.skip_bytes(n);
            }
            reply::ReplyEvent::StdoutEnd => {}
            reply::ReplyEvent::End(_, outcome) => {
                return Some(judge_outcome(outcome, out.unseen()));
            }
        }
    }
}

fn judge_outcome(outcome: Outcome, rest: &[u8]) -> ResponseEnd {
    let words = match outcome {
        // Bytes after the end belong to no request.
        Outcome::COMPLETE => return Ok(rest.is_empty()),
        Outcome::OVERLOADED => {
            return Err(Fault::Busy("the application says that it is overloaded"));
        }
        Outcome::CANNOT_MULTIPLEX => {
            "the application says that it is busy with another request on this connection"
        }
        Outcome::UNKNOWN_ROLE => {
            "the application does not support the role that galgo asks for (FCGI_UNKNOWN_ROLE)"
        }
        _ => "the application ended the request with an unknown protocol status",
    };
    Err(Fault::Script(words.into()))
}

/// Does everything but read the response: sends the request, watches the client and the clocks. Ends with a fault, or when the
/// client half-closes.
fn pump_request(
    sending: &mut Sending,
    clocks: &mut Clocks,
    conn: &Sock,
    client: &mut dyn Client,
) -> impl Future<Output = Result<(), Fault>> {
    poll_fn(|cx| poll_pump(sending, clocks, conn, client, cx))
}

fn poll_pump(
    sending: &mut Sending,
    clocks: &mut Clocks,
    conn: &Sock,
    client: &mut dyn Client,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Fault>> {
    loop {
        if let Poll::Ready(fault) = clocks.poll_expiry(cx) {
            return Poll::Ready(Err(fault));
        }
        match ready!(sending.poll_feed(conn, client, cx))? {
            Fed::Moved => clocks.record_body_move(),
            Fed::HalfClosed => return Poll::Ready(Ok(())),
        }
    }
}
