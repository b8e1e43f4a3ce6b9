//! A header field of a response head (RFC 3875, 6.3).

use crate::{
    cgi::head_error::LineFault,
    digits::parse_number,
    fields::{is_text, is_token},
};

/// A line that is a header field. The value has lost the white space around it.
pub(super) struct FieldLine<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

impl<'a> FieldLine<'a> {
    /// Parses `line`, which has lost its line end.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, LineFault> {
        if let [b' ' | b'\t', ..] = line {
            return Err(LineFault::FOLDED);
        }
        let Some(colon) = memchr::memchr(b':', line) else {
            return Err(no_colon(line));
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        match name {
            [] => return Err(LineFault::EMPTY_NAME),
            [.., b' ' | b'\t'] if is_token_name(name.trim_ascii_end()) => {
                return Err(LineFault::SPACE_BEFORE_COLON);
            }
            _ if !is_token_name(name) => return Err(bad_name(name)),
            _ => {}
        }
        // Checked on the whole value, because trimming must not hide a CR at its end.
        let value_area = &line[colon + 1..];
        match value_area.iter().find(|&&b| !is_text(b)) {
            None => Ok(Self { name, value }),
            Some(b'\r') => Err(LineFault::BARE_CR),
            Some(0) => Err(LineFault::NUL),
            Some(_) => Err(LineFault::CONTROL),
        }
    }
}

fn is_token_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&b| is_token(b))
}

/// Says why a line without a colon is not a field, the likeliest mistake first.
fn no_colon(line: &[u8]) -> LineFault {
    if line.starts_with(b"HTTP/") {
        LineFault::STATUS_LINE
    } else if line.contains(&0) {
        LineFault::NUL
    } else if line.contains(&b'\r') {
        LineFault::BARE_CR
    } else {
        LineFault::NO_COLON
    }
}

/// Says why a line whose `name` is no token is not a field.
fn bad_name(name: &[u8]) -> LineFault {
    if name.starts_with(b"\xef\xbb\xbf") {
        LineFault::BYTE_ORDER_MARK
    } else if name.contains(&0) {
        LineFault::NUL
    } else if name.contains(&b'\r') {
        LineFault::BARE_CR
    } else if name.iter().any(|b| b" <".contains(b)) {
        // A sentence or a document that happens to hold a colon: "Traceback (most recent call last):".
        LineFault::NO_COLON
    } else {
        LineFault::BAD_NAME
    }
}

/// The role of a field for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldRole {
    Status,
    ContentType,
    ContentLength,
    Location,
    TransferEncoding,
    /// About a connection, which `Status: 101` gives the program.
    Upgrade,
    /// About a connection that the program does not have, or without meaning (`X-CGI-*`, 6.3.5).
    Removed,
    Other,
}

const ROLES: &[(&str, FieldRole)] = &[
    ("Content-Type", FieldRole::ContentType),
    ("Status", FieldRole::Status),
    ("Location", FieldRole::Location),
    ("Content-Length", FieldRole::ContentLength),
    ("Transfer-Encoding", FieldRole::TransferEncoding),
    ("Connection", FieldRole::Removed),
    ("Keep-Alive", FieldRole::Removed),
    ("Proxy-Connection", FieldRole::Removed),
    ("TE", FieldRole::Removed),
    ("Trailer", FieldRole::Removed),
    ("Upgrade", FieldRole::Upgrade),
];

impl FieldRole {
    pub(super) fn from_name(name: &[u8]) -> Self {
        let extension = name.get(..6).unwrap_or_default();
        if extension.eq_ignore_ascii_case(b"X-CGI-") {
            return Self::Removed;
        }
        ROLES
            .iter()
            .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
            .map_or(Self::Other, |&(_, role)| role)
    }
}

/// Reads a status (6.3.3): three digits, 200 to 599, then nothing or a space and the reason phrase. A phrase
/// that is not UTF-8 is left out, because only people read it. A program may not send 1xx, except 101 if it
/// was asked to `upgrade`.
pub(super) fn parse_status(value: &[u8], upgrade: bool) -> Option<(u16, Option<String>)> {
    let (code, rest) = value.split_at_checked(3)?;
    let reason = match rest {
        [] => "",
        [b' ', reason @ ..] => std::str::from_utf8(reason.trim_ascii()).unwrap_or_default(),
        _ => return None,
    };
    let code = u16::try_from(parse_number(code)?).ok()?;
    let reason = (!reason.is_empty()).then(|| reason.to_owned());
    let known = (200..=599).contains(&code) || (upgrade && code == 101);
    known.then_some((code, reason))
}

/// Reads a status line (RFC 9112, 4), with the [`parse_status`] after the version.
pub(super) fn parse_status_line(line: &[u8], upgrade: bool) -> Option<(u16, Option<String>)> {
    match line.strip_prefix(b"HTTP/")? {
        [b'0'..=b'9', b'.', b'0'..=b'9', b' ', rest @ ..] => parse_status(rest, upgrade),
        _ => None,
    }
}

/// Reads a `local-pathquery` (6.2.2): a path that begins with one slash, and a query. `//host` names a host. A
/// fragment is for the client to keep.
pub(super) fn parse_local_pathquery(location: &[u8]) -> Option<String> {
    let local = location.starts_with(b"/")
        && !location.starts_with(b"//")
        && location.iter().all(|&b| b.is_ascii_graphic() && b != b'#');
    if !local {
        return None;
    }
    String::from_utf8(location.to_vec()).ok()
}
