//! Names and values (3.4), and streams of pairs.

use super::header::{HEADER, Header, MOST, RecordType};
use crate::vars::Sink;

/// The largest length that four bytes can encode.
const LONGEST: usize = 0x7fff_ffff;

/// Writes variables as a stream of records, and starts a new record when the open record is full.
#[derive(Debug)]
pub struct Params<'o> {
    out: &'o mut Vec<u8>,
    kind: RecordType,
    id: u16,
    /// Position of the header of the open record.
    at: usize,
}

impl<'o> Params<'o> {
    /// Opens the PARAMS stream of request `id`, appended to `out`.
    pub fn new(id: u16, out: &'o mut Vec<u8>) -> Self {
        Self::with_kind(RecordType::PARAMS, id, out)
    }

    pub(super) fn with_kind(kind: RecordType, id: u16, out: &'o mut Vec<u8>) -> Self {
        let at = out.len();
        out.extend_from_slice(&[0; HEADER]);
        Self { out, kind, id, at }
    }

    /// Ends the stream with an empty record (3.3).
    pub fn finish(mut self) {
        if self.content() > 0 {
            self.next_record();
        }
        self.complete_record();
    }

    /// Completes the open record, which is the last one.
    pub(super) fn complete_record(self) {
        let header = Header::new(self.kind, self.id, self.content());
        self.out[self.at..self.at + HEADER].copy_from_slice(&header.to_bytes());
        self.out.extend_from_slice(header.padding_bytes());
    }

    fn content(&self) -> usize {
        self.out.len() - self.at - HEADER
    }

    /// Completes the open record and opens another record.
    fn next_record(&mut self) {
        let (kind, id) = (self.kind, self.id);
        Params {
            out: self.out,
            kind,
            id,
            at: self.at,
        }
        .complete_record();
        self.at = self.out.len();
        self.out.extend_from_slice(&[0; HEADER]);
    }

    /// Puts a pair of any length. A name or value of 2 GiB or more has no place in the format, and
    /// is left out.
    fn put_long(&mut self, name: &[u8], value: &[u8]) {
        if name.len() > LONGEST || value.len() > LONGEST {
            return;
        }
        let lengths = [encode_length(name.len()), encode_length(value.len())];
        let [first, second] = [0, 1].map(|i: usize| &lengths[i].0[..lengths[i].1]);
        let pair = [first, second, name, value];
        pair.iter().for_each(|part| self.put_bytes(part));
    }

    fn put_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.content() == MOST {
                self.next_record();
            }
            let (fits, rest) = bytes.split_at(bytes.len().min(MOST - self.content()));
            self.out.extend_from_slice(fits);
            bytes = rest;
        }
    }
}

/// Encodes a length in the format: one byte, or four. `n` is no more than [`LONGEST`].
fn encode_length(n: usize) -> ([u8; 4], usize) {
    match (u8::try_from(n), u32::try_from(n)) {
        (Ok(n @ 0..=127), _) => ([n, 0, 0, 0], 1),
        (_, Ok(n)) => ((0x8000_0000 | n).to_be_bytes(), 4),
        // Never reached, because `put_long` takes nothing longer than LONGEST.
        (_, Err(_)) => ([0; 4], 0),
    }
}

impl Sink for Params<'_> {
    // Nearly every name is a constant. Inlined into the caller, it is copied as a constant.
    #[inline]
    fn put_variable(&mut self, name: &[u8], value: &[u8]) {
        if let (Ok(short @ ..=127), Ok(brief @ ..=127)) =
            (u8::try_from(name.len()), u8::try_from(value.len()))
            && 2 + name.len() + value.len() <= MOST - self.content()
        {
            // The usual case.
            self.out.reserve(2 + name.len() + value.len());
            self.out.extend_from_slice(&[short, brief]);
            self.out.extend_from_slice(name);
            self.out.extend_from_slice(value);
            return;
        }
        self.put_long(name, value);
    }
}

/// Content that is no row of names and values: a length leads beyond its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPairs;

/// The names and values in a whole stream's content. Ends after the first error.
#[derive(Debug, Clone)]
pub struct NameValuePairs<'c> {
    rest: &'c [u8],
}

impl<'c> NameValuePairs<'c> {
    /// Reads the pairs in `content`.
    pub fn new(content: &'c [u8]) -> Self {
        Self { rest: content }
    }

    fn next_length(&mut self) -> Option<usize> {
        let (&first, rest) = self.rest.split_first()?;
        if first < 128 {
            self.rest = rest;
            return Some(first.into());
        }
        let (four, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        usize::try_from(u32::from_be_bytes(*four) & 0x7fff_ffff).ok()
    }

    fn next_pair(&mut self) -> Option<(&'c [u8], &'c [u8])> {
        let (name, value) = (self.next_length()?, self.next_length()?);
        let (name, rest) = self.rest.split_at_checked(name)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.rest = rest;
        Some((name, value))
    }
}

impl<'c> Iterator for NameValuePairs<'c> {
    type Item = Result<(&'c [u8], &'c [u8]), BadPairs>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let pair = self.next_pair().ok_or(BadPairs);
        if pair.is_err() {
            self.rest = &[];
        }
        Some(pair)
    }
}
