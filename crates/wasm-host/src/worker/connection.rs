//! A connection of the server. It carries one request after the other, and their answers, in FastCGI records.
//!
//! Output is held back while the guest computes, so that a separately printed head and body wake the server only once. Output
//! is written when a piece is full, when the guest waits, at the next tick of its clock, and with the exit of the instance.

use galgo_spawn::lock::lock;
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Mutex,
};

use bytes::Bytes;
use galgo_proto::{
    Parsed,
    fcgi::{
        self, HEADER, Header, MOST, NameValuePairs, Outcome, RecordType,
        request::{Event, Requests},
    },
};
use galgo_wasm::wire::{ID, Run, RunOutcome};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

/// Number of bytes that are moved at once.
pub(super) const PIECE: usize = 64 << 10;
/// Limit of a request's variables in bytes; the server's own limits are lower.
const VARIABLES: usize = 16 << 20;

/// The code to run, and its environment: `NAME=value\0`, one after the other.
pub(super) struct RunRequest {
    pub(super) run: Run,
    pub(super) env: Vec<u8>,
}

/// An event that a guest, or the code that watches it, may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Input,
    Room,
    HangUp,
}

/// A connection of the server. Its descriptor blocks, but no call here does while a guest runs.
#[derive(Debug)]
pub(super) struct ServerConnection {
    fd: OwnedFd,
    input: Mutex<RecordInput>,
    output: Mutex<RecordOutput>,
}

#[derive(Debug)]
struct RecordInput {
    buf: Box<[u8]>,
    /// Position of the first byte that was not parsed yet.
    at: usize,
    end: usize,
    requests: Requests,
    /// Number of bytes of the body that come next.
    body: usize,
    over: Option<BodyEnd>,
}

/// The end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyEnd {
    Whole,
    /// The server has given the request up.
    Cut,
}

#[derive(Debug, Default)]
struct RecordOutput {
    bytes: Vec<u8>,
    /// The record that may still grow, and its start.
    open: Option<(RecordType, usize)>,
    broken: Option<Errno>,
}

