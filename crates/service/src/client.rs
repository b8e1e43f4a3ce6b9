//! The client of a request, as handlers see it: its body, and whether it still waits for the response.
//!
//! Each front makes one of what it has: a connection, one stream of many, or a file. No handler reads from a client's
//! socket, or writes to one.

use std::{
    fmt::Debug,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use galgo_io::{rate_allowance::Holding, sock::Sock};

use crate::fault::Fault;

/// What comes next of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This many bytes at the front of [`Client::data`] are data.
    Data(usize),
    /// More must be awaited first.
    More,
    /// The body is over.
    End,
}

/// What became of a piece of a body on its way into a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spliced {
    /// It is in the pipe.
    Moved,
    /// The client has shut down its sending side meanwhile.
    HalfClosed,
    /// The other end of the pipe is closed.
    Unread,
}

/// The answers of a connection that its client has not read yet, as the maker of one of them sees them.
pub trait UnreadAnswers: Debug {
    /// Whether no more is to be read for this answer now.
    fn is_full(&self) -> bool;

    /// Ready once more may be read.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Counts so many bytes of this answer, until its head is sent. 0: none any longer.
    fn holds(&self, bytes: usize);
}

/// What the client of one request sends, and whether it is there. Where a method does something by itself, that is for a client
/// whose body is here, and that waits for the response.
///
/// What is polled here is polled by one task, and may be given up and begun again at any time.
pub trait Client: Debug {
    /// What comes next of the body.
    ///
    /// # Errors
    /// The body breaks its framing, or is larger than the limit.
    fn next(&mut self) -> Result<Next, Fault>;

    /// What has come; the number of bytes that [`Client::next`] said is body.
    fn data(&self) -> &[u8];

    /// Takes `n` bytes of the data that [`Client::next`] announced.
    fn take(&mut self, n: usize);

    /// Sets the most that the body may hold, in bytes.
    ///
    /// # Errors
    /// A declared length is beyond it.
    fn limit(&mut self, most: u64) -> Result<(), Fault>;

    /// The length of the body, where it was declared.
    fn declared(&self) -> Option<u64>;

    /// What is left of a declared length.
    fn left(&self) -> Option<u64>;

    /// Whether all of the body has been taken.
    fn is_over(&self) -> bool;

    /// Whether the body is whole, or so much of it is here that its reader has something to do, as far as that is seen
    /// without looking into its framing.
    fn is_here(&self) -> bool {
        true
    }

