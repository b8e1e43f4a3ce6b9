//! A connection of the server: one request after the other, and their answers, in FastCGI records.
//!
//! Output is held back while the guest computes, so that a head and a body, printed apart, wake the
//! server once: it goes out when a piece is full, when the guest waits for something, with the next
//! beat of its clock, and together with how the instance ended.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use galgo_proto::{
    Parsed,
    fcgi::{
        self, HEADER, Header, Kind, MOST, Outcome, Pairs,
        request::{Event, Requests},
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

use crate::wire::{Ended, ID, Run};

/// Bytes moved at once.
pub(super) const PIECE: usize = 64 << 10;
/// Bytes of a request's variables; the server's own limits are lower.
const VARIABLES: usize = 16 << 20;

/// What to run, and its environment: `NAME=value\0` one behind the other.
pub(super) struct Request {
    pub(super) run: Run,
    pub(super) env: Vec<u8>,
}

/// What a guest, or who looks after it, may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    Input,
    Room,
    HangUp,
}

/// One connection. Its descriptor blocks; while a guest runs nothing here does.
#[derive(Debug)]
pub(super) struct Connection {
    fd: OwnedFd,
    input: Mutex<Input>,
    output: Mutex<Output>,
}

#[derive(Debug)]
struct Input {
    buf: Box<[u8]>,
    /// What is still to be looked at.
    at: usize,
    end: usize,
    requests: Requests,
    /// Bytes of the body that come next.
    body: usize,
    /// The body is over.
    over: bool,
}

#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    /// The record that may still grow, and where it begins.
    open: Option<(Kind, usize)>,
    /// Nobody reads any more.
    broken: Option<Errno>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            input: Mutex::new(Input {
                buf: vec![0; PIECE].into(),
                at: 0,
                end: 0,
                requests: Requests::default(),
                body: 0,
                over: true,
            }),
            output: Mutex::default(),
        }
    }

    /// Waits for the next request. `None`: there will be none.
    pub(super) fn request(&self) -> Option<Request> {
        let input = &mut *lock(&self.input);
        let mut params = Vec::new();
        // What the guest before has not read.
        let unread = std::mem::take(&mut input.body);
        input.take(unread);
        loop {
            match input.step() {
                Err(_broken) => return None,
                Ok(None) => {
                    if !matches!(input.fill(&self.fd, RecvFlags::empty()), Ok(n) if n > 0) {
                        return None;
                    }
                }
                Ok(Some(Event::Begin { .. })) => params.clear(),
                Ok(Some(Event::Params(_, n))) => {
                    params.extend_from_slice(input.take(n));
                    if params.len() > VARIABLES {
                        return None;
                    }
                }
                Ok(Some(Event::ParamsEnd(_))) => break,
                Ok(Some(Event::Stdin(_, n))) => _ = input.take(n),
                Ok(Some(_)) => {}
            }
        }
        input.over = false;
        *lock(&self.output) = Output::default();
        request(&params)
    }

    /// Bytes of the body, at most so many; none at its end, AGAIN where none is there yet.
    pub(super) fn read(&self, most: usize) -> Result<Bytes, Errno> {
        let input = &mut *lock(&self.input);
        loop {
            input.advance();
            if input.body > 0 {
                let n = input.body.min(most);
                input.body -= n;
                return Ok(Bytes::copy_from_slice(input.take(n)));
            }
            if input.over {
                return Ok(Bytes::new());
            }
            match input.fill(&self.fd, RecvFlags::DONTWAIT) {
                Ok(0) | Err(Errno::CONNRESET) => input.over = true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes output; it goes out later. How much is held now.
    pub(super) fn put(&self, kind: Kind, bytes: &[u8]) -> usize {
        let output = &mut *lock(&self.output);
        output.put(kind, bytes);
        output.bytes.len()
    }

    /// How much is held.
    ///
    /// # Errors
    /// Nobody reads it.
    pub(super) fn held(&self) -> Result<usize, Errno> {
        let output = lock(&self.output);
        output.broken.map_or(Ok(output.bytes.len()), Err)
    }

    /// The last of a request: how it ended.
    pub(super) fn end(&self, ended: Ended) {
        let more = ended.encode();
        let end = &fcgi::end(ID, 0, Outcome::Complete)[HEADER..];
        lock(&self.output).record(Kind::End, &[end, &more[..]].concat());
    }

    /// Writes what is held, as much as fits now; whether that was all.
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

    /// Whether this has come about, or never will.
    pub(super) fn has(&self, event: Awaited) -> bool {
        if event == Awaited::Input {
            let input = &mut *lock(&self.input);
            input.advance();
            if input.body > 0 || input.over {
                return true;
            }
        }
        let flags = match event {
            Awaited::Input => PollFlags::IN,
            Awaited::Room => PollFlags::OUT,
            Awaited::HangUp => PollFlags::RDHUP,
        };
        let mut fds = [PollFd::new(&self.fd, flags)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(n) if n > 0)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Input {
    fn step(&mut self) -> Result<Option<Event>, fcgi::RecordError> {
        let input = self.buf.get(self.at..self.end).unwrap_or_default();
        Ok(match self.requests.step(input)? {
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

    /// Reads more; all that was there has been looked at.
    fn fill(&mut self, fd: &OwnedFd, flags: RecvFlags) -> Result<usize, Errno> {
        let (n, _) = recv(fd, &mut *self.buf, flags)?;
        (self.at, self.end) = (0, n);
        Ok(n)
    }

    fn take(&mut self, n: usize) -> &[u8] {
        let taken = self.buf.get(self.at..self.at + n).unwrap_or_default();
        self.at += n;
        taken
    }

    /// Looks at what was read, up to the next bytes of the body or its end.
    fn advance(&mut self) {
        while self.body == 0 && !self.over {
            match self.step() {
                Ok(None) => return,
                Ok(Some(Event::Stdin(_, n))) => self.body = n,
                Ok(Some(Event::StdinEnd(_) | Event::Abort(_))) | Err(_) => self.over = true,
                Ok(Some(_)) => {}
            }
        }
    }
}

impl Output {
    fn put(&mut self, kind: Kind, mut bytes: &[u8]) {
        if self.broken.is_some() {
            return;
        }
        if let Some((last, at)) = self.open
            && last == kind
        {
            let content = self.bytes.len() - at - HEADER;
            let (fits, rest) = bytes.split_at(bytes.len().min(MOST - content));
            self.bytes.extend_from_slice(fits);
            let header = header(kind, content + fits.len());
            self.bytes[at..at + HEADER].copy_from_slice(&header);
            bytes = rest;
        }
        for piece in bytes.chunks(MOST) {
            self.record(kind, piece);
        }
    }

    fn record(&mut self, kind: Kind, content: &[u8]) {
        self.open = Some((kind, self.bytes.len()));
        self.bytes.extend_from_slice(&header(kind, content.len()));
        self.bytes.extend_from_slice(content);
    }
}

/// Without padding: nobody here reads words.
fn header(kind: Kind, content: usize) -> [u8; HEADER] {
    let header = Header::new(kind, ID, content);
    Header {
        padding: 0,
        ..header
    }
    .bytes()
}

fn request(params: &[u8]) -> Option<Request> {
    let (mut run, mut env) = (None, Vec::with_capacity(params.len() + 64));
    for pair in Pairs::new(params) {
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
    Some(Request { run: run?, env })
}
