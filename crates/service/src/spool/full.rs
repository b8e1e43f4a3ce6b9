//! The reason why bytes cannot wait.

use std::io;

use crate::fault::Fault;

/// The reason why bytes cannot wait here.
#[derive(Debug)]
pub enum Full {
    /// The requests of all addresses together are at the limit.
    Limit,
    /// The address is at the limit of one address.
    Share,
    /// The file system does not accept the bytes.
    Disk(io::Error),
}

impl From<io::Error> for Full {
    fn from(e: io::Error) -> Self {
        Self::Disk(e)
    }
}

impl Full {
    /// Returns the fault of a request whose body cannot be stored.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Limit => Fault::Busy("stored request bodies and output have reached spool_limit"),
            Self::Share => Fault::Busy(
                "stored request bodies and output of this client's address have reached half of spool_limit",
            ),
            Self::Disk(e) => Fault::Storage(format!(
                "the request body could not be stored: {e} (free space in the folder that `spool` names, or name another folder)"
            )),
        }
    }
}
