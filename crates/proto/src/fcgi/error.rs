//! What is wrong with a record.

use std::fmt;

/// The bytes are no FastCGI: nothing behind them can be framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// A record of this version.
    Version(u8),
    /// A record that has no place here: what is wrong with it.
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
