//! Sends the output of a program to its client, within the response's framing.

use std::{
    io::{self, IoSlice},
    pin::pin,
};

use galgo_io::{out::Out, pool, rate_allowance::RateAllowance, transport::Transport};
use galgo_service::{
    body::Output,
    client::Client,
    fault::Fault,
    producer::{OutputEvent, Producer, exit_status, wait_until_slow},
    request::Request,
};

use super::{
    sender::ConnectionSender,
    wire::{WireFormat, write_all},
};
use crate::framing::{Framing, MOST_DROPPED};

/// The output of a program on its way to a client.
pub(super) struct ConnectionOutput<'s, 'r, 'i> {
    pub(super) sender: &'s mut ConnectionSender,
    pub(super) request: &'r mut Request<'i>,
    pub(super) output: &'s mut Output,
    pub(super) framing: Framing,
    pub(super) sent: u64,
    pub(super) dropped: usize,
}

impl ConnectionOutput<'_, '_, '_> {
    /// Sends the head, and then the body as its output comes.
    pub(super) async fn send_head_and_body(&mut self, mut head: Vec<u8>) -> Result<(), Fault> {
        if self.framing != Framing::Bodiless && !self.output.discard {
            let splices = self.sender.sock.plain_sock().is_some();
            self.output
                .producer
                .start_streaming(&self.output.spool, splices);
        }
        let mut probed = false;
        loop {
            let mut last = self.output.producer.has_output_ended();
            let killed = match self.framing {
                // These framings have no length: the end of output alone would make a partial response look whole.
                Framing::Chunked | Framing::UntilClose | Framing::Raw if last => {
                    self.output.producer.truncation_fault().await
                }
                _ => None,
            };
            last &= killed.is_none();
            if last && matches!(self.sender.wire, WireFormat::FastCgi { .. }) {
                self.sender.status = exit_status(&mut *self.output.producer).await;
            }
            let out = std::mem::take(self.output.producer.pending_output());
            if !out.is_empty() || !head.is_empty() || last {
                self.send_piece(&std::mem::take(&mut head), &out, last, probed)
                    .await?;
                probed &= out.is_empty();
            }
            drop(out);
            if let Some(fault) = killed {
                return Err(fault);
            }
            if last || self.output.excess || self.dropped > MOST_DROPPED {
                return self.check_length();
            }
            let client = &mut *self.request.client;
            match self.output.producer.next_event(client).await? {
                // Send all output that is there in one go, with the end if that is there, too.
                OutputEvent::Output => self.output.producer.drain_ready(pool::SIZE),
                OutputEvent::Waiting(n) => {
                    // Boxed: only long answers have so much at once, and other answers need no room for it.
                    Box::pin(self.splice_waiting(n)).await?;
                    probed = false;
                }
                OutputEvent::End => {}
                OutputEvent::HalfClosed if self.framing == Framing::Chunked && !probed => {
                    // Find out whether the client still reads. A leading zero of the next chunk size (RFC 9112, 7.1) means
                    // nothing to a client that is there. If the client is gone, its kernel answers with a reset.
                    probed = matches!(self.sender.sock.try_write(b"0"), Ok(Some(1)));
                }
                OutputEvent::HalfClosed => {}
            }
        }
    }

    /// Sends one piece of output, as much as fits into the framing. The rest is dropped.
    async fn send_piece(
        &mut self,
        head: &[u8],
        out: &Out,
        last: bool,
        probed: bool,
    ) -> Result<(), Fault> {
        let len = self.framing.fitting(out.len(), self.sent, self.output);
        self.dropped += out.len() - len;
        let mut size = [0; 20];
        let (before, after) = match self.framing {
            Framing::Chunked => chunk_framing(&mut size, len, last),
            _ => (&b""[..], &b""[..]),
        };
        debug_assert!(!probed || self.framing == Framing::Chunked);
        // If the body is too short, do not write an end: it would make the body look whole.
        let ends = last
            && match self.framing {
                Framing::Length(n) => self.output.discard || self.sent + len as u64 == n,
                _ => true,
            };
        let ConnectionSender {
            sock,
            allowance,
            wire,
            status,
            closing,
            ..
        } = &mut *self.sender;
        let status = ends.then_some(*status);
        // Pinned here: passed by value, each layer below would have room for it twice.
        let (mut few, many);
        let parts = if out.is_contiguous() {
            few = [head, before, &out.first_part()[..len], after].map(IoSlice::new);
            &mut few[..]
        } else {
            let ours = [head, before].into_iter();
            many = ours.chain(truncate_parts(out.parts(), len)).chain([after]);
            &mut many.map(IoSlice::new).collect::<Vec<_>>()
        };
        let client = &mut *self.request.client;
        let producer = &mut *self.output.producer;
        producer
            .produce_while_sending(
                client,
                pin!(wire.write(sock, allowance, parts, status, *closing)),
            )
            .await?;
        self.sender.ended |= ends;
        if !head.is_empty() || self.sent == 0 {
            let mut entry = self.request.entry.borrow_mut();
            entry.first_byte = self.request.began.elapsed();
        }
        self.sent += len as u64;
        Ok(())
    }

    /// Sends `n` bytes that wait in the program's pipe, as far as they fit into the framing, without copying them.
    async fn splice_waiting(&mut self, n: usize) -> Result<(), Fault> {
        let left = match self.framing {
            Framing::Length(total) => usize::try_from(total - self.sent).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let len = n.min(left);
        let chunked = self.framing == Framing::Chunked;
        if chunked {
            let mut size = [0; 20];
            self.send_framing(chunk_size(&mut size, len), true).await?;
        }
        let ConnectionSender {
            sock,
            allowance,
            wire,
            ..
        } = &mut *self.sender;
        let client = &mut *self.request.client;
        let producer = &mut *self.output.producer;
        let len = match len {
            0 => 0,
            _ => {
                let announced = pin!(wire.announce(sock, allowance, len));
                producer.produce_while_sending(client, announced).await?
            }
        };
        let moved = splice(producer, client, sock, allowance, len).await?;
        self.send_announced(len - moved).await?;
        self.sent += len as u64;
        self.output.excess |= len == left && n > left;
        if chunked {
            self.send_framing(b"\r\n", false).await
        } else {
            Ok(())
        }
    }

    /// Sends the `left` announced bytes that the client did not take at once.
    async fn send_announced(&mut self, mut left: usize) -> Result<(), Fault> {
        while left > 0 {
            let ConnectionSender {
                sock, allowance, ..
            } = &mut *self.sender;
            let client = &mut *self.request.client;
            let producer = &mut *self.output.producer;
            let event = producer.next_event(client).await?;
            if let OutputEvent::Waiting(n) = event {
                let most = left.min(n);
                left -= splice(producer, client, sock, allowance, most).await?;
                continue;
            }
            let mut out = std::mem::take(producer.pending_output());
            let n = left.min(out.len());
            if n == 0 && event == OutputEvent::End {
                let words = "the output ended before the length that was announced to the client";
                return Err(Fault::Internal(words.into()));
            }
            {
                let mut parts: Vec<_> = truncate_parts(out.parts(), n).map(IoSlice::new).collect();
                let write = pin!(write_all(sock, allowance, &mut parts, false));
                producer.produce_while_sending(client, write).await?;
            }
            left -= n;
            out.consume(n);
            *producer.pending_output() = out;
        }
        Ok(())
    }

    /// Sends framing around spliced data.
    async fn send_framing(&mut self, bytes: &[u8], more: bool) -> Result<(), Fault> {
        let ConnectionSender {
            sock, allowance, ..
        } = &mut *self.sender;
        let parts = &mut [IoSlice::new(bytes)];
        let write = pin!(write_all(sock, allowance, parts, more));
        let client = &mut *self.request.client;
        self.output
            .producer
            .produce_while_sending(client, write)
            .await
    }

    /// Checks, after the end of output, that the body is as long as the head promised.
    fn check_length(&self) -> Result<(), Fault> {
        match self.framing {
            Framing::Length(n) => self.output.check_sent_length(n, self.sent),
            _ => Ok(()),
        }
    }
}

