//! Framing of request bodies (RFC 9112, 6).

use super::{method::Version, once::Once};
use crate::head_error::HeadError;
use crate::{
    digits::parse_length,
    fields::{elements, is_token},
};

/// The framing of a request body, decided once (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLen {
    /// There is no body.
    None,
    /// Exactly this many bytes, below 2^63.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

impl BodyLen {
    /// Decides by the Transfer-Encoding and Content-Length fields. RFC 9112, 6.3 lets a server repair
    /// some fields that are refused here. Each repair has been a way to smuggle a request.
    pub(super) fn from_fields(
        version: Version,
        coding: Once<'_>,
        length: Once<'_>,
    ) -> Result<Self, HeadError> {
        match (coding, length) {
            (Once::Absent, Once::Absent) => Ok(Self::None),
            (Once::Absent, Once::One(value)) => Ok(Self::Length(parse_content_length(value)?)),
            (Once::Absent, Once::Several) => Err(HeadError::bad_request("several Content-Length")),
            (Once::One(value), Once::Absent) => parse_transfer_coding(version, value),
            (Once::Several, Once::Absent) => {
                Err(HeadError::bad_request("several Transfer-Encoding"))
            }
            (_, _) => Err(HeadError::bad_request(
                "both Transfer-Encoding and Content-Length",
            )),
        }
    }

    /// Returns whether no bytes follow the head.
    pub fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Length(0))
    }
}

/// Reads a length (RFC 9110, 8.6).
pub(crate) fn parse_content_length(value: &[u8]) -> Result<u64, HeadError> {
    parse_length(value).ok_or(HeadError::bad_request("Content-Length is not a length"))
}

fn parse_transfer_coding(version: Version, value: &[u8]) -> Result<BodyLen, HeadError> {
    if version == Version::Http10 {
        return Err(HeadError::bad_request("Transfer-Encoding in HTTP/1.0"));
    }
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(BodyLen::Chunked);
    }
    let mut codings = elements(value);
    let last = codings.next_back().unwrap_or_default();
    let unknown = |c: &[u8]| {
        !c.is_empty() && c.iter().copied().all(is_token) && !c.eq_ignore_ascii_case(b"chunked")
    };
    // RFC 9112, 6.1: 501 for a coding not understood. A list cannot be framed at all if it is no
    // list, or if chunked comes twice or before another coding.
    if codings.all(unknown) && (unknown(last) || last.eq_ignore_ascii_case(b"chunked")) {
        Err(HeadError::new(501, "a transfer coding other than chunked"))
    } else {
        Err(HeadError::bad_request(
            "Transfer-Encoding is not one chunked",
        ))
    }
}
