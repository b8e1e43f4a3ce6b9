//! Transfers inside the kernel: splice(2), sendfile(2).

use std::{
    future::poll_fn,
    io,
    os::fd::AsFd,
    task::{Context, Poll},
};

use rustix::pipe::{SpliceFlags, splice};

use crate::{sock::Sock, watch::Direction};

impl Sock {
    /// Moves as many of `len` bytes as fit from `from` to this descriptor without copying them through this process
    /// (splice(2)). Either `from` or this descriptor is a pipe. There must be data in `from`, so the call waits only for room
    /// in this descriptor.
    pub async fn splice(&self, from: impl AsFd, len: usize) -> io::Result<usize> {
        poll_fn(|cx| self.poll_splice(&from, len, cx)).await
    }

    /// Does the same as [`Sock::splice`], as a poll function.
    pub fn poll_splice(
        &self,
        from: impl AsFd,
        len: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        self.poll_call(Direction::Out, &mut false, cx, |fd| {
            splice(from.as_fd(), None, fd, None, len, flags)
        })
    }

    /// Sends bytes of a file without copying them through this process (sendfile(2)), and advances `offset`. `waits`: the call
    /// was tried already, and this call waits for room.
    pub fn poll_sendfile(
        &self,
        file: impl AsFd,
        offset: &mut u64,
        len: usize,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_call(Direction::Out, waits, cx, |fd| {
            rustix::fs::sendfile(fd, file.as_fd(), Some(offset), len)
        })
    }
}
