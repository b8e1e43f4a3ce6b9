//! One request: a stream's head, what answers it, and its line in the access log.

use std::{cell::RefCell, rc::Rc};

use bytes::Bytes;
use galgo_io::pace::{Pace, Rates};
use galgo_proto::{
    h1::{BodyLen, Head},
    h2 as heads,
};
use galgo_service::{
    body::Body, fault::Fault, link::Link, log::access::AccessEntry, request::Request,
    service::Service,
};
use h2::{Reason, RecvStream, server::SendResponse};
use http::request::Parts;

use super::{client::Incoming, limits::MAX_STREAMS, outgoing::Outgoing, send::Sender};
use crate::{
    event_loop::EventLoop, logged::Unfinished, origin::origin, settings::Settings, site::Site,
};

/// A request as it came.
pub(super) type Came = (http::Request<RecvStream>, SendResponse<Bytes>);

/// Answers one request over `link`. Says whether it was refused for want of capacity, and its client may ask again at once.
pub(super) async fn serve<S: Site>(
    event_loop: Rc<EventLoop<S>>,
    link: Rc<Link>,
    (request, respond): Came,
) -> bool {
    // One site from its first byte to its last, whatever the event loop is handed meanwhile.
    let site = event_loop.site();
    let settings = site.settings();
    let (parts, body) = request.into_parts();
    let out = Rc::new(Outgoing::new(respond));
    let pace = || Pace::of(&rates(&settings.http.rates));
    let mut sender = Sender {
        out: out.clone(),
        pace: pace(),
    };
    let (head, behind) = match arrived(&event_loop, settings, &link, &parts, &body) {
        Ok(arrived) => arrived,
        Err(fault) => {
            refuse(&event_loop, &*site, &link, &mut sender, &fault).await;
            return false;
        }
    };
    drop(parts);
    let link = behind.as_ref().unwrap_or(&link);
    let declared = match head.body {
        BodyLen::Length(n) => Some(n),
        BodyLen::None | BodyLen::Chunked => None,
    };
    let mut client = Incoming::new(body, out.clone(), declared, pace(), head.expects_continue);
    let entry = AccessEntry::new(
        event_loop.ids.next(),
        link.remote.clone(),
        Some(head.clone()),
    );
    let entry = Rc::new(RefCell::new(entry));
    let mut request = Request::new(head, link, &mut client, entry);
    let began = request.began;
    let mut unfinished = Unfinished {
        event_loop: &event_loop,
        sock: None,
        entry: request.entry.clone(),
        began,
        over: false,
    };
    match site.call(&mut request).await {
        Ok(response) => {
            sender
                .send(&event_loop, &*site, &mut request, response)
                .await;
        }
        Err(_left) => {
            request.entry.borrow_mut().total = event_loop.taken(began);
            event_loop.log(&request.entry.borrow());
            out.reset(Reason::CANCEL);
        }
    }
    unfinished.over = true;
    request.refused && !link.passed_on
}

/// The streams of a connection share `min_rate`: one that waits may wait for the others.
fn rates(of: &Rates) -> Rates {
    Rates {
        least: of.least.div_ceil(MAX_STREAMS.into()),
        ..*of
    }
}

/// The head of a request, and its own link where a trusted proxy passes it on.
fn arrived(
    event_loop: &EventLoop<impl Site>,
    settings: &Settings,
    link: &Link,
    parts: &Parts,
    body: &RecvStream,
) -> Result<(Rc<Head>, Option<Link>), Fault> {
    let (uri, fields) = (&parts.uri, parts.headers.iter());
    let asked = heads::Asked {
        method: parts.method.as_str().as_bytes(),
        authority: uri.authority().map(|a| a.as_str().as_bytes()),
        path: uri.path_and_query().map_or(b"", |p| p.as_str().as_bytes()),
        ended: body.is_end_stream(),
    };
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut head = Rc::new(heads::head(&asked, fields, &settings.http.head_limits())?);
    let behind = origin(event_loop, &settings.trusted, link, &mut head)?;
    Ok((head, behind))
}

/// Answers what is no request.
async fn refuse<S: Site>(
    event_loop: &Rc<EventLoop<S>>,
    service: &impl Service,
    link: &Link,
    sender: &mut Sender,
    fault: &Fault,
) {
    let mut entry = AccessEntry::new(event_loop.ids.next(), link.remote.clone(), None);
    entry.status = fault.status();
    entry.outcome = fault.outcome();
    let mut response = service.refuse(link, entry.id, fault);
    let body = std::mem::replace(&mut response.body, Body::Empty);
    let sent = sender.whole(event_loop, &response, body, false).await;
    entry.bytes = sent.unwrap_or(0);
    entry.total = event_loop.taken(entry.began);
    event_loop.log(&entry);
}
