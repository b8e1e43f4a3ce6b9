//! The response head of a CGI program (RFC 3875, 6), and other parts of starting a program: the [`search`] words of a query
//! and [`nph`] programs.
//!
//! Decisions where RFC 3875 leaves room:
//! - Lines end with LF or CRLF, even mixed (6.1 calls the line end NL).
//! - The server itself answers `Location: /path` only if that is the only field (6.2.2). Beside any other field, a
//!   `Set-Cookie` or a `Content-Type`, it becomes a redirect that the client follows, 302 unless `Status` says otherwise. So
//!   no field is lost. The same holds if the value is not a local path and query: a path with a fragment, or with a byte
//!   that may not stand in a URI.
//! - `//host/path` and relative references are legal in Location (RFC 9110, 10.2.2). They are passed on to the client.
//! - Connection, Keep-Alive, Proxy-Connection, TE, Trailer and Upgrade are about a connection that the program does not
//!   have. They are removed. Fields that Connection nominates stay, as they do in requests. If the request asks for another
//!   protocol, `Status: 101` gives a program the connection: then Upgrade stays, and is required.
//! - Fields that hold one value (Status, Content-Type, Location, Content-Length) may not come twice, even with equal
//!   values. 6.3 forbids it, and of two types Apache takes the last and nginx the first.
//! - A single field of any name makes a head, and 200 is the status of a head without Status (6.3.3). 6.3 wants
//!   Content-Type, Location or Status, but programs without them work on all other servers. So a document without a type is
//!   delivered without a type. An empty `Content-Type:` counts as missing.

mod field;
mod head_error;
pub mod nph;
pub mod search;
#[cfg(test)]
mod tests;

pub use crate::cgi::head_error::{LineFault, ReplyError};

use crate::{Fields, Parsed, digits::parse_number};
use field::{FieldLine, FieldRole};

/// Limits of a response head: 502 beyond.
#[derive(Debug, Clone, Copy)]
pub struct ReplyLimits {
    /// Bytes of the whole head, its empty line included.
    pub bytes: usize,
    /// Header fields, removed fields included.
    pub fields: usize,
    /// The request asks for another protocol, and `Status: 101` grants that (RFC 9110, 15.2.2).
    pub upgrade: bool,
    /// The head may begin with a status line, as that of an `nph-` program does. Its Location is for the client to follow.
    pub status_line: bool,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 10,
            fields: 4096,
            upgrade: false,
            status_line: false,
        }
    }
}

/// The kind of a program's response (RFC 3875, 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyKind {
    /// 6.2.1: a document.
    Document,
    /// 6.2.2: the server answers this path and query itself, as if a client had requested it. The text begins with one `/`,
    /// holds visible ASCII only and no `#`. It is not yet checked to be a valid target.
    LocalRedirect(String),
    /// 6.2.3 and 6.2.4: any other `Location`, which is passed on.
    Redirect,
}

/// A response head that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The kind of response, which decides how to answer.
    pub kind: ReplyKind,
    /// The status, 200 to 599: that of the `Status` field, 302 for a redirect without one, else 200. 101 if the limits allow
    /// it.
    pub status: u16,
    /// The reason phrase of the `Status` field, if it holds one.
    pub reason: Option<String>,
    /// The fields to pass on: without `Status`, `Content-Length`, hop-by-hop fields and `X-CGI-*`.
    /// Empty for a local redirect.
    pub fields: Fields,
    /// The program's own Content-Length.
    pub content_length: Option<u64>,
    /// Whether `fields` has a Content-Type; see [`Reply::body_handling`].
    pub content_type: bool,
}

/// The use of the bytes that follow a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyBody {
    /// The bytes are the document.
    Send,
    /// The bytes are read and thrown away.
    Discard,
    /// The bytes are the document, and it lacks its type. Whether there is a document shows with the first byte.
    SendUntyped,
}

impl Reply {
    /// Returns what to do with bytes after the head. The head alone does not say whether there are any bytes.
    ///
    /// 6.3.1 wants a Content-Type if there is a body. A redirect without a type has no body (6.2.3), but many a script
    /// prints one more empty line after it: the line is discarded. So are bytes after a status that has no content (RFC
    /// 9110: 204, 205, 304). The caller has to handle the method HEAD.
    pub fn body_handling(&self) -> ReplyBody {
        match (&self.kind, self.status) {
            (ReplyKind::LocalRedirect(_), _) | (_, 204 | 205 | 304) => ReplyBody::Discard,
            (_, 101) => ReplyBody::Send,
            _ if self.content_type => ReplyBody::Send,
            (ReplyKind::Redirect, 300..=399) => ReplyBody::Discard,
            _ => ReplyBody::SendUntyped,
        }
    }
}

/// Reads one response head from a growing buffer without parsing anything twice.
#[derive(Debug, Clone, Default)]
pub struct ReplyScan {
    /// Start of the line that is not complete yet.
    line: usize,
    /// End of the part of that line that has been searched for its end.
    seen: usize,
    /// Complete lines so far.
    lines: usize,
    fields: Fields,
    status: Option<(u16, Option<String>)>,
    content_length: Option<u64>,
    content_type: bool,
    location: bool,
    upgrade: bool,
}

