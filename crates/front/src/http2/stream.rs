//! A single request: reads its head from a stream, has it answered, and writes its line in the access log.

use std::{cell::RefCell, pin::pin, rc::Rc, sync::Arc};

use base64::prelude::{BASE64_STANDARD, Engine};
use galgo_io::{
    rate_allowance::{RateAllowance, Rates},
    transport::Transport,
};
use galgo_proto::{
    h1::{BodyLen, Head},
    h2::{self as heads, ReceivedFields},
};
use galgo_service::{
    body::{Body, Response},
    client::UnreadAnswers,
    fault::Fault,
    link::Link,
    log::access::AccessEntry,
    request::Request,
    service::{Left, Service},
};
use h2::{Reason, RecvStream, server::SendResponse};
use rustix::rand::{GetRandomFlags, getrandom};

use super::{
    client::{StreamClient, drain_body},
    limits::MAX_STREAMS,
    outgoing::Outgoing,
    send::StreamSender,
    unread::{Unread, UnreadPiece},
};
use crate::{
    event_loop::EventLoop,
    front_settings::Settings,
    logged::{self, Unfinished},
    origin::resolve_origin,
    site::SiteService,
};

/// The head of a request, and the two halves of its stream.
pub(super) type IncomingStream = (ReceivedFields, RecvStream, SendResponse<UnreadPiece>);

/// Result of a request that is over, for its connection.
#[derive(Debug, Default)]
pub(super) struct FinishedRequest {
    /// Whether the request was refused for want of capacity. If so, its client may ask again at once.
    pub(super) refused: bool,
    pub(super) had_body: bool,
}

/// Returns whether a body follows the head.
pub(super) fn has_body((_, body, _): &IncomingStream) -> bool {
    !body.is_end_stream()
}

/// Answers one request over `link`, whose socket is `sock`. `unread` counts the bytes that wait on its connection. The future
/// lives as long as the response, so it does not contain the request's arguments.
pub(super) fn serve_stream<S: SiteService>(
    event_loop: Rc<EventLoop<S>>,
    link: Rc<Link>,
    (sock, unread): (&Rc<Transport>, &Arc<Unread>),
    came: IncomingStream,
) -> impl Future<Output = FinishedRequest> + use<S> {
    let had_body = has_body(&came);
    // Serves the whole request with one site, even if the event loop is handed another site meanwhile.
    let site = event_loop.current_site();
    let (received, body, respond) = came;
    let held = received.protocol().is_some();
    let arrived = build_request(&event_loop, site.settings(), &link, received, !had_body);
    let (head, link) = match arrived {
        Ok((head, behind)) => (Ok(head), behind.map_or(link, Rc::new)),
        Err(fault) => (Err(Box::new(fault)), link),
    };
    let sender = StreamSender {
        out: Rc::new(Outgoing::new(respond, unread.clone())),
        // A window opens once the client has read half of it. On a slow link that takes longer than `rate_grace`.
        allowance: RateAllowance::for_shared_reader(
            &stream_rates(&site.settings().http.rates),
            sock,
        ),
    };
    let body = (body, had_body, held);
    answer((event_loop, site), link, head, (body, sender))
}

async fn answer<S: SiteService>(
    (event_loop, site): (Rc<EventLoop<S>>, Rc<S>),
    link: Rc<Link>,
    head: Result<Rc<Head>, Box<Fault>>,
    ((body, had_body, held), mut sender): ((RecvStream, bool, bool), StreamSender),
) -> FinishedRequest {
    let head = match head {
        Ok(head) => head,
        Err(fault) => {
            Box::pin(refuse(&event_loop, &*site, &link, &mut sender, &fault)).await;
            Box::pin(drain_body(body)).await;
            return FinishedRequest {
                refused: false,
                had_body,
            };
        }
    };
    let declared = match head.body {
        BodyLen::Length(n) => Some(n),
        BodyLen::None | BodyLen::Chunked => None,
    };
    let owes_continue = head.expects_continue;
    let out = sender.out.clone();
    let allowance = RateAllowance::from_rates(&stream_rates(&site.settings().http.rates));
    let mut client = StreamClient::new(body, out.clone(), declared, allowance, owes_continue, held);
    let entry = AccessEntry::new(
        event_loop.ids.next(),
        link.remote.clone(),
        Some(head.clone()),
    );
    let entry = Rc::new(RefCell::new(entry));
    let mut request = Request::new(head, &link, &mut client, entry);
    let mut unfinished = Unfinished {
        event_loop: &event_loop,
        sock: None,
        entry: request.entry.clone(),
        over: false,
    };
    match make_response(&*site, &mut request, &mut sender).await {
        Ok(mut response) => {
            if held && (200..300).contains(&response.status) {
                response = refuse_unopened(response);
            }
            sender
                .send_response(&event_loop, &*site, &mut request, response)
                .await;
        }
        Err(_left) => {
            logged::log_client_left(&event_loop, &request);
            out.reset_stream(Reason::CANCEL);
        }
    }
    unfinished.over = true;
    let refused = request.refused && !link.passed_on;
    drop((unfinished, request));
    // An extended CONNECT has no body.
    if !held {
        Box::pin(drain_body(client.into_rest())).await;
    }
    FinishedRequest { refused, had_body }
}

