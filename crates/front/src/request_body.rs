//! The framing of a request body: how far it has been taken in, without a socket.

use galgo_io::{buf::Buf, turn};
use galgo_proto::{
    Parsed,
    h1::{BodyLen, Chunk, Chunked},
};
use galgo_service::{
    client::{Next, TOO_LARGE},
    fault::Fault,
};

use crate::stdin::Stdin;

/// Bytes of a body that are read before the request takes a permit and starts a process: as many as a pipe holds.
pub(crate) const AHEAD: usize = 64 << 10;

/// A request body, and how far it has been taken in.
#[derive(Debug)]
pub(crate) struct RequestBody {
    pub(crate) frame: Frame,
    /// Bytes of data at the front of the buffer that were looked at early. `frame` has already counted them as taken.
    ahead: usize,
    /// Bytes of data at the front of the buffer that are ready to be taken.
    ready: usize,
    /// Bytes of data taken so far.
    taken: u64,
    /// The most bytes that the body may hold: a longer body is a 413.
    limit: u64,
}

#[derive(Debug)]
pub(crate) enum Frame {
    Length(u64),
    Chunked(Box<Chunked>),
    Records(Box<Stdin>),
    /// Everything that the client sends, until it ends.
    Open,
    Ended,
}

impl RequestBody {
    /// Creates the body of a request framed as `len`.
    pub(crate) fn new(len: BodyLen) -> Self {
        Self::with_frame(match len {
            BodyLen::None | BodyLen::Length(0) => Frame::Ended,
            BodyLen::Length(n) => Frame::Length(n),
            BodyLen::Chunked => Frame::Chunked(Box::default()),
        })
    }

    /// Creates the body of a request that comes in FastCGI records.
    pub(crate) fn from_records(stdin: Stdin) -> Self {
        Self::with_frame(Frame::Records(Box::new(stdin)))
    }

    fn with_frame(frame: Frame) -> Self {
        Self {
            frame,
            ahead: 0,
            ready: 0,
            taken: 0,
            limit: u64::MAX,
        }
    }

    /// Opens the body of a request again after its end: everything that the client sends from now on belongs to it.
    pub(crate) fn reopen_unbounded(&mut self) {
        (self.frame, self.limit) = (Frame::Open, u64::MAX);
    }

    /// Notes that the client sends no more.
    pub(crate) fn mark_ended(&mut self) {
        self.frame = Frame::Ended;
    }

    /// Returns the answers that are owed to the front server for records that came meanwhile.
    pub(crate) fn take_owed(&mut self) -> Vec<u8> {
        match &mut self.frame {
            Frame::Records(stdin) => std::mem::take(&mut stdin.owed),
            _ => Vec::new(),
        }
    }

    /// Reads the records that come after the body: a front server may abort the request (FastCGI, 5.4).
    pub(crate) fn overhear(&mut self, buf: &mut Buf) -> Result<(), Fault> {
        match self.frame {
            Frame::Records(_) => self.next(buf).map(drop),
            _ => Ok(()),
        }
    }

    /// Sets the limit of the body. A declared length beyond it is refused at once.
    pub(crate) fn limit_body(&mut self, limit: u64) -> Result<(), Fault> {
        self.limit = limit;
        match self.remaining_length() {
            Some(n) if n > limit => Err(TOO_LARGE),
            _ => Ok(()),
        }
    }

