//! Sending a response: its head is written once, its body as its kind allows.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    pin::pin,
    rc::Rc,
};

use galgo_proto::h1::Version;
use galgo_spawn::{Exit, Status, words::how};

use super::{
    Request,
    framing::{Framing, bodiless, head, keeps_alive, program_framing, promise, static_head},
    stream::Stream,
    wire::Wire,
};
use crate::{
    body::{Body, FilePart, Output, Part, Response},
    fault::Fault,
    log::{Level, Source, access::Entry},
    pace::Pace,
    service::Service,
    sock::Sock,
    worker::Worker,
};

/// What becomes of the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The next request may come.
    KeepAlive,
    /// It is closed once the response has arrived.
    Close,
    /// It is closed: the client said that it sends nothing behind this request.
    Over,
    /// The response was cut: it is closed so that the client sees that.
    Reset,
}

/// The sending side of a connection.
#[derive(Debug)]
pub struct Sender {
    pub(super) sock: Rc<Sock>,
    pub(super) pace: Pace,
    pub(super) wire: Wire,
    /// Bytes of files that have been written.
    sent: u64,
    /// The end of the response has been written.
    pub(super) ended: bool,
    /// The exit status of the program that answers, as far as it is known: a front server is told.
    pub(super) status: u32,
    /// The connection ends with the response, which leaves with its end in one segment.
    pub(super) closing: bool,
}

impl Sender {
    /// The sending side of `sock`.
    pub fn new(sock: Rc<Sock>, pace: Pace) -> Self {
        Self {
            sock,
            pace,
            wire: Wire::Http,
            sent: 0,
            ended: false,
            status: 0,
            closing: false,
        }
    }

    /// A request came: its response stands on the `wire`.
    pub fn begin(&mut self, wire: Wire) {
        self.pace.reset();
        self.wire = wire;
        self.sent = 0;
        self.ended = false;
        self.status = 0;
        self.closing = false;
    }

    /// Writes `parts` of a response, and its end with the `last` of them.
    async fn write(&mut self, parts: [&[u8]; 4], last: bool) -> io::Result<()> {
        let Self { sock, pace, .. } = self;
        let status = last.then_some(self.status);
        let written = self.wire.write(sock, pace, &parts, status, self.closing);
        written.await?;
        self.ended |= last;
        Ok(())
    }

    /// Writes the end of a response, where it has one of its own and that has not been written.
    async fn end(&mut self) -> io::Result<()> {
        match self.ended || !matches!(self.wire, Wire::FastCgi { .. }) {
            true => Ok(()),
            false => self.write([b""; 4], true).await,
        }
    }

