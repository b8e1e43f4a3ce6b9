//! The stream of a web server, as the application reads it: requests, perhaps several at once, each with an id of its own. The
//! caller keeps count of the requests. This module only interprets the records.

use super::{
    Role,
    header::{MANAGEMENT, RecordType},
    records::{RecordPiece, Records},
};
use crate::{
    Parsed,
    fcgi::record_error::RecordError::{self, Misplaced},
};

/// The next event of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// BEGIN_REQUEST.
    Begin {
        /// Id of the request in later events.
        id: u16,
        /// The requested role.
        role: Role,
        /// The connection stays open after the request.
        keep: bool,
    },
    /// ABORT_REQUEST.
    Abort(u16),
    /// The following bytes, this many, are a part of this request's variables, in the form of [`super::NameValuePairs`].
    Params(u16, usize),
    /// The variables of this request are complete.
    ParamsEnd(u16),
    /// The following bytes, this many, are a part of the body of this request.
    Stdin(u16, usize),
    /// The body of this request is complete.
    StdinEnd(u16),
    /// The following bytes, this many, are a part of the names in a GET_VALUES record.
    GetValues(usize),
    /// The GET_VALUES record is complete.
    GetValuesEnd,
    /// A management record of a type to be answered with [`super::unknown_type`].
    Unknown(RecordType),
}

/// Reads the stream that a web server sends on one connection.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    records: Records,
    /// The bytes of BEGIN_REQUEST's content that have arrived.
    begin: [u8; 8],
    have: usize,
}

impl Requests {
    /// Returns the next event of `input`. [`Parsed::Partial`] has used all of it. Content comes after the used bytes, and the
    /// next call must begin after the content.
    ///
    /// # Errors
    /// A web server does not send such bytes.
    pub fn next_event(&mut self, input: &[u8]) -> Result<Parsed<Event>, RecordError> {
        let mut at = 0;
        loop {
            let Parsed::Complete(piece, used) = self.records.next_piece(&input[at..])? else {
                return Ok(Parsed::Partial);
            };
            at += used;
            let event = match piece {
                RecordPiece::Begin(header) => {
                    self.have = 0;
                    check_header(header.kind, header.id, header.content)?;
                    None
                }
                RecordPiece::Content(header, n) => match header.kind {
                    RecordType::PARAMS => Some(Event::Params(header.id, n)),
                    RecordType::STDIN => Some(Event::Stdin(header.id, n)),
                    RecordType::GET_VALUES => Some(Event::GetValues(n)),
                    kind => {
                        if kind == RecordType::BEGIN {
                            let to = &mut self.begin[self.have..self.have + n];
                            to.copy_from_slice(&input[at..at + n]);
                            self.have += n;
                        }
                        at += n;
                        None
                    }
                },
                RecordPiece::End(header) => {
                    self.finish_record(header.kind, header.id, header.content)
                }
            };
            if let Some(event) = event {
                return Ok(Parsed::Complete(event, at));
            }
        }
    }

    fn finish_record(&self, kind: RecordType, id: u16, content: u16) -> Option<Event> {
        match kind {
            RecordType::BEGIN => {
                let [high, low, flags, ..] = self.begin;
                Some(Event::Begin {
                    id,
                    role: Role(u16::from_be_bytes([high, low])),
                    keep: flags & 1 != 0,
                })
            }
            RecordType::ABORT => Some(Event::Abort(id)),
            RecordType::PARAMS if content == 0 => Some(Event::ParamsEnd(id)),
            RecordType::STDIN if content == 0 => Some(Event::StdinEnd(id)),
            RecordType::GET_VALUES => Some(Event::GetValuesEnd),
            RecordType::PARAMS | RecordType::STDIN | RecordType::DATA => None,
            kind => (id == MANAGEMENT).then_some(Event::Unknown(kind)),
        }
    }
}

fn check_header(kind: RecordType, id: u16, content: u16) -> Result<(), RecordError> {
    match kind {
        RecordType::BEGIN if content != 8 => {
            Err(Misplaced("a BEGIN_REQUEST has not 8 bytes of content"))
        }
        RecordType::ABORT if content != 0 => Err(Misplaced("an ABORT_REQUEST has content")),
        RecordType::BEGIN
        | RecordType::ABORT
        | RecordType::PARAMS
        | RecordType::STDIN
        | RecordType::DATA
            if id == MANAGEMENT =>
        {
            Err(Misplaced("a record of a request has the id 0"))
        }
        RecordType::GET_VALUES if id != MANAGEMENT => {
            Err(Misplaced("a GET_VALUES record has a request id"))
        }
        RecordType::END
        | RecordType::STDOUT
        | RecordType::STDERR
        | RecordType::GET_VALUES_RESULT
        | RecordType::UNKNOWN_TYPE => Err(Misplaced(
            "a record is of a type that only applications send",
        )),
        // An unknown type with a request's id has no answer (4.2), and is skipped.
        _ => Ok(()),
    }
}
