//! Sends a request to an application: variables and body, framed for its protocol.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use galgo_io::{pool, sock::Sock};
use galgo_proto::fcgi::{Header, RecordType};
use galgo_service::{
    client::{Client, Next},
    fault::Fault,
    spool::{Stored, Task},
};

use crate::relay::pump::{Fed, unfed_fault};

/// Bytes of a spooled body that are read at once.
const PIECE: usize = 64 << 10;
/// The id of the single request on a connection.
pub(super) const ID: u16 = 1;

/// Progress of sending a request.
#[derive(Debug)]
pub(super) struct Sending {
    /// Whether the body goes into records of its own.
    framed: bool,
    /// Bytes made by galgo that precede any further data.
    queue: Vec<u8>,
    /// Content still missing in the last record that was begun.
    open: usize,
    header: Header,
    /// The body, if it does not come directly from the client.
    file: Option<Spooled>,
    /// Whether the request is sent without its body.
    bodiless: bool,
    /// Whether the end of the body has been queued.
    over: bool,
    /// Whether the application has stopped reading.
    closed: bool,
    /// Whether any part of the request has been written.
    pub(super) begun: bool,
    /// Whether a write would have blocked, and is awaited.
    waits: bool,
}

/// A body in a file.
#[derive(Debug)]
struct Spooled {
    file: Rc<Stored>,
    /// Offset of the next piece.
    next: u64,
    /// Pending read of a piece.
    coming: Option<Task<io::Result<Vec<u8>>>>,
    piece: Vec<u8>,
    at: usize,
}

impl Sending {
    /// Prepares a request that begins with `queue`, its variables; `framed`: in FastCGI records. The body is in `file`, or comes
    /// from the client unless the request is `bodiless`.
    pub(super) fn new(queue: Vec<u8>, framed: bool, file: Option<Stored>, bodiless: bool) -> Self {
        Self {
            framed,
            queue,
            open: 0,
            header: Header::new(RecordType::STDIN, ID, 0),
            file: file.map(Spooled::new),
            bodiless,
            over: false,
            closed: false,
            begun: false,
            waits: false,
        }
    }

    /// Returns whether the whole request has been sent.
    pub(super) fn is_done(&self) -> bool {
        self.over && self.queue.is_empty() && !self.closed
    }

    /// Returns whether a record of galgo's own may follow the bytes that were sent.
    pub(super) fn is_between(&self) -> bool {
        self.queue.is_empty() && self.open == 0 && !self.closed
    }

