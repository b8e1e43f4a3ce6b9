//! The reply of an application to one request, as the web server reads it.
//!
//! The reader is strict. These are errors: another id, a type that has no place, output after its end, and management
//! records that the server did not ask for. After an error, no data on the connection surely belongs to a request.

use super::{
    Outcome,
    header::{Header, RecordType},
    records::{RecordPiece, Records},
};
use crate::{
    Parsed,
    fcgi::record_error::RecordError::{self, Misplaced},
};

/// The next event of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEvent {
    /// The following bytes, this many, are output.
    Stdout(usize),
    /// The following bytes, this many, are for the log.
    Stderr(usize),
    /// The output is complete. END_REQUEST is still to come.
    StdoutEnd,
    /// END_REQUEST: the exit status that the application gives, and how the request ended.
    End(u32, Outcome),
}

/// Reads the records of one request's reply.
#[derive(Debug, Clone)]
pub struct ReplyReader {
    id: u16,
    records: Records,
    /// The bytes of END_REQUEST's content that have arrived, their number, and the full length.
    end: [u8; 8 + MORE],
    have: usize,
    ends_in: u16,
    /// The output stream has ended.
    stdout_over: bool,
    over: bool,
}

/// Limit of the bytes that [`ReplyReader::with_extra_bytes`] reads.
pub const MORE: usize = 56;

impl ReplyReader {
    /// Reads the reply to request `id`.
    pub fn new(id: u16) -> Self {
        Self {
            id,
            records: Records::default(),
            end: [0; 8 + MORE],
            have: 0,
            ends_in: 8,
            stdout_over: false,
            over: false,
        }
    }

    /// Reads as [`ReplyReader::new`] does, from an application of galgo itself, which puts `more` bytes after the eight
    /// of END_REQUEST, at most [`MORE`].
    pub fn with_extra_bytes(id: u16, more: usize) -> Self {
        let ends_in = u16::try_from(8 + more.min(MORE)).unwrap_or(8);
        Self {
            ends_in,
            ..Self::new(id)
        }
    }

    /// Returns the bytes after the first eight of END_REQUEST, once it has arrived.
    pub fn extra_bytes(&self) -> &[u8] {
        &self.end[8..usize::from(self.ends_in)]
    }

    /// Returns whether END_REQUEST has arrived.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the next event of `input`. [`Parsed::Partial`] has used all of it. Content comes after the used bytes, and
    /// the next call must begin after the content. After [`ReplyEvent::End`] input is not looked at.
    ///
    /// # Errors
    /// The bytes are no reply to this request.
    pub fn next_event(&mut self, input: &[u8]) -> Result<Parsed<ReplyEvent>, RecordError> {
        let mut at = 0;
        while !self.over {
            let Parsed::Complete(piece, used) = self.records.next_piece(&input[at..])? else {
                return Ok(Parsed::Partial);
            };
            at += used;
            match piece {
                RecordPiece::Begin(header) => self.check_header(header)?,
                RecordPiece::Content(header, n) => match header.kind {
                    RecordType::STDOUT => return Ok(Parsed::Complete(ReplyEvent::Stdout(n), at)),
                    RecordType::STDERR => return Ok(Parsed::Complete(ReplyEvent::Stderr(n), at)),
                    _ => {
                        self.end[self.have..self.have + n].copy_from_slice(&input[at..at + n]);
                        self.have += n;
                        at += n;
                    }
                },
                RecordPiece::End(header) => {
                    if let Some(event) = self.finish_record(header) {
                        return Ok(Parsed::Complete(event, at));
                    }
                }
            }
        }
        Err(Misplaced("there is data after the end of the request"))
    }

    fn check_header(&self, header: Header) -> Result<(), RecordError> {
        if header.id != self.id {
            return Err(Misplaced("a record belongs to a request that was not made"));
        }
        match header.kind {
            RecordType::STDOUT if self.stdout_over => {
                Err(Misplaced("there is output after the end of the output"))
            }
            RecordType::STDOUT | RecordType::STDERR => Ok(()),
            RecordType::END if header.content == self.ends_in => Ok(()),
            RecordType::END => Err(Misplaced("an END_REQUEST has not 8 bytes of content")),
            _ => Err(Misplaced(
                "a record is of a type that applications do not send",
            )),
        }
    }

    fn finish_record(&mut self, header: Header) -> Option<ReplyEvent> {
        match header.kind {
            RecordType::STDOUT if header.content == 0 => {
                self.stdout_over = true;
                Some(ReplyEvent::StdoutEnd)
            }
            RecordType::END => {
                self.over = true;
                let [a, b, c, d, outcome, ..] = self.end;
                let status = u32::from_be_bytes([a, b, c, d]);
                Some(ReplyEvent::End(status, Outcome(outcome)))
            }
            _ => None,
        }
    }
}
