//! The client of one stream.

use std::{
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};

use galgo_io::{
    buf::Buf,
    rate_allowance::{Holding, RateAllowance},
    turn,
};
use galgo_service::{
    client::{Client, Next, TOO_LARGE, UnreadAnswers},
    fault::Fault,
};
use h2::RecvStream;

use tokio::time::timeout;

use super::{
    limits::{REST_BYTES, REST_TIME, STREAM_WINDOW},
    outgoing::Outgoing,
};

/// Bytes of a body that are read before the request takes a permit and a process. The other half of the window lets more data
/// come meanwhile.
const AHEAD: usize = STREAM_WINDOW as usize / 2;

const GONE: Fault = Fault::Gone("the client reset the stream, or closed the connection");

/// Receives and drops the rest of a body after its response, for a limited time.
pub(super) async fn drain_body(mut body: RecvStream) {
    let rest = async {
        let mut taken = 0;
        while taken < REST_BYTES
            && let Some(Ok(data)) = body.data().await
        {
            taken += data.len();
            let _ = body.flow_control().release_capacity(data.len());
        }
    };
    let _ = timeout(REST_TIME, rest).await;
}

/// The client of one stream. The stream's window grows as the body is taken.
#[derive(Debug)]
pub(super) struct StreamClient {
    body: RecvStream,
    out: Rc<Outgoing>,
    /// Bytes of the body that have come and were not taken.
    buf: Buf,
    /// Whether the whole body has come.
    ended: bool,
    /// Bytes that are left of the declared length.
    left: Option<u64>,
    taken: u64,
    /// Limit on the bytes of the body.
    limit: u64,
    allowance: RateAllowance,
    owes_continue: bool,
    /// Whether the client asks for a WebSocket. Its bytes are then no body, and stay in its window until a program has the
    /// stream.
    held: bool,
}

impl StreamClient {
    /// Creates the client that sends `body`. `declared`: the body's length, if the client has declared it.
    pub(super) fn new(
        body: RecvStream,
        out: Rc<Outgoing>,
        declared: Option<u64>,
        allowance: RateAllowance,
        owes_continue: bool,
        held: bool,
    ) -> Self {
        Self {
            ended: body.is_end_stream(),
            body,
            out,
            buf: Buf::default(),
            left: declared.filter(|n| *n > 0),
            taken: 0,
            limit: u64::MAX,
            allowance,
            owes_continue,
            held,
        }
    }

    /// Returns the rest of the body, which was not taken.
    pub(super) fn into_rest(mut self) -> RecvStream {
        let _ = self.body.flow_control().release_capacity(self.buf.len());
        self.body
    }

    /// Receives the data of the body that has come.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let mut allowance = std::mem::replace(&mut self.allowance, RateAllowance::endless());
        let received = allowance.poll_io(cx, |cx| self.poll_body(cx));
        self.allowance = allowance;
        ready!(received).map_err(|e| Fault::from_body_error(&e, GONE))?;
        while let Poll::Ready(Ok(n @ 1..)) = self.poll_body(cx) {
            self.allowance.credit_bytes(n);
        }
        Poll::Ready(Ok(()))
    }

    /// Receives one frame of the body, however long that takes. Returns the number of bytes in the frame; 0 if the body has
    /// ended.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        ready!(turn::poll_turn(cx));
        turn::spend_units(turn::PIECE);
        Poll::Ready(match ready!(self.body.poll_data(cx)) {
            Some(Ok(data)) => {
                self.buf.reserve_read(data.len()).extend_from_slice(&data);
                self.ended |= self.body.is_end_stream();
                Ok(data.len())
            }
            Some(Err(e)) => Err(io::Error::new(io::ErrorKind::ConnectionReset, e)),
            // Trailers are ignored.
            None => {
                self.ended = true;
                Ok(0)
            }
        })
    }
}

impl Client for StreamClient {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.out.poll_gone(cx) {
            // The client is gone: stop waiting for room. Sending the answer then fails.
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.out.poll_room(cx),
        }
    }

    fn unread_answers(&self) -> Option<Rc<dyn UnreadAnswers>> {
        Some(self.out.clone())
    }

    fn next(&mut self) -> Result<Next, Fault> {
        if self.held {
            return Ok(Next::End);
        }
        let here = self.buf.len();
        if self.taken.saturating_add(here as u64) > self.limit {
            return Err(TOO_LARGE);
        }
        Ok(match here {
            0 if self.ended => Next::End,
            0 => Next::More,
            n => Next::Data(n),
        })
    }

    fn buffered_bytes(&self) -> &[u8] {
        self.buf.as_slice()
    }

    fn consume(&mut self, n: usize) {
        let n = n.min(self.buf.len());
        self.buf.consume(n);
        self.taken += n as u64;
        self.left = self.left.map(|left| left.saturating_sub(n as u64));
        // The call fails if more bytes are released than have come.
        let _ = self.body.flow_control().release_capacity(n);
    }

    fn limit_body(&mut self, most: u64) -> Result<(), Fault> {
        self.limit = most;
        match self.remaining_length() {
            Some(n) if n > most => Err(TOO_LARGE),
            _ => Ok(()),
        }
    }

    fn declared_length(&self) -> Option<u64> {
        self.remaining_length().map(|n| n + self.taken)
    }

    fn remaining_length(&self) -> Option<u64> {
        match self.ended {
            true if self.buf.is_empty() => None,
            true => Some(self.buf.len() as u64),
            false => self.left,
        }
    }

    fn is_body_read(&self) -> bool {
        self.held || (self.ended && self.buf.is_empty())
    }

    fn is_body_ready(&self) -> bool {
        let enough = |left: u64| self.buf.len() as u64 >= left.min(AHEAD as u64);
        self.held || self.ended || self.left.is_some_and(enough)
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.poll_frame(cx)
    }

    fn poll_body_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        while !self.held && !self.ended && self.buf.len() < AHEAD {
            self.next()?;
            ready!(self.poll_frame(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Moves received data out of its frames, because frames take more memory than the data in them. The window bounds that
    /// memory.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        // If this fails, the next read of the body returns the error.
        while let Poll::Ready(Ok(n @ 1..)) = self.poll_body(cx) {
            self.allowance.credit_bytes(n);
        }
        self.out.poll_gone(cx).map(|()| Err(GONE))
    }

    fn send_continue(&mut self) {
        if std::mem::take(&mut self.owes_continue) && self.buf.is_empty() {
            self.out.send_continue();
        }
    }

    fn owes_continue(&self) -> bool {
        self.owes_continue
    }

    /// Everything for the client goes into frames, which `nph-` programs cannot write.
    fn speaks_http(&self) -> bool {
        false
    }

    fn can_upgrade(&self) -> bool {
        self.held
    }

    /// Opens the stream to the program. From now on the client may be silent for as long as the program's time limits allow.
    fn upgrade(&mut self) {
        (self.held, self.limit) = (false, u64::MAX);
        self.allowance = RateAllowance::endless();
    }

    fn note_permit(&mut self, permit: Holding) {
        self.allowance.set_permit(permit);
    }
}
