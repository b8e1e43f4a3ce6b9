//! The method and the version of a request line (RFC 9112, 3.1 and 2.3).

use crate::fields::is_token;
use crate::head_error::HeadError;

/// Limit of a method, in bytes; registered methods have at most 17.
pub(super) const LONGEST_METHOD: usize = 32;

/// The methods galgo knows by name, and any other token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Other(String),
}

impl Method {
    /// Returns the method as a token, as it came.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Other(m) => m,
        }
    }

    /// Parses any token but TRACE and CONNECT, which are a 405. Letter case counts (RFC 9110, 9.1).
    pub(crate) fn parse(raw: &[u8]) -> Result<Self, HeadError> {
        match raw {
            b"GET" => Ok(Self::Get),
            b"HEAD" => Ok(Self::Head),
            b"POST" => Ok(Self::Post),
            b"TRACE" | b"CONNECT" => Err(HeadError::new(405, "method TRACE or CONNECT")),
            _ if raw.len() > LONGEST_METHOD => Err(HeadError::new(501, "method too long")),
            _ if raw.is_empty() || !raw.iter().copied().all(is_token) => {
                Err(HeadError::bad_request("method is not a token"))
            }
            _ => Ok(Self::Other(String::from_utf8_lossy(raw).into_owned())),
        }
    }
}

/// The version of a request. A request line says HTTP/1.0 or HTTP/1.1. A higher minor version counts as the highest known
/// one (RFC 9110, 2.5). Any other version is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

impl Version {
    /// Returns the version for SERVER_PROTOCOL. Apache and nginx write `HTTP/2.0`, too.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }

    /// Parses a version. A version that can be read but is not supported is a 505, anything else a 400.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, HeadError> {
        // Compared as a whole, because a match looks at one byte after the other.
        if raw == b"HTTP/1.1" {
            return Ok(Self::Http11);
        }
        match raw {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok(Self::Http11),
            b"HTTP/1.0" => Ok(Self::Http10),
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                Err(HeadError::new(505, "neither HTTP/1.0 nor HTTP/1.1"))
            }
            _ => Err(HeadError::bad_request(
                "request line without an HTTP version",
            )),
        }
    }
}
