//! How a response is framed: its head, and how the end of its body is marked (RFC 9112, 6).

use galgo_proto::{
    digits::{DIGITS, decimal},
    fields::lists,
    h1::Version,
    status::reason,
};
use galgo_service::{
    body::{Output, Response},
    request::Request,
};

use super::{end::DRAIN, wire::WireFormat};
use crate::{event_loop::EventLoop, site::SiteService};

/// Bytes of a body that are read though they are not sent (HEAD, 204, 304), so that the program does not block. One that
/// prints more may never end: it is not read further.
pub(crate) const MOST_DROPPED: usize = 16 << 20;

/// The status of a response behind which the program has the connection (RFC 9110, 15.2.2). No other kind of response has it.
pub(crate) const SWITCHING: u16 = 101;

/// How the end of a body is marked (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// No body belongs to this response (HEAD, 204, 304).
    Bodiless,
    Length(u64),
    Chunked,
    UntilClose,
    /// The program wrote the whole response (NPH).
    Raw,
}

impl Framing {
    /// How much of `len` bytes of output has a place behind the `sent` bytes of a body.
    pub(crate) fn fitting(self, len: usize, sent: u64, output: &mut Output) -> usize {
        match self {
            Self::Bodiless => 0,
            Self::Length(n) => {
                let left = usize::try_from(n - sent).unwrap_or(usize::MAX);
                output.excess |= len > left && !output.discard;
                len.min(left)
            }
            Self::Chunked | Self::UntilClose | Self::Raw => len,
        }
    }
}

pub(crate) fn program_framing(request: &Request<'_>, status: u16, output: &Output) -> Framing {
    let producer = &output.producer;
    if output.nph {
        Framing::Raw
    } else if status == SWITCHING {
        Framing::UntilClose
    } else if request.is_bodiless(status) {
        Framing::Bodiless
    } else if output.discard {
        Framing::Length(0)
    } else if let Some(n) = output.content_length {
        Framing::Length(n)
    } else if producer.output_ended() {
        Framing::Length(producer.ready() as u64)
    } else if request.head.version == Version::Http11 && request.client.speaks_http() {
        Framing::Chunked
    } else {
        Framing::UntilClose
    }
}

pub(super) fn keeps_alive(
    event_loop: &EventLoop<impl SiteService>,
    request: &Request<'_>,
    framing: Framing,
) -> bool {
    request.head.keep_alive
        && !request.last
        && (!matches!(framing, Framing::UntilClose | Framing::Raw)
            || !request.client.speaks_http())
        && !event_loop.shared.draining()
        && request.client.left().is_none_or(|n| n <= DRAIN)
        // The client was not asked for the body, so the client may or may not send it (RFC 9110, 10.1.1).
        && (!request.client.owes_continue() || request.client.is_over())
}

/// What a program says of the length of a body that is not sent, to HEAD or beside 304, is passed on
/// (RFC 9110, 8.6).
pub(crate) fn promise(response: &mut Response, framing: Framing, output: &Output) {
    if let (Framing::Bodiless, Some(n)) = (framing, output.content_length)
        && response.status != 204
    {
        response.fields.push("Content-Length", n.to_string());
    }
}

/// Writes the head of a response. A front server gets what a CGI program would print (RFC 3875, 6), and adds the fields of
/// HTTP itself.
pub(super) fn head(
    event_loop: &EventLoop<impl SiteService>,
    response: &Response,
    framing: Framing,
    wire: WireFormat,
    version: Version,
    keep_alive: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let http = wire.is_http();
    let protocol = if http { "HTTP/1.1" } else { "Status:" };
    let reason = response
        .reason
        .as_deref()
        .unwrap_or_else(|| reason(response.status));
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|p| out.extend_from_slice(p));
    let mut digits = [0; DIGITS];
    let status = decimal(response.status.into(), &mut digits);
    put(&[
        protocol.as_bytes(),
        b" ",
        status,
        b" ",
        reason.as_bytes(),
        b"\r\n",
    ]);
    if http && !response.fields.has("date") {
        put(&[b"Date: ", event_loop.date().as_bytes(), b"\r\n"]);
    }
    if http && !response.fields.has("server") {
        put(&[b"Server: galgo\r\n"]);
    }
    for (name, value) in response.fields.iter() {
        put(&[name, b": ", value, b"\r\n"]);
    }
    match framing {
        Framing::Length(n) => {
            put(&[b"Content-Length: ", decimal(n, &mut digits), b"\r\n"]);
        }
        Framing::Chunked => put(&[b"Transfer-Encoding: chunked\r\n"]),
        Framing::Bodiless | Framing::UntilClose | Framing::Raw => {}
    }
    if !http {
    } else if response.status == SWITCHING {
        put(&[b"Connection: Upgrade\r\n"]);
    } else if !keep_alive {
        put(&[b"Connection: close\r\n"]);
    } else if version == Version::Http10 {
        put(&[b"Connection: keep-alive\r\n"]);
    }
    put(&[b"\r\n"]);
    debug_assert!(!lists(&response.fields, "transfer-encoding", "chunked"));
    out
}