    /// Returns whether the whole body has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.ahead + self.ready == 0
            && match &self.frame {
                Frame::Ended => true,
                Frame::Records(stdin) => stdin.is_over(),
                Frame::Length(_) | Frame::Chunked(_) | Frame::Open => false,
            }
    }

    /// Returns the declared length, if there is one.
    pub(crate) fn declared_length(&self) -> Option<u64> {
        self.remaining_length().map(|n| n + self.taken)
    }

    /// Returns the number of bytes that are left of a declared length.
    pub(crate) fn remaining_length(&self) -> Option<u64> {
        let left = match &self.frame {
            Frame::Length(n) => *n,
            Frame::Records(stdin) => stdin.left?,
            Frame::Ended if self.ahead > 0 => 0,
            Frame::Chunked(_) | Frame::Open | Frame::Ended => return None,
        };
        Some(left + self.ahead as u64)
    }

    /// Returns the number of bytes of data taken so far.
    pub(crate) fn bytes_taken(&self) -> u64 {
        self.taken
    }

    /// Returns whether the whole body or at least [`AHEAD`] bytes of it are in `buf`, judged by its declared length.
    pub(crate) fn is_here(&self, buf: &Buf) -> bool {
        match &self.frame {
            Frame::Length(left) => buf.len() as u64 >= (*left).min(AHEAD as u64),
            Frame::Chunked(_) | Frame::Records(_) | Frame::Open => false,
            Frame::Ended => true,
        }
    }

    /// Looks at the front of `buf`, past any chunk framing.
    pub(crate) fn next(&mut self, buf: &mut Buf) -> Result<Next, Fault> {
        if self.ahead + self.ready > 0 {
            return Ok(Next::Data(self.ahead.max(self.ready)));
        }
        let mut announced = 0;
        match &mut self.frame {
            Frame::Ended => return Ok(Next::End),
            Frame::Records(stdin) => match stdin.next_data(buf)? {
                Next::Data(n) => self.ready = n,
                other => return Ok(other),
            },
            _ if buf.is_empty() => return Ok(Next::More),
            Frame::Open => self.ready = buf.len(),
            Frame::Length(left) => {
                self.ready = usize::try_from(*left).map_or(buf.len(), |left| left.min(buf.len()));
            }
            Frame::Chunked(chunked) => {
                turn::spend_units(turn::PIECE);
                match chunked
                    .next_chunk(buf.as_slice())
                    .map_err(|e| Fault::Client(400, e.0))?
                {
                    Parsed::Partial => {
                        let all = buf.len();
                        buf.consume(all);
                        let announced = chunked.announced();
                        return self.check_limit(announced).map(|()| Next::More);
                    }
                    Parsed::Complete(Chunk::End, used) => {
                        buf.consume(used);
                        self.frame = Frame::Ended;
                        return Ok(Next::End);
                    }
                    Parsed::Complete(Chunk::Data(n), used) => {
                        buf.consume(used);
                        self.ready = n;
                        announced = chunked.announced();
                    }
                }
            }
        }
        self.check_limit(announced)?;
        Ok(Next::Data(self.ready))
    }

    /// Checks that the limit has room for the data that is ready, and for `announced` bytes after it. A chunk that is too large
    /// is refused by its size, before its data has come.
    fn check_limit(&self, announced: u64) -> Result<(), Fault> {
        let here = self.taken.saturating_add((self.ahead + self.ready) as u64);
        if here.saturating_add(announced) > self.limit {
            Err(TOO_LARGE)
        } else {
            Ok(())
        }
    }

    /// Counts `n` bytes of a body of known length that were spliced, and so did not go through the buffer.
    pub(crate) fn count_spliced(&mut self, n: usize) {
        self.taken += n as u64;
        if let Frame::Length(left) = &mut self.frame {
            *left = left.saturating_sub(n as u64);
            if *left == 0 {
                self.frame = Frame::Ended;
            }
        }
    }

    /// Takes back `n` bytes of data that were taken: they are at the front of the buffer again, without framing.
    pub(crate) fn put_back(&mut self, n: usize) {
        self.taken -= n as u64;
        self.ahead = n;
    }

    /// Takes `n` bytes of the data that [`RequestBody::next`] announced.
    pub(crate) fn consume(&mut self, buf: &mut Buf, n: usize) {
        if self.ahead > 0 {
            let n = n.min(self.ahead);
            buf.consume(n);
            self.ahead -= n;
            self.taken += n as u64;
            return;
        }
        let n = n.min(self.ready);
        buf.consume(n);
        self.ready -= n;
        self.taken += n as u64;
        match &mut self.frame {
            Frame::Length(left) => {
                *left -= n as u64;
                if *left == 0 {
                    self.frame = Frame::Ended;
                }
            }
            Frame::Records(stdin) => stdin.consume(n),
            Frame::Chunked(_) | Frame::Open | Frame::Ended => {}
        }
    }
}
