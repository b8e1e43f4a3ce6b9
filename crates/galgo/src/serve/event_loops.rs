//! The serving threads, one for each event loop.
//!
//! If root has bound a TCP port and then become the configured user, each event loop accepts from its own queue. The sockets
//! share the port by SO_REUSEPORT: the kernel lets only sockets of one user share, so no program can join. Any other listener has
//! one queue. The event loop that accepts from it hands each connection to the loop with the fewest connections
//! ([`accept`](galgo_front::accept)). There the connection stays.
//!
//! # Locks
//! Event loops share the logs, the connections of each address ([`shared`](galgo_front::shared_by_loops)), and the configuration with the
//! objects made from it ([`Site`](crate::site::Site)). Everything else belongs to one event loop. A thread holds each lock for a
//! moment, and no request waits for a thread that loads a template.
//!
//! | request | locks |
//! |---|---|
//! | for a file or a constant, over HTTP/1 | none; when its connection opens and closes, the addresses of connections |
//! | in TLS | also, for the handshake: the certificates (`tls::Shown`) |
//! | for a program | permits (`service::admission`), the list of warm programs (`handlers::warm`), helpers (`spawn::owners`) |
//! | for an application or a module | permits, connections and workers (`handlers::upstream`, `galgo_wasm::runtime`) |
//! | with a limit, a password, a cached answer, a host's folder | that of `rate_limit`, `password_gate`, `cache::store`, `hosts` |
//! | with a body or an answer that waits | the count of waiting bytes, the queue to the spool's threads (`service::spool`) |
//!
//! A few system calls are made under a lock: to start a thread, to wake the reaper's thread, and to check whether a worker of
//! modules has ended. Only the start of a worker of modules may wait for a disk under a lock, and then requests for modules wait,
//! too.

use std::{
    io,
    sync::{Arc, Barrier},
    thread::JoinHandle,
};

use galgo_front::{event_loop::EventLoop, run, shared_by_loops::Handed};
use galgo_handlers::{
    beneath, files,
    resources::{self, Resources},
};
use galgo_spawn::{Direct, Outside, Spawner};
use tokio::sync::{mpsc::UnboundedReceiver, watch};

use super::running::RunningServer;
use crate::dispatch::Dispatch;

/// The serving threads.
#[derive(Debug)]
pub(super) struct EventLoops {
    threads: Vec<JoinHandle<()>>,
    /// Each thread holds a receiver until it ends.
    alive: watch::Sender<()>,
}

impl EventLoops {
    /// Waits until all threads have left their event loops.
    pub(super) async fn wait_until_ended(&self) {
        self.alive.closed().await;
    }

    /// Joins the threads, once their event loops have [ended](Self::wait_until_ended).
    pub(super) fn join_threads(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Starts an event loop for each element of `given`: its spawner, and the receiver of its connections and sites. Nothing can fail
/// on the new threads, because everything that can fail is done here.
///
/// # Errors
/// The kernel has no descriptor, no memory or no thread for an event loop.
pub(super) fn start_event_loops(
    running: &RunningServer,
    given: impl ExactSizeIterator<Item = (Direct, UnboundedReceiver<Handed<Dispatch>>)>,
    outside: &Arc<Outside>,
) -> Result<EventLoops, String> {
    let together = Arc::new(Barrier::new(given.len()));
    let (alive, _) = watch::channel(());
    let thread = |(index, (spawner, handed))| {
        let spawner = Spawner::new(spawner, outside.clone());
        let event_loop = event_loop(running, index, spawner, handed)?;
        let (together, alive) = (together.clone(), alive.subscribe());
        let name = format!("loop-{index}");
        std::thread::Builder::new().name(name).spawn(move || {
            // The variable that is declared first is dropped last.
            let _alive = alive;
            let _last = ServingThread(together);
            galgo_spawn::leave_signals_to_others();
            beneath::waits_for_nothing();
            event_loop();
        })
    };
    let threads: io::Result<_> = given.enumerate().map(thread).collect();
    let threads = threads.map_err(|e| format!("cannot start the event loops: {e}"))?;
    Ok(EventLoops { threads, alive })
}

/// Prepares the event loop with that index, for its thread.
fn event_loop(
    running: &RunningServer,
    index: usize,
    spawner: Spawner,
    handed: UnboundedReceiver<Handed<Dispatch>>,
) -> io::Result<impl FnOnce() + Send + use<>> {
    let shared = running.shared.clone();
    let (site, settings) = (running.site.clone(), running.settings.clone());
    let owners = running.spawning.as_ref().map(|s| s.owners.clone());
    let runtime = run::build_runtime()?;
    let null = resources::open_null()?;
    Ok(move || {
        let resources = Resources::new(
            index,
            (spawner, owners),
            null,
            shared.logs.error.clone(),
            site.config.templates.clone(),
            shared.phase.clone(),
        );
        let site = Dispatch {
            resources,
            site,
            settings,
            trace: None,
        };
        let event_loop = EventLoop::new(shared, index, site);
        run::run_event_loop(&event_loop, &runtime, handed, files::close_open());
    })
}

/// A guard that waits, at the end of its thread, for the other threads. When a thread ends, the kernel kills all processes that
/// it has started ([`Direct::set_orphaned`]), also children of its templates that another thread still serves.
struct ServingThread(Arc<Barrier>);

impl Drop for ServingThread {
    fn drop(&mut self) {
        self.0.wait();
    }
}
