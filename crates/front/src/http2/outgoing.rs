//! The sending half of a stream: the head of its response, the body within the client's windows, and resets.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use galgo_io::rate_allowance::RateAllowance;
use galgo_service::client::UnreadAnswers;
use h2::{Reason, SendStream, server::SendResponse};
use http::{Response, StatusCode};

use super::unread::{Unread, UnreadPiece};

/// The sending half of a stream. The request's client uses it as well, to see whether the peer still reads.
#[derive(Debug)]
pub(super) struct Outgoing {
    half: RefCell<Half>,
    unread: Arc<Unread>,
    /// Bytes that count for the answer until its head is sent.
    held: Cell<usize>,
}

#[derive(Debug)]
enum Half {
    /// No response has begun.
    Silent(SendResponse<UnreadPiece>),
    /// A response has begun.
    Speaks(SendStream<UnreadPiece>),
}

impl Outgoing {
    /// Creates the sending half of a stream. `unread` counts the bytes that wait on its connection.
    pub(super) fn new(respond: SendResponse<UnreadPiece>, unread: Arc<Unread>) -> Self {
        Self {
            half: RefCell::new(Half::Silent(respond)),
            unread,
            held: Cell::new(0),
        }
    }

    /// Ready once the client has reset the stream, or the connection is gone.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let reset = match &mut *self.half.borrow_mut() {
            Half::Silent(respond) => respond.poll_reset(cx),
            Half::Speaks(stream) => stream.poll_reset(cx),
        };
        reset.map(drop)
    }

    /// Sends `100 Continue`.
    pub(super) fn send_continue(&self) {
        if let Half::Silent(respond) = &mut *self.half.borrow_mut() {
            let mut head = Response::new(());
            *head.status_mut() = StatusCode::CONTINUE;
            // If this fails, a later call fails, too.
            let _ = respond.send_informational(head);
        }
    }

    /// Sends the head of the response, with which the stream may end. The head counts as unread.
    pub(super) fn send_head(&self, mut head: Response<()>, ends: bool) -> io::Result<()> {
        let mut half = self.half.borrow_mut();
        if let Half::Silent(respond) = &mut *half {
            self.unread.hold_head(head.headers_mut());
            let stream = respond
                .send_response(head, ends)
                .map_err(connection_reset)?;
            *half = Half::Speaks(stream);
        }
        self.set_held_bytes(0);
        Ok(())
    }

    /// Sends `data` that is in memory anyway, as the client has room for it. The stream may end with it.
    pub(super) async fn write(
        &self,
        allowance: &mut RateAllowance,
        mut data: Bytes,
        ends: bool,
    ) -> io::Result<()> {
        while !data.is_empty() {
            let room = self.wait_for_room(allowance, data.len()).await?;
            let piece = data.split_to(room);
            let last = ends && data.is_empty();
            self.send_data(piece, last)?;
            if last {
                return Ok(());
            }
        }
        if ends {
            self.send_data(data, true)
        } else {
            Ok(())
        }
    }

    /// Counts `data` as unread.
    pub(super) fn hold_data(&self, data: Bytes) -> UnreadPiece {
        self.unread.hold_data(data)
    }

    /// Sends a piece that is counted already, like [`Outgoing::write`].
    pub(super) async fn write_held(
        &self,
        allowance: &mut RateAllowance,
        mut piece: UnreadPiece,
        ends: bool,
    ) -> io::Result<()> {
        while piece.has_remaining() {
            let left = piece.remaining();
            let capacity = |cx: &mut Context<'_>| self.poll_capacity(left, cx);
            let room = poll_fn(|cx| allowance.poll_io(cx, capacity)).await?;
            self.send_piece(piece.split_to(room), ends && room == left)?;
            if room == left {
                return Ok(());
            }
        }
        if ends {
            self.send_piece(piece, true)
        } else {
            Ok(())
        }
    }

    /// Waits until the connection holds no more unread bytes than it may, within the client's allowance.
    pub(super) async fn wait_not_full(&self, allowance: &mut RateAllowance) -> io::Result<()> {
        let room = |cx: &mut Context<'_>| self.poll_room(cx).map(|()| Ok(0));
        poll_fn(|cx| allowance.poll_io(cx, room)).await.map(drop)
    }

    /// Waits for room, within the client's allowance. Returns how many bytes may be sent at once, at most `want`.
    pub(super) async fn wait_for_room(
        &self,
        allowance: &mut RateAllowance,
        want: usize,
    ) -> io::Result<usize> {
        poll_fn(|cx| allowance.poll_io(cx, |cx| self.poll_capacity_for(want, cx))).await
    }

    fn poll_capacity_for(&self, want: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let want = ready!(self.unread.poll_room(want, cx));
        self.poll_capacity(want, cx)
    }

    /// Waits until the client's windows have room.
    fn poll_capacity(&self, want: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut half = self.half.borrow_mut();
        let Half::Speaks(stream) = &mut *half else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        stream.reserve_capacity(want);
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(cx)) {
                Some(more) => more.map(drop).map_err(connection_reset)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        Poll::Ready(Ok(stream.capacity().min(want)))
    }

    /// Sends bytes, for which there must be room.
    pub(super) fn send_data(&self, data: Bytes, ends: bool) -> io::Result<()> {
        self.send_piece(self.hold_data(data), ends)
    }

    fn send_piece(&self, piece: UnreadPiece, ends: bool) -> io::Result<()> {
        match &mut *self.half.borrow_mut() {
            Half::Speaks(stream) => stream.send_data(piece, ends).map_err(connection_reset),
            Half::Silent(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns a number that no other answer has at the same time.
    fn answer_id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Ends the stream so that the client sees that something is missing.
    pub(super) fn reset_stream(&self, why: Reason) {
        match &mut *self.half.borrow_mut() {
            Half::Silent(respond) => respond.send_reset(why),
            Half::Speaks(stream) => stream.send_reset(why),
        }
    }
}

impl UnreadAnswers for Outgoing {
    fn is_full(&self) -> bool {
        self.unread.is_full() && (self.held.get() == 0 || !self.unread.goes_first(self.answer_id()))
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.held.get() > 0 && self.unread.goes_first(self.answer_id()) {
            return Poll::Ready(());
        }
        self.unread.poll_room(usize::MAX, cx).map(drop)
    }

    fn set_held_bytes(&self, bytes: usize) {
        let before = self.held.get();
        if bytes > before || bytes == 0 && before > 0 {
            self.held.set(bytes);
            self.unread
                .recount_incomplete(self.answer_id(), before, bytes);
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.set_held_bytes(0);
    }
}

fn connection_reset(e: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, e)
}
