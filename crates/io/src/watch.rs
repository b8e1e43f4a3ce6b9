//! Registering with the event loop of this thread.

use std::{io, os::fd::AsRawFd};

use rustix::io::Errno;
use tokio::io::{Interest, unix::AsyncFd};

/// Registers a descriptor with the event loop of this thread.
#[expect(
    deprecated,
    reason = "the replacement is unsafe for types that may change their descriptor"
)]
pub fn register<T: AsRawFd>(fd: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // Sound for what is registered here: a type that owns its descriptor and keeps it, or the number of
    // one that is kept longer.
    AsyncFd::with_interest(fd, interest)
}

/// Whether the kernel lacks room to watch a descriptor (epoll_ctl(2)): of what goes on there that says nothing.
pub fn is_short(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::NOSPC | Errno::NOMEM))
}
