//! Serves a connection: requests one after the other, each answered before the next is looked at.
//!
//! 1. wait for a request  2. read its head  3. dispatch  4. send  5. log  6. the rest of its body

mod admit;
mod end;
mod gateway;
mod head;
mod incoming;
mod input;
mod proxy;
mod send;
mod sender;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

use std::{cell::RefCell, future::poll_fn, pin::pin, rc::Rc};

use galgo_io::{
    rate_allowance::RateAllowance,
    sock::Sock,
    tls::{self, Agreed},
    transport::Transport,
    turn,
};
use galgo_proto::{
    forwarded::Trusted,
    h1::{BodyLen, Head, HeadScan},
    target::LastHost,
};
use galgo_service::{
    fault::Fault, link::Link, log::access::AccessEntry, peer::Peer, request::Request,
    service::Service,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    crowd::Member,
    event_loop::EventLoop,
    floods::Floods,
    front_settings::{Http, Settings, Speaks},
    http2,
    idle::{AwaitedRequest, IdleEntry},
    linger::linger,
    logged::{self, Unfinished},
    origin::resolve_origin,
    request_body::RequestBody,
    shared_by_loops::Accepted,
    site::SiteService,
};
use admit::{
    has_room, join_crowd, log_failed_handshake, log_unannounced, may_name_clients, refuse,
    speaks_for_many,
};
use end::{After, drain_body};
use gateway::Arrived;
use incoming::ConnectionClient;
use input::Input;
use sender::ConnectionSender;
use wire::WireFormat;

/// Serves a connection in a task of its own.
pub(crate) fn spawn_connection<S: SiteService>(event_loop: Rc<EventLoop<S>>, accepted: Accepted) {
    tokio::task::spawn_local(async move {
        let _counted = event_loop.shared.loops[event_loop.index].take_counted();
        let floods = Floods::new(accepted.remote);
        let mut served = pin!(serve_connection(&event_loop, &floods, accepted));
        poll_fn(|cx| {
            let (polled, went) = turn::run_turn(|| served.as_mut().poll(cx));
            floods.count_turn(&event_loop, went);
            polled
        })
        .await;
    });
}

async fn serve_connection<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    floods: &Floods,
    accepted: Accepted,
) {
    let lease = event_loop.idle.lease_entry();
    let member = join_crowd(event_loop, &lease, &accepted);
    if !has_room(event_loop, &member) {
        return refuse(accepted);
    }
    let mut conn = Conn::establish(event_loop, lease, member, accepted).await;
    // Not moved out of the option: otherwise each connection would have room for it twice.
    if let Some(conn) = &mut conn {
        floods.set_client(conn.link.remote_ip);
        if conn.speaks == Speaks::H2c || conn.input.sock.alpn_is(tls::H2) {
            Box::pin(conn.serve_http2()).await
        } else {
            conn.serve_http1().await
        }
    }
}

/// Returns the size in bytes of the future of one HTTP/1 request: each connection allocates that much for each request.
pub fn future_size<S: SiteService>() -> usize {
    fn size_of_output<'c, S: SiteService, F>(_request: fn(&'c mut Conn<'c, S>) -> F) -> usize {
        size_of::<F>()
    }
    size_of_output(Conn::<S>::serve_request)
}

/// Sent to a client that speaks HTTP on a TLS listener.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 46\r\nConnection: close\r\n\r\nHTTPS is spoken on this port: ask https://...\n";

/// AUTH_TYPE of a user named by a certificate, as in the Servlet specification.
const CLIENT_CERT: &str = "CLIENT-CERT";

