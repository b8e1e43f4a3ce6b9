//! A guest's standard streams: the records of its request, read and written without blocking. A stream
//! that must wait does so on the thread's event loop.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use galgo_proto::fcgi::RecordType;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite, Interest, unix::AsyncFd};
use wasmtime_wasi::{
    async_trait,
    cli::{IsTerminal, StdinStream, StdoutStream},
    p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult},
};

use super::connection::{PIECE, Readiness, ServerConnection};

/// A registration with the event loop, made for the first wait; each waiter has its own.
#[derive(Debug, Default)]
pub(super) struct Waiter(Option<AsyncFd<OwnedFd>>);

impl Waiter {
    pub(super) fn poll(
        &mut self,
        connection: &ServerConnection,
        awaited: Readiness,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            if connection.has_happened(awaited) {
                return Poll::Ready(());
            }
            if self.0.is_none() {
                self.0 = register_waiter(connection, awaited);
            }
            let Some(fd) = &self.0 else {
                return Poll::Ready(());
            };
            let ready = match awaited {
                Readiness::Input | Readiness::HangUp => fd.poll_read_ready(cx),
                Readiness::Room => fd.poll_write_ready(cx),
            };
            match ready {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(mut guard)) if !connection.has_happened(awaited) => {
                    guard.clear_ready()
                }
                Poll::Ready(Ok(_)) => return Poll::Ready(()),
            }
        }
    }

    async fn wait_until_ready(&mut self, connection: &ServerConnection, awaited: Readiness) {
        std::future::poll_fn(|cx| self.poll(connection, awaited, cx)).await;
    }

    /// Waits until all held output has been written.
    pub(super) fn poll_push(
        &mut self,
        connection: &ServerConnection,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while !connection.push() {
            if self.poll(connection, Readiness::Room, cx).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe for types that may change their descriptor"
)]
fn register_waiter(connection: &ServerConnection, awaited: Readiness) -> Option<AsyncFd<OwnedFd>> {
    let interest = match awaited {
        Readiness::Input | Readiness::HangUp => Interest::READABLE,
        Readiness::Room => Interest::WRITABLE,
    };
    let own = rustix::io::fcntl_dupfd_cloexec(connection.as_fd(), 3).ok()?;
    // Sound, because an `OwnedFd` keeps its descriptor.
    AsyncFd::with_interest(own, interest).ok()
}

fn stream_error(errno: Errno) -> StreamError {
    match errno {
        Errno::PIPE | Errno::CONNRESET => StreamError::Closed,
        other => StreamError::LastOperationFailed(io::Error::from(other).into()),
    }
}

#[derive(Debug)]
pub(super) struct GuestStdin(pub(super) Arc<ServerConnection>);

#[derive(Debug)]
pub(super) struct GuestOutput(pub(super) Arc<ServerConnection>, pub(super) RecordType);

/// A guest's view of an input.
#[derive(Debug)]
pub(super) struct InStream {
    connection: Arc<ServerConnection>,
    waiter: Waiter,
}

impl InStream {
    pub(super) fn new(connection: &Arc<ServerConnection>) -> Self {
        Self {
            connection: connection.clone(),
            waiter: Waiter::default(),
        }
    }

    /// Returns the next piece, at most `most` bytes; empty at the end.
    pub(super) fn poll_piece(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Bytes>> {
        let Self { connection, waiter } = self;
        loop {
            match connection.read(most) {
                Err(Errno::AGAIN) => match waiter.poll(connection, Readiness::Input, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => {}
                },
                done => return Poll::Ready(done.map_err(Into::into)),
            }
        }
    }
}

#[async_trait]
impl Pollable for InStream {
    async fn ready(&mut self) {
        self.waiter
            .wait_until_ready(&self.connection, Readiness::Input)
            .await;
    }
}

#[async_trait]
impl InputStream for InStream {
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
        if size == 0 {
            return Ok(Bytes::new());
        }
        match self.connection.read(size) {
            Ok(piece) if piece.is_empty() => Err(StreamError::Closed),
            Ok(piece) => Ok(piece),
            Err(Errno::AGAIN) => Ok(Bytes::new()),
            Err(e) => Err(stream_error(e)),
        }
    }
}

/// A guest's view of an output.
#[derive(Debug)]
pub(super) struct OutStream {
    connection: Arc<ServerConnection>,
    kind: RecordType,
    waiter: Waiter,
}

impl OutStream {
    pub(super) fn new(connection: &Arc<ServerConnection>, kind: RecordType) -> Self {
        Self {
            connection: connection.clone(),
            kind,
            waiter: Waiter::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.connection.held_len().is_ok_and(|held| held >= PIECE)
    }

    /// Takes all bytes once there is room for some.
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.ready().await;
        if self.connection.queue_output(self.kind, bytes) >= PIECE {
            self.connection.push();
        }
        self.connection.held_len().map(drop)
    }
}

#[async_trait]
impl Pollable for OutStream {
    async fn ready(&mut self) {
        if self.is_full() {
            let Self {
                connection, waiter, ..
            } = self;
            std::future::poll_fn(|cx| waiter.poll_push(connection, cx)).await;
        }
    }
}

#[async_trait]
impl OutputStream for OutStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if self.connection.queue_output(self.kind, &bytes) >= PIECE {
            self.connection.push();
        }
        Ok(())
    }

    /// Does nothing, because held output is written soon enough: see the module `connection`.
    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if self.is_full() {
            self.connection.push();
        }
        let held = self.connection.held_len().map_err(stream_error)?;
        Ok(PIECE.saturating_sub(held))
    }
}

impl IsTerminal for GuestStdin {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl IsTerminal for GuestOutput {
    fn is_terminal(&self) -> bool {
        false
    }
}

// Only interfaces of preview 3 ask for an asynchronous stream, and guests here cannot import them.
impl StdinStream for GuestStdin {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(tokio::io::empty())
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(InStream::new(&self.0))
    }
}

impl StdoutStream for GuestOutput {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(OutStream::new(&self.0, self.1))
    }
}
