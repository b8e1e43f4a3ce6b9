//! Why a request head is refused.

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
    /// More bytes than the limit.
    pub(crate) const TOO_LARGE: Self =
        Self::new(431, "the head is larger than is taken (max_head)");
    /// More fields than the limit.
    pub(crate) const MANY_FIELDS: Self =
        Self::new(431, "more header fields than are taken (max_fields)");
    /// A Host field or `:authority` that cannot be read.
    pub(crate) const HOST: Self = Self::bad("Host is not a host and a port");
    /// RFC 9110, 10.1.1.
    pub(crate) const EXPECTATION: Self = Self::new(417, "an expectation other than 100-continue");
    /// A field value with a byte that none may hold.
    pub(crate) const CONTROL: Self = Self::bad("a field value with a control byte");

    pub(crate) const fn new(status: u16, why: &'static str) -> Self {
        Self { status, why }
    }

    /// A 400.
    pub(crate) const fn bad(why: &'static str) -> Self {
        Self::new(400, why)
    }
}
