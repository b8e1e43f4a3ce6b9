//! Why a request head is refused.

use crate::target::TargetError;

/// The Allow field of a 405 (RFC 9110, 15.5.6): programs take any method but TRACE and CONNECT,
/// these are the ones worth naming.
pub const ALLOW: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH";

/// Why a head is refused: the status to answer with before the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadError {
    /// 400, 405 (to be sent with [`ALLOW`]), 414, 417, 431, 501 or 505.
    pub status: u16,
    /// What was wrong, in words for the log.
    pub why: &'static str,
}

impl HeadError {
    pub(crate) const fn new(status: u16, why: &'static str) -> Self {
        Self { status, why }
    }
}

impl From<TargetError> for HeadError {
    fn from(e: TargetError) -> Self {
        match e {
            TargetError::TooLong => {
                Self::new(414, "the target is longer than is taken (max_target)")
            }
            TargetError::Byte => Self::new(400, "a byte that no target may hold"),
            TargetError::Form => Self::new(400, "target is neither a path nor an http URI"),
            TargetError::Percent => {
                Self::new(400, "bad or dangerous percent-encoding in the target")
            }
            TargetError::DotSegment => Self::new(400, "the target leads above the root"),
        }
    }
}
