//! Bytes that the kernel moves by itself: splice(2), sendfile(2).

use std::{
    future::poll_fn,
    io,
    os::fd::AsFd,
    task::{Context, Poll},
};

use rustix::pipe::{SpliceFlags, splice};

use crate::sock::{Direction, Sock};

impl Sock {
    /// Moves what fits of `len` bytes from `from` to this descriptor without copying them through this process
    /// (splice(2)); one of the two is a pipe. Something is there in `from`, so a wait is for this one.
    pub async fn splice(&self, from: impl AsFd, len: usize) -> io::Result<usize> {
        poll_fn(|cx| self.poll_splice(&from, len, cx)).await
    }

    /// As [`Sock::splice`], polled.
    pub fn poll_splice(
        &self,
        from: impl AsFd,
        len: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        self.poll_run(Direction::Out, &mut false, cx, |fd| {
            splice(from.as_fd(), None, fd, None, len, flags)
        })
    }

    /// Sends bytes of a file without copying them through this process (sendfile(2)); moves `offset`. `waits`: it was tried
    /// at once already, and is awaited.
    pub fn poll_sendfile(
        &self,
        file: impl AsFd,
        offset: &mut u64,
        len: usize,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_run(Direction::Out, waits, cx, |fd| {
            rustix::fs::sendfile(fd, file.as_fd(), Some(offset), len)
        })
    }
}
