//! Registering with the event loop of this thread.

use std::{io, os::fd::AsRawFd};

use rustix::io::Errno;
use tokio::io::{Interest, unix::AsyncFd};

/// The direction of a transfer, seen from this process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    In,
    Out,
}

/// Registers a descriptor with the event loop of this thread.
#[expect(
    deprecated,
    reason = "the replacement is unsafe for types that may change their descriptor"
)]
pub fn register<T: AsRawFd>(fd: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // This is sound for both kinds of type that are registered here. A type that owns its descriptor keeps it. If only a number
    // is registered, its descriptor lives longer than the registration.
    AsyncFd::with_interest(fd, interest)
}

/// Returns whether the kernel lacks room to watch a descriptor (epoll_ctl(2)). The error does not mean that the descriptor has
/// failed.
pub fn is_short(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::NOSPC | Errno::NOMEM))
}
