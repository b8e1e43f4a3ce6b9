//! The client of one request on a connection.

use std::task::{Context, Poll, ready};

use galgo_io::{
    buf::Buf,
    rate_allowance::{Holding, RateAllowance},
    sock::{Sock, is_short},
};
use galgo_proto::h1::Version;
use galgo_service::{
    client::{Client, Next, Spliced},
    fault::Fault,
};

use super::input::{BODY_READ, GONE, Input, LEFT, RESET};
use crate::request_body::{AHEAD, Frame, RequestBody};
/// The most bytes that are read ahead of a running request. Further pipelined requests wait in the kernel.
const READ_AHEAD: usize = 64 << 10;
/// The most bytes that are moved at once to a program that has the connection: as many as a pipe of the default size holds.
const OPEN_PIECE: usize = 64 << 10;

/// The client of one request on a connection.
#[derive(Debug)]
pub(super) struct ConnectionClient<'c> {
    /// The connection.
    pub input: &'c mut Input,
    /// State of the request body: how far it has been taken in.
    pub body: RequestBody,
    /// Data that was looked at early, without framing. It goes back to the front of the buffer.
    ahead: Vec<u8>,
    /// Whether a `100 Continue` is owed before the body is read.
    pub owes_continue: bool,
    /// The HTTP version that the client understands.
    pub version: Version,
}

impl<'c> ConnectionClient<'c> {
    /// Creates the client of the request that has just come over `input`.
    pub(super) fn new(input: &'c mut Input, body: RequestBody, version: Version) -> Self {
        Self {
            input,
            body,
            ahead: Vec::new(),
            owes_continue: false,
            version,
        }
    }

    /// Reads data for a program that has the client's connection. There is no buffer while the client sends nothing.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Input {
            sock,
            buf,
            half_closed,
            ..
        } = &mut *self.input;
        let read =
            ready!(sock.poll_read_idle(buf, cx)).map_err(|e| Fault::from_body_error(&e, RESET))?;
        if read == 0 {
            *half_closed = true;
            self.body.mark_ended();
        }
        Poll::Ready(Ok(()))
    }

    fn send_interim(&self, head: &[u8]) {
        if self.input.wire.is_http() {
            // Nothing was sent yet that could fill the socket's buffer. If this write fails, a later write fails, too.
            let _ = self.input.sock.try_write(head);
        }
    }

    /// Reads a body of unknown length until it is whole, or [`AHEAD`] bytes of it are in `ahead`.
    fn poll_unframed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        while self.ahead.len() < AHEAD {
            match self.body.next(&mut self.input.buf)? {
                Next::Data(n) => {
                    self.ahead
                        .extend_from_slice(&self.input.buf.as_slice()[..n]);
                    self.body.consume(&mut self.input.buf, n);
                }
                // Make room for no more bytes than have come so far: a client that sends little must not occupy much memory.
                Next::More => {
                    let want = self.ahead.len().min(BODY_READ);
                    ready!(self.input.poll_fill_body(want, cx))?;
                }
                Next::End => break,
            }
        }
        let mut data = std::mem::take(&mut self.ahead);
        self.body.put_back(data.len());
        data.extend_from_slice(self.input.buf.as_slice());
        self.input.buf = Buf::from(data);
        Poll::Ready(Ok(()))
    }
}

