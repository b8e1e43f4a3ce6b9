//! The sending half of a stream: the head of its response, the body within the client's windows, and resets.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use galgo_io::rate_allowance::RateAllowance;
use h2::{Reason, SendStream, server::SendResponse};
use http::{Response, StatusCode};

/// The sending half of a stream. The request's client looks here as well, whether the peer still reads.
#[derive(Debug)]
pub(super) struct Outgoing(RefCell<Half>);

#[derive(Debug)]
enum Half {
    /// No response has begun.
    Silent(SendResponse<Bytes>),
    /// It has.
    Speaks(SendStream<Bytes>),
}

impl Outgoing {
    pub(super) fn new(respond: SendResponse<Bytes>) -> Self {
        Self(RefCell::new(Half::Silent(respond)))
    }

    /// Ready once the client has reset the stream, or the connection is gone.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let reset = match &mut *self.0.borrow_mut() {
            Half::Silent(respond) => respond.poll_reset(cx),
            Half::Speaks(stream) => stream.poll_reset(cx),
        };
        reset.map(drop)
    }

    /// Sends `100 Continue`.
    pub(super) fn send_continue(&self) {
        if let Half::Silent(respond) = &mut *self.0.borrow_mut() {
            let mut head = Response::new(());
            *head.status_mut() = StatusCode::CONTINUE;
            // What fails here fails again.
            let _ = respond.send_informational(head);
        }
    }

    /// Sends the head of the response, with which the stream may end.
    pub(super) fn begin(&self, head: Response<()>, ends: bool) -> io::Result<()> {
        let mut half = self.0.borrow_mut();
        if let Half::Silent(respond) = &mut *half {
            let stream = respond.send_response(head, ends).map_err(gone)?;
            *half = Half::Speaks(stream);
        }
        Ok(())
    }

    /// Sends `data`, with which the stream may end, as the client has room for it.
    pub(super) async fn write(
        &self,
        allowance: &mut RateAllowance,
        mut data: Bytes,
        ends: bool,
    ) -> io::Result<()> {
        while !data.is_empty() {
            let room = self.room(allowance, data.len()).await?;
            let piece = data.split_to(room);
            let last = ends && data.is_empty();
            self.send(piece, last)?;
            if last {
                return Ok(());
            }
        }
        match ends {
            true => self.send(data, true),
            false => Ok(()),
        }
    }

    /// Waits for room, within the client's allowance: so many bytes that are to be sent at once, and at most `want`.
    pub(super) async fn room(
        &self,
        allowance: &mut RateAllowance,
        want: usize,
    ) -> io::Result<usize> {
        poll_fn(|cx| allowance.poll_wait(cx, |cx| self.poll_room(want, cx))).await
    }

    fn poll_room(&self, want: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut half = self.0.borrow_mut();
        let Half::Speaks(stream) = &mut *half else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        stream.reserve_capacity(want);
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(cx)) {
                Some(more) => more.map(drop).map_err(gone)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        Poll::Ready(Ok(stream.capacity().min(want)))
    }

    /// Sends bytes that there is room for.
    pub(super) fn send(&self, data: Bytes, ends: bool) -> io::Result<()> {
        match &mut *self.0.borrow_mut() {
            Half::Speaks(stream) => stream.send_data(data, ends).map_err(gone),
            Half::Silent(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Ends the stream so that the client sees that something is missing.
    pub(super) fn reset(&self, why: Reason) {
        match &mut *self.0.borrow_mut() {
            Half::Silent(respond) => respond.send_reset(why),
            Half::Speaks(stream) => stream.send_reset(why),
        }
    }
}

fn gone(e: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, e)
}
