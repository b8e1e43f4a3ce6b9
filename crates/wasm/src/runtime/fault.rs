//! The reason why the worker takes no request.

use std::io;

use crate::no_code::is_shortage;

/// The reason why there is no connection.
#[derive(Debug)]
pub enum StartFault {
    /// The worker takes no more requests at this moment, or is being started again: try again soon.
    Busy,
    /// The system has no thread, process or descriptor left for the worker.
    Short,
    /// An error of the system.
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
