//! Why the worker takes no request.

use std::io;

use crate::no_code::is_shortage;

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
        if is_shortage(&e) {
            Self::Short
        } else {
            Self::Failed(e)
        }
    }
}
