//! The receiving side of a connection: request heads and bodies, out of one buffer.

use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use galgo_io::{
    buf::Buf,
    rate_allowance::{RateAllowance, Rates},
    tick,
    transport::Transport,
};
use galgo_service::fault::Fault;
use tokio::time::{Sleep, sleep};

use super::wire::WireFormat;

/// Bytes that one read of a body asks for.
pub(super) const BODY_READ: usize = 64 << 10;

/// Time until a half-closed client is probed. Most responses begin sooner, and simple clients that half-close accept no interim
/// response.
const PROBED: Duration = Duration::from_millis(500);

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Input {
    /// Bytes that were received and not yet used.
    pub buf: Buf,
    /// The transport that more bytes come from.
    pub sock: Rc<Transport>,
    /// The limit on how slow the client may be.
    pub allowance: RateAllowance,
    /// Whether the client has shut down its sending side.
    pub half_closed: bool,
    /// The format of the connection. Only a client that speaks HTTP may half-close and go on reading.
    pub wire: WireFormat,
    /// Whether a read was tried and now waits for data.
    waits: bool,
    /// The moment at which a half-closed client is probed.
    pub(super) probe: Option<Pin<Box<Sleep>>>,
    /// The tick before which a client with a complete request is not watched.
    pub(super) tick: tick::Wait,
}

pub(super) const LEFT: Fault = Fault::Gone("the client left before its request body was complete");

pub(super) const RESET: Fault = Fault::Gone("the connection was reset by the client");

impl Input {
    /// Creates the receiving side of a connection with a client over `sock`.
    pub(super) fn new(sock: Rc<Transport>, allowance: RateAllowance) -> Self {
        Self {
            buf: Buf::default(),
            sock,
            allowance,
            half_closed: false,
            wire: WireFormat::Http,
            waits: false,
            probe: None,
            tick: tick::Wait::default(),
        }
    }

    /// Begins to wait for a request, which is answered within this allowance.
    pub(super) fn begin_waiting(&mut self, rates: &Rates) {
        self.allowance.begin_request(rates);
        self.tick = tick::Wait::default();
        self.probe = None;
    }

    /// Reads more into the buffer within the client's allowance. Returns 0 if the client sends no more.
    pub(super) async fn fill_buffer(&mut self, want: usize) -> Result<usize, Fault> {
        poll_fn(|cx| self.poll_fill(want, cx)).await
    }

    fn poll_fill(&mut self, want: usize, cx: &mut Context<'_>) -> Poll<Result<usize, Fault>> {
        let Self {
            buf,
            sock,
            allowance,
            waits,
            ..
        } = self;
        let filled = ready!(allowance.poll_io(cx, |cx| sock.poll_fill(buf, want, waits, cx)));
        self.half_closed |= matches!(filled, Ok(0));
        Poll::Ready(filled.map_err(|e| Fault::from_body_error(&e, RESET)))
    }

    /// Reads more of a body that is not over yet.
    pub(super) async fn fill_body(&mut self) -> Result<(), Fault> {
        poll_fn(|cx| self.poll_fill_body(BODY_READ, cx)).await
    }

    pub(super) fn poll_fill_body(
        &mut self,
        want: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        Poll::Ready(match ready!(self.poll_fill(want, cx))? {
            0 => Err(LEFT),
            _ => Ok(()),
        })
    }

    /// Returns whether everything that the client has sent so far was taken.
    pub(super) fn is_drained(&self) -> bool {
        self.buf.is_empty() && self.sock.sock().is_drained()
    }

    /// Implements `Client::poll_gone`.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.sock.sock().poll_gone(cx).is_ready() {
            return Poll::Ready(Err(GONE));
        }
        if self.half_closed {
            self.poll_probe(cx);
            return Poll::Pending;
        }
        ready!(self.sock.sock().poll_read_closed(cx));
        Poll::Ready(self.half_close())
    }

    /// Schedules a probe of a half-closed client, for the case that no response begins within [`PROBED`].
    pub(super) fn probe_later(&mut self) {
        if self.wire.is_http() && self.probe.is_none() {
            self.probe = Some(Box::pin(sleep(PROBED)));
        }
    }

    /// Probes a half-closed client with an interim response. It means nothing to a client that is still there (RFC 9110, 15.2).
    /// If the client is gone, its kernel answers with a reset.
    fn poll_probe(&mut self, cx: &mut Context<'_>) {
        if let Some(probe) = &mut self.probe
            && probe.as_mut().poll(cx).is_ready()
        {
            self.probe = None;
            // Nothing was sent yet that could fill the socket's buffer. If this write fails, a later write fails, too.
            let _ = self.sock.try_write(b"HTTP/1.1 102 Processing\r\n\r\n");
        }
    }

    /// Notes that the peer has shut down its sending side. A client that speaks HTTP may read on; a front server that closes is
    /// gone.
    pub(super) fn half_close(&mut self) -> Result<(), Fault> {
        self.half_closed = true;
        if self.wire.is_http() {
            Ok(())
        } else {
            Err(GONE)
        }
    }
}

pub(super) const GONE: Fault = Fault::Gone("the client closed the connection");
