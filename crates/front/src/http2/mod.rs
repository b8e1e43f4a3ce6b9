//! HTTP/2 (RFC 9113): a connection with many requests at once, each on a stream and in a task of its own.
//!
//! `h2` does the frames, HPACK and flow control. Here are the requests: a stream becomes the request that HTTP/1 would have
//! brought ([`galgo_proto::h2`]), and its response goes out as the client has room for it.

mod client;
mod limits;
mod outgoing;
mod send;
mod stream;
mod wire;

use std::{
    future::{pending, poll_fn},
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use galgo_io::{buf::Buf, pace::Pace, transport::Transport};
use galgo_service::{link::Link, phase::Phase};
use h2::{
    Reason,
    server::{Builder, Connection},
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{conn::end::linger, event_loop::EventLoop, idle::Lease, settings::Http, site::Site};
use limits::{
    CONNECTION_WINDOW, MAX_RESET_BY_CLIENT, MAX_RESET_FOR_ERRORS, MAX_RESET_HERE, MAX_STREAMS,
    SEND_BUFFER, STREAM_WINDOW,
};
use stream::Came;
use wire::Wire;

/// How long a connection that ends may take to say so.
const GOODBYE: Duration = Duration::from_secs(2);

/// Serves a connection over which `received` has come already, until it is over.
pub(crate) async fn serve<S: Site>(
    event_loop: &Rc<EventLoop<S>>,
    lease: &Lease<'_>,
    link: Link,
    sock: Rc<Transport>,
    received: Buf,
) {
    let site = event_loop.site();
    let http = &site.settings().http;
    let pace = Pace::reading(&http.rates, &sock);
    let wire = Wire::new(sock.clone(), received, pace);
    let Some(connection) = shake_hands(http, lease, wire).await else {
        return;
    };
    drop(site);
    let mut served = Served {
        event_loop,
        lease,
        link: Rc::new(link),
        connection,
        streams: JoinSet::new(),
    };
    let failed = served.run().await.is_err();
    let Served {
        connection,
        mut streams,
        ..
    } = served;
    drop(connection);
    // What is still being answered finds its client gone.
    while streams.join_next().await.is_some() {}
    if failed {
        // GOAWAY says why: a reset might overtake it.
        linger(&sock).await;
    }
}

/// Exchanges the prefaces (RFC 9113, 3.4). `None`: there was none in time, or another connection needs the room.
async fn shake_hands(
    http: &Http,
    lease: &Lease<'_>,
    wire: Wire,
) -> Option<Connection<Wire, Bytes>> {
    let by = Instant::now() + http.head_timeout;
    let shake = Builder::new()
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(http.max_head).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_RESET_BY_CLIENT)
        .max_local_error_reset_streams(Some(MAX_RESET_FOR_ERRORS))
        .max_concurrent_reset_streams(MAX_RESET_HERE)
        .handshake(wire);
    let waiting = lease.hears();
    tokio::select! {
        biased;
        shaken = timeout_at(by, shake) => shaken.ok()?.ok(),
        () = waiting.ended() => None,
    }
}

/// A connection that is being served.
struct Served<'l, S: Site> {
    event_loop: &'l Rc<EventLoop<S>>,
    lease: &'l Lease<'l>,
    link: Rc<Link>,
    connection: Connection<Wire, Bytes>,
    /// The requests that are being answered. Each says whether it was refused for want of capacity.
    streams: JoinSet<bool>,
}

impl<S: Site> Served<'_, S> {
    /// Serves until the connection is over.
    async fn run(&mut self) -> Result<(), h2::Error> {
        let mut phase = self.event_loop.shared.phase.clone();
        let mut draining = false;
        let mut pause = None;
        loop {
            if self.streams.is_empty() && pause.is_none() {
                match draining {
                    true => return self.end().await,
                    false if !self.idle().await? => return Ok(()),
                    false => {}
                }
            }
            let full = self.streams.len() >= MAX_STREAMS as usize;
            let wanted = !full && pause.is_none();
            let paused = async {
                match &mut pause {
                    Some(pause) => Pin::new(pause).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                came = next(&mut self.connection, wanted) => match came {
                    Some(came) => self.answer(came?),
                    None => return Ok(()),
                },
                Some(refused) = self.streams.join_next() => {
                    if refused.unwrap_or(false) && pause.is_none() {
                        let draining = || self.event_loop.shared.draining();
                        pause = Some(Box::pin(self.event_loop.throttle.pause(draining)));
                    }
                }
                () = paused => pause = None,
                _ = phase.wait_for(|p| *p != Phase::Serving), if !draining => {
                    draining = true;
                    self.connection.graceful_shutdown();
                }
            }
        }
    }

    /// Waits for a request. False: the connection is over.
    async fn idle(&mut self) -> Result<bool, h2::Error> {
        if self.event_loop.shared.draining() {
            self.end().await?;
            return Ok(false);
        }
        let waiting = self.lease.enter();
        let came = tokio::select! {
            biased;
            came = self.connection.accept() => match came {
                Some(came) => Some(came?),
                None => return Ok(false),
            },
            // To make room, because the server drains, or because `keep_alive` is over.
            () = waiting.ended() => None,
        };
        let ended = waiting.is_ended();
        drop(waiting);
        match came {
            Some(came) if !ended => {
                self.answer(came);
                Ok(true)
            }
            Some((_, mut respond)) => {
                respond.send_reset(Reason::REFUSED_STREAM);
                self.end().await.map(|()| false)
            }
            None => self.end().await.map(|()| false),
        }
    }

    fn answer(&mut self, came: Came) {
        let link = self.link.clone();
        let answered = stream::serve(self.event_loop.clone(), link, came);
        self.streams.spawn_local(answered);
    }

    /// Ends a connection on which no request is being answered: GOAWAY names the last one that was.
    async fn end(&mut self) -> Result<(), h2::Error> {
        match self.connection.has_streams() {
            // A response waits for the client to read it.
            true => self.connection.graceful_shutdown(),
            false => self.connection.abrupt_shutdown(Reason::NO_ERROR),
        }
        let goodbye = async {
            while let Some(came) = self.connection.accept().await {
                let (_, mut respond) = came?;
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            Ok(())
        };
        timeout(GOODBYE, goodbye).await.unwrap_or(Ok(()))
    }
}

/// Drives the connection, until it is over, or a request comes where it is `wanted`.
async fn next(
    connection: &mut Connection<Wire, Bytes>,
    wanted: bool,
) -> Option<Result<Came, h2::Error>> {
    match wanted {
        true => connection.accept().await,
        false => poll_fn(|cx| connection.poll_closed(cx))
            .await
            .err()
            .map(Err),
    }
}
