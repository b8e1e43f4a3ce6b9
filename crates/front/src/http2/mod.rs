//! HTTP/2 (RFC 9113): a connection with many requests at once, each on a stream and in a task of its own.
//!
//! The library `h2` does the frames, flow control and the heads of responses. This module does the requests: it unpacks their heads
//! before `h2` sees them ([`crate::frames`]), a stream becomes the same request as over HTTP/1 ([`galgo_proto::h2`]), and its response
//! is sent as the client has room for it.

mod client;
mod limits;
mod outgoing;
mod send;
mod stream;
mod unread;
mod windows;
mod wire;

use std::{
    future::{pending, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};

use galgo_io::{buf::Buf, rate_allowance::RateAllowance, transport::Transport, turn};
use galgo_service::{fault::Fault, link::Link, peer::Peer, phase::Phase};
use h2::{
    Reason,
    server::{Builder, Connection},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    crowd::Member,
    event_loop::EventLoop,
    frames::{
        head_frames::HeadListLimits,
        refusals::{self, Refusals},
    },
    front_settings::Http,
    idle::{AwaitedRequest, IdleEntry},
    linger::linger,
    logged,
    site::SiteService,
};
use limits::{
    FEW_STREAMS, FRAMES, MAX_RESET_BY_CLIENT, MAX_RESET_FOR_ERRORS, MAX_RESET_HERE, MAX_STREAMS,
    SEND_BUFFER, STREAM_SIZE, STREAM_WINDOW,
};
use stream::{FinishedRequest, IncomingStream};
use unread::{Unread, UnreadPiece};
use windows::Windows;
use wire::FrameTransport;

/// Time that a connection may take to send its farewell.
const GOODBYE: Duration = Duration::from_secs(2);

/// Serves a connection until it is over. `received` has come over it already.
pub(crate) async fn serve_connection<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    (lease, member): (&IdleEntry<'_>, &Member<'_>),
    link: Link,
    sock: Rc<Transport>,
    received: Buf,
) {
    let site = event_loop.current_site();
    let http = &site.settings().http;
    let allowance = RateAllowance::for_reader(&http.rates, &sock);
    let refusals = Rc::<Refusals>::default();
    let limits = HeadListLimits {
        size: http.max_head,
        upgrades: site.settings().upgrades,
    };
    let wire = FrameTransport::new(sock.clone(), received, allowance, &refusals, limits);
    let Some(connection) = shake_hands((http, limits), lease, wire).await else {
        return;
    };
    let share = site
        .settings()
        .spool
        .share_of(Peer::from_address(link.remote_ip));
    drop(site);
    let link = Rc::new(link);
    let mut served = ServedConnection {
        event_loop,
        lease,
        member,
        windows: Windows::new(share.memory_charge()),
        unread: Unread::new(share.memory_charge()),
        link: link.clone(),
        sock,
        connection,
        refused: RefusedRequests {
            event_loop,
            link,
            refusals,
        },
        asked: false,
        streams: JoinSet::new(),
        most: 0,
    };
    if let Err(e) = served.serve_streams().await
        && let Some(fault) = refusals::why_ended(&e)
    {
        served.refused.log_fault(&fault);
    }
    served.linger_and_close().await;
}

/// Exchanges the prefaces (RFC 9113, 3.4). `None`: none came in time, or another connection needs the room.
async fn shake_hands(
    (http, limits): (&Http, HeadListLimits),
    lease: &IdleEntry<'_>,
    wire: FrameTransport,
) -> Option<Connection<FrameTransport, UnreadPiece>> {
    let by = Instant::now() + http.head_timeout;
    let mut builder = Builder::new();
    if limits.upgrades {
        builder.enable_connect_protocol();
    }
    let shake = builder
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(limits.list_size().try_into().unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW)
        .data_frame_budget(FRAMES)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_RESET_BY_CLIENT)
        .max_local_error_reset_streams(Some(MAX_RESET_FOR_ERRORS))
        .max_concurrent_reset_streams(MAX_RESET_HERE)
        .handshake(wire);
    lease.wait_in_time(shake, by).await?.ok()
}

