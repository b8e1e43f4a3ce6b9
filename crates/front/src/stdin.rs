//! Parses the input of a FastCGI request out of its records.

use galgo_io::{buf::Buf, turn};
use galgo_proto::fcgi::{self, HEADER, Header, MANAGEMENT, Outcome, RecordType};
use galgo_service::{client::Next, fault::Fault};

/// Limit on the bytes of answers that wait for the running request to end. Front servers ask for less.
const MOST_OWED: usize = 4 << 10;

pub(crate) const BROKEN: Fault = Fault::Client(400, "the front server breaks the FastCGI protocol");

/// Progress in the input of a FastCGI request.
#[derive(Debug)]
pub(crate) struct Stdin {
    id: u16,
    /// Bytes that are left of CONTENT_LENGTH, if there is one.
    pub(crate) left: Option<u64>,
    /// Bytes of the current record that are input.
    content: usize,
    /// Bytes to skip: padding, and records of other requests.
    skip: usize,
    ended: bool,
    /// Answers to other records, which are sent after the response.
    pub(crate) owed: Vec<u8>,
}

impl Stdin {
    pub(crate) fn new(id: u16, left: Option<u64>) -> Self {
        Self {
            id,
            left,
            content: 0,
            skip: 0,
            ended: false,
            owed: Vec::new(),
        }
    }

    /// Returns whether the last record of input has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.skip == 0
    }

    /// Notes that `n` bytes at the front of the buffer have been taken.
    pub(crate) fn consume(&mut self, n: usize) {
        self.content -= n;
        if let Some(left) = &mut self.left {
            *left -= n as u64;
        }
    }

    /// Looks at the front of `buf`, past headers and padding.
    pub(crate) fn next_data(&mut self, buf: &mut Buf) -> Result<Next, Fault> {
        loop {
            if self.content > 0 {
                return Ok(match buf.len().min(self.content) {
                    0 => Next::More,
                    n => Next::Data(n),
                });
            }
            let skipped = self.skip.min(buf.len());
            buf.consume(skipped);
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(Next::More);
            }
            let Some(header) = Header::parse(buf.as_slice()).map_err(|_| BROKEN)? else {
                return Ok(if self.ended && buf.is_empty() {
                    Next::End
                } else {
                    Next::More
                });
            };
            buf.consume(HEADER);
            turn::spend_units(turn::PIECE);
            self.handle_record(header)?;
        }
    }

    fn handle_record(&mut self, header: Header) -> Result<(), Fault> {
        self.skip = header.padding.into();
        match header.kind {
            RecordType::STDIN if header.id == self.id => {
                return self.handle_input(header.content.into());
            }
            RecordType::ABORT if header.id == self.id => {
                return Err(Fault::Gone("the front server aborted the request"));
            }
            RecordType::DATA => {}
            RecordType::BEGIN if header.id != self.id && header.id != MANAGEMENT => {
                let refused = fcgi::end_request(header.id, 0, Outcome::CANNOT_MULTIPLEX);
                self.owed.extend_from_slice(&refused);
            }
            RecordType::STDIN | RecordType::PARAMS | RecordType::ABORT if header.id != self.id => {}
            _ => return Err(BROKEN),
        }
        if self.owed.len() > MOST_OWED {
            return Err(BROKEN);
        }
        self.skip += usize::from(header.content);
        Ok(())
    }

    fn handle_input(&mut self, content: usize) -> Result<(), Fault> {
        if self.ended {
            return Err(BROKEN);
        }
        if content == 0 {
            self.ended = true;
            return match self.left {
                None | Some(0) => Ok(()),
                Some(_) => Err(Fault::Client(
                    400,
                    "the front server sent less than CONTENT_LENGTH",
                )),
            };
        }
        if self.left.is_some_and(|left| left < content as u64) {
            return Err(Fault::Client(
                400,
                "the front server sent more than CONTENT_LENGTH",
            ));
        }
        self.content = content;
        Ok(())
    }
}
