//! The client of a request, as handlers see it: its body, and whether it still waits for the response.
//!
//! Each front implements [`Client`] for its connections, for a stream of a connection, or for a file. No handler reads from a
//! client's socket, or writes to one.

use std::{
    fmt::Debug,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use galgo_io::{rate_allowance::Holding, sock::Sock};

use crate::fault::Fault;

/// The next step in reading a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This many bytes at the front of [`Client::buffered_bytes`] are body.
    Data(usize),
    /// More bytes must come first.
    More,
    /// The body is over.
    End,
}

/// The result of moving a piece of a body into a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spliced {
    /// The piece is in the pipe.
    Moved,
    /// The client has shut down its sending side meanwhile.
    HalfClosed,
    /// The other end of the pipe is closed.
    Unread,
}

/// The unread answers of a connection, as the producer of an answer sees them.
pub trait UnreadAnswers: Debug {
    /// Whether the producer must not read more for this answer now.
    fn is_full(&self) -> bool;

    /// Ready once the producer may read more.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Sets how many bytes this answer holds, until its head is sent. 0: none any longer.
    fn set_held_bytes(&self, bytes: usize);
}

/// The body that the client of one request sends, and whether the client is still there. Methods with a default are for a
/// client whose body is complete, and that waits for the response.
///
/// Only one task polls these methods, and may stop and start again at any time.
pub trait Client: Debug {
    /// Returns the next step in reading the body.
    ///
    /// # Errors
    /// The body breaks its framing, or is larger than the limit.
    fn next(&mut self) -> Result<Next, Fault>;

    /// Returns the bytes that have come; [`Client::next`] says how many of them are body.
    fn buffered_bytes(&self) -> &[u8];

    /// Takes `n` bytes of the data that [`Client::next`] announced.
    fn consume(&mut self, n: usize);

    /// Sets the limit of the body, in bytes.
    ///
    /// # Errors
    /// A declared length is beyond the limit.
    fn limit_body(&mut self, most: u64) -> Result<(), Fault>;

    /// Returns the length of the body, if it was declared.
    fn declared_length(&self) -> Option<u64>;

    /// Returns the rest of a declared length.
    fn remaining_length(&self) -> Option<u64>;

    /// Whether all of the body has been taken.
    fn is_body_read(&self) -> bool;

    /// Whether the body is complete, or enough of it is here for its reader to begin, as far as that can be seen without
    /// parsing its framing.
    fn is_body_ready(&self) -> bool {
        true
    }

    /// Waits for more of the body.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// Waits until the body is complete, or enough of it is here; all of that is in [`Client::buffered_bytes`] then.
    fn poll_body_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    /// Returns how much of the body can go into a pipe without being read; 0 if nothing can.
    fn spliceable(&self) -> usize {
        0
    }

    /// Moves at most `len` bytes of the body, as many as are here, into `pipe` (splice(2)).
    fn poll_splice(
        &mut self,
        _pipe: &Sock,
        _len: usize,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<Spliced, Fault>> {
        Poll::Ready(Ok(Spliced::Moved))
    }

    /// Watches a client whose body is over. Ready once when it half-closes, and with [`Fault::Gone`] when it is gone.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.poll_gone(cx)
    }

    /// Like [`Client::poll_watch`], if nothing may be read.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// Ready once the client has room for an answer that will be in memory completely: it has read other answers of its
    /// connection.
    fn poll_room(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Returns the unread answers, if other answers share the connection.
    fn unread_answers(&self) -> Option<Rc<dyn UnreadAnswers>> {
        None
    }

    /// Whether the client has shut down its sending side.
    fn has_half_closed(&self) -> bool {
        false
    }

    /// Tells the client that the handler wants the body: sends the owed `100 Continue`, once, unless the body has begun to come
    /// anyway (RFC 9110, 10.1.1).
    fn send_continue(&mut self) {}

    /// Whether a `100 Continue` is still owed.
    fn owes_continue(&self) -> bool {
        false
    }

    /// Finds out whether a client that has shut down its sending side is still there, if no response begins soon.
    fn probe_connection(&mut self) {}

    /// Tells the client that a response begins now: nothing else may be sent.
    fn begin_response(&mut self) {}

    /// Whether the client itself speaks HTTP, and not a server in front of this one.
    fn speaks_http(&self) -> bool {
        true
    }

    /// Whether the connection can be given to a program, for another protocol: see [`Client::upgrade`].
    fn can_upgrade(&self) -> bool {
        false
    }

    /// Gives the connection to a program (RFC 9110, 7.8): from now on the body is all that the client sends, however late.
    fn upgrade(&mut self) {}

    /// Tells the client that the request holds a permit that others may wait for: from now on the client gets a smaller rate
    /// allowance.
    fn note_permit(&mut self, _permit: Holding) {}
}

impl dyn Client + '_ {
    /// See [`Client::poll_more`].
    pub fn wait_for_body(&mut self) -> impl Future<Output = Result<(), Fault>> {
        poll_fn(|cx| self.poll_more(cx))
    }

