//! Sending a response: its head is written once, its body as its kind allows.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    rc::Rc,
};

use galgo_proto::{
    fields::lists,
    h1::{Method, Version},
};

use galgo_spawn::Exit;

use super::{DRAIN, Request};
use crate::{
    body::{Body, FilePart, Output, Part, Response},
    fault::Fault,
    handler::status,
    log::access::Entry,
    pace::Pace,
    pool,
    relay::program::Turn,
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
    /// The response was cut: it is closed so that the client sees that.
    Reset,
}

/// The sending side of a connection.
#[derive(Debug)]
pub struct Sender {
    sock: Rc<Sock>,
    pace: Pace,
}

/// How the end of a body is marked (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// No body belongs to this response (HEAD, 204, 304).
    Bodiless,
    Length(u64),
    Chunked,
    UntilClose,
    /// The program wrote the whole response (NPH).
    Raw,
}

impl Sender {
    /// The sending side of `sock`.
    pub fn new(sock: Rc<Sock>, pace: Pace) -> Self {
        Self { sock, pace }
    }

    /// Sends a response that was made without a request, and that ends the connection.
    pub async fn send_simple(&mut self, worker: &Worker, response: Response) -> io::Result<u64> {
        self.pace.reset();
        let body = match response.body {
            Body::Bytes(ref b) => b.clone(),
            _ => Vec::new(),
        };
        let framing = Framing::Length(body.len() as u64);
        let head = head(worker, &response, framing, Version::Http11, false);
        write_all(
            &self.sock,
            &mut self.pace,
            &mut [IoSlice::new(&head), IoSlice::new(&body)],
        )
        .await?;
        Ok(body.len() as u64)
    }

    /// Sends `response` and logs the request.
    pub async fn send(
        &mut self,
        worker: &Rc<Worker>,
        request: &mut Request<'_>,
        mut response: Response,
    ) -> After {
        self.pace.reset();
        request.entry.borrow_mut().status = response.status;
        let body = std::mem::replace(&mut response.body, Body::Empty);
        if let Body::Program(output) = body {
            return self.program(worker, request, response, *output).await;
        }
        let framing = match bodiless(request, response.status) {
            true => Framing::Bodiless,
            false => Framing::Length(body.len()),
        };
        let keep_alive = keeps_alive(worker, request, framing);
        let head = static_head(worker, request, &response, &body, framing, keep_alive);
        let sent = self.whole(&head, body, framing).await;
        let mut entry = request.entry.borrow_mut();
        entry.first_byte = request.began.elapsed();
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
                entry.outcome = "cut";
                After::Reset
            }
        };
        worker.log(&entry);
        after
    }

    /// Sends a head and a body whose length is known.
    async fn whole(&mut self, head: &[u8], body: Body, framing: Framing) -> io::Result<u64> {
        let Self { sock, pace } = self;
        let len = body.len();
        match body {
            _ if framing == Framing::Bodiless => write_all(sock, pace, &mut [IoSlice::new(head)])
                .await
                .map(|()| 0),
            Body::Bytes(b) => write_two(sock, pace, head, &b).await.map(|()| len),
            Body::Shared(b) => write_two(sock, pace, head, &b).await.map(|()| len),
            Body::File(part) => {
                write_more(sock, pace, head).await?;
                send_file(sock, pace, &part).await.map(|()| len)
            }
            Body::Parts(parts) => {
                write_more(sock, pace, head).await?;
                for part in parts {
                    match part {
                        Part::Bytes(b) => write_more(sock, pace, &b).await?,
                        Part::File(f) => send_file(sock, pace, &f).await?,
                    }
                }
                // The last part is never followed by more: an empty send pushes what is held back.
                sock.push();
                Ok(len)
            }
            Body::Empty | Body::Program(_) => write_all(sock, pace, &mut [IoSlice::new(head)])
                .await
                .map(|()| 0),
        }
    }

    /// Sends what a program prints, as it prints it.
    async fn program(
        &mut self,
        worker: &Rc<Worker>,
        request: &mut Request<'_>,
        mut response: Response,
        mut output: Output,
    ) -> After {
        let framing = program_framing(request, response.status, &output);
        let keep_alive = keeps_alive(worker, request, framing);
        let head = match framing {
            Framing::Raw => Vec::new(),
            _ => {
                promise(&mut response, framing, &output);
                head(worker, &response, framing, request.head.version, keep_alive)
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
        let (sent, result) = streamed.run(head).await;
        {
            let mut entry = request.entry.borrow_mut();
            entry.bytes = sent;
            entry.total = request.began.elapsed();
        }
        let line = Line {
            worker: worker.clone(),
            entry: request.entry.clone(),
        };
        let logged = move |exit| line.end(exit);
        match result {
            Ok(()) => {
                output.program.finish(logged);
                if keep_alive {
                    After::KeepAlive
                } else {
                    After::Close
                }
            }
            Err(fault) => {
                status::report(worker, request, &fault);
                request.entry.borrow_mut().status = response.status;
                let gone = matches!(fault, Fault::Gone(_));
                output.program.abandon(gone, logged);
                // Where only the end of the connection marks the end of the body, a cut must look different.
                match framing {
                    Framing::UntilClose | Framing::Raw => After::Reset,
                    _ if gone => After::Reset,
                    _ => After::Close,
                }
            }
        }
    }
}

/// A body that is not sent (HEAD, 204, 304) is read so that its program is not blocked by us; one that
/// prints more than this has been told apart from one that will end.
const MOST_DROPPED: usize = 16 << 20;

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

/// One program's output on its way to one client.
struct Stream<'s, 'r, 'i> {
    sender: &'s mut Sender,
    request: &'r mut Request<'i>,
    output: &'s mut Output,
    framing: Framing,
    sent: u64,
    dropped: usize,
}

