//! The error of unpacking.

/// A block that cannot be unpacked. Both sides' tables differ from now on, so the connection must end (RFC 9113, 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecodable;
