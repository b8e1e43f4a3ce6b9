//! Writes the head of a response (RFC 9112, 6), and decides whether the connection goes on after it.

use galgo_proto::{
    digits::{DIGITS, write_decimal},
    fields::lists_token,
    h1::Version,
    status::reason,
};
use galgo_service::{body::Response, request::Request};

use super::{end::DRAIN, wire::WireFormat};
use crate::{
    event_loop::EventLoop,
    framing::{Framing, SWITCHING},
    site::SiteService,
};

pub(super) fn keeps_alive(
    event_loop: &EventLoop<impl SiteService>,
    request: &Request<'_>,
    framing: Framing,
) -> bool {
    request.head.keep_alive
        && !request.last
        && (!matches!(framing, Framing::UntilClose | Framing::Raw)
            || !request.client.speaks_http())
        && !event_loop.shared.is_draining()
        && request.client.remaining_length().is_none_or(|n| n <= DRAIN)
        // The client was not asked for the body, so the client may or may not send it (RFC 9110, 10.1.1).
        && (!request.client.owes_continue() || request.client.is_body_read())
}

/// Writes the head of a response. A front server gets the head that a CGI program would print (RFC 3875, 6), and adds the
/// fields of HTTP itself.
pub(super) fn build_head(
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
    let status = write_decimal(response.status.into(), &mut digits);
    put(&[
        protocol.as_bytes(),
        b" ",
        status,
        b" ",
        reason.as_bytes(),
        b"\r\n",
    ]);
    if http && !response.fields.has_field("date") {
        put(&[b"Date: ", event_loop.date_value().as_bytes(), b"\r\n"]);
    }
    if http && !response.fields.has_field("server") {
        put(&[b"Server: galgo\r\n"]);
    }
    for (name, value) in response.fields.iter() {
        put(&[name, b": ", value, b"\r\n"]);
    }
    match framing {
        Framing::Length(n) => {
            put(&[b"Content-Length: ", write_decimal(n, &mut digits), b"\r\n"]);
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
    debug_assert!(!lists_token(
        &response.fields,
        "transfer-encoding",
        "chunked"
    ));
    out
}
