//! Errors that mean that the system is short of something, and may have it again a moment later.

use rustix::io::Errno;
use std::time::Duration;

/// Waits a moment for a system that is short of something.
pub(crate) fn pause_for_shortage() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Whether an error means that the system is short of something at this moment. A retry may succeed.
pub fn is_short(e: Errno) -> bool {
    [
        Errno::NOMEM,
        Errno::NOBUFS,
        Errno::MFILE,
        Errno::NFILE,
        Errno::AGAIN,
        Errno::TOOMANYREFS,
    ]
    .contains(&e)
}