/// Returns the response. While the client does not read the answers that wait for it, no further answer is made, because each
/// takes memory.
async fn make_response(
    site: &impl Service,
    request: &mut Request<'_>,
    sender: &mut StreamSender,
) -> Result<Response, Left> {
    wait_for_room(request, sender).await?;
    let response = site.call(request).await?;
    // Other answers may have filled the connection meanwhile. A program waits later, so that it keeps its permit.
    if !matches!(response.body, Body::Stream(_)) {
        sender.out.set_held_bytes(0);
        wait_for_room(request, sender).await?;
    }
    Ok(response)
}

/// Waits until the connection's unread answers leave room for another answer.
async fn wait_for_room(request: &mut Request<'_>, sender: &mut StreamSender) -> Result<(), Left> {
    if sender.out.is_full() {
        let room = pin!(sender.out.wait_not_full(&mut sender.allowance));
        let room = Box::pin(request.client.await_while_connected(room)).await;
        room.map_err(|_| Left)?.map_err(|_| Left)?;
    }
    Ok(())
}

/// Returns the answer to a client that asked for a WebSocket and got a plain response: it would take any 2xx for a WebSocket
/// (RFC 8441, 5).
fn refuse_unopened(response: Response) -> Response {
    if let Body::Stream(output) = response.body {
        output.producer.abandon(false, Box::new(|_exit| {}));
    }
    Response::new(501)
}

/// Makes a Sec-WebSocket-Key for a client that has sent none: 16 random bytes that no other handshake has (RFC 6455, 4.1).
fn websocket_key() -> String {
    let mut nonce = [0; 16];
    // The bytes come all at once (getrandom(2)). If the call fails, the zeros are as good a key, because the key proves
    // nothing.
    let _ = getrandom(&mut nonce[..], GetRandomFlags::empty());
    BASE64_STANDARD.encode(nonce)
}

/// Divides `min_rate` by the streams of a connection, because a stream may have to wait for the others.
fn stream_rates(of: &Rates) -> Rates {
    Rates {
        least: of.least.div_ceil(MAX_STREAMS.into()),
        ..*of
    }
}

/// Returns the head of a request, and the request's own link if a trusted proxy passes it on.
fn build_request(
    event_loop: &EventLoop<impl SiteService>,
    settings: &Settings,
    link: &Link,
    received: ReceivedFields,
    ended: bool,
) -> Result<(Rc<Head>, Option<Link>), Fault> {
    let limits = settings.http.head_limits();
    let key = match received.protocol() {
        None => None,
        Some(b"websocket") => Some(websocket_key()),
        Some(_) => return Err(Fault::Client(501, "a protocol other than websocket")),
    };
    let head = heads::build_head(received, ended, key.as_deref(), &limits)?;
    let mut head = Rc::new(head);
    let behind = resolve_origin(event_loop, &settings.trusted, link, &mut head)?;
    Ok((head, behind))
}

/// Answers a message that is not a request.
async fn refuse<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    service: &impl Service,
    link: &Link,
    sender: &mut StreamSender,
    fault: &Fault,
) {
    let entry = logged::create_refusal_entry(event_loop, link, fault);
    let mut response = service.build_refusal(link, entry.id, fault);
    let body = std::mem::replace(&mut response.body, Body::Empty);
    let sent = sender
        .send_sized_body(event_loop, &response, body, false)
        .await;
    logged::log_refusal(event_loop, entry, sent.unwrap_or(0));
}