impl Stream<'_, '_, '_> {
    /// Returns the body bytes sent, and how it ended.
    async fn run(mut self, head: Vec<u8>) -> (u64, Result<(), Fault>) {
        let result = self.stream(head).await;
        (self.sent, result)
    }

    async fn stream(&mut self, mut head: Vec<u8>) -> Result<(), Fault> {
        let mut probed = false;
        loop {
            let mut last = self.output.program.output_ended();
            let killed = match self.framing {
                // Here the end of output alone would make a whole response of what is a piece of one.
                Framing::Chunked | Framing::UntilClose | Framing::Raw if last => {
                    self.output.program.killed().await
                }
                _ => None,
            };
            last &= killed.is_none();
            let out = std::mem::take(&mut self.output.program.out);
            if !out.is_empty() || !head.is_empty() || last {
                self.piece(&std::mem::take(&mut head), &out, last, probed)
                    .await?;
                probed &= out.is_empty();
            }
            pool::give(out);
            if let Some(fault) = killed {
                return Err(fault);
            }
            if last || self.output.excess || self.dropped > MOST_DROPPED {
                return self.ended();
            }
            let (input, body) = (&mut *self.request.input, &mut *self.request.body);
            match self.output.program.turn(input, body).await? {
                // What is there already goes out together, and with the end if that is there.
                Turn::Output => self.output.program.drain_ready(pool::SIZE),
                Turn::End => {}
                Turn::HalfClosed if self.framing == Framing::Chunked && !probed => {
                    // Is anybody still reading? A leading zero of the next chunk size (RFC 9112, 7.1)
                    // means nothing to a client that is there, and makes the kernel of one that is
                    // not send a reset.
                    probed = matches!(self.sender.sock.try_write(b"0"), Ok(Some(1)));
                }
                Turn::HalfClosed => {}
            }
        }
    }

    /// Sends one piece of output within its framing.
    async fn piece(
        &mut self,
        head: &[u8],
        out: &[u8],
        last: bool,
        probed: bool,
    ) -> Result<(), Fault> {
        let body = match self.framing {
            Framing::Bodiless => &out[..0],
            Framing::Length(n) => {
                let left = usize::try_from(n - self.sent).unwrap_or(usize::MAX);
                self.output.excess |= out.len() > left && !self.output.discard;
                &out[..out.len().min(left)]
            }
            Framing::Chunked | Framing::UntilClose | Framing::Raw => out,
        };
        self.dropped += out.len() - body.len();
        let mut size = [0; 20];
        let (before, after): (&[u8], &[u8]) = match self.framing {
            Framing::Chunked if body.is_empty() && !last => (b"", b""),
            // A probe has sent a `0` already; the last chunk may have more of them.
            Framing::Chunked if body.is_empty() => (b"0\r\n\r\n", b""),
            Framing::Chunked => (
                chunk_size(&mut size, body.len()),
                if last { b"\r\n0\r\n\r\n" } else { b"\r\n" },
            ),
            _ => (b"", b""),
        };
        debug_assert!(!probed || self.framing == Framing::Chunked);
        let mut parts = [head, before, body, after].map(IoSlice::new);
        let Sender { sock, pace } = &mut *self.sender;
        let write = write_all(sock, pace, &mut parts);
        let (input, request_body) = (&mut *self.request.input, &mut *self.request.body);
        self.output
            .program
            .during(input, request_body, write)
            .await?;
        if !head.is_empty() || self.sent == 0 {
            let mut entry = self.request.entry.borrow_mut();
            entry.first_byte = self.request.began.elapsed();
        }
        self.sent += body.len() as u64;
        Ok(())
    }

    /// The output has ended: was it what the head promised?
    fn ended(&self) -> Result<(), Fault> {
        match self.framing {
            Framing::Length(n) => self.output.ended(n, self.sent),
            _ => Ok(()),
        }
    }
}

