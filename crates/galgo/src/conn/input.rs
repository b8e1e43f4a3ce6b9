//! What the client sends: request heads and bodies, out of one buffer.

use std::{pin::pin, rc::Rc};

use galgo_proto::{
    Parsed,
    h1::{BodyLen, Chunk, Chunked},
};

use super::{front::Stdin, wire::Wire};
use crate::{
    buf::Buf,
    config::Http,
    fault::{Fault, SHORT},
    pace::{GIVES_WAY, Pace},
    sock::{Sock, is_short},
    tick,
};

/// The most that is read ahead of a running request: pipelined requests beyond it wait in the kernel.
const READ_AHEAD: usize = 64 << 10;
/// So much of a body is read before it takes a place and a process: as much as a pipe holds.
const AHEAD: usize = 64 << 10;
/// What one read of a body asks for.
const BODY_READ: usize = 64 << 10;

/// The receiving side of a connection. `galgo run` has no socket: all it gets is in the buffer.
#[derive(Debug)]
pub struct Input {
    /// Received and not yet used.
    pub buf: Buf,
    /// Where more comes from.
    pub sock: Option<Rc<Sock>>,
    /// How slow the client may be.
    pub pace: Pace,
    /// The client has shut down its sending side.
    pub half_closed: bool,
    /// What is spoken. Only a client that speaks HTTP may half-close and go on reading.
    pub wire: Wire,
}

/// How far a request body has been taken in.
#[derive(Debug)]
pub struct RequestBody {
    frame: Frame,
    /// Bytes of data at the front of the buffer that were looked at before anybody wanted them: `frame` has given them.
    ahead: usize,
    /// Bytes of data that stand at the front of the buffer.
    ready: usize,
    /// Bytes of data taken so far.
    taken: u64,
    /// 413 beyond.
    limit: u64,
}

#[derive(Debug)]
enum Frame {
    Length(u64),
    Chunked(Box<Chunked>),
    Records(Box<Stdin>),
    Ended,
}

/// What comes next of a request body.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// This many bytes at the front of the buffer are data.
    Data(usize),
    /// The buffer must be filled first.
    More,
    /// The body is over.
    End,
}

/// What became of a piece of a body on its way into a pipe.
#[derive(Debug, PartialEq, Eq)]
pub enum Spliced {
    /// It is in the pipe.
    Moved,
    /// The client has shut down its sending side meanwhile.
    HalfClosed,
    /// Nobody reads from the pipe any more.
    Unread,
}

impl RequestBody {
    /// The body of a request framed as `len`.
    pub fn new(len: BodyLen) -> Self {
        let frame = match len {
            BodyLen::None | BodyLen::Length(0) => Frame::Ended,
            BodyLen::Length(n) => Frame::Length(n),
            BodyLen::Chunked => Frame::Chunked(Box::default()),
        };
        Self {
            frame,
            ahead: 0,
            ready: 0,
            taken: 0,
            limit: u64::MAX,
        }
    }

    /// The body of a request that comes in FastCGI records.
    pub fn records(stdin: Stdin) -> Self {
        Self {
            frame: Frame::Records(Box::new(stdin)),
            ahead: 0,
            ready: 0,
            taken: 0,
            limit: u64::MAX,
        }
    }

    /// What is owed to the front server for records that came meanwhile.
    pub fn owed(&mut self) -> Vec<u8> {
        match &mut self.frame {
            Frame::Records(stdin) => std::mem::take(&mut stdin.owed),
            _ => Vec::new(),
        }
    }

    /// Looks at what comes behind the body: a front server may abort the request (FastCGI, 5.4).
    fn overhear(&mut self, buf: &mut Buf) -> Result<(), Fault> {
        match self.frame {
            Frame::Records(_) => self.next(buf).map(drop),
            _ => Ok(()),
        }
    }

    /// Sets the most it may hold; a declared length beyond it is refused at once.
    pub fn limit(&mut self, limit: u64) -> Result<(), Fault> {
        self.limit = limit;
        match self.left() {
            Some(n) if n > limit => Err(TOO_LARGE),
            _ => Ok(()),
        }
    }

