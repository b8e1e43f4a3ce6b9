//! Sending a response on its stream. Every body goes through the client's windows; nothing is spliced.

use std::{future::poll_fn, io, pin::pin, rc::Rc, task::Poll, time::Duration};

use bytes::Bytes;
use galgo_io::{out::Out, pool, rate_allowance::RateAllowance};
use galgo_proto::h2::OF_CONNECTION;
use galgo_service::{
    body::{Body, BodyPart, FilePart, Output, Response},
    client::UnreadAnswers,
    fault::Fault,
    producer::OutputEvent,
    request::Request,
    service::Service,
};
use h2::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rustix::buffer::spare_capacity;
use tokio::time::sleep;

use super::outgoing::Outgoing;
use crate::{
    event_loop::EventLoop,
    framing::{Framing, MOST_DROPPED, SWITCHING, declare_length, program_framing},
    logged::{self, DeferredLogLine},
    site::SiteService,
};

/// A frame of fewer bytes is small to clients that use `h2`. Such clients end a connection if many small frames are unread.
const SMALL: usize = 256;
/// Small pieces in a row after which galgo gathers: after the first bytes of the next piece it waits [`GATHER`] for more.
const MANY_SMALL: u32 = 16;
const GATHER: Duration = Duration::from_millis(1);

/// The sending side of a stream.
pub(super) struct StreamSender {
    pub(super) out: Rc<Outgoing>,
    pub(super) allowance: RateAllowance,
}

impl StreamSender {
    /// Sends `response` and logs the request.
    pub(super) async fn send_response<S: SiteService>(
        &mut self,
        event_loop: &Rc<EventLoop<S>>,
        service: &impl Service,
        request: &mut Request<'_>,
        mut response: Response,
    ) {
        request.entry.borrow_mut().status = response.status;
        let body = std::mem::replace(&mut response.body, Body::Empty);
        if let Body::Stream(output) = body {
            self.allowance.set_permit(request.permit.clone());
            return Box::pin(
                self.send_program_output(event_loop, service, request, response, output),
            )
            .await;
        }
        let bodiless = request.is_bodiless(response.status);
        let sent = self
            .send_sized_body(event_loop, &response, body, bodiless)
            .await;
        if sent.is_err() {
            self.out.reset_stream(Reason::INTERNAL_ERROR);
        }
        logged::log_response(event_loop, request, sent.map_err(|_| 0));
    }

    /// Sends a head and a body of known length. If `bodiless` (HEAD and the like), leaves the body out. Returns how much of the
    /// body was sent.
    pub(super) async fn send_sized_body(
        &mut self,
        event_loop: &EventLoop<impl SiteService>,
        response: &Response,
        body: Body,
        bodiless: bool,
    ) -> io::Result<u64> {
        let len = body.len();
        let mut head = build_head(event_loop, response);
        // HEAD gets the length that the body would have.
        if !bodiless || !matches!(response.status, 204 | 304) {
            head.headers_mut()
                .insert(http::header::CONTENT_LENGTH, len.into());
        }
        let ends = bodiless || len == 0;
        self.out.send_head(head, ends)?;
        if ends {
            return Ok(0);
        }
        match body {
            Body::Bytes(b) => self.write(b.into(), true).await?,
            Body::Shared(b) => self.write(Bytes::from_owner(b), true).await?,
            Body::File(part) => self.send_file(&part, true).await?,
            Body::Parts(parts) => {
                let last = parts.len().saturating_sub(1);
                for (i, part) in parts.into_iter().enumerate() {
                    match part {
                        BodyPart::Bytes(b) => self.write(b.into(), i == last).await?,
                        BodyPart::File(part) => self.send_file(&part, i == last).await?,
                    }
                }
            }
            Body::Empty | Body::Stream(_) => {}
        }
        Ok(len)
    }

    async fn write(&mut self, data: Bytes, ends: bool) -> io::Result<()> {
        self.out.write(&mut self.allowance, data, ends).await
    }