/// A connection that is being served.
struct ServedConnection<'l, S: SiteService> {
    event_loop: &'l Rc<EventLoop<S>>,
    lease: &'l IdleEntry<'l>,
    member: &'l Member<'l>,
    windows: Windows,
    unread: Arc<Unread>,
    link: Rc<Link>,
    sock: Rc<Transport>,
    connection: Connection<FrameTransport, UnreadPiece>,
    refused: RefusedRequests<'l, S>,
    /// Whether a request has come.
    asked: bool,
    /// The requests that are being answered.
    streams: JoinSet<FinishedRequest>,
    /// The most requests that were answered at once.
    most: usize,
}

impl<S: SiteService> ServedConnection<'_, S> {
    /// Serves until the connection is over.
    async fn serve_streams(&mut self) -> Result<(), h2::Error> {
        let mut phase = self.event_loop.shared.phase.clone();
        let mut draining = false;
        let mut pause = None;
        loop {
            if !draining && self.asked && self.event_loop.shared.is_draining() {
                draining = true;
                self.connection.graceful_shutdown();
            }
            if self.streams.is_empty() && pause.is_none() {
                let goes_on = if draining {
                    self.await_last_stream().await?
                } else {
                    self.await_request(&mut phase).await?
                };
                if goes_on { continue } else { return Ok(()) }
            }
            // A request that waits in `h2` takes less memory than a request that is being answered.
            let unread = self.unread.is_full();
            let wanted = !unread && !self.is_full() && pause.is_none();
            let paused = async {
                match &mut pause {
                    Some(pause) => Pin::new(pause).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                came = next_stream(&mut self.connection, &self.refused, wanted) => match came {
                    Some(came) => self.spawn_answer(came?),
                    None => return Ok(()),
                },
                Some(ended) = self.streams.join_next() => {
                    // A join fails only if the request's task has panicked.
                    let ended = ended.unwrap_or_default();
                    if ended.had_body {
                        self.windows.remove_body();
                    }
                    if ended.refused && pause.is_none() {
                        let draining = || self.event_loop.shared.is_draining();
                        pause = Some(Box::pin(self.event_loop.throttle.wait_to_read(draining)));
                    }
                }
                () = paused => pause = None,
                () = poll_fn(|cx| self.unread.poll_room(usize::MAX, cx).map(drop)), if unread => {}
                _ = phase.wait_for(|p| *p != Phase::Serving), if !draining => {}
            }
        }
    }

    /// After the client was told to open no more streams, waits for a stream that it had opened before, until the client has
    /// acknowledged that (RFC 9113, 6.8). Returns false if the connection is over.
    async fn await_last_stream(&mut self) -> Result<bool, h2::Error> {
        let next = next_stream(&mut self.connection, &self.refused, true);
        match timeout(GOODBYE, next).await {
            Ok(Some(came)) => {
                self.spawn_answer(came?);
                Ok(true)
            }
            Ok(None) => Ok(false),
            // The client acknowledges nothing.
            Err(_) => self.shut_down().await.map(|()| false),
        }
    }

    /// Waits for a request, or for the server to drain. Returns false if the connection is over.
    async fn await_request(
        &mut self,
        phase: &mut watch::Receiver<Phase>,
    ) -> Result<bool, h2::Error> {
        if self.asked && self.event_loop.shared.ends_idle() {
            self.shut_down().await?;
            return Ok(false);
        }
        // The first request of a connection may be on its way, because the client has not been told yet how many it may send.
        let asked = self.asked;
        let waiting = self.lease.begin_idle(if asked {
            AwaitedRequest::Next
        } else {
            AwaitedRequest::First
        });
        let came = tokio::select! {
            biased;
            came = next_stream(&mut self.connection, &self.refused, true) => match came {
                Some(came) => Some(came?),
                None => return Ok(false),
            },
            // Ends to make room, because the server drains, or because `keep_alive` is over.
            () = waiting.close_requested() => None,
            _ = phase.wait_for(|p| *p != Phase::Serving), if asked => return Ok(true),
        };
        let ended = waiting.is_close_requested();
        drop(waiting);
        match came {
            Some(came) if !ended => {
                self.spawn_answer(came);
                Ok(true)
            }
            Some((_, _, mut respond)) => {
                respond.send_reset(Reason::REFUSED_STREAM);
                self.shut_down().await.map(|()| false)
            }
            None => self.shut_down().await.map(|()| false),
        }
    }

    /// Returns whether a request that comes now must wait. One address may have as many requests at once as connections, and
    /// each of its connections has the same share of them.
    fn is_full(&self) -> bool {
        let at_once = self.streams.len();
        if at_once < FEW_STREAMS {
            return false;
        }
        let (_, each) = self.event_loop.current_site().settings().max_connections;
        at_once >= MAX_STREAMS as usize || at_once >= self.member.request_share(each)
    }

    fn spawn_answer(&mut self, came: IncomingStream) {
        self.asked = true;
        if stream::has_body(&came)
            && let Some(size) = self.windows.add_body()
        {
            self.connection.set_target_window_size(size);
        }
        let link = self.link.clone();
        let (event_loop, sock) = (self.event_loop.clone(), self.sock.clone());
        let unread = self.unread.clone();
        self.streams.spawn_local(async move {
            let mut answered = pin!(stream::serve_stream(
                event_loop,
                link,
                (&sock, &unread),
                came
            ));
            poll_fn(|cx| turn::run_turn(|| answered.as_mut().poll(cx)).0).await
        });
        self.most = self.most.max(self.streams.len());
    }

    /// Closes the connection so that its last frames arrive.
    async fn linger_and_close(self) {
        let mut streams = self.streams;
        drop(self.connection);
        // Requests that are still being answered find their client gone.
        while streams.join_next().await.is_some() {}
        let freed = self.unread.peak_bytes() + self.most * STREAM_SIZE;
        self.event_loop.count_freed(freed);
        if !self.member.is_asked_to_close() {
            // GOAWAY tells the client why the connection ends, and which requests were not answered. A reset might overtake
            // it, because of frames that still come.
            let waiting = self.lease.begin_partial_head();
            tokio::select! {
                () = linger(&self.sock) => {}
                // Another connection needs the room.
                () = waiting.close_requested() => {}
            }
        }
    }

    /// Ends a connection on which no request is being answered. GOAWAY names the last request that was answered.
    async fn shut_down(&mut self) -> Result<(), h2::Error> {
        if self.connection.has_streams() {
            // A response waits for the client to read it.
            self.connection.graceful_shutdown();
        } else {
            self.connection.abrupt_shutdown(Reason::NO_ERROR);
        }
        let goodbye = async {
            while let Some(came) = next_stream(&mut self.connection, &self.refused, true).await {
                let (_, _, mut respond) = came?;
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            Ok(())
        };
        timeout(GOODBYE, goodbye).await.unwrap_or(Ok(()))
    }
}

/// The log of requests that `h2` refuses on one connection.
struct RefusedRequests<'l, S: SiteService> {
    event_loop: &'l Rc<EventLoop<S>>,
    link: Rc<Link>,
    refusals: Rc<Refusals>,
}

