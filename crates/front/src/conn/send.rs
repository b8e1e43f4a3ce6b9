//! Sends a response: writes its head in one go, and its body in the way its kind allows.

use std::{
    io::{self, IoSlice},
    pin::pin,
    rc::Rc,
};

use galgo_proto::h1::Version;
use galgo_service::{
    body::{Body, BodyPart, FilePart, Output, Response},
    fault::Fault,
    request::Request,
    service::Service,
};

use super::{
    end::After,
    head::{build_head, keeps_alive},
    sender::ConnectionSender,
    stream::ConnectionOutput,
};
use crate::{
    event_loop::EventLoop,
    framing::{Framing, declare_length, program_framing},
    logged::{self, DeferredLogLine},
    site::SiteService,
};

impl ConnectionSender {
    /// Sends a response that was made without a request, and that ends the connection.
    pub(super) async fn send_simple(
        &mut self,
        event_loop: &EventLoop<impl SiteService>,
        response: Response,
    ) -> io::Result<u64> {
        self.allowance.restore_grace();
        let framing = Framing::Length(response.body.len());
        let head = build_head(
            event_loop,
            &response,
            framing,
            self.wire,
            Version::Http11,
            false,
        );
        self.send_sized_body(&head, &response.body, framing).await
    }

    /// Sends `response` and logs the request.
    pub(super) async fn send_response(
        &mut self,
        event_loop: &Rc<EventLoop<impl SiteService>>,
        service: &impl Service,
        request: &mut Request<'_>,
        response: &mut Response,
    ) -> After {
        self.allowance.restore_grace();
        request.entry.borrow_mut().status = response.status;
        let body = std::mem::replace(&mut response.body, Body::Empty);
        if let Body::Stream(output) = body {
            self.allowance.set_permit(request.permit.clone());
            // Boxed, so that other responses need no room for it.
            return Box::pin(
                self.send_program_output(event_loop, service, request, response, output),
            )
            .await;
        }
        let framing = if request.is_bodiless(response.status) {
            Framing::Bodiless
        } else {
            Framing::Length(body.len())
        };
        let keep_alive = keeps_alive(event_loop, request, framing);
        self.closing = !keep_alive;
        let promised = match framing {
            // HEAD gets the length that the body would have.
            Framing::Bodiless if !matches!(response.status, 204 | 304) => {
                Framing::Length(body.len())
            }
            framing => framing,
        };
        let version = request.head.version;
        let head = build_head(
            event_loop, response, promised, self.wire, version, keep_alive,
        );
        let sent = self.send_sized_body(&head, &body, framing).await;
        let after = match &sent {
            Ok(_) if keep_alive => After::KeepAlive,
            Ok(_) => After::Close,
            Err(_) => After::Reset,
        };
        logged::log_response(event_loop, request, sent.map_err(|_| self.sent));
        after
    }

    /// Sends a head and a body of known length.
    async fn send_sized_body(
        &mut self,
        head: &[u8],
        body: &Body,
        framing: Framing,
    ) -> io::Result<u64> {
        let bytes: &[u8] = match body {
            _ if framing == Framing::Bodiless => b"",
            Body::Bytes(bytes) => bytes,
            Body::Shared(bytes) => bytes,
            Body::File(part) => {
                self.write_more(head).await?;
                self.send_file(part).await?;
                return self.write_end().await.map(|()| part.len);
            }
            Body::Parts(parts) => {
                Box::pin(self.send_parts(head, parts)).await?;
                return Ok(body.len());
            }
            Body::Empty | Body::Stream(_) => b"",
        };
        self.write(&mut [head, bytes].map(IoSlice::new), true)
            .await?;
        Ok(bytes.len() as u64)
    }

    async fn send_parts(&mut self, head: &[u8], parts: &[BodyPart]) -> io::Result<()> {
        self.write_more(head).await?;
        for part in parts {
            match part {
                BodyPart::Bytes(b) => self.write_more(b).await?,
                BodyPart::File(f) => self.send_file(f).await?,
            }
        }
        // The last part is never followed by more: push out the bytes that the kernel holds back.
        self.sock.sock().push();
        self.write_end().await
    }

    /// Sends a piece of a file. If the file has become shorter, the response is cut.
    async fn send_file(&mut self, part: &FilePart) -> io::Result<()> {
        /// Bytes that one call sends at most, so that other connections get their turn.
        const PIECE: u64 = 1 << 20;
        let Self {
            sock,
            allowance,
            wire,
            sent,
            ..
        } = self;
        let mut offset = part.offset;
        let end = part.offset + part.len;
        while offset < end {
            let len = usize::try_from((end - offset).min(PIECE)).unwrap_or(usize::MAX);
            let mut left = wire.announce(sock, allowance, len).await?;
            while left > 0 {
                let moved = sock.sendfile(&part.file, &mut offset, left);
                match allowance.wait_for_io(pin!(moved)).await? {
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

    /// Sends the output of a program as the program prints it.
    async fn send_program_output(
        &mut self,
        event_loop: &Rc<EventLoop<impl SiteService>>,
        service: &impl Service,
        request: &mut Request<'_>,
        response: &mut Response,
        mut output: Box<Output>,
    ) -> After {
        let framing = program_framing(request, response.status, &output);
        let keep_alive = keeps_alive(event_loop, request, framing);
        self.closing = !keep_alive;
        let head = match framing {
            Framing::Raw => Vec::new(),
            _ => {
                declare_length(response, framing, &output);
                let version = request.head.version;
                build_head(
                    event_loop, response, framing, self.wire, version, keep_alive,
                )
            }
        };
        let mut streamed = ConnectionOutput {
            sender: self,
            request,
            output: &mut output,
            framing,
            sent: 0,
            dropped: 0,
        };
        let mut result = streamed.send_head_and_body(head).await;
        let sent = streamed.sent;
        if result.is_ok() {
            result = self.write_end().await.map_err(|_| Fault::Gone(GONE));
        }
        let line = DeferredLogLine::new(event_loop, request, sent);
        let Err(fault) = result else {
            line.finish(*output);
            return if keep_alive {
                After::KeepAlive
            } else {
                After::Close
            };
        };
        service.log_cut_response(request, &fault);
        request.entry.borrow_mut().status = response.status;
        let gone = matches!(fault, Fault::Gone(_));
        line.abandon(*output, gone);
        after_cut(framing, gone)
    }
}

/// Decides what to do with the connection after a response that was cut. If only the end of the connection marks the end of the
/// body, a cut must look different.
fn after_cut(framing: Framing, gone: bool) -> After {
    match framing {
        Framing::UntilClose | Framing::Raw => After::Reset,
        _ if gone => After::Reset,
        _ => After::Close,
    }
}

const GONE: &str = "the connection was closed before the end of the response";
