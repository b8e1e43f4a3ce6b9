//! A request head (RFC 9112, 3 and 5).

use std::sync::Arc;

use httparse::{EMPTY_HEADER, Header};
use memchr::memchr;

use super::{
    body::BodyLen,
    method::{Method, Version},
    once::Once,
    scan::HeadLimits,
};
use crate::{
    Fields,
    fields::elements,
    head_error::HeadError,
    target::{Authority, LastHost, Target},
};

/// A request head that passed every check of RFC 9112.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The method, never TRACE or CONNECT.
    pub method: Method,
    /// The target.
    pub target: Target,
    /// The version.
    pub version: Version,
    /// The fields as they came.
    pub fields: Fields,
    /// The requested host, in lower case without its port and without the dot of the DNS root. An IPv6 address is
    /// in brackets and in its shortest form. Empty only in HTTP/1.0.
    pub host: Arc<str>,
    /// The port of the Host field or the absolute-form target.
    pub port: Option<u16>,
    /// Framing of the body.
    pub body: BodyLen,
    /// Whether the client expects `100 Continue`: it waits before it sends a body that is not empty.
    pub expects_continue: bool,
    /// Whether the connection may carry another request after this one.
    pub keep_alive: bool,
}

/// Facts about the message and the connection, picked out of the fields while they are copied.
#[derive(Debug, Default)]
pub(crate) struct FramingFields<'b> {
    pub(crate) host: Once<'b>,
    pub(crate) content_length: Once<'b>,
    transfer_encoding: Once<'b>,
    pub(crate) continues: bool,
    pub(crate) other_expectation: bool,
    close: bool,
    keep_alive: bool,
}

impl Head {
    /// Parses a whole head, as found by [`HeadScan`](super::HeadScan). A head that the scan would refuse is refused
    /// here too.
    pub fn parse(buf: &[u8], limits: &HeadLimits) -> Result<Self, HeadError> {
        Self::parse_next(buf, limits, &mut LastHost::default())
    }

    /// Parses as [`Head::parse`] does, on a connection whose previous request asked for `last`.
    pub fn parse_next(
        buf: &[u8],
        limits: &HeadLimits,
        last: &mut LastHost,
    ) -> Result<Self, HeadError> {
        if buf.len() > limits.bytes {
            return Err(HeadError::TOO_LARGE);
        }
        let buf = buf.strip_prefix(b"\r\n").unwrap_or(buf);
        let (line, block) = split_request_line(buf)?;
        let (method, target, version) = parse_line(line, limits)?;
        let (mut fields, framing) = parse_fields(block, limits)?;
        let Authority { host, port } = requested_authority(&target, version, framing.host, last)?;
        if let Some(authority) = target.authority() {
            set_host_field(&mut fields, authority);
        }
        let body =
            BodyLen::from_fields(version, framing.transfer_encoding, framing.content_length)?;
        let current = version == Version::Http11;
        // RFC 9110, 10.1.1: an expectation in HTTP/1.0 is ignored.
        if current && framing.other_expectation {
            return Err(HeadError::EXPECTATION);
        }
        Ok(Self {
            method,
            target,
            version,
            fields,
            host,
            port,
            body,
            expects_continue: current && framing.continues && !body.is_empty(),
            keep_alive: !framing.close && (current || framing.keep_alive),
        })
    }
}

/// Splits the request line, without its CRLF, from the rest.
fn split_request_line(buf: &[u8]) -> Result<(&[u8], &[u8]), HeadError> {
    let cr = memchr(b'\r', buf).ok_or(HeadError::bad_request("request line has no end"))?;
    match buf[cr..].strip_prefix(b"\r\n") {
        Some(block) => Ok((&buf[..cr], block)),
        None => Err(HeadError::bad_request("CR without LF in the head")),
    }
}

/// Parses method SP request-target SP HTTP-version, with single spaces (RFC 9112, 3).
fn parse_line(line: &[u8], limits: &HeadLimits) -> Result<(Method, Target, Version), HeadError> {
    let mut words = line.split(|&b| b == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadError::bad_request("request line is not three words"));
    };
    let version = Version::parse(version)?;
    let method = Method::parse(method)?;
    let target = Target::parse_with(target, limits.target, limits.encoded_slash)?;
    if target.path() == b"*" && method.as_str() != "OPTIONS" {
        return Err(HeadError::bad_request(
            "target `*` without the method OPTIONS",
        ));
    }
    Ok((method, target, version))
}

/// Few requests have more fields; more of them cost an allocation.
const USUAL_FIELDS: usize = 32;