impl ReplyScan {
    /// Reads the new bytes of `buf`, which begins with the first byte of the output and only ever grows. `Complete(reply,
    /// used)`: the body begins at `buf[used..]`, and the scan is over. An error also ends the scan. A head that does not end
    /// within `limits.bytes` is refused once that many bytes have arrived.
    pub fn scan_head(
        &mut self,
        buf: &[u8],
        limits: &ReplyLimits,
    ) -> Result<Parsed<Reply>, ReplyError> {
        let allowed = &buf[..buf.len().min(limits.bytes)];
        while let Some(n) = memchr::memchr(b'\n', allowed.get(self.seen..).unwrap_or_default()) {
            let end = self.seen + n;
            let line = &allowed[self.line..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.lines += 1;
            (self.line, self.seen) = (end + 1, end + 1);
            if line.is_empty() {
                return Ok(Parsed::Complete(self.build_reply()?, end + 1));
            }
            if self.lines > limits.fields {
                return Err(ReplyError::TooManyFields(limits.fields));
            }
            if self.lines == 1 && limits.status_line && line.starts_with(b"HTTP/") {
                let status = field::parse_status_line(line, limits.upgrade);
                self.status = Some(status.ok_or_else(|| self.line_error(LineFault::STATUS, line))?);
                continue;
            }
            self.add_field(line, limits.upgrade)?;
        }
        self.seen = allowed.len();
        if buf.len() >= limits.bytes {
            return Err(ReplyError::TooLong(limits.bytes));
        }
        Ok(Parsed::Partial)
    }

    /// Explains why a head was not whole when the program closed its output: the text names the output and the missing part.
    /// `buf` is all of the output.
    pub fn explain_incomplete(&self, buf: &[u8]) -> ReplyError {
        if buf.is_empty() {
            return ReplyError::Nothing;
        }
        let mut rest = self.clone();
        let limits = ReplyLimits {
            bytes: usize::MAX,
            fields: usize::MAX,
            upgrade: true,
            status_line: true,
        };
        if let Err(error) = rest.scan_head(buf, &limits) {
            return error;
        }
        let tail = buf.get(rest.line..).unwrap_or_default();
        let tail = tail.strip_suffix(b"\r").unwrap_or(tail);
        if tail.is_empty() {
            return ReplyError::NoEmptyLine(rest.lines);
        }
        // The line may lack everything: "Hello" without a line end is no field, rather than half a field.
        rest.lines += 1;
        match FieldLine::parse(tail) {
            Err(fault) => rest.line_error(fault, tail),
            Ok(_) => rest.line_error(LineFault::UNFINISHED, tail),
        }
    }

    /// Makes an error about the previous line.
    fn line_error(&self, fault: LineFault, line: &[u8]) -> ReplyError {
        ReplyError::from_line(self.lines, fault, line)
    }

    fn add_field(&mut self, line: &[u8], upgrade: bool) -> Result<(), ReplyError> {
        let FieldLine { name, value } =
            FieldLine::parse(line).map_err(|fault| self.line_error(fault, line))?;
        let role = FieldRole::from_name(name);
        let twice = match role {
            FieldRole::Status => self.status.is_some(),
            FieldRole::ContentType => self.content_type,
            FieldRole::ContentLength => self.content_length.is_some(),
            FieldRole::Location => self.location,
            _ => false,
        };
        if twice {
            return Err(self.line_error(LineFault::TWICE, line));
        }
        match role {
            FieldRole::Removed => {}
            FieldRole::Upgrade if !upgrade => {}
            FieldRole::TransferEncoding => {
                return Err(self.line_error(LineFault::TRANSFER_ENCODING, line));
            }
            FieldRole::Status => {
                self.status = Some(
                    field::parse_status(value, upgrade)
                        .ok_or_else(|| self.line_error(LineFault::STATUS, line))?,
                );
            }
            FieldRole::ContentLength => {
                let length = parse_number(value);
                self.content_length =
                    Some(length.ok_or_else(|| self.line_error(LineFault::LENGTH, line))?);
            }
            FieldRole::Location if value.is_empty() => {
                return Err(self.line_error(LineFault::NO_VALUE, line));
            }
            // An empty Content-Type counts as missing.
            FieldRole::ContentType if value.is_empty() => self.content_type = true,
            FieldRole::ContentType
            | FieldRole::Location
            | FieldRole::Upgrade
            | FieldRole::Other => {
                self.content_type |= role == FieldRole::ContentType;
                self.location |= role == FieldRole::Location;
                self.upgrade |= role == FieldRole::Upgrade;
                self.fields.push(name, value);
            }
        }
        Ok(())
    }

    /// Decides the kind of response of a whole head.
    fn build_reply(&mut self) -> Result<Reply, ReplyError> {
        if self.lines == 1 {
            return Err(ReplyError::NoFields);
        }
        let mut fields = std::mem::take(&mut self.fields);
        match self.status {
            Some((101, _)) if !self.upgrade => return Err(ReplyError::NoUpgrade),
            Some((101, _)) => self.content_length = None,
            _ if self.upgrade => fields.retain(|name, _| !name.eq_ignore_ascii_case(b"upgrade")),
            _ => {}
        }
        let content_type = fields.has_field("content-type");
        let alone = fields.len() == 1
            && self.content_type == content_type
            && self.status.is_none()
            && self.content_length.is_none();
        let kind = match fields.first_value("location") {
            None => ReplyKind::Document,
            Some(location) => match field::parse_local_pathquery(location) {
                Some(path) if alone => ReplyKind::LocalRedirect(path),
                _ => ReplyKind::Redirect,
            },
        };
        if matches!(kind, ReplyKind::LocalRedirect(_)) {
            fields = Fields::new();
        }
        let default = if self.location { 302 } else { 200 };
        let (status, reason) = self.status.take().unwrap_or((default, None));
        Ok(Reply {
            kind,
            status,
            reason,
            fields,
            content_length: self.content_length,
            content_type,
        })
    }
}