    /// See [`Client::poll_body_ready`]. Sends an owed `100 Continue` first.
    pub async fn wait_until_body_ready(&mut self) -> Result<(), Fault> {
        if self.is_body_ready() {
            return Ok(());
        }
        self.send_continue();
        poll_fn(|cx| self.poll_body_ready(cx)).await
    }

    /// See [`Client::poll_splice`].
    pub async fn splice(&mut self, pipe: &Sock, len: usize) -> Result<Spliced, Fault> {
        poll_fn(|cx| self.poll_splice(pipe, len, cx)).await
    }

    /// See [`Client::poll_room`].
    pub fn wait_for_room(&mut self) -> impl Future<Output = ()> {
        poll_fn(|cx| self.poll_room(cx))
    }

    /// See [`Client::poll_watch`].
    pub fn watch_connection(&mut self) -> impl Future<Output = Result<(), Fault>> {
        poll_fn(|cx| self.poll_watch(cx))
    }

    /// Polls `io` with [`Client::buffered_bytes`] until it is ready; `None`: the client has shut down its sending side meanwhile.
    ///
    /// # Errors
    /// The client is gone.
    pub fn poll_while_connected<T>(
        &mut self,
        mut io: impl FnMut(&[u8], &mut Context<'_>) -> Poll<T>,
    ) -> impl Future<Output = Result<Option<T>, Fault>> {
        poll_fn(move |cx| {
            if let Poll::Ready(done) = io(self.buffered_bytes(), cx) {
                return Poll::Ready(Ok(Some(done)));
            }
            self.poll_gone(cx).map_ok(|()| None)
        })
    }

    /// Waits for `io`, and notices if the client leaves meanwhile.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn await_while_connected<T>(
        &mut self,
        mut io: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Fault> {
        loop {
            if let Some(done) = self
                .poll_while_connected(|_, cx| io.as_mut().poll(cx))
                .await?
            {
                return Ok(done);
            }
        }
    }
}

/// The client of a request before it is answered, for a program that decides about it. The body is left for the handler:
/// nothing of it is read.
#[derive(Debug)]
pub struct Bodiless<'c>(pub &'c mut dyn Client);

impl Client for Bodiless<'_> {
    fn next(&mut self) -> Result<Next, Fault> {
        Ok(Next::End)
    }

    fn buffered_bytes(&self) -> &[u8] {
        &[]
    }

    fn consume(&mut self, _n: usize) {}

    fn limit_body(&mut self, _most: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn declared_length(&self) -> Option<u64> {
        None
    }

    fn remaining_length(&self) -> Option<u64> {
        None
    }

    fn is_body_read(&self) -> bool {
        true
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.0.poll_gone(cx)
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.0.poll_gone(cx)
    }

    fn has_half_closed(&self) -> bool {
        self.0.has_half_closed()
    }

    fn probe_connection(&mut self) {
        self.0.probe_connection();
    }

    fn speaks_http(&self) -> bool {
        self.0.speaks_http()
    }

    fn note_permit(&mut self, permit: Holding) {
        self.0.note_permit(permit);
    }
}

/// A client that has sent all of its body, and waits for ever.
#[derive(Debug)]
pub struct Whole {
    body: Vec<u8>,
    taken: usize,
}

impl Whole {
    /// Returns the client of a request with this body.
    pub fn new(body: Vec<u8>) -> Self {
        Self { body, taken: 0 }
    }
}

impl Client for Whole {
    fn next(&mut self) -> Result<Next, Fault> {
        Ok(match self.buffered_bytes().len() {
            0 => Next::End,
            n => Next::Data(n),
        })
    }

    fn buffered_bytes(&self) -> &[u8] {
        &self.body[self.taken..]
    }

    fn consume(&mut self, n: usize) {
        self.taken = (self.taken + n).min(self.body.len());
    }

    fn limit_body(&mut self, most: u64) -> Result<(), Fault> {
        if self.body.len() as u64 > most {
            Err(TOO_LARGE)
        } else {
            Ok(())
        }
    }

    fn declared_length(&self) -> Option<u64> {
        Some(self.body.len() as u64)
    }

    fn remaining_length(&self) -> Option<u64> {
        Some(self.buffered_bytes().len() as u64)
    }

    fn is_body_read(&self) -> bool {
        self.buffered_bytes().is_empty()
    }

    fn poll_more(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn poll_gone(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Pending
    }
}

/// The fault of a body beyond its limit.
pub const TOO_LARGE: Fault = Fault::Client(
    413,
    "the request body is larger than this route allows (max_body)",
);