/// Shakes hands within `head_timeout`, whenever the client's address has its turn. Returns the result of the handshake.
///
/// # Errors
/// The connection is over. Holds the reason as a sentence, if there is one to tell.
async fn encrypt(
    input: &mut Input,
    (event_loop, peer): (&EventLoop<impl SiteService>, Peer),
    lease: &IdleEntry<'_>,
    settings: &Settings,
) -> Result<Agreed, Option<String>> {
    let by = Instant::now() + settings.http.head_timeout;
    let Input { sock, buf, .. } = input;
    let late = || (Instant::now() >= by).then(|| "it took longer than head_timeout".to_owned());
    if buf.is_empty() {
        let read = lease.wait_in_time(sock.read_idle(buf), by).await;
        read.ok_or_else(late)?.map_err(|_| None)?;
    }
    // A TLS hello begins with the byte for a handshake record (RFC 8446, 5.1); a method of HTTP begins with a letter.
    if buf.as_slice().first().is_some_and(u8::is_ascii_alphabetic) {
        let _ = sock.try_write(PLAIN);
        let _ = sock.end_output();
        return Err(Some("it speaks HTTP without TLS".to_owned()));
    }
    let server = settings.tls.as_ref().ok_or(None)?;
    let shaken = event_loop
        .handshakes
        .run_in_turn(peer, sock.accept(server, buf));
    let shaken = lease.wait_in_time(shaken, by).await;
    shaken
        .ok_or_else(late)?
        .map_err(|e| tls::explain_handshake_error(&e))?;
    if sock.alpn_is(tls::ACME) {
        // The authority has seen the certificate (RFC 8737, 3).
        let _ = sock.end_output();
        return Err(None);
    }
    sock.agreed().ok_or(None)
}

struct Conn<'l, S: SiteService> {
    event_loop: &'l Rc<EventLoop<S>>,
    /// Declared before `lease`, so that it is dropped first: another connection may have the lease next.
    member: Member<'l>,
    lease: IdleEntry<'l>,
    speaks: Speaks,
    link: Link,
    input: Input,
    sender: ConnectionSender,
    host: LastHost,
    /// Whether the last request was refused for want of capacity.
    refused: bool,
}

impl<'l, S: SiteService> Conn<'l, S> {
    async fn establish(
        event_loop: &'l Rc<EventLoop<S>>,
        lease: IdleEntry<'l>,
        mut member: Member<'l>,
        accepted: Accepted,
    ) -> Option<Self> {
        let sock = Rc::new(Transport::new(Sock::new(accepted.fd)));
        let site = event_loop.current_site();
        let http = &site.settings().http;
        let mut input = Input::new(sock.clone(), RateAllowance::from_rates(&http.rates));
        let mut link = Link::from_socket(sock.sock(), accepted.remote, accepted.local);
        if !may_name_clients(event_loop, accepted.speaks, &link) {
            return None;
        }
        if accepted.speaks == Speaks::Proxied {
            let by = Instant::now() + http.head_timeout;
            let said = Box::pin(proxy::read_header(&mut input));
            let said = lease.wait_in_time(said, by).await?;
            let said = said.inspect_err(|fault| log_unannounced(event_loop, &link, fault));
            let said = said.ok()?;
            let speaks_for_another = said.is_some();
            link = link.with_proxy_ends(said);
            if speaks_for_another {
                member.move_to_peer(
                    Peer::from_address(link.remote_ip),
                    speaks_for_many(event_loop, link.remote_ip),
                );
                if !has_room(event_loop, &member) {
                    return None;
                }
            }
        }
        if accepted.speaks == Speaks::Https {
            let peer = Peer::from_address(link.remote_ip);
            let encrypted = encrypt(&mut input, (event_loop, peer), &lease, site.settings());
            let agreed = Box::pin(encrypted).await;
            let agreed = agreed.inspect_err(|why| log_failed_handshake(event_loop, &link, why));
            let agreed = agreed.ok()?;
            link.user = agreed
                .user
                .as_deref()
                .map(|user| (user.into(), CLIENT_CERT.into()));
            link.tls = Some(Rc::new(agreed));
            link.https = true;
        }
        let allowance = RateAllowance::for_reader(&http.rates, &sock);
        let sender = ConnectionSender::new(sock, allowance);
        Some(Self {
            event_loop,
            member,
            lease,
            speaks: accepted.speaks,
            link,
            input,
            sender,
            host: LastHost::default(),
            refused: false,
        })
    }

    /// Serves the connection as HTTP/2.
    async fn serve_http2(&mut self) {
        let (sock, link) = (self.input.sock.clone(), self.link.clone());
        let received = std::mem::take(&mut self.input.buf);
        let counted = (&self.lease, &self.member);
        http2::serve_connection(self.event_loop, counted, link, sock, received).await;
    }