    /// Sends a piece of a file. If the file has become shorter, the response is cut.
    async fn send_file(&mut self, part: &FilePart, ends: bool) -> io::Result<()> {
        let (mut offset, end) = (part.offset, part.offset + part.len);
        while offset < end {
            let want = usize::try_from(end - offset).map_or(pool::SIZE, |n| n.min(pool::SIZE));
            let room = self.out.wait_for_room(&mut self.allowance, want).await?;
            let mut piece = Vec::with_capacity(room);
            let read = rustix::io::pread(&part.file, spare_capacity(&mut piece), offset)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            piece.truncate(room);
            offset += piece.len() as u64;
            self.out.send_data(piece.into(), ends && offset == end)?;
            tokio::task::consume_budget().await;
        }
        if ends && part.len == 0 {
            self.out.send_data(Bytes::new(), true)
        } else {
            Ok(())
        }
    }

    /// Sends the output of a program as the program prints it.
    async fn send_program_output<S: SiteService>(
        &mut self,
        event_loop: &Rc<EventLoop<S>>,
        service: &impl Service,
        request: &mut Request<'_>,
        mut response: Response,
        mut output: Box<Output>,
    ) {
        let framing = program_framing(request, response.status, &output);
        declare_length(&mut response, framing, &output);
        let mut head = build_head(event_loop, &response);
        if let Framing::Length(n) = framing {
            head.headers_mut()
                .insert(http::header::CONTENT_LENGTH, n.into());
        }
        let mut stream = StreamOutput {
            sender: self,
            request,
            output: &mut output,
            framing,
            sent: 0,
            dropped: 0,
            ended: false,
            small: (response.status != SWITCHING).then_some(0),
        };
        let result = stream.send_head_and_body(head).await;
        let line = DeferredLogLine::new(event_loop, stream.request, stream.sent);
        let Err(fault) = result else {
            line.finish(*output);
            return;
        };
        service.log_cut_response(request, &fault);
        request.entry.borrow_mut().status = response.status;
        let gone = matches!(fault, Fault::Gone(_));
        line.abandon(*output, gone);
        self.out.reset_stream(if gone {
            Reason::CANCEL
        } else {
            Reason::INTERNAL_ERROR
        });
    }
}

/// The output of a program on its way to a client.
struct StreamOutput<'s, 'r, 'i> {
    sender: &'s mut StreamSender,
    request: &'r mut Request<'i>,
    output: &'s mut Output,
    framing: Framing,
    sent: u64,
    dropped: usize,
    /// Whether the stream's end has been sent.
    ended: bool,
    /// Small pieces that were sent one after the other. `None`: not counted, because each piece is a message.
    small: Option<u32>,
}