impl<S: SiteService> RefusedRequests<'_, S> {
    fn log_fault(&self, fault: &Fault) {
        let entry = logged::create_refusal_entry(self.event_loop, &self.link, fault);
        // `h2` sends no page, so only the log has the reason.
        self.event_loop
            .current_site()
            .build_refusal(&self.link, entry.id, fault);
        logged::log_refusal(self.event_loop, entry, 0);
    }
}

/// Drives the connection until it is over or, if a request is `wanted`, until one comes.
async fn next_stream<S: SiteService>(
    connection: &mut Connection<FrameTransport, UnreadPiece>,
    refused: &RefusedRequests<'_, S>,
    wanted: bool,
) -> Option<Result<IncomingStream, h2::Error>> {
    poll_fn(|cx| {
        loop {
            let came = if wanted {
                connection.poll_accept(cx)
            } else {
                connection.poll_closed(cx).map(|end| end.err().map(Err))
            };
            for fault in refused.refusals.take_faults() {
                refused.log_fault(&fault);
            }
            if let Some(reason) = refused.refusals.take_end() {
                connection.abrupt_shutdown(reason);
                continue;
            }
            let Some((request, mut respond)) = ready!(came).transpose()? else {
                return Poll::Ready(None);
            };
            let received = refused.refusals.accept(respond.stream_id().as_u32());
            if let Some(received) = received {
                return Poll::Ready(Some(Ok((received, request.into_body(), respond))));
            }
            // The client may ask again, unless `h2` has reset the stream already.
            respond.send_reset(Reason::REFUSED_STREAM);
        }
    })
    .await
}
