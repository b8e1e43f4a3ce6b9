//! Errors in records.

use std::fmt;

/// The bytes are no FastCGI. No bytes after them can be framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// A record has this version, not 1.
    Version(u8),
    /// A record is not allowed here, for this reason.
    Misplaced(&'static str),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(v) => write!(f, "a record says it is of version {v}, not 1"),
            Self::Misplaced(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RecordError {}
