//! FastCGI 1.0 ("FastCGI Specification", M. Brown, 1996), both sides of it: we ask applications as a web
//! server does ([`reply`], [`Params`], [`begin`]), and are asked by one as an application is ([`request`],
//! [`end`], [`values`]).
//!
//! Decisions where the specification leaves room:
//! - Version 1 alone is spoken; a record of another is an error, for nothing behind it can be framed.
//! - A record's content is handed on piece by piece as it arrives, so no record is ever held as a whole.
//! - Content is padded to a multiple of eight bytes, as 3.3 recommends. Any padding is understood.

mod error;
mod header;
mod pairs;
mod records;
pub mod reply;
pub mod request;
#[cfg(test)]
mod tests;

pub use error::RecordError;
pub use header::{HEADER, Header, MANAGEMENT, MOST, RecordType};
pub use pairs::{BadPairs, NameValuePairs, Params};
pub use records::{RecordPiece, Records};

/// What an application is asked to be (6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Role {
    Responder,
    Authorizer,
    Filter,
    /// A role that the specification does not know.
    Other(u16),
}

impl Role {
    /// The role with this number.
    pub fn of(number: u16) -> Self {
        match number {
            1 => Self::Responder,
            2 => Self::Authorizer,
            3 => Self::Filter,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::Responder => 1,
            Self::Authorizer => 2,
            Self::Filter => 3,
            Self::Other(number) => number,
        }
    }
}

/// How an application ends a request (5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// FCGI_REQUEST_COMPLETE.
    Complete,
    /// FCGI_CANT_MPX_CONN: it takes one request at a time on a connection.
    CannotMultiplex,
    /// FCGI_OVERLOADED.
    Overloaded,
    /// FCGI_UNKNOWN_ROLE.
    UnknownRole,
    /// A status that the specification does not know.
    Other(u8),
}

impl Outcome {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::Complete,
            1 => Self::CannotMultiplex,
            2 => Self::Overloaded,
            3 => Self::UnknownRole,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::CannotMultiplex => 1,
            Self::Overloaded => 2,
            Self::UnknownRole => 3,
            Self::Other(number) => number,
        }
    }
}

/// A record with eight bytes of content.
fn short(kind: RecordType, id: u16, content: [u8; 8]) -> [u8; 16] {
    let mut record = [0; 16];
    record[..HEADER].copy_from_slice(&Header::new(kind, id, 8).bytes());
    record[HEADER..].copy_from_slice(&content);
    record
}

/// BEGIN_REQUEST (5.1): `keep` asks the application to leave the connection open.
pub fn begin(id: u16, role: Role, keep: bool) -> [u8; 16] {
    let [high, low] = role.number().to_be_bytes();
    short(
        RecordType::Begin,
        id,
        [high, low, keep.into(), 0, 0, 0, 0, 0],
    )
}

/// ABORT_REQUEST (5.4).
pub fn abort(id: u16) -> [u8; HEADER] {
    Header::new(RecordType::Abort, id, 0).bytes()
}

/// END_REQUEST (5.5).
pub fn end(id: u16, status: u32, outcome: Outcome) -> [u8; 16] {
    let [a, b, c, d] = status.to_be_bytes();
    short(RecordType::End, id, [a, b, c, d, outcome.number(), 0, 0, 0])
}

/// UNKNOWN_TYPE (4.2): the answer to a management record of a type that is not known.
pub fn unknown_type(kind: RecordType) -> [u8; 16] {
    let content = [kind.number(), 0, 0, 0, 0, 0, 0, 0];
    short(RecordType::UnknownType, MANAGEMENT, content)
}

/// GET_VALUES_RESULT (4.1) with these variables.
pub fn values<'p>(pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sink = Params::open(RecordType::GetValuesResult, MANAGEMENT, &mut out);
    for (name, value) in pairs {
        crate::vars::Sink::put(&mut sink, name, value);
    }
    sink.close();
    out
}
