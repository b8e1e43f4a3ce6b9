//! A connection as `h2` reads and writes it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use galgo_io::{buf::Buf, pace::Pace, transport::Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection, which must take what is written to it within the client's allowance.
#[derive(Debug)]
pub(super) struct Wire {
    sock: Rc<Transport>,
    /// Received and not yet read.
    received: Buf,
    pace: Pace,
    /// A read was tried, and is awaited.
    reads: bool,
    /// A write was tried, and is awaited.
    writes: bool,
}

impl Wire {
    /// The connection `sock`, over which `received` has come already.
    pub(super) fn new(sock: Rc<Transport>, received: Buf, pace: Pace) -> Self {
        Self {
            sock,
            received,
            pace,
            reads: false,
            writes: false,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            sock,
            received,
            reads,
            ..
        } = self.get_mut();
        if received.is_empty() {
            let read = sock.poll_fill(received, into.remaining(), reads, cx);
            if read.is_pending() {
                received.shrink();
            }
            ready!(read)?;
        }
        let n = received.len().min(into.remaining());
        into.put_slice(&received.bytes()[..n]);
        received.consume(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self {
            sock, pace, writes, ..
        } = self.get_mut();
        let written = pace.poll_wait(cx, |cx| sock.poll_write(bufs, false, writes, cx));
        *writes = written.is_pending();
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// What was written is with the kernel.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.sock.end_output())
    }
}