impl ServerConnection {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            input: Mutex::new(RecordInput {
                buf: vec![0; PIECE].into(),
                at: 0,
                end: 0,
                requests: Requests::default(),
                body: 0,
                over: Some(BodyEnd::Whole),
            }),
            output: Mutex::default(),
        }
    }

    /// Waits for the next request. `None`: no request will come.
    pub(super) fn receive_request(&self) -> Option<RunRequest> {
        let input = &mut *lock(&self.input);
        let mut params = Vec::new();
        // Bytes that the previous guest has not read.
        let unread = std::mem::take(&mut input.body);
        input.take_bytes(unread);
        loop {
            match input.next_event() {
                Err(_broken) => return None,
                Ok(None) => {
                    if !matches!(input.fill_buffer(&self.fd, RecvFlags::empty()), Ok(n) if n > 0) {
                        return None;
                    }
                }
                Ok(Some(Event::Begin { .. })) => params.clear(),
                Ok(Some(Event::Params(_, n))) => {
                    params.extend_from_slice(input.take_bytes(n));
                    if params.len() > VARIABLES {
                        return None;
                    }
                }
                Ok(Some(Event::ParamsEnd(_))) => break,
                Ok(Some(Event::Stdin(_, n))) => _ = input.take_bytes(n),
                Ok(Some(_)) => {}
            }
        }
        input.over = None;
        *lock(&self.output) = RecordOutput::default();
        parse_request(&params)
    }

    /// Returns at most this many bytes of the body; no bytes at its end. AGAIN: no bytes are there yet. IO: the body was cut,
    /// and no more bytes will come.
    pub(super) fn read(&self, most: usize) -> Result<Bytes, Errno> {
        let input = &mut *lock(&self.input);
        loop {
            input.advance_to_body();
            if input.body > 0 {
                let n = input.body.min(most);
                input.body -= n;
                return Ok(Bytes::copy_from_slice(input.take_bytes(n)));
            }
            match input.over {
                Some(BodyEnd::Whole) => return Ok(Bytes::new()),
                Some(BodyEnd::Cut) => return Err(Errno::IO),
                None => {}
            }
            match input.fill_buffer(&self.fd, RecvFlags::DONTWAIT) {
                Ok(0) | Err(Errno::CONNRESET) => input.over = Some(BodyEnd::Cut),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes output, which is written later. Returns the number of held bytes.
    pub(super) fn queue_output(&self, kind: RecordType, bytes: &[u8]) -> usize {
        let output = &mut *lock(&self.output);
        output.queue_output(kind, bytes);
        output.bytes.len()
    }

    /// Returns the number of held bytes.
    ///
    /// # Errors
    /// The server reads no more.
    pub(super) fn held_len(&self) -> Result<usize, Errno> {
        let output = lock(&self.output);
        output.broken.map_or(Ok(output.bytes.len()), Err)
    }

    /// Ends the answer to a request with its result.
    pub(super) fn end_answer(&self, ended: RunOutcome) {
        let more = ended.encode();
        let end = &fcgi::end_request(ID, 0, Outcome::COMPLETE)[HEADER..];
        lock(&self.output).append_record(RecordType::END, &[end, &more[..]].concat());
    }

    /// Writes as much of the held output as fits now; returns whether that was all.
    pub(super) fn push(&self) -> bool {
        let output = &mut *lock(&self.output);
        let mut written = 0;
        while let Some(rest) = output.bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match send(&self.fd, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(e) => {
                    output.broken = Some(e);
                    written = output.bytes.len();
                }
            }
        }
        if written > 0 {
            output.bytes.drain(..written);
            output.open = None;
        }
        output.bytes.is_empty()
    }

    /// Whether the event has happened, or never will.
    pub(super) fn has_happened(&self, event: Readiness) -> bool {
        if event == Readiness::Input {
            let input = &mut *lock(&self.input);
            input.advance_to_body();
            if input.body > 0 || input.over.is_some() {
                return true;
            }
        }
        let flags = match event {
            Readiness::Input => PollFlags::IN,
            Readiness::Room => PollFlags::OUT,
            Readiness::HangUp => PollFlags::RDHUP,
        };
        let mut fds = [PollFd::new(&self.fd, flags)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(n) if n > 0)
    }
}

impl AsFd for ServerConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl RecordInput {
    fn next_event(&mut self) -> Result<Option<Event>, fcgi::RecordError> {
        let input = self.buf.get(self.at..self.end).unwrap_or_default();
        Ok(match self.requests.next_event(input)? {
            Parsed::Complete(event, used) => {
                self.at += used;
                Some(event)
            }
            Parsed::Partial => {
                (self.at, self.end) = (0, 0);
                None
            }
        })
    }

    /// Reads more input, after all earlier input was parsed.
    fn fill_buffer(&mut self, fd: &OwnedFd, flags: RecvFlags) -> Result<usize, Errno> {
        let (n, _) = recv(fd, &mut *self.buf, flags)?;
        (self.at, self.end) = (0, n);
        Ok(n)
    }

    fn take_bytes(&mut self, n: usize) -> &[u8] {
        let taken = self.buf.get(self.at..self.at + n).unwrap_or_default();
        self.at += n;
        taken
    }

    /// Parses input up to the next bytes of the body, or its end.
    fn advance_to_body(&mut self) {
        while self.body == 0 && self.over.is_none() {
            match self.next_event() {
                Ok(None) => return,
                Ok(Some(Event::Stdin(_, n))) => self.body = n,
                Ok(Some(Event::StdinEnd(_))) => self.over = Some(BodyEnd::Whole),
                Ok(Some(Event::Abort(_))) | Err(_) => self.over = Some(BodyEnd::Cut),
                Ok(Some(_)) => {}
            }
        }
    }
}

impl RecordOutput {
    fn queue_output(&mut self, kind: RecordType, mut bytes: &[u8]) {
        if self.broken.is_some() {
            return;
        }
        if let Some((last, at)) = self.open
            && last == kind
        {
            let content = self.bytes.len() - at - HEADER;
            let (fits, rest) = bytes.split_at(bytes.len().min(MOST - content));
            self.bytes.extend_from_slice(fits);
            let header = unpadded_header(kind, content + fits.len());
            self.bytes[at..at + HEADER].copy_from_slice(&header);
            bytes = rest;
        }
        for piece in bytes.chunks(MOST) {
            self.append_record(kind, piece);
        }
    }

    fn append_record(&mut self, kind: RecordType, content: &[u8]) {
        self.open = Some((kind, self.bytes.len()));
        self.bytes
            .extend_from_slice(&unpadded_header(kind, content.len()));
        self.bytes.extend_from_slice(content);
    }
}

/// Makes a header without padding, because neither side reads whole words.
fn unpadded_header(kind: RecordType, content: usize) -> [u8; HEADER] {
    let header = Header::new(kind, ID, content);
    Header {
        padding: 0,
        ..header
    }
    .to_bytes()
}

fn parse_request(params: &[u8]) -> Option<RunRequest> {
    let (mut run, mut env) = (None, Vec::with_capacity(params.len() + 64));
    for pair in NameValuePairs::new(params) {
        let (name, value) = pair.ok()?;
        if name.is_empty() {
            run = Run::decode(value);
        } else if !name.contains(&0) && !value.contains(&0) {
            env.extend_from_slice(name);
            env.push(b'=');
            env.extend_from_slice(value);
            env.push(0);
        }
    }
    Some(RunRequest { run: run?, env })
}

#[cfg(test)]
mod tests {
    use super::*;
    use galgo_proto::{
        fcgi::{
            Params, Role,
            reply::{self, ReplyReader},
        },
        vars::Sink,
    };
    use galgo_wasm::wire::{self, ENDED};
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    fn pair() -> (UnixStream, ServerConnection) {
        let (ours, theirs) = wire::connection_pair().unwrap();
        let ours = UnixStream::from(ours);
        ours.set_nonblocking(false).unwrap();
        (ours, ServerConnection::new(theirs))
    }

    fn asked(name: &str, body: &[u8], whole: bool) -> Vec<u8> {
        let run = Run {
            key: [1; 32],
            profile: 0,
            memory: 1,
            cpu: 0,
            name: name.into(),
            module: Vec::new(),
        };
        let mut bytes = fcgi::begin_request(ID, Role::RESPONDER, true).to_vec();
        let mut params = Params::new(ID, &mut bytes);
        params.put_variable(b"", &run.encode());
        params.put_variable(b"NAME", name.as_bytes());
        params.put_variable(b"BAD", b"a\0b");
        params.finish();
        for content in [body, b""].into_iter().take(1 + usize::from(whole)) {
            let header = Header::new(RecordType::STDIN, ID, content.len());
            bytes.extend_from_slice(&header.to_bytes());
            bytes.extend_from_slice(content);
            bytes.extend_from_slice(header.padding_bytes());
        }
        bytes
    }

    #[test]
    fn requests_come_one_after_the_other_whatever_was_read_of_the_one_before() {
        let (mut server, worker) = pair();
        for read in 0..4 {
            server.write_all(&asked("a", b"12345", true)).unwrap();
            let request = worker.receive_request().unwrap();
            assert_eq!(request.run.name, b"a");
            assert_eq!(request.env, b"NAME=a\0");
            assert_eq!(worker.read(read).unwrap(), &b"12345"[..read]);
        }
        server.write_all(&asked("b", b"12345", true)).unwrap();
        worker.receive_request().unwrap();
        assert_eq!(worker.read(9).unwrap(), &b"12345"[..]);
        assert!(worker.read(9).unwrap().is_empty(), "the end");
        drop(server);
        assert!(worker.receive_request().is_none());
    }

    #[test]
    fn a_body_comes_as_it_is_sent_and_a_hang_up_is_seen_behind_it() {
        let (mut server, worker) = pair();
        let bytes = asked("a", b"12345", false);
        let (now, later) = bytes.split_at(bytes.len() - 6); // within the body and its padding
        server.write_all(now).unwrap();
        worker.receive_request().unwrap();
        assert_eq!(worker.read(9).unwrap(), &b"12"[..]);
        assert!(!worker.has_happened(Readiness::Input));
        assert_eq!(worker.read(9), Err(Errno::AGAIN));
        server.write_all(later).unwrap();
        assert!(worker.has_happened(Readiness::Input) && !worker.has_happened(Readiness::HangUp));
        server.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(worker.has_happened(Readiness::HangUp));
        assert_eq!(worker.read(9).unwrap(), &b"345"[..]);
        // A guest must not take this for the end of its input.
        assert_eq!(worker.read(9), Err(Errno::IO));
    }

    #[test]
    fn output_of_one_kind_is_one_record_and_the_end_stands_behind_it() {
        let (mut server, worker) = pair();
        for (kind, bytes) in [
            (RecordType::STDOUT, &b"head\n"[..]),
            (RecordType::STDOUT, b"body"),
            (RecordType::STDERR, b"words"),
            (RecordType::STDOUT, &[b'x'; MOST + 5]),
        ] {
            worker.queue_output(kind, bytes);
        }
        worker.end_answer(RunOutcome::NoCode);
        assert!(worker.push());
        drop(worker);
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        let (mut reply, mut at, mut seen) =
            (ReplyReader::with_extra_bytes(ID, ENDED), 0, Vec::new());
        loop {
            let Parsed::Complete(event, used) = reply.next_event(&all[at..]).unwrap() else {
                panic!("it is cut");
            };
            seen.push(event);
            at += used;
            match event {
                reply::ReplyEvent::Stdout(n) | reply::ReplyEvent::Stderr(n) => at += n,
                reply::ReplyEvent::End(..) => break,
                reply::ReplyEvent::StdoutEnd => {}
            }
        }
        let wanted = [
            reply::ReplyEvent::Stdout(9),
            reply::ReplyEvent::Stderr(5),
            reply::ReplyEvent::Stdout(MOST),
            reply::ReplyEvent::Stdout(5),
            reply::ReplyEvent::End(0, Outcome::COMPLETE),
        ];
        assert_eq!((seen.as_slice(), at), (&wanted[..], all.len()));
        assert_eq!(
            RunOutcome::decode(reply.extra_bytes()),
            Some(RunOutcome::NoCode)
        );
    }
}
