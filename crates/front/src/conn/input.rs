//! What comes over a connection: request heads and bodies, out of one buffer.

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, ready},
};

use galgo_io::{
    buf::Buf,
    rate_allowance::{RateAllowance, Rates},
    tick,
    transport::Transport,
};
use galgo_service::fault::Fault;

use super::wire::WireFormat;

/// What one read of a body asks for.
pub(super) const BODY_READ: usize = 64 << 10;

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
            tick: tick::Wait::default(),
        }
    }

    /// A request is awaited, and answered within this allowance.
    pub(super) fn begin(&mut self, rates: &Rates) {
        self.allowance.begin(rates);
        self.tick = tick::Wait::default();
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
            return Poll::Pending;
        }
        ready!(self.sock.sock().poll_read_closed(cx));
        Poll::Ready(self.half_close())
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
