//! Errors that say that the system has too little of something, and may have more a moment later.

use rustix::io::Errno;
use std::time::Duration;

/// Waits a moment for a system that is short of something.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Whether an error says that the system has too little of something at this moment: it may have it the next one.
pub(crate) fn is_short(e: Errno) -> bool {
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
