//! Why the worker takes no request.

use rustix::io::Errno;
use std::io;

/// Why there is no connection.
#[derive(Debug)]
pub enum StartFault {
    /// The worker takes no more at this moment, or is being started again: try again soon.
    Busy,
    /// No thread, process or descriptor is left for it.
    Short,
    /// The system's error.
    Failed(io::Error),
}

impl From<io::Error> for StartFault {
    fn from(e: io::Error) -> Self {
        match is_shortage(&e) {
            true => Self::Short,
            false => Self::Failed(e),
        }
    }
}

/// Whether the system is short of something at this moment: processes, threads, memory, descriptors.
pub(super) fn is_shortage(e: &io::Error) -> bool {
    let short = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE];
    Errno::from_io_error(e).is_some_and(|e| short.contains(&e))
}
