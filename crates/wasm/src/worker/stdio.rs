//! A guest's standard streams: the pipes of its request, read and written without waiting; what must
//! wait does so on the thread's event loop.
//!
//! Output is held back while the guest computes, so that a head and a body, printed apart, wake the
//! server once: it goes out when a piece is full, when the guest waits for something, with the next
//! beat of its clock, and when it ends.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd};
use wasmtime_wasi::{
    async_trait,
    cli::{IsTerminal, StdinStream, StdoutStream},
    p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult},
};

/// Bytes moved at once.
const PIECE: usize = 64 << 10;

/// One of the three.
#[derive(Debug, Clone)]
pub(super) struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fd: Mutex<Option<Arc<OwnedFd>>>,
    held: Mutex<Held>,
}

/// Output that was taken from the guest and not yet written.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    /// Nobody reads any more.
    broken: Option<Errno>,
}

impl Stream {
    /// Of a descriptor that does not block.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(Arc::new(Inner {
            fd: Mutex::new(Some(Arc::new(fd))),
            held: Mutex::default(),
        }))
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.0.fd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is held back, as much as fits now; whether that was all.
    pub(super) fn push(&self) -> bool {
        let held = &mut *self.held();
        let mut written = 0;
        while let Some(rest) = held.bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.write(rest) {
                Ok(n) => written += n,
                Err(Errno::AGAIN) => break,
                Err(e) => {
                    held.broken = Some(e);
                    written = held.bytes.len();
                }
            }
        }
        held.bytes.drain(..written);
        held.bytes.is_empty()
    }

    /// Writes what is held back, and waits while it does not fit.
    pub(super) fn poll_push(&self, waiter: &mut Waiter, cx: &mut Context<'_>) -> Poll<()> {
        while !self.push() {
            if waiter.poll(self, Interest::WRITABLE, cx).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    pub(super) fn close(&self) {
        *self.slot() = None;
    }

    fn fd(&self) -> Result<Arc<OwnedFd>, Errno> {
        self.slot().clone().ok_or(Errno::BADF)
    }

    /// Reads what is there: AGAIN where nothing is, 0 at the end.
    pub(super) fn read(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let fd = self.fd()?;
        loop {
            match rustix::io::read(&fd, &mut *to) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Writes what fits: AGAIN where nothing does.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let fd = self.fd()?;
        loop {
            match rustix::io::write(&fd, bytes) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }

    /// Whether it can be read or written now, or never again.
    fn is_ready(&self, flags: PollFlags) -> bool {
        let Ok(fd) = self.fd() else { return true };
        let mut fds = [PollFd::new(&*fd, flags)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// Waits until it can be written.
    pub(super) async fn writable(&self) {
        Waiter::default().ready(self, Interest::WRITABLE).await;
    }

    /// Writes for at most a second; what does not fit is dropped.
    pub(super) fn write_now(&self, mut bytes: &[u8]) {
        let patience = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let Ok(fd) = self.fd() else { return };
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(Errno::AGAIN) => {
                    let mut fds = [PollFd::new(&*fd, PollFlags::OUT)];
                    if !matches!(poll(&mut fds, Some(&patience)), Ok(n) if n > 0) {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

/// A stream on the event loop, put there when somebody has to wait for it: a registration belongs to
/// one waiter.
#[derive(Debug, Default)]
pub(super) struct Waiter(Option<AsyncFd<Shared>>);

#[derive(Debug)]
struct Shared(OwnedFd);

impl AsRawFd for Shared {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Waiter {
    fn poll(&mut self, stream: &Stream, interest: Interest, cx: &mut Context<'_>) -> Poll<()> {
        let flags = match interest.is_readable() {
            true => PollFlags::IN,
            false => PollFlags::OUT,
        };
        loop {
            if stream.is_ready(flags) {
                return Poll::Ready(());
            }
            if self.0.is_none() {
                self.0 = register(stream, interest);
            }
            let Some(fd) = &self.0 else {
                return Poll::Ready(());
            };
            let ready = match interest.is_readable() {
                true => fd.poll_read_ready(cx),
                false => fd.poll_write_ready(cx),
            };
            match ready {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(mut guard)) if !stream.is_ready(flags) => guard.clear_ready(),
                Poll::Ready(Ok(_)) => return Poll::Ready(()),
            }
        }
    }

    async fn ready(&mut self, stream: &Stream, interest: Interest) {
        std::future::poll_fn(|cx| self.poll(stream, interest, cx)).await;
    }
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe for types that may change their descriptor"
)]
fn register(stream: &Stream, interest: Interest) -> Option<AsyncFd<Shared>> {
    let own = rustix::io::fcntl_dupfd_cloexec(stream.fd().ok()?.as_fd(), 3).ok()?;
    // Sound: `Shared` owns its descriptor and keeps it.
    AsyncFd::with_interest(Shared(own), interest).ok()
}

fn failed(errno: Errno) -> StreamError {
    match errno {
        Errno::PIPE | Errno::BADF => StreamError::Closed,
        other => StreamError::LastOperationFailed(io::Error::from(other).into()),
    }
}

/// A guest's view of an input.
#[derive(Debug)]
pub(super) struct In {
    stream: Stream,
    waiter: Waiter,
}

impl In {
    pub(super) fn new(stream: &Stream) -> Self {
        Self {
            stream: stream.clone(),
            waiter: Waiter::default(),
        }
    }

    /// The next piece; empty at the end.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let mut piece = vec![0; PIECE];
        loop {
            match self.stream.read(&mut piece) {
                Ok(n) => {
                    piece.truncate(n);
                    return Poll::Ready(Ok(piece.into()));
                }
                Err(Errno::AGAIN) => match self.waiter.poll(&self.stream, Interest::READABLE, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => {}
                },
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }
}

#[async_trait]
impl Pollable for In {
    async fn ready(&mut self) {
        self.waiter.ready(&self.stream, Interest::READABLE).await;
    }
}

#[async_trait]
impl InputStream for In {
    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        loop {
            let piece = self.read(size)?;
            if !piece.is_empty() || size == 0 {
                return Ok(piece);
            }
            self.ready().await;
        }
    }

    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let mut piece = vec![0; size.min(PIECE)];
        if piece.is_empty() {
            return Ok(Bytes::new());
        }
        match self.stream.read(&mut piece) {
            Ok(0) => Err(StreamError::Closed),
            Ok(n) => {
                piece.truncate(n);
                Ok(piece.into())
            }
            Err(Errno::AGAIN) => Ok(Bytes::new()),
            Err(e) => Err(failed(e)),
        }
    }
}

/// A guest's view of an output.
#[derive(Debug)]
struct Out {
    stream: Stream,
    waiter: Waiter,
}

#[async_trait]
impl Pollable for Out {
    async fn ready(&mut self) {
        let Self { stream, waiter } = self;
        if stream.held().bytes.len() >= PIECE {
            std::future::poll_fn(|cx| stream.poll_push(waiter, cx)).await;
        }
    }
}

#[async_trait]
impl OutputStream for Out {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let full = {
            let mut held = self.stream.held();
            held.bytes.extend_from_slice(&bytes);
            held.bytes.len() >= PIECE
        };
        if full {
            self.stream.push();
        }
        Ok(())
    }

    /// What is held back goes out soon enough: see above.
    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if self.stream.held().bytes.len() >= PIECE {
            self.stream.push();
        }
        let held = self.stream.held();
        match held.broken {
            Some(e) => Err(failed(e)),
            None => Ok(PIECE.saturating_sub(held.bytes.len())),
        }
    }
}

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(In::new(self))
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(In::new(self))
    }
}

impl StdoutStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(Out::from(self))
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(Out::from(self))
    }
}

impl From<&Stream> for Out {
    fn from(stream: &Stream) -> Self {
        Self {
            stream: stream.clone(),
            waiter: Waiter::default(),
        }
    }
}

// Asked for by interfaces that no guest here reaches (preview 3).
impl AsyncRead for In {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, waiter } = &mut *self;
        loop {
            match stream.read(buf.initialize_unfilled()) {
                Ok(n) => {
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => match waiter.poll(stream, Interest::READABLE, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => {}
                },
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }
}

impl AsyncWrite for Out {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, waiter } = &mut *self;
        loop {
            match stream.write(bytes) {
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(Errno::AGAIN) => match waiter.poll(stream, Interest::WRITABLE, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => {}
                },
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