    /// Serves until the connection is over.
    async fn serve_http1(&mut self) {
        let mut awaited = AwaitedRequest::First;
        while self.await_request(awaited).await {
            awaited = AwaitedRequest::Next;
            // Boxed, so that an idle connection is small.
            match Box::pin(self.serve_request()).await {
                After::KeepAlive => {
                    if std::mem::take(&mut self.refused) {
                        let draining = || self.event_loop.shared.is_draining();
                        self.event_loop.throttle.wait_to_read(draining).await;
                    }
                }
                After::Over if self.input.is_drained() => break,
                After::Close | After::Over => {
                    Box::pin(linger(&self.input.sock)).await;
                    break;
                }
                After::Reset => {
                    self.input.sock.reset_on_close();
                    break;
                }
            }
        }
    }

    /// Waits for the first byte of a request. Returns false if the connection is over.
    async fn await_request(&mut self, awaited: AwaitedRequest) -> bool {
        if !self.input.buf.is_empty() {
            return true;
        }
        // A client that has half-closed may have pipelined more requests before: the next read will tell.
        if awaited == AwaitedRequest::Next && self.event_loop.shared.ends_idle() {
            return false;
        }
        let waiting = self.lease.begin_idle(awaited);
        let came = tokio::select! {
            biased;
            read = self.input.sock.read_idle(&mut self.input.buf) => matches!(read, Ok(n) if n > 0),
            // Ends to make room, because the server drains, or because `keep_alive` is over.
            () = waiting.close_requested() => false,
        };
        came && !waiting.is_close_requested()
    }

    /// Reads a request up to its body. Answers a message that is not a request.
    ///
    /// # Errors
    /// There is no request. The error says what to do with the connection.
    async fn read_or_refuse(&mut self, site: &impl SiteService) -> Result<Arrived, After> {
        match self.read_request(site.settings()).await {
            Ok(Some(arrived)) => Ok(arrived),
            Ok(None) => Err(After::Close),
            Err(fault) => Err(Box::pin(self.refuse_head(site, &fault)).await),
        }
    }

    /// Reads a request up to its body. `Ok(None)`: the client closed without sending a request.
    async fn read_request(&mut self, settings: &Settings) -> Result<Option<Arrived>, Fault> {
        let http = &settings.http;
        let limits = http.head_limits();
        let by = || Instant::now() + http.head_timeout;
        self.sender.begin_response(WireFormat::Http);
        let (input, wire) = (&mut self.input, &mut self.sender.wire);
        let arrived = match self.speaks {
            Speaks::Http | Speaks::Https | Speaks::H2c | Speaks::Proxied => {
                let Some(head) = self.read_head(http).await? else {
                    return Ok(None);
                };
                return self.build_arrived(head, &settings.trusted).map(Some);
            }
            Speaks::FastCgi => {
                timeout_at(by(), Box::pin(gateway::read_fastcgi(input, wire, &limits))).await
            }
            Speaks::Scgi => {
                timeout_at(by(), Box::pin(gateway::read_scgi(input, wire, &limits))).await
            }
        };
        self.input.wire = self.sender.wire;
        arrived.unwrap_or(Err(LATE_HEAD))
    }

    /// Reads the head of a request. `Ok(None)`: the client closed without sending one.
    async fn read_head(&mut self, http: &Http) -> Result<Option<Rc<Head>>, Fault> {
        let limits = http.head_limits();
        // Set at the first byte. Most heads come in one piece, and need no clock.
        let mut by = None;
        let mut waiting = None;
        let mut scan = HeadScan::default();
        loop {
            if let Some(end) = scan.scan_head(self.input.buf.as_slice(), &limits)? {
                let head = &self.input.buf.as_slice()[..end];
                let head = Head::parse_next(head, &limits, &mut self.host)?;
                self.input.buf.consume(end);
                return Ok(Some(Rc::new(head)));
            }
            let by = *by.get_or_insert_with(|| Instant::now() + http.head_timeout);
            let waiting = waiting.get_or_insert_with(|| self.lease.begin_partial_head());
            let filled = tokio::select! {
                biased;
                filled = timeout_at(by, self.input.fill_buffer(0)) => filled,
                () = waiting.close_requested() => return Err(SHED),
            };
            if waiting.is_close_requested() {
                return Err(SHED);
            }
            match filled {
                Err(_elapsed) => return Err(LATE_HEAD),
                Ok(Ok(0) | Err(Fault::Gone(_)))
                    if self.input.buf.as_slice().trim_ascii().is_empty() =>
                {
                    return Ok(None);
                }
                // The client may still read.
                Ok(Ok(0)) => return Err(CUT_HEAD),
                Ok(done) => done.map(drop)?,
            }
        }
    }

