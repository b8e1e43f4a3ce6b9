//! The framing that both sides share: splits a stream of records as it arrives.

use super::header::{HEADER, Header};
use crate::{Parsed, fcgi::record_error::RecordError};

/// The next piece of a stream of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPiece {
    /// A record begins.
    Begin(Header),
    /// The following bytes, this many and at least one, are content of the record.
    Content(Header, usize),
    /// The record is over, its padding included.
    End(Header),
}

/// Splits a stream of records. Holds no content.
#[derive(Debug, Clone, Default)]
pub struct Records {
    state: RecordsState,
}

#[derive(Debug, Clone, Copy)]
enum RecordsState {
    /// Within a header, and the number of its bytes that have arrived.
    Header([u8; HEADER], usize),
    /// Within a record, and the number of content bytes that are left.
    Content(Header, usize),
    /// Number of padding bytes that are left.
    Padding(Header, usize),
}

impl Default for RecordsState {
    fn default() -> Self {
        Self::Header([0; HEADER], 0)
    }
}

impl Records {
    /// Returns the next piece of `input`. A [`Parsed::Partial`] has used all of it. A
    /// [`RecordPiece::Content`] comes after the used bytes, and is returned only once. The next call must
    /// begin after the content.
    /// begin after the content.
    ///
    /// # Errors
    /// A record is not of version 1.
    /// A record is not of version 1.
    pub fn next_piece(&mut self, input: &[u8]) -> Result<Parsed<RecordPiece>, RecordError> {
        match self.state {
            RecordsState::Header(mut held, have) => {
                let n = (HEADER - have).min(input.len());
                held[have..have + n].copy_from_slice(&input[..n]);
                if have + n < HEADER {
                    self.state = RecordsState::Header(held, have + n);
                    return Ok(Parsed::Partial);
                }
                let header = Header::from_bytes(held)?;
                self.state = RecordsState::Content(header, header.content.into());
                Ok(Parsed::Complete(RecordPiece::Begin(header), n))
            }
            RecordsState::Content(header, 0) => {
                self.state = RecordsState::Padding(header, header.padding.into());
                self.next_piece(input)
            }
            RecordsState::Content(_, _) if input.is_empty() => Ok(Parsed::Partial),
            RecordsState::Content(header, left) => {
                let n = left.min(input.len());
                self.state = RecordsState::Content(header, left - n);
                Ok(Parsed::Complete(RecordPiece::Content(header, n), 0))
            }
            RecordsState::Padding(header, left) => {
                let n = left.min(input.len());
                if n < left {
                    self.state = RecordsState::Padding(header, left - n);
                    return Ok(Parsed::Partial);
                }
                self.state = RecordsState::default();
                Ok(Parsed::Complete(RecordPiece::End(header), n))
            }
        }
    }
}