    /// Awaits more of the body.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// Awaits that the body is whole, or that much of it is here; that is all in [`Client::data`] then.
    fn poll_ahead(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    /// How much of the body can go into a pipe without being read: 0 where nothing can.
    fn spliceable(&self) -> usize {
        0
    }

    /// Moves what is there of `len` bytes of the body into `pipe` (splice(2)).
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

    /// As [`Client::poll_watch`], where nothing may be read.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// Ready once the client has room for an answer that will be in memory as a whole: it has read others of its connection.
    fn poll_room(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// What the client has not read, where other answers share its connection.
    fn unread(&self) -> Option<Rc<dyn UnreadAnswers>> {
        None
    }

    /// Whether the client has shut down its sending side.
    fn has_half_closed(&self) -> bool {
        false
    }

    /// The handler wants the body: sends the `100 Continue` that is owed, once, unless the body has begun to come anyway
    /// (RFC 9110, 10.1.1).
    fn send_continue(&mut self) {}

    /// Whether a `100 Continue` is still owed.
    fn owes_continue(&self) -> bool {
        false
    }

    /// Finds out whether a client that has shut down its sending side is still there, if no response begins soon.
    fn probe(&mut self) {}

    /// A response begins now: nothing else may be sent.
    fn begin_response(&mut self) {}

    /// Whether the client itself speaks HTTP, and not a server in front of this one.
    fn speaks_http(&self) -> bool {
        true
    }

    /// Whether a program can have the connection, with another protocol on it: see [`Client::upgrade`].
    fn can_upgrade(&self) -> bool {
        false
    }

    /// A program has the connection from now on (RFC 9110, 7.8): the body is all that the client sends, however late.
    fn upgrade(&mut self) {}

    /// The request holds a permit that others may wait for: from now on its client gets a smaller rate allowance.
    fn has_permit(&mut self, _permit: Holding) {}
}

impl dyn Client + '_ {
    /// See [`Client::poll_more`].
    pub fn more(&mut self) -> impl Future<Output = Result<(), Fault>> {
        poll_fn(|cx| self.poll_more(cx))
    }

    /// See [`Client::poll_ahead`]. A `100 Continue` that is owed is sent first.
    pub async fn ahead(&mut self) -> Result<(), Fault> {
        if self.is_here() {
            return Ok(());
        }
        self.send_continue();
        poll_fn(|cx| self.poll_ahead(cx)).await
    }

    /// See [`Client::poll_splice`].
    pub async fn splice(&mut self, pipe: &Sock, len: usize) -> Result<Spliced, Fault> {
        poll_fn(|cx| self.poll_splice(pipe, len, cx)).await
    }

    /// See [`Client::poll_room`].
    pub fn room(&mut self) -> impl Future<Output = ()> {
        poll_fn(|cx| self.poll_room(cx))
    }

    /// See [`Client::poll_watch`].
    pub fn watch(&mut self) -> impl Future<Output = Result<(), Fault>> {
        poll_fn(|cx| self.poll_watch(cx))
    }

    /// Polls `io`, which is given [`Client::data`], until it is ready; `None`: the client has shut down its sending side
    /// meanwhile.
    ///
    /// # Errors
    /// The client is gone.
    pub fn during<T>(
        &mut self,
        mut io: impl FnMut(&[u8], &mut Context<'_>) -> Poll<T>,
    ) -> impl Future<Output = Result<Option<T>, Fault>> {
        poll_fn(move |cx| {
            if let Poll::Ready(done) = io(self.data(), cx) {
                return Poll::Ready(Ok(Some(done)));
            }
            self.poll_gone(cx).map_ok(|()| None)
        })
    }

    /// Waits for `io`; a client that leaves meanwhile is noticed.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn waits_for<T>(
        &mut self,
        mut io: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Fault> {
        loop {
            if let Some(done) = self.during(|_, cx| io.as_mut().poll(cx)).await? {
                return Ok(done);
            }
        }
    }
}

/// The client of a request that is asked about before it is answered: its body is for who answers, and nothing is read of it.
#[derive(Debug)]
pub struct Bodiless<'c>(pub &'c mut dyn Client);

impl Client for Bodiless<'_> {
    fn next(&mut self) -> Result<Next, Fault> {
        Ok(Next::End)
    }

    fn data(&self) -> &[u8] {
        &[]
    }

    fn take(&mut self, _n: usize) {}

    fn limit(&mut self, _most: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn declared(&self) -> Option<u64> {
        None
    }

    fn left(&self) -> Option<u64> {
        None
    }

    fn is_over(&self) -> bool {
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

    fn probe(&mut self) {
        self.0.probe();
    }

    fn speaks_http(&self) -> bool {
        self.0.speaks_http()
    }

    fn has_permit(&mut self, permit: Holding) {
        self.0.has_permit(permit);
    }
}

/// A client that has sent all of its body, and waits for ever.
#[derive(Debug)]
pub struct Whole {
    body: Vec<u8>,
    taken: usize,
}

impl Whole {
    /// The client of a request with this body.
    pub fn new(body: Vec<u8>) -> Self {
        Self { body, taken: 0 }
    }
}

impl Client for Whole {
    fn next(&mut self) -> Result<Next, Fault> {
        Ok(match self.data().len() {
            0 => Next::End,
            n => Next::Data(n),
        })
    }

    fn data(&self) -> &[u8] {
        &self.body[self.taken..]
    }

    fn take(&mut self, n: usize) {
        self.taken = (self.taken + n).min(self.body.len());
    }

    fn limit(&mut self, most: u64) -> Result<(), Fault> {
        if self.body.len() as u64 > most {
            Err(TOO_LARGE)
        } else {
            Ok(())
        }
    }

    fn declared(&self) -> Option<u64> {
        Some(self.body.len() as u64)
    }

    fn left(&self) -> Option<u64> {
        Some(self.data().len() as u64)
    }

    fn is_over(&self) -> bool {
        self.data().is_empty()
    }

    fn poll_more(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn poll_gone(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Pending
    }
}

/// The body is beyond its limit.
pub const TOO_LARGE: Fault = Fault::Client(
    413,
    "the request body is larger than this route takes (max_body)",
);