fn parse_fields<'b>(
    block: &'b [u8],
    limits: &HeadLimits,
) -> Result<(Fields, FramingFields<'b>), HeadError> {
    let mut few = [EMPTY_HEADER; USUAL_FIELDS];
    match copy_fields(block, &mut few[..limits.fields.min(USUAL_FIELDS)]) {
        Err(e) if e.status == 431 && limits.fields > USUAL_FIELDS => {
            copy_fields(block, &mut vec![EMPTY_HEADER; limits.fields])
        }
        done => done,
    }
}

fn copy_fields<'b>(
    block: &'b [u8],
    room: &mut [Header<'b>],
) -> Result<(Fields, FramingFields<'b>), HeadError> {
    let headers = match httparse::parse_headers(block, room) {
        Ok(httparse::Status::Complete((used, headers))) if used == block.len() => headers,
        Ok(httparse::Status::Complete(_)) => {
            return Err(HeadError::bad_request("bytes after the head"));
        }
        Ok(httparse::Status::Partial) => return Err(HeadError::bad_request("head has no end")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(HeadError::MANY_FIELDS);
        }
        Err(httparse::Error::HeaderName) => {
            // httparse also returns this error for obs-fold and a space before the colon.
            return Err(HeadError::bad_request("a field name that is not a token"));
        }
        Err(_) => return Err(HeadError::CONTROL),
    };
    let mut fields = Fields::with_capacity(headers.len(), block.len());
    let mut framing = FramingFields::default();
    for h in headers.iter() {
        let begin = h.name.as_ptr().addr() - block.as_ptr().addr();
        after_crlf(block, begin)?;
        framing.note_field(h.name.as_bytes(), h.value);
        fields.push(h.name, h.value);
    }
    after_crlf(block, block.len())?;
    after_crlf(block, block.len() - 2)?;
    Ok((fields, framing))
}

/// Refuses a bare LF, which httparse takes for the end of a line.
fn after_crlf(block: &[u8], line: usize) -> Result<(), HeadError> {
    if line == 0 || block[..line].ends_with(b"\r\n") {
        Ok(())
    } else {
        Err(HeadError::bad_request("LF without CR in the head"))
    }
}

impl<'b> FramingFields<'b> {
    pub(crate) fn note_field(&mut self, name: &[u8], value: &'b [u8]) {
        // The length rules out nearly every field before letters are compared.
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 if is("host") => self.host.add_value(value),
            6 if is("expect") => {
                // RFC 9110, 5.6.1.2: empty elements of a list are skipped.
                for e in elements(value).filter(|e| !e.is_empty()) {
                    let known = e.eq_ignore_ascii_case(b"100-continue");
                    self.continues |= known;
                    self.other_expectation |= !known;
                }
            }
            10 if is("connection") => {
                for option in elements(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if is("content-length") => self.content_length.add_value(value),
            17 if is("transfer-encoding") => self.transfer_encoding.add_value(value),
            _ => {}
        }
    }
}

/// Returns the requested host. An absolute target's host counts, whatever Host says (RFC 9112, 3.2.2), but Host
/// must still be one host and a port.
fn requested_authority(
    target: &Target,
    version: Version,
    field: Once<'_>,
    last: &mut LastHost,
) -> Result<Authority, HeadError> {
    let of_target = target.authority().map(str::as_bytes);
    let bad = HeadError::HOST;
    match (field, of_target) {
        (Once::Several, _) => Err(HeadError::bad_request("several Host")),
        (Once::Absent, _) if version == Version::Http11 => Err(HeadError::bad_request("no Host")),
        (Once::Absent, None) => Ok(Authority::default()),
        (Once::Absent, Some(a)) => Authority::parse(a).ok_or(bad),
        (Once::One(b""), None) if version == Version::Http10 => Ok(Authority::default()),
        (Once::One(f), None) => last.parse_cached(f).ok_or(bad),
        (Once::One(f), Some(t)) => match (Authority::parse(f), Authority::parse(t)) {
            (Some(_), Some(t)) => Ok(t),
            _ => Err(bad),
        },
    }
}

/// Makes the Host field equal to an absolute target's host, because HTTP_HOST must not name another host.
pub(crate) fn set_host_field(fields: &mut Fields, authority: &str) {
    if fields.first_value("host") != Some(authority.as_bytes()) {
        fields.retain(|name, _| !name.eq_ignore_ascii_case(b"host"));
        fields.push("Host", authority);
    }
}

#[cfg(test)]
mod tests;