    /// Whether all of it has been taken.
    pub fn is_over(&self) -> bool {
        self.ahead + self.ready == 0
            && match &self.frame {
                Frame::Ended => true,
                Frame::Records(stdin) => stdin.is_over(),
                Frame::Length(_) | Frame::Chunked(_) => false,
            }
    }

    /// The length, where it was declared.
    pub fn declared(&self) -> Option<u64> {
        self.left().map(|n| n + self.taken)
    }

    /// What is left of a declared length.
    pub fn left(&self) -> Option<u64> {
        let left = match &self.frame {
            Frame::Length(n) => *n,
            Frame::Records(stdin) => stdin.left?,
            Frame::Ended if self.ahead > 0 => 0,
            Frame::Chunked(_) | Frame::Ended => return None,
        };
        Some(left + self.ahead as u64)
    }

    /// Bytes of data taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether it is whole, or much of it is here, as far as that is seen without looking into framing.
    pub fn is_here(&self, buf: &Buf) -> bool {
        match &self.frame {
            Frame::Length(left) => buf.len() as u64 >= (*left).min(AHEAD as u64),
            Frame::Chunked(_) | Frame::Records(_) => false,
            Frame::Ended => true,
        }
    }

    /// Looks at the front of `buf`, past any chunk framing.
    pub fn next(&mut self, buf: &mut Buf) -> Result<Next, Fault> {
        if self.ahead + self.ready > 0 {
            return Ok(Next::Data(self.ahead.max(self.ready)));
        }
        let mut announced = 0;
        match &mut self.frame {
            Frame::Ended => return Ok(Next::End),
            Frame::Records(stdin) => match stdin.step(buf)? {
                Next::Data(n) => self.ready = n,
                other => return Ok(other),
            },
            _ if buf.is_empty() => return Ok(Next::More),
            Frame::Length(left) => {
                self.ready = usize::try_from(*left).map_or(buf.len(), |left| left.min(buf.len()));
            }
            Frame::Chunked(chunked) => {
                match chunked
                    .step(buf.bytes())
                    .map_err(|e| Fault::Client(400, e.0))?
                {
                    Parsed::Partial => {
                        let all = buf.len();
                        buf.consume(all);
                        let announced = chunked.announced();
                        return self.within(announced).map(|()| Next::More);
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
        self.within(announced)?;
        Ok(Next::Data(self.ready))
    }

    /// Whether the limit has room for what is ready, and for `announced` bytes behind it: a chunk that
    /// is too large is refused by its size, before its data is here.
    fn within(&self, announced: u64) -> Result<(), Fault> {
        let here = self.taken.saturating_add((self.ahead + self.ready) as u64);
        match here.saturating_add(announced) > self.limit {
            true => Err(TOO_LARGE),
            false => Ok(()),
        }
    }

    /// `n` bytes of a body of known length went another way than through the buffer.
    pub fn pass(&mut self, n: usize) {
        self.taken += n as u64;
        if let Frame::Length(left) = &mut self.frame {
            *left = left.saturating_sub(n as u64);
            if *left == 0 {
                self.frame = Frame::Ended;
            }
        }
    }

    /// Takes `n` bytes of the data that [`RequestBody::next`] announced.
    pub fn take(&mut self, buf: &mut Buf, n: usize) {
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
            Frame::Records(stdin) => stdin.take(n),
            Frame::Chunked(_) | Frame::Ended => {}
        }
    }
}

const LEFT: Fault = Fault::Gone("the client left before its request body was complete");

/// What an error while a client is waited for means.
fn slow(e: std::io::Error) -> Fault {
    match e.kind() {
        _ if is_short(&e) => SHORT,
        std::io::ErrorKind::TimedOut => Fault::Client(408, "the client sends slower than min_rate"),
        GIVES_WAY => Fault::Client(
            408,
            "the client sends slower than busy_rate, and others wait for a place",
        ),
        _ => Fault::Gone("the connection was reset by the client"),
    }
}

const TOO_LARGE: Fault = Fault::Client(
    413,
    "the request body is larger than this route takes (max_body)",
);

impl Input {
    /// What came all at once, and nothing follows.
    pub fn whole(bytes: Vec<u8>, http: &Http) -> Self {
        Self {
            buf: Buf::from(bytes),
            sock: None,
            pace: Pace::of(http),
            half_closed: false,
            wire: Wire::Http,
        }
    }

    /// Reads more into the buffer within the client's pace. 0: the client sends no more.
    pub async fn fill(&mut self, want: usize) -> Result<usize, Fault> {
        let Some(sock) = &self.sock else { return Ok(0) };
        match self.pace.wait(pin!(self.buf.fill(sock, want))).await {
            Ok(0) => {
                self.half_closed = true;
                Ok(0)
            }
            Ok(n) => Ok(n),
            Err(e) => Err(slow(e)),
        }
    }

    /// Reads more of a body that is not over yet.
    pub async fn fill_body(&mut self) -> Result<(), Fault> {
        match self.fill(BODY_READ).await? {
            0 => Err(LEFT),
            _ => Ok(()),
        }
    }

    /// Reads a body until it is whole, or much of it is here: that stands at the front of the buffer then, without framing.
    pub async fn read_ahead(&mut self, body: &mut RequestBody) -> Result<(), Fault> {
        while let Frame::Length(_) = body.frame {
            if body.is_here(&self.buf) {
                return Ok(());
            }
            // No more room than as much again as has come: who sends little must not take much.
            self.fill_ahead(self.buf.len()).await?;
        }
        let mut data = Vec::new();
        while data.len() < AHEAD {
            match body.next(&mut self.buf)? {
                Next::Data(n) => {
                    data.extend_from_slice(&self.buf.bytes()[..n]);
                    body.take(&mut self.buf, n);
                }
                Next::More => self.fill_ahead(data.len()).await?,
                Next::End => break,
            }
        }
        body.taken -= data.len() as u64;
        body.ahead = data.len();
        data.extend_from_slice(self.buf.bytes());
        self.buf = Buf::from(data);
        Ok(())
    }

    async fn fill_ahead(&mut self, want: usize) -> Result<(), Fault> {
        match self.fill(want.min(BODY_READ)).await? {
            0 => Err(LEFT),
            _ => Ok(()),
        }
    }

    /// How much of `body` may go from the socket into a pipe without being read.
    pub fn spliceable(&self, body: &RequestBody) -> usize {
        match &body.frame {
            Frame::Length(left) if self.sock.is_some() && self.buf.is_empty() => {
                usize::try_from(*left).unwrap_or(usize::MAX)
            }
            _ => 0,
        }
    }

    /// Moves what is there of `len` bytes of a body to the pipe `to` without copying it through this process, within
    /// the client's pace.
    pub async fn splice_body(
        &mut self,
        body: &mut RequestBody,
        to: &Sock,
        len: usize,
    ) -> Result<Spliced, Fault> {
        let Some(sock) = self.sock.clone() else {
            return Err(LEFT);
        };
        self.pace.wait(pin!(sock.readable())).await.map_err(slow)?;
        let moved = tokio::select! {
            biased;
            moved = to.splice(&*sock, len) => moved,
            closed = watch_unread(Some(&sock), &mut self.half_closed, self.wire) => {
                return closed.map(|()| Spliced::HalfClosed);
            }
        };
        match moved {
            Ok(0) => {
                self.half_closed = true;
                Err(LEFT)
            }
            Ok(n) => {
                self.pace.earn(n);
                body.pass(n);
                Ok(Spliced::Moved)
            }
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(Spliced::Unread),
            Err(e) => Err(slow(e)),
        }
    }

    /// Watches a client whose request is complete. Returns once when it half-closes, and
    /// with [`Fault::Gone`] when it is gone; takes in what it pipelines meanwhile, up to a bound.
    pub async fn watch(&mut self, body: &mut RequestBody) -> Result<(), Fault> {
        let Some(sock) = self.sock.clone() else {
            return std::future::pending().await;
        };
        if !sock.is_watched() && self.wire.is_http() {
            // Most answers come before the next beat, and the event loop need not hear of the connection at all. What a
            // front server says meanwhile, as ABORT, is about the request.
            tick::next().await;
        }
        while !self.half_closed && self.buf.len() < READ_AHEAD {
            match sock.read_idle(&mut self.buf).await {
                Ok(0) => {
                    self.half_closed = true;
                    return half_close(self.wire);
                }
                Ok(_) => body.overhear(&mut self.buf)?,
                // It is asked again with the next beat.
                Err(e) if is_short(&e) => tick::next().await,
                Err(_) => return Err(GONE),
            }
        }
        watch_unread(Some(&sock), &mut self.half_closed, self.wire).await
    }
}

/// As [`Input::watch`] where nothing may be read. Returns once when the client half-closes.
pub async fn watch_unread(
    sock: Option<&Sock>,
    half_closed: &mut bool,
    wire: Wire,
) -> Result<(), Fault> {
    let Some(sock) = sock else {
        return std::future::pending().await;
    };
    if *half_closed {
        sock.gone().await;
        return Err(GONE);
    }
    tokio::select! {
        biased;
        () = sock.gone() => Err(GONE),
        () = sock.read_closed() => {
            *half_closed = true;
            half_close(wire)
        }
    }
}

/// A client that speaks HTTP may shut down its sending side and read on; a front server that closes is gone.
fn half_close(wire: Wire) -> Result<(), Fault> {
    if wire.is_http() { Ok(()) } else { Err(GONE) }
}

const GONE: Fault = Fault::Gone("the client closed the connection");

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::UnixStream,
        time::Duration,
    };

    use super::*;

    /// Splices bodies of 10 bytes of a client that sends `said`, and closes its side if `ends`.
    async fn spliced(said: &[u8], ends: bool) -> (Input, RequestBody, Vec<u8>, Fault) {
        let (mut client, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        client.write_all(said).unwrap();
        if ends {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let mut input = Input {
            buf: Buf::default(),
            sock: Some(Rc::new(Sock::new(ours.into()))),
            pace: Pace::new(Duration::from_millis(200), 1),
            half_closed: false,
            wire: Wire::Http,
        };
        let mut body = RequestBody::new(BodyLen::Length(10));
        let (mut reader, writer) = std::io::pipe().unwrap();
        let pipe = Sock::writer(writer.into());
        let mut fault = LEFT;
        while let len @ 1.. = input.spliceable(&body) {
            match input.splice_body(&mut body, &pipe, len).await {
                Ok(done) => assert_eq!(done, Spliced::Moved),
                Err(e) => {
                    fault = e;
                    break;
                }
            }
        }
        drop(pipe);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        drop(client);
        (input, body, got, fault)
    }

    fn on_a_loop<T>(run: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(run)
    }

    #[test]
    fn a_body_is_spliced_and_the_next_request_stays() {
        on_a_loop(async {
            let (mut input, body, got, _) = spliced(b"0123456789GET", false).await;
            assert!(body.is_over() && body.taken() == 10 && got == b"0123456789");
            let sock = input.sock.clone().unwrap();
            assert_eq!(sock.read_idle(&mut input.buf).await.unwrap(), 3);
            assert_eq!(input.buf.bytes(), b"GET");
        });
    }

    #[test]
    fn a_client_that_leaves_or_stalls_in_a_spliced_body_is_noticed() {
        on_a_loop(async {
            let (input, body, got, fault) = spliced(b"01234", true).await;
            assert!(matches!(fault, Fault::Gone(_)) && input.half_closed);
            assert!(!body.is_over() && got == b"01234");
            let (.., fault) = spliced(b"01234", false).await;
            assert!(matches!(fault, Fault::Client(408, _)), "{fault:?}");
        });
    }
}