/// Moves `len` bytes that [`OutputEvent::Waiting`] announced to `to`, or fewer if the client takes them slowly. Returns how
/// many.
async fn splice(
    producer: &mut dyn Producer,
    client: &mut dyn Client,
    to: &Transport,
    allowance: &mut RateAllowance,
    len: usize,
) -> Result<usize, Fault> {
    let (Some(to), Some(pipe)) = (to.plain_sock(), producer.take_pipe()) else {
        return Ok(0);
    };
    let mut left = len;
    let moved = async {
        let moved = allowance.move_all(len, async |most| {
            let n = to.splice(&pipe, most).await?;
            left -= n;
            Ok(n)
        });
        tokio::select! {
            biased;
            moved = moved => moved.map(|()| true),
            () = wait_until_slow() => Ok(false),
        }
    };
    let keeps_up = producer.produce_while_sending(client, pin!(moved)).await?;
    producer.give_pipe(pipe);
    producer.set_client_keeps_up(keeps_up);
    Ok(len - left)
}

/// Returns the first `len` bytes of `parts`.
fn truncate_parts<'p>(
    parts: impl Iterator<Item = &'p [u8]>,
    len: usize,
) -> impl Iterator<Item = &'p [u8]> {
    parts.scan(len, |left, part| {
        let part = &part[..part.len().min(*left)];
        *left -= part.len();
        Some(part)
    })
}

/// Returns the framing before and after `len` bytes in chunks (RFC 9112, 7.1).
fn chunk_framing(size: &mut [u8; 20], len: usize, last: bool) -> (&[u8], &[u8]) {
    match (len, last) {
        (0, false) => (b"", b""),
        // A probe may have sent a `0` already: the size of the last chunk may have more zeros.
        (0, true) => (b"0\r\n\r\n", b""),
        (_, false) => (chunk_size(size, len), b"\r\n"),
        (_, true) => (chunk_size(size, len), b"\r\n0\r\n\r\n"),
    }
}

fn chunk_size(buf: &mut [u8; 20], n: usize) -> &[u8] {
    use io::Write as _;
    let mut rest = &mut buf[..];
    let _ = write!(rest, "{n:x}\r\n"); // INVARIANT: 16 digits and CRLF fit
    let left = rest.len();
    &buf[..20 - left]
}
