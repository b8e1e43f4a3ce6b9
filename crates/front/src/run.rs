//! The main loop of an event loop: it takes messages from other threads, and ends idle connections.

use std::{io, rc::Rc};

use galgo_io::tick;
use galgo_service::phase::Phase;
use tokio::{runtime::Runtime, sync::mpsc};

use crate::{
    accept::Listeners, conn, crowd::Shed, event_loop::EventLoop, idle::AwaitedRequest,
    shared_by_loops::Handed, site::SiteService,
};

/// While the server drains, a connection may wait for its first request for this part of `shutdown_grace`. The request may be
/// on its way, and its client would not ask again. A browser may hold a connection open for later, so the wait is not the whole
/// time.
const TENTH: u32 = 10;

/// Creates the runtime of an event loop, for one thread.
///
/// # Errors
/// The kernel has no descriptors or no memory for the runtime.
pub fn build_runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Runs an event loop on this thread until the server drains and its last request is over, or until `shutdown_grace` has passed
/// since it began to drain. `beside` runs beside the requests; its end is not awaited.
pub fn run_event_loop<S: SiteService>(
    event_loop: &Rc<EventLoop<S>>,
    runtime: &Runtime,
    given: mpsc::UnboundedReceiver<Handed<S>>,
    beside: impl Future<Output = ()> + 'static,
) {
    let mut local = tokio::task::LocalSet::new();
    let entered = runtime.enter();
    local.spawn_local(serve_messages(event_loop.clone(), given));
    // `keep` runs in a set of its own, so that it is polled only when it has something to do.
    let mut keeper = tokio::task::LocalSet::new();
    let kept = keeper.spawn_local(run_background(event_loop.clone(), beside));
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = &mut local => {}
            () = &mut keeper => {}
        }
        // Requests that are dropped now are logged all the same.
        event_loop.ending.set(true);
    });
    kept.abort();
    drop(local);
    drop(keeper);
    drop(entered);
}

/// Serves the messages that other threads hand to this event loop, until the server drains.
async fn serve_messages<S: SiteService>(
    event_loop: Rc<EventLoop<S>>,
    mut given: mpsc::UnboundedReceiver<Handed<S>>,
) {
    let mut phase = event_loop.shared.phase.clone();
    let mut listeners = Listeners::default();
    loop {
        let handed = tokio::select! {
            biased;
            _ = phase.wait_for(|p| *p != Phase::Serving) => break,
            handed = given.recv() => handed,
        };
        match handed {
            Some(Handed::Connection(accepted)) => {
                conn::spawn_connection(event_loop.clone(), accepted)
            }
            Some(Handed::Site(new)) => {
                listeners.switch_site(&event_loop, new, conn::spawn_connection)
            }
            Some(Handed::Shed(shed)) => close_if_idle(&event_loop, &shed),
            Some(Handed::Probe(_)) => {}
            None => return,
        }
    }
    drop(listeners);
    // Other event loops may have handed over connections a moment ago.
    given.close();
    while let Some(handed) = given.recv().await {
        match handed {
            Handed::Connection(accepted) => conn::spawn_connection(event_loop.clone(), accepted),
            Handed::Shed(shed) => close_if_idle(&event_loop, &shed),
            Handed::Site(_) | Handed::Probe(_) => {}
        }
    }
}

/// Closes a connection to make room, if it is still idle.
fn close_if_idle<S: SiteService>(event_loop: &EventLoop<S>, shed: &Shed) {
    if !event_loop.idle.close_if_waiting(shed.at.entry, shed.since) {
        event_loop.shared.crowd.keep_connection(shed);
    }
}

/// Does the work beside requests, until `shutdown_grace` has passed since the event loop began to drain.
async fn run_background<S: SiteService>(
    event_loop: Rc<EventLoop<S>>,
    beside: impl Future<Output = ()>,
) {
    let mut phase = event_loop.shared.phase.clone();
    let ends = async {
        let _ = phase.wait_for(|p| *p >= Phase::Draining).await;
        event_loop.idle.close_all(AwaitedRequest::Next);
        let grace = event_loop.current_site().settings().shutdown_grace;
        let over = tokio::time::timeout(grace, phase.wait_for(|p| *p == Phase::Ending));
        tokio::select! {
            _ = over => {}
            () = event_loop.idle.close_expired(AwaitedRequest::First, grace / TENTH) => {}
        }
    };
    let expire = async {
        loop {
            let site = event_loop.current_site();
            let http = &site.settings().http;
            let (first, next) = (http.keep_alive.max(http.head_timeout), http.keep_alive);
            tokio::select! {
                () = event_loop.idle.close_expired(AwaitedRequest::First, first) => {}
                () = event_loop.idle.close_expired(AwaitedRequest::Next, next) => {}
                () = event_loop.reloaded.notified() => {}
            }
        }
    };
    let beside = async {
        beside.await;
        std::future::pending().await
    };
    tokio::select! {
        () = ends => {}
        () = tick::run_clock() => {}
        () = event_loop.handshakes.give_turns() => {}
        () = expire => {}
        () = beside => {}
    }
}
