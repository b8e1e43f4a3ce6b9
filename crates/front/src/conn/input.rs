//! What comes over a connection: request heads and bodies, out of one buffer.

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

/// What one read of a body asks for.
pub(super) const BODY_READ: usize = 64 << 10;

/// Most responses begin sooner, and simple clients that half-close take no interim response.
const PROBED: Duration = Duration::from_millis(500);

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Input {
    /// Received and not yet used.
    pub buf: Buf,
    /// Where more comes from.
    pub sock: Rc<Transport>,
    /// How slow the client may be.
    pub allowance: RateAllowance,
    /// The client has shut down its sending side.
    pub half_closed: bool,
    /// What is spoken. Only a client that speaks HTTP may half-close and go on reading.
    pub wire: WireFormat,
    /// A read was tried, and is awaited.
    waits: bool,
    /// When a client that has half-closed is probed.
    pub(super) probe: Option<Pin<Box<Sleep>>>,
    /// A client whose request is complete is not watched before this tick.
    pub(super) tick: tick::Wait,
}

pub(super) const LEFT: Fault = Fault::Gone("the client left before its request body was complete");

pub(super) const RESET: Fault = Fault::Gone("the connection was reset by the client");

impl Input {
    /// What comes from a client over `sock`.
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

    /// A request is awaited, and answered within this allowance.
    pub(super) fn begin(&mut self, rates: &Rates) {
        self.allowance.begin(rates);
        self.tick = tick::Wait::default();
        self.probe = None;
    }

    /// Reads more into the buffer within the client's allowance. 0: the client sends no more.
    pub(super) async fn fill(&mut self, want: usize) -> Result<usize, Fault> {
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
        let filled = ready!(allowance.poll_wait(cx, |cx| sock.poll_fill(buf, want, waits, cx)));
        self.half_closed |= matches!(filled, Ok(0));
        Poll::Ready(filled.map_err(|e| Fault::awaiting(&e, RESET)))
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

    /// Whether all that the client has sent so far was taken.
    pub(super) fn is_drained(&self) -> bool {
        self.buf.is_empty() && self.sock.sock().is_drained()
    }

    /// As `Client::poll_gone`.
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

    /// A client that has half-closed is probed if no response begins within [`PROBED`].
    pub(super) fn probe_later(&mut self) {
        if self.wire.is_http() && self.probe.is_none() {
            self.probe = Some(Box::pin(sleep(PROBED)));
        }
    }

    /// An interim response means nothing to a client that is still there (RFC 9110, 15.2), and makes the kernel of one that
    /// is gone send a reset.
    fn poll_probe(&mut self, cx: &mut Context<'_>) {
        if let Some(probe) = &mut self.probe
            && probe.as_mut().poll(cx).is_ready()
        {
            self.probe = None;
            // Nothing has been sent yet that could fill the socket's buffer; what fails here fails again.
            let _ = self.sock.try_write(b"HTTP/1.1 102 Processing\r\n\r\n");
        }
    }

    /// A client that speaks HTTP may shut down its sending side and read on; a front server that closes is gone.
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
