//! FastCGI 1.0 ("FastCGI Specification", M. Brown, 1996), both sides of it. galgo asks applications as a web
//! server does ([`reply`], [`Params`], [`begin_request`]), and answers a web server as an application does
//! ([`request`], [`end_request`], [`get_values_result`]).
//!
//! Decisions where the specification leaves room:
//! - Only version 1 is supported. Another version is an error, because no later record could be framed.
//! - A record's content is handed on as it arrives. No record is ever held as a whole.
//! - Content is padded to a multiple of eight bytes, as 3.3 recommends. Any padding is understood.

mod header;
mod pairs;
mod record_error;
mod records;
pub mod reply;
pub mod request;
#[cfg(test)]
mod tests;

pub use crate::fcgi::record_error::RecordError;
pub use header::{HEADER, Header, MANAGEMENT, MOST, RecordType};
pub use pairs::{BadPairs, NameValuePairs, Params};
pub use records::{RecordPiece, Records};

/// The role that an application is asked to take (6). The specification knows these numbers; any other number
/// may arrive.
/// does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role(pub u16);

#[expect(missing_docs, reason = "named by the specification")]
impl Role {
    pub const RESPONDER: Self = Self(1);
    pub const AUTHORIZER: Self = Self(2);
    pub const FILTER: Self = Self(3);
}

/// The way an application ended a request (5.5). The specification knows these numbers; any other number may
/// arrive.
/// know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome(pub u8);

impl Outcome {
    /// FCGI_REQUEST_COMPLETE.
    pub const COMPLETE: Self = Self(0);
    /// FCGI_CANT_MPX_CONN: the application takes one request at a time on a connection.
    pub const CANNOT_MULTIPLEX: Self = Self(1);
    /// FCGI_OVERLOADED.
    pub const OVERLOADED: Self = Self(2);
    /// FCGI_UNKNOWN_ROLE.
    pub const UNKNOWN_ROLE: Self = Self(3);
}

/// Makes a record with eight bytes of content.
fn eight_byte_record(kind: RecordType, id: u16, content: [u8; 8]) -> [u8; 16] {
    let mut record = [0; 16];
    record[..HEADER].copy_from_slice(&Header::new(kind, id, 8).to_bytes());
    record[HEADER..].copy_from_slice(&content);
    record
}

/// Makes BEGIN_REQUEST (5.1): `keep` asks the application to leave the connection open.
pub fn begin_request(id: u16, role: Role, keep: bool) -> [u8; 16] {
    let [high, low] = role.0.to_be_bytes();
    eight_byte_record(
        RecordType::BEGIN,
        id,
        [high, low, keep.into(), 0, 0, 0, 0, 0],
    )
}

/// Makes ABORT_REQUEST (5.4).
pub fn abort_request(id: u16) -> [u8; HEADER] {
    Header::new(RecordType::ABORT, id, 0).to_bytes()
}

/// Makes END_REQUEST (5.5).
pub fn end_request(id: u16, status: u32, outcome: Outcome) -> [u8; 16] {
    let [a, b, c, d] = status.to_be_bytes();
    eight_byte_record(RecordType::END, id, [a, b, c, d, outcome.0, 0, 0, 0])
}

/// Makes UNKNOWN_TYPE (4.2): the answer to a management record of an unknown type.
pub fn unknown_type(kind: RecordType) -> [u8; 16] {
    let content = [kind.0, 0, 0, 0, 0, 0, 0, 0];
    eight_byte_record(RecordType::UNKNOWN_TYPE, MANAGEMENT, content)
}

/// Makes GET_VALUES_RESULT (4.1) with these variables.
pub fn get_values_result<'p>(pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sink = Params::with_kind(RecordType::GET_VALUES_RESULT, MANAGEMENT, &mut out);
    for (name, value) in pairs {
        crate::vars::Sink::put_variable(&mut sink, name, value);
    }
    sink.complete_record();
    out
}
