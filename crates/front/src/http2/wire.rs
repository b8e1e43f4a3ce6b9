//! The transport of a connection, from which `h2` reads and to which it writes.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use galgo_io::{buf::Buf, out::Out, pool, rate_allowance::RateAllowance, transport::Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::frames::{
    Frames,
    head_frames::{HeadFrames, HeadListLimits},
    refusals::{Refusals, RefusingWriter},
};

/// A connection whose client must take the bytes that are written to it within the client's allowance.
///
/// `h2` flushes each frame of more than 256 bytes by itself. So its bytes wait here until `h2` has no more to write, or until a
/// buffer is full. A flush only wakes the task once more. Then the waiting bytes are sent, together with the answers that other
/// tasks have made by then. A record of TLS holds 16 KiB (RFC 8446, 5.1), nine bytes less than a frame with its head.
#[derive(Debug)]
pub(super) struct FrameTransport {
    sock: Rc<Transport>,
    /// Bytes that were received and not yet read.
    received: Buf,
    /// Bytes that were written and not yet sent.
    written: Out,
    allowance: RateAllowance,
    frames: Frames,
    refusing: RefusingWriter,
    /// Whether a read was tried and now waits for data.
    reads: bool,
    /// Whether a write was tried and now waits for room.
    writes: bool,
}

impl FrameTransport {
    /// Wraps the connection `sock`, over which `received` has come already. `refusals` keeps the heads of requests, and is
    /// told which requests `h2` refuses.
    pub(super) fn new(
        sock: Rc<Transport>,
        received: Buf,
        allowance: RateAllowance,
        refusals: &Rc<Refusals>,
        limits: HeadListLimits,
    ) -> Self {
        Self {
            sock,
            received,
            written: Out::default(),
            allowance,
            frames: Frames::new(HeadFrames::new(refusals.clone(), limits)),
            refusing: RefusingWriter::new(refusals.clone()),
            reads: false,
            writes: false,
        }
    }

    /// Ready once bytes were received that `h2` may have, or no more bytes come.
    fn poll_received(&mut self, want: usize, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.frames.poll_left(cx));
        if self.received.is_empty() {
            let Self {
                sock,
                received,
                reads,
                ..
            } = self;
            ready!(sock.poll_fill(received, want, reads, cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the bytes that wait.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self {
            sock,
            written,
            allowance,
            writes,
            ..
        } = self;
        while !written.is_empty() {
            let waits = [IoSlice::new(written.first_part())];
            let sent = allowance.poll_io(cx, |cx| sock.poll_write(&waits, false, writes, cx));
            *writes = sent.is_pending();
            written.consume(ready!(sent)?);
        }
        *written = Out::default();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for FrameTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        wire.frames.pass_made(into);
        // A received head may have to wait for its end.
        while into.filled().is_empty() {
            let received = wire.poll_received(into.remaining(), cx);
            if received.is_pending() {
                wire.received.free_if_empty();
                // The sending goes on when there is room.
                let _sent = wire.poll_send(cx)?;
                return Poll::Pending;
            }
            ready!(received)?;
            if wire.received.is_empty() {
                break;
            }
            let taken = wire.frames.pass_bytes(wire.received.as_slice(), into);
            wire.received.consume(taken);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FrameTransport {
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
        let wire = self.get_mut();
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if wire.written.len() + len > pool::SIZE {
            ready!(wire.poll_send(cx))?;
        }
        let room = wire.written.buffer();
        if room.capacity() == 0 {
            *room = pool::take_buffer();
        }
        for buf in bufs {
            wire.refusing.write(buf, room);
        }
        wire.written.keep_all();
        wire.frames.count_answered(len);
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // If there is no room, the task is woken anyway once there is.
        if !self.written.is_empty() && !self.writes {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        ready!(wire.poll_send(cx))?;
        Poll::Ready(wire.sock.end_output())
    }
}