    /// Answers one request.
    async fn serve_request(&mut self) -> After {
        turn::spend_units(turn::REQUEST);
        // Serves the whole request with one site, even if the event loop is handed another site meanwhile.
        let site = self.event_loop.current_site();
        let settings = site.settings();
        self.input.begin_waiting(&settings.http.rates);
        self.sender.allowance.begin_request(&settings.http.rates);
        let Arrived {
            head,
            link,
            body,
            named,
        } = match self.read_or_refuse(&*site).await {
            Ok(arrived) => arrived,
            Err(after) => return after,
        };
        let link = link.as_deref().unwrap_or(&self.link);
        // RFC 9112, 9.6: a client that asks for the end of the connection must not send more on it.
        let said_all = !head.keep_alive && head.body == BodyLen::None;
        let id = self.event_loop.ids.next();
        let entry = AccessEntry::new(id, link.remote.clone(), Some(head.clone()));
        let entry = Rc::new(RefCell::new(entry));
        let owes_continue = head.expects_continue && head.body != BodyLen::None;
        let mut client = ConnectionClient::new(&mut self.input, body, head.version);
        client.owes_continue = owes_continue;
        let mut request = Request {
            named,
            ..Request::new(head, link, &mut client, entry)
        };
        let mut unfinished = Unfinished {
            event_loop: self.event_loop,
            sock: Some(self.sender.sock.clone()),
            entry: request.entry.clone(),
            over: false,
        };
        let Ok(mut response) = site.call(&mut request).await else {
            logged::log_client_left(self.event_loop, &request);
            unfinished.over = true;
            return After::Reset;
        };
        request.client.begin_response();
        // A web server in front of us passes on requests of other clients over the same connection.
        self.refused = request.refused && !link.passed_on;
        let sender = &mut self.sender;
        let after = sender.send_response(self.event_loop, &*site, &mut request, &mut response);
        let after = after.await;
        unfinished.over = true;
        let mut body = client.body;
        match after {
            After::KeepAlive if body.is_over() && self.input.wire.is_http() => after,
            After::KeepAlive => Box::pin(drain_body(&mut self.input, &mut body)).await,
            After::Close if said_all => After::Over,
            other => other,
        }
    }

    fn build_arrived(&self, mut head: Rc<Head>, trusted: &Trusted) -> Result<Arrived, Fault> {
        let link = resolve_origin(self.event_loop, trusted, &self.link, &mut head)?;
        Ok(Arrived {
            body: RequestBody::new(head.body),
            head,
            link: link.map(Box::new),
            named: None,
        })
    }

    /// Answers a message that is not a request. The bytes after it cannot be trusted.
    async fn refuse_head(&mut self, service: &impl Service, fault: &Fault) -> After {
        // If the connection closes to make room, it does not wait for its client.
        let gone = matches!(fault, Fault::Gone(_) | Fault::Busy(_));
        let entry = logged::create_refusal_entry(self.event_loop, &self.link, fault);
        let mut bytes = 0;
        let response = (!gone).then(|| service.build_refusal(&self.link, entry.id, fault));
        // FastCGI can answer only a request whose id is known.
        if let Some(response) = response
            && self.sender.wire != (WireFormat::FastCgi { id: 0 })
        {
            let sent = self.sender.send_simple(self.event_loop, response).await;
            bytes = sent.unwrap_or(0);
        }
        logged::log_refusal(self.event_loop, entry, bytes);
        if gone { After::Reset } else { After::Close }
    }
}

const SHED: Fault =
    Fault::Busy("the request head was not whole when others needed the connection's room");
const CUT_HEAD: Fault = Fault::Client(400, "the client sent no more within the request head");
const LATE_HEAD: Fault = Fault::Client(408, "the request head took longer than head_timeout");