fn chunk_size(buf: &mut [u8; 20], n: usize) -> &[u8] {
    use io::Write as _;
    let mut rest = &mut buf[..];
    let _ = write!(rest, "{n:x}\r\n"); // INVARIANT: 16 digits and CRLF fit
    let left = rest.len();
    &buf[..20 - left]
}

/// RFC 9110, 6.4.1: these have no body.
pub(crate) fn bodiless(request: &Request<'_>, status: u16) -> bool {
    request.head.method == Method::Head || matches!(status, 100..=199 | 204 | 304)
}

fn program_framing(request: &Request<'_>, status: u16, output: &Output) -> Framing {
    let program = &output.program;
    if output.nph {
        Framing::Raw
    } else if bodiless(request, status) {
        Framing::Bodiless
    } else if output.discard {
        Framing::Length(0)
    } else if let Some(n) = output.content_length {
        Framing::Length(n)
    } else if program.output_ended() {
        Framing::Length(program.out.len() as u64)
    } else if request.head.version == Version::Http11 {
        Framing::Chunked
    } else {
        Framing::UntilClose
    }
}

fn keeps_alive(worker: &Worker, request: &Request<'_>, framing: Framing) -> bool {
    request.head.keep_alive
        && !request.last
        && !matches!(framing, Framing::UntilClose | Framing::Raw)
        && !worker.server.draining()
        && request.body.left().is_none_or(|n| n <= DRAIN)
        // Nobody asked for the body, so the client may or may not send it (RFC 9110, 10.1.1).
        && (!request.owes_continue || request.body.is_over())
}

/// The head of a response whose body is not a program's: HEAD gets the length the body would have.
fn static_head(
    worker: &Worker,
    request: &Request<'_>,
    response: &Response,
    body: &Body,
    framing: Framing,
    keep_alive: bool,
) -> Vec<u8> {
    let head_only = framing == Framing::Bodiless && !matches!(response.status, 204 | 304);
    let framing = if head_only {
        Framing::Length(body.len())
    } else {
        framing
    };
    head(worker, response, framing, request.head.version, keep_alive)
}

/// What a program says of the length of a body that is not sent, to HEAD or beside 304, is passed on
/// (RFC 9110, 8.6).
fn promise(response: &mut Response, framing: Framing, output: &Output) {
    if let (Framing::Bodiless, Some(n)) = (framing, output.content_length)
        && response.status != 204
    {
        response.fields.push("Content-Length", n.to_string());
    }
}

/// Writes the head of a response.
fn head(
    worker: &Worker,
    response: &Response,
    framing: Framing,
    version: Version,
    keep_alive: bool,
) -> Vec<u8> {
    use io::Write as _;
    let mut out = Vec::with_capacity(512);
    let reason = response
        .reason
        .as_deref()
        .unwrap_or_else(|| status::reason(response.status));
    // INVARIANT: writing to a Vec does not fail.
    let _ = write!(out, "HTTP/1.1 {} {reason}\r\n", response.status);
    if !response.fields.has("date") {
        let _ = write!(out, "Date: {}\r\n", worker.date());
    }
    if !response.fields.has("server") {
        out.extend_from_slice(b"Server: galgo\r\n");
    }
    for (name, value) in response.fields.iter() {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    match framing {
        Framing::Length(n) => {
            let _ = write!(out, "Content-Length: {n}\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::Bodiless | Framing::UntilClose | Framing::Raw => {}
    }
    if !keep_alive {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
    debug_assert!(!lists(&response.fields, "transfer-encoding", "chunked"));
    out
}

async fn write_two(sock: &Sock, pace: &mut Pace, a: &[u8], b: &[u8]) -> io::Result<()> {
    write_all(sock, pace, &mut [IoSlice::new(a), IoSlice::new(b)]).await
}

/// Writes all of `parts`.
async fn write_all(sock: &Sock, pace: &mut Pace, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match pace.wait(sock.write(parts)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => IoSlice::advance_slices(&mut parts, n),
        }
    }
    Ok(())
}

/// Writes `bytes`, telling the kernel that more follows.
async fn write_more(sock: &Sock, pace: &mut Pace, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = pace.wait(sock.send_more(bytes)).await?;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// Sends a piece of a file. A file that became shorter meanwhile cuts the response.
async fn send_file(sock: &Sock, pace: &mut Pace, part: &FilePart) -> io::Result<()> {
    /// One call sends at most this much, so that other connections get their turn.
    const PIECE: u64 = 1 << 20;
    let mut offset = part.offset;
    let end = part.offset + part.len;
    while offset < end {
        let len = usize::try_from((end - offset).min(PIECE)).unwrap_or(usize::MAX);
        if pace
            .wait(sock.sendfile(&part.file, &mut offset, len))
            .await?
            == 0
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        tokio::task::consume_budget().await;
    }
    Ok(())
}