    /// Writes a part of a response that more follows.
    async fn write_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.wire {
            Wire::FastCgi { .. } => self.write([bytes, b"", b"", b""], false).await,
            Wire::Http | Wire::Scgi => write_more(&self.sock, &mut self.pace, bytes).await,
        }
    }

    /// Sends a response that was made without a request, and that ends the connection.
    pub async fn send_simple(&mut self, worker: &Worker, response: Response) -> io::Result<u64> {
        self.pace.reset();
        let body = match response.body {
            Body::Bytes(ref b) => b.clone(),
            _ => Vec::new(),
        };
        let framing = Framing::Length(body.len() as u64);
        let head = head(
            worker,
            &response,
            framing,
            self.wire,
            Version::Http11,
            false,
        );
        self.write([&head, &body, b"", b""], true).await?;
        Ok(body.len() as u64)
    }

    /// Sends `response` and logs the request.
    pub async fn send(
        &mut self,
        worker: &Rc<Worker>,
        service: &impl Service,
        request: &mut Request<'_>,
        mut response: Response,
    ) -> After {
        self.pace.reset();
        request.entry.borrow_mut().status = response.status;
        let body = std::mem::replace(&mut response.body, Body::Empty);
        if let Body::Stream(output) = body {
            self.pace.has_place(request.place.clone());
            // Boxed, so that other responses need no room for it.
            return Box::pin(self.program(worker, service, request, response, output)).await;
        }
        let framing = match bodiless(request, response.status) {
            true => Framing::Bodiless,
            false => Framing::Length(body.len()),
        };
        let keep_alive = keeps_alive(worker, request, framing);
        self.closing = !keep_alive;
        let head = static_head(
            worker, request, &response, &body, framing, self.wire, keep_alive,
        );
        let sent = self.whole(&head, body, framing).await;
        let mut entry = request.entry.borrow_mut();
        entry.first_byte = worker.taken(request.began);
        entry.total = entry.first_byte;
        let after = match sent {
            Ok(sent) => {
                entry.bytes = sent;
                if keep_alive {
                    After::KeepAlive
                } else {
                    After::Close
                }
            }
            Err(_) => {
                entry.bytes = self.sent;
                entry.outcome = "cut";
                After::Reset
            }
        };
        worker.log(&entry);
        after
    }

    /// Sends a head and a body whose length is known.
    async fn whole(&mut self, head: &[u8], body: Body, framing: Framing) -> io::Result<u64> {
        let len = body.len();
        match body {
            _ if framing == Framing::Bodiless => {
                self.write([head, b"", b"", b""], true).await.map(|()| 0)
            }
            Body::Bytes(b) => self.write([head, &b, b"", b""], true).await.map(|()| len),
            Body::Shared(b) => self.write([head, &b, b"", b""], true).await.map(|()| len),
            Body::File(part) => {
                self.write_more(head).await?;
                self.send_file(&part).await?;
                self.end().await.map(|()| len)
            }
            Body::Parts(parts) => Box::pin(self.parts(head, parts)).await.map(|()| len),
            Body::Empty | Body::Stream(_) => {
                self.write([head, b"", b"", b""], true).await.map(|()| 0)
            }
        }
    }

    async fn parts(&mut self, head: &[u8], parts: Vec<Part>) -> io::Result<()> {
        self.write_more(head).await?;
        for part in parts {
            match part {
                Part::Bytes(b) => self.write_more(&b).await?,
                Part::File(f) => self.send_file(&f).await?,
            }
        }
        // The last part is never followed by more: an empty send pushes what is held back.
        self.sock.push();
        self.end().await
    }

    /// Sends a piece of a file. A file that became shorter meanwhile cuts the response.
    async fn send_file(&mut self, part: &FilePart) -> io::Result<()> {
        /// One call sends at most this much, so that other connections get their turn.
        const PIECE: u64 = 1 << 20;
        let Self {
            sock,
            pace,
            wire,
            sent,
            ..
        } = self;
        let mut offset = part.offset;
        let end = part.offset + part.len;
        while offset < end {
            let len = usize::try_from((end - offset).min(PIECE)).unwrap_or(usize::MAX);
            let mut left = wire.announce(sock, pace, len).await?;
            while left > 0 {
                let moved = sock.sendfile(&part.file, &mut offset, left);
                match pace.wait(pin!(moved)).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => {
                        left -= n;
                        *sent += n as u64;
                    }
                }
                tokio::task::consume_budget().await;
            }
        }
        Ok(())
    }

    /// Sends what a program prints, as it prints it.
    async fn program(
        &mut self,
        worker: &Rc<Worker>,
        service: &impl Service,
        request: &mut Request<'_>,
        mut response: Response,
        mut output: Box<Output>,
    ) -> After {
        let framing = program_framing(request, response.status, &output);
        let keep_alive = keeps_alive(worker, request, framing);
        self.closing = !keep_alive;
        let head = match framing {
            Framing::Raw => Vec::new(),
            _ => {
                promise(&mut response, framing, &output);
                let version = request.head.version;
                head(worker, &response, framing, self.wire, version, keep_alive)
            }
        };
        let streamed = Stream {
            sender: self,
            request,
            output: &mut output,
            framing,
            sent: 0,
            dropped: 0,
        };
        let (sent, mut result) = streamed.run(head).await;
        if result.is_ok() {
            result = self.end().await.map_err(|_| Fault::Gone(GONE));
        }
        let logged = over(worker, request, sent);
        let Err(fault) = result else {
            // One whose output nobody reads to its end may fail for that.
            let whole = output.producer.output_ended();
            let source = output.source;
            output.producer.finish(Box::new(move |exit| {
                if whole {
                    failed_behind(&source, exit);
                }
                logged(exit);
            }));
            return match keep_alive {
                true => After::KeepAlive,
                false => After::Close,
            };
        };
        service.cut(request, &fault);
        request.entry.borrow_mut().status = response.status;
        let gone = matches!(fault, Fault::Gone(_));
        output.producer.abandon(gone, Box::new(logged));
        cut(framing, gone)
    }
}

/// The response is over, with so many bytes of body: what writes its log line, once it is told how the program ended.
fn over(
    worker: &Rc<Worker>,
    request: &Request<'_>,
    sent: u64,
) -> impl FnOnce(Option<Exit>) + use<> {
    let mut entry = request.entry.borrow_mut();
    entry.bytes = sent;
    entry.total = worker.taken(request.began);
    let line = Line {
        worker: worker.clone(),
        entry: request.entry.clone(),
    };
    move |exit| line.end(exit)
}

/// A program whose response was sent as it should be, and which failed all the same: an exception behind the head, most
/// often.
fn failed_behind(source: &Source, exit: Option<Exit>) {
    if let Some(status @ Status::Code(1..)) = exit.map(|exit| exit.status) {
        let words = format!("it ended {}, behind its response", how(status));
        source.write(Level::Warn, &words);
    }
}

/// What becomes of the connection after a response that was cut: where only its end marks the end of the body, a cut must
/// look different.
fn cut(framing: Framing, gone: bool) -> After {
    match framing {
        Framing::UntilClose | Framing::Raw => After::Reset,
        _ if gone => After::Reset,
        _ => After::Close,
    }
}

/// The log line of a request whose program may still be ending: written when that is over, or when
/// the server ends before.
struct Line {
    worker: Rc<Worker>,
    entry: Rc<RefCell<Entry>>,
}

impl Line {
    fn end(self, exit: Option<Exit>) {
        self.entry.borrow_mut().exit = exit;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.worker.log(&self.entry.borrow());
    }
}

const GONE: &str = "the connection was closed before the response had its end";

/// Writes all of `parts`; `more`: telling the kernel that more follows, bytes or the end of the connection.
pub(super) async fn write_all(
    sock: &Sock,
    pace: &mut Pace,
    mut parts: &mut [IoSlice<'_>],
    more: bool,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let written = match more {
            true => pace.wait(pin!(sock.write_more(parts))).await?,
            false => pace.wait(pin!(sock.write(parts))).await?,
        };
        match written {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => IoSlice::advance_slices(&mut parts, n),
        }
    }
    Ok(())
}

/// Writes `bytes`, telling the kernel that more follows.
pub(super) async fn write_more(sock: &Sock, pace: &mut Pace, bytes: &[u8]) -> io::Result<()> {
    write_all(sock, pace, &mut [IoSlice::new(bytes)], true).await
}