impl Client for ConnectionClient<'_> {
    fn next(&mut self) -> Result<Next, Fault> {
        self.body.next(&mut self.input.buf)
    }

    fn buffered_bytes(&self) -> &[u8] {
        self.input.buf.as_slice()
    }

    fn consume(&mut self, n: usize) {
        self.body.consume(&mut self.input.buf, n);
    }

    fn limit_body(&mut self, most: u64) -> Result<(), Fault> {
        self.body.limit_body(most)
    }

    fn declared_length(&self) -> Option<u64> {
        self.body.declared_length()
    }

    fn remaining_length(&self) -> Option<u64> {
        self.body.remaining_length()
    }

    fn is_body_read(&self) -> bool {
        self.body.is_over()
    }

    fn is_body_ready(&self) -> bool {
        self.body.is_here(&self.input.buf)
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if let Frame::Open = self.body.frame {
            return self.poll_open(cx);
        }
        self.input.poll_fill_body(BODY_READ, cx)
    }

    fn poll_body_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        while let Frame::Length(_) = self.body.frame {
            if self.is_body_ready() {
                return Poll::Ready(Ok(()));
            }
            let want = self.input.buf.len().min(BODY_READ);
            ready!(self.input.poll_fill_body(want, cx))?;
        }
        self.poll_unframed(cx)
    }

    fn spliceable(&self) -> usize {
        match &self.body.frame {
            _ if !self.input.buf.is_empty() || self.input.sock.plain_sock().is_none() => 0,
            Frame::Length(left) => usize::try_from(*left).unwrap_or(usize::MAX),
            Frame::Open => OPEN_PIECE,
            _ => 0,
        }
    }

    fn poll_splice(
        &mut self,
        pipe: &Sock,
        len: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Spliced, Fault>> {
        let input = &mut *self.input;
        let transport = input.sock.clone();
        let Some(sock) = transport.plain_sock() else {
            return Poll::Ready(Err(Fault::Internal(
                "an encrypted connection cannot be spliced".into(),
            )));
        };
        let readable = input.allowance.poll_io(cx, |cx| sock.poll_readable(cx));
        ready!(readable).map_err(|e| Fault::from_body_error(&e, RESET))?;
        let Poll::Ready(moved) = pipe.poll_splice(sock, len, cx) else {
            ready!(input.poll_gone(cx))?;
            return Poll::Ready(Ok(Spliced::HalfClosed));
        };
        Poll::Ready(match moved {
            Ok(0) => {
                input.half_closed = true;
                match self.body.frame {
                    Frame::Open => {
                        self.body.mark_ended();
                        Ok(Spliced::Moved)
                    }
                    _ => Err(LEFT),
                }
            }
            Ok(n) => {
                input.allowance.credit_bytes(n);
                self.body.count_spliced(n);
                Ok(Spliced::Moved)
            }
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(Spliced::Unread),
            Err(e) => Err(Fault::from_body_error(&e, RESET)),
        })
    }

    /// Reads pipelined requests while a request runs, up to a bound.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let input = &mut *self.input;
        if !input.sock.sock().is_watched() && input.wire.is_http() {
            // Most answers come before the next tick, so the event loop need not even register the connection. But a front
            // server's messages meanwhile, such as ABORT, concern the request.
            ready!(input.tick.poll(cx));
        }
        while !input.half_closed && input.buf.len() < READ_AHEAD {
            match ready!(input.sock.poll_read_idle(&mut input.buf, cx)) {
                Ok(0) => return Poll::Ready(input.half_close()),
                Ok(_) => self.body.overhear(&mut input.buf)?,
                // Try again with the next tick.
                Err(e) if is_short(&e) => ready!(input.tick.poll(cx)),
                Err(_) => return Poll::Ready(Err(GONE)),
            }
        }
        input.poll_gone(cx)
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.input.poll_gone(cx)
    }

    fn has_half_closed(&self) -> bool {
        self.input.half_closed
    }

    fn send_continue(&mut self) {
        if std::mem::take(&mut self.owes_continue) && self.input.buf.is_empty() {
            self.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    fn owes_continue(&self) -> bool {
        self.owes_continue
    }

    fn probe_connection(&mut self) {
        if self.version == Version::Http11 {
            self.input.probe_later();
        }
    }

    fn begin_response(&mut self) {
        self.input.probe = None;
    }

    fn speaks_http(&self) -> bool {
        self.input.wire.is_http()
    }

    fn can_upgrade(&self) -> bool {
        // RFC 9110, 7.8: Upgrade is ignored in HTTP/1.0.
        self.version == Version::Http11 && self.speaks_http() && self.body.is_over()
    }

    /// Opens the connection to the program. From now on the client may be silent for as long as the program's time limits
    /// allow.
    fn upgrade(&mut self) {
        self.body.reopen_unbounded();
        self.input.allowance = RateAllowance::endless();
    }

    fn note_permit(&mut self, permit: Holding) {
        self.input.allowance.set_permit(permit);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::UnixStream,
        rc::Rc,
        time::Duration,
    };

    use galgo_proto::h1::BodyLen;

    use super::*;
    use galgo_io::{rate_allowance::Rates, transport::Transport};

    /// Makes a connection on which the client has sent `said`, and has closed its side if `ends`.
    fn input(said: &[u8], ends: bool) -> (UnixStream, Input) {
        let (mut client, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        client.write_all(said).unwrap();
        if ends {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let allowance = RateAllowance::from_rates(&Rates {
            least: 1,
            busy: 0,
            grace: Duration::from_millis(200),
        });
        (
            client,
            Input::new(Rc::new(Transport::new(Sock::new(ours.into()))), allowance),
        )
    }

    /// Splices a body of 10 bytes. Returns the bytes that came, and the reason why there were no more.
    async fn spliced(incoming: &mut ConnectionClient<'_>) -> (Vec<u8>, Fault) {
        let client: &mut dyn Client = incoming;
        let (mut reader, writer) = std::io::pipe().unwrap();
        let pipe = Sock::pipe_writer(writer.into());
        let mut fault = LEFT;
        while let len @ 1.. = client.spliceable() {
            match client.splice(&pipe, len).await {
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
        (got, fault)
    }

    fn ten_bytes() -> RequestBody {
        RequestBody::new(BodyLen::Length(10))
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
            let (_client, mut input) = input(b"0123456789GET", false);
            let mut incoming = ConnectionClient::new(&mut input, ten_bytes(), Version::Http11);
            let (got, _) = spliced(&mut incoming).await;
            assert!(incoming.is_body_read() && got == b"0123456789");
            assert_eq!(incoming.body.bytes_taken(), 10);
            let sock = input.sock.clone();
            assert_eq!(sock.read_idle(&mut input.buf).await.unwrap(), 3);
            assert_eq!(input.buf.as_slice(), b"GET");
        });
    }

    #[test]
    fn a_client_that_leaves_or_stalls_in_a_spliced_body_is_noticed() {
        on_a_loop(async {
            for ends in [true, false] {
                let (_client, mut input) = input(b"01234", ends);
                let mut incoming = ConnectionClient::new(&mut input, ten_bytes(), Version::Http11);
                let (got, fault) = spliced(&mut incoming).await;
                assert!(!incoming.is_body_read() && got == b"01234");
                assert_eq!(incoming.has_half_closed(), ends);
                if ends {
                    assert!(matches!(fault, Fault::Gone(_)), "{fault:?}")
                } else {
                    assert!(matches!(fault, Fault::Client(408, _)), "{fault:?}")
                }
            }
        });
    }
}