impl StreamOutput<'_, '_, '_> {
    async fn send_head_and_body(&mut self, head: http::Response<()>) -> Result<(), Fault> {
        let bodiless = self.framing == Framing::Bodiless;
        if !bodiless && !self.output.discard {
            self.output
                .producer
                .start_streaming(&self.output.spool, false);
        }
        let mut head = Some(head);
        loop {
            let mut last = self.output.producer.has_output_ended();
            let killed = match self.framing {
                // This framing has no length: the end of output alone would make a partial response look whole.
                Framing::UntilClose if last => self.output.producer.truncation_fault().await,
                _ => None,
            };
            last &= killed.is_none();
            let out = std::mem::take(self.output.producer.pending_output());
            if !out.is_empty() || head.is_some() || last {
                self.send_piece(head.take(), out, last).await?;
            }
            if let Some(fault) = killed {
                return Err(fault);
            }
            if last || self.output.excess || self.dropped > MOST_DROPPED {
                return match self.framing {
                    Framing::Length(n) => self.output.check_sent_length(n, self.sent),
                    _ => Ok(()),
                };
            }
            if self.next_event().await? == Some(OutputEvent::Output) {
                self.gather_output().await?;
                // Send all output that is there in one go, with the end if that is there, too.
                self.output.producer.drain_ready(pool::SIZE);
            }
        }
    }

    /// Waits for output while the connection may hold more of it. `None`: the call had to wait for the client first.
    async fn next_event(&mut self) -> Result<Option<OutputEvent>, Fault> {
        let StreamSender { out, allowance } = &mut *self.sender;
        let client = &mut *self.request.client;
        {
            let mut next = pin!(self.output.producer.next_event(client));
            let event = poll_fn(|cx| {
                if out.is_full() {
                    Poll::Ready(None)
                } else {
                    next.as_mut().poll(cx).map(Some)
                }
            });
            if let Some(event) = event.await {
                return event.map(Some);
            }
        }
        let room = pin!(out.wait_not_full(allowance));
        self.output
            .producer
            .produce_while_sending(client, room)
            .await?;
        Ok(None)
    }

    /// Waits for more of an output that comes in many small pieces.
    async fn gather_output(&mut self) -> Result<(), Fault> {
        if self.small.is_none_or(|small| small < MANY_SMALL) {
            return Ok(());
        }
        let pause = pin!(async {
            sleep(GATHER).await;
            Ok(())
        });
        let client = &mut *self.request.client;
        self.output
            .producer
            .produce_while_sending(client, pause)
            .await
    }

    /// Sends one piece of output, as much as fits into the framing. The rest is dropped.
    async fn send_piece(
        &mut self,
        head: Option<http::Response<()>>,
        mut out: Out,
        last: bool,
    ) -> Result<(), Fault> {
        let fits = self.framing.fitting(out.len(), self.sent, self.output);
        self.dropped += out.len() - fits;
        if let Some(small) = &mut self.small {
            *small = if fits < SMALL {
                small.saturating_add(1)
            } else {
                0
            };
        }
        // If the body is too short, do not write an end: it would make the body look whole.
        let ends = match self.framing {
            Framing::Bodiless => true,
            Framing::Length(n) => self.sent + fits as u64 == n,
            _ => last,
        };
        let first = head.is_some();
        let sent = self.begin_and_write(head, &mut out, fits, ends && !self.ended);
        sent.await?;
        self.ended |= ends;
        if first || self.sent == 0 {
            let mut entry = self.request.entry.borrow_mut();
            entry.first_byte = self.request.began.elapsed();
        }
        self.sent += fits as u64;
        Ok(())
    }

    async fn begin_and_write(
        &mut self,
        head: Option<http::Response<()>>,
        out: &mut Out,
        fits: usize,
        ends: bool,
    ) -> Result<(), Fault> {
        let StreamSender { out: to, allowance } = &mut *self.sender;
        if (fits > 0 || head.is_some()) && to.is_full() {
            // The program keeps its permit meanwhile, so that few programs hold output that is not counted yet.
            let room = pin!(to.wait_not_full(allowance));
            let room = self.request.client.await_while_connected(room).await?;
            room.map_err(|_| Fault::Gone("the client does not read its connection"))?;
        }
        // Copied, so that waiting data takes no more memory than it has bytes.
        out.join_parts();
        let data = to.hold_data(Bytes::copy_from_slice(&out.first_part()[..fits]));
        out.clear_seen();
        let written = pin!(async {
            if let Some(head) = head {
                to.send_head(head, ends && fits == 0)?;
                if fits == 0 {
                    return Ok(());
                }
            }
            to.write_held(allowance, data, ends).await
        });
        let client = &mut *self.request.client;
        self.output
            .producer
            .produce_while_sending(client, written)
            .await
    }
}

/// Builds the head of a response, without Content-Length. Names are lower case, and no field concerns the connection (RFC 9113,
/// 8.2).
fn build_head(event_loop: &EventLoop<impl SiteService>, response: &Response) -> http::Response<()> {
    let mut head = http::Response::new(());
    // INVARIANT: a program's status has three digits.
    *head.status_mut() = StatusCode::from_u16(response.status).unwrap_or_default();
    let switching = response.status == SWITCHING;
    if switching {
        // RFC 8441, 5: any 2xx has the meaning of 101 in HTTP/1.1, and there is no key to accept.
        *head.status_mut() = StatusCode::OK;
    }
    let fields = head.headers_mut();
    for (name, value) in response.fields.iter() {
        if !(switching && name.eq_ignore_ascii_case(b"sec-websocket-accept")) {
            append_field(fields, name, value);
        }
    }
    if !fields.contains_key(http::header::DATE) {
        append_field(fields, b"date", event_loop.date_value().as_bytes());
    }
    if !fields.contains_key(http::header::SERVER) {
        append_field(fields, b"server", b"galgo");
    }
    head
}

/// Adds a field, which its source has checked. A list that is too long for `http` loses its end.
fn append_field(fields: &mut HeaderMap, name: &[u8], value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        && !OF_CONNECTION.contains(&name.as_str())
    {
        let _ = fields.try_append(name, value);
    }
}
