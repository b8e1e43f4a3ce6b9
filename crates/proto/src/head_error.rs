//! The error of a refused request head.

/// The Allow field of a 405 (RFC 9110, 15.5.6). Programs take any method but TRACE and CONNECT;
/// this field lists the common methods.
pub const ALLOW: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH";

/// The error of a refused head: the status to answer with before the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadError {
    /// 400, 405 (to be sent with [`ALLOW`]), 414, 417, 431, 501 or 505.
    pub status: u16,
    /// The reason, in words for the log.
    pub why: &'static str,
}

impl HeadError {
    /// The head has more bytes than the limit.
    pub(crate) const TOO_LARGE: Self =
        Self::new(431, "the head is larger than the limit (max_head)");
    /// The head has more fields than the limit.
    pub(crate) const MANY_FIELDS: Self =
        Self::new(431, "more header fields than the limit (max_fields)");
    /// A Host field or `:authority` cannot be read.
    pub(crate) const HOST: Self = Self::bad_request("Host is not a host and a port");
    /// An expectation is unknown (RFC 9110, 10.1.1).
    pub(crate) const EXPECTATION: Self = Self::new(417, "an expectation other than 100-continue");
    /// A field value holds a byte that is not allowed in fields.
    pub(crate) const CONTROL: Self = Self::bad_request("a field value with a control byte");

    pub(crate) const fn new(status: u16, why: &'static str) -> Self {
        Self { status, why }
    }

    /// Makes a 400.
    pub(crate) const fn bad_request(why: &'static str) -> Self {
        Self::new(400, why)
    }
}