    /// Moves a piece of the request to the application; watches the client if there is no piece to move.
    pub(super) fn poll_feed(
        &mut self,
        conn: &Sock,
        client: &mut dyn Client,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Fed, Fault>> {
        let next = match &mut self.file {
            Some(file) => ready!(file.poll_next(cx))?,
            None if self.bodiless => Next::End,
            None => client.next()?,
        };
        match next {
            // The application reads no more: take the rest of the body and drop it.
            Next::Data(n) if self.closed => {
                self.consume_body(client, n);
                return Poll::Ready(Ok(Fed::Moved));
            }
            Next::Data(n) => self.begin_record(n),
            Next::End => self.end_body(),
            Next::More => {}
        }
        if self.closed || (self.queue.is_empty() && self.open == 0) {
            return match next {
                Next::More => client.poll_more(cx).map_ok(|()| Fed::Moved),
                _ => client.poll_watch(cx).map_ok(|()| Fed::HalfClosed),
            };
        }
        self.poll_write(conn, client, next, cx)
    }

    fn poll_write(
        &mut self,
        conn: &Sock,
        client: &mut dyn Client,
        next: Next,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Fed, Fault>> {
        let data_len = match next {
            Next::Data(n) => n.min(self.open),
            Next::More | Next::End => 0,
        };
        // Send the end of the body with its last piece, to wake the application only once.
        let last = self.framed && data_len == self.open && self.is_last(client, data_len);
        let end = Header::new(RecordType::STDIN, ID, 0).to_bytes();
        let (pad, end): (&[u8], &[u8]) = if last {
            (self.header.padding_bytes(), &end)
        } else {
            (&[], &[])
        };
        let data = match &self.file {
            Some(file) => &file.piece[file.at..],
            None => client.buffered_bytes(),
        };
        let parts = [&self.queue, &data[..data_len], pad, end].map(IoSlice::new);
        let Poll::Ready(written) = conn.poll_write(&parts, &mut self.waits, cx) else {
            return client.poll_gone(cx).map_ok(|()| Fed::HalfClosed);
        };
        self.waits = false;
        match written {
            Ok(n) => {
                self.begun = true;
                let ours = n.min(self.queue.len());
                self.drain_sent(ours);
                let theirs = (n - ours).min(data_len);
                self.record_taken(client, theirs);
                if last && theirs == data_len {
                    self.end_body();
                    self.drain_sent(n - ours - theirs);
                }
            }
            // The application closed its side. Any earlier output has still to be read.
            Err(e) if has_closed(&e) => self.closed = true,
            Err(e) => return Poll::Ready(Err(unfed_fault(&e))),
        }
        Poll::Ready(Ok(Fed::Moved))
    }

    /// Removes `n` sent bytes from the queue. The buffer of the variables goes back to the pool.
    fn drain_sent(&mut self, n: usize) {
        self.queue.drain(..n);
        if self.queue.is_empty() {
            pool::return_buffer(std::mem::take(&mut self.queue));
        }
    }

    /// Returns whether these `n` bytes are the last of a body whose length is known.
    fn is_last(&self, client: &dyn Client, n: usize) -> bool {
        self.file.is_none() && n > 0 && client.remaining_length() == Some(n as u64)
    }

    /// Begins a record for `n` bytes of data, unless a record is already open.
    fn begin_record(&mut self, n: usize) {
        if self.open > 0 {
            return;
        }
        self.open = n;
        if self.framed {
            self.header = Header::new(RecordType::STDIN, ID, n);
            self.open = self.header.content.into();
            self.queue.extend_from_slice(&self.header.to_bytes());
        }
    }

    /// Accounts for `n` sent bytes of data.
    fn record_taken(&mut self, client: &mut dyn Client, n: usize) {
        if n == 0 {
            return;
        }
        self.consume_body(client, n);
        self.open -= n;
        if self.open == 0 && self.framed {
            self.queue.extend_from_slice(self.header.padding_bytes());
        }
    }

    fn consume_body(&mut self, client: &mut dyn Client, n: usize) {
        match &mut self.file {
            Some(file) => file.at += n,
            None => client.consume(n),
        }
    }

    fn end_body(&mut self) {
        if !std::mem::replace(&mut self.over, true) && self.framed {
            let end = Header::new(RecordType::STDIN, ID, 0);
            self.queue.extend_from_slice(&end.to_bytes());
        }
    }
}

/// Returns whether an error means that the other side reads no more.
fn has_closed(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    [BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected].contains(&e.kind())
}

impl Spooled {
    fn new(file: Stored) -> Self {
        Self {
            file: Rc::new(file),
            next: 0,
            coming: None,
            piece: Vec::new(),
            at: 0,
        }
    }

    /// Returns the next piece. The caller may drop this future and call again.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, Fault>> {
        if self.at == self.piece.len() && self.next < self.file.len() {
            let coming = self.coming.get_or_insert_with(|| {
                let (file, at, piece) = (
                    self.file.clone(),
                    self.next,
                    std::mem::take(&mut self.piece),
                );
                self.at = 0;
                Task::new(async move { file.read(at, PIECE, piece).await })
            });
            let piece = ready!(Pin::new(coming).poll(cx));
            self.coming = None;
            let piece = piece.and_then(|piece| match piece.len() {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(piece),
            });
            self.piece = piece.map_err(|e| {
                Fault::Internal(format!(
                    "the stored request body could not be read back: {e}"
                ))
            })?;
            self.next += self.piece.len() as u64;
        }
        Poll::Ready(Ok(match self.piece.len() - self.at {
            0 => Next::End,
            n => Next::Data(n),
        }))
    }
}
