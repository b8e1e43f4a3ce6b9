//! The connections and permits of one application, and the lease that a request holds on them.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use galgo_io::{pool, rate_allowance::Holding, sock::Sock, tick};
use galgo_service::{
    admission::{Admission, Permit},
    fault::Fault,
    lock::lock,
    peer::Peer,
};
use galgo_spawn::owners::Owners;
use tokio::sync::watch;

use super::{idle_pool::UpstreamIdlePool, slots::WorkerSlots};
use crate::{
    application_settings::{Application, To},
    connect,
};

/// Ticks without a byte on a new connection, after which its request may be waiting for a process that an idle connection holds.
const PATIENCE: usize = 2;

/// Time after such a wait during which connections are closed instead of being kept idle.
const STARVED: Duration = Duration::from_secs(5);

/// An application that answers the requests of one route, shared by all event loops.
#[derive(Debug)]
pub struct Upstream {
    to: UpstreamTarget,
    pub(super) admission: Admission,
    connect_timeout: Duration,
    keep: usize,
    pub(super) idle: Arc<UpstreamIdlePool>,
    /// Number of requests on new connections without any byte of a response yet.
    unheard: AtomicUsize,
    /// Time when such a request last waited so long that it may have needed the process of an idle connection.
    starved: Mutex<Option<Instant>>,
    /// Whether the last answer did not fit into a buffer of the usual size.
    long: AtomicBool,
}

#[derive(Debug)]
enum UpstreamTarget {
    /// An address. The account is set if another account controls the path of a Unix socket.
    Address(galgo_io::address::Address, Option<u32>),
    Slots {
        slots: Arc<WorkerSlots>,
        /// Asks for the replacement of all workers. Dropping it with the last request asks the workers to end.
        renew: watch::Sender<()>,
    },
}

impl Upstream {
    /// Makes an upstream from its settings. `queue` says how requests wait, and `owners` start workers of other users. Nothing is
    /// connected yet.
    ///
    /// # Errors
    /// The sockets of the workers could not be made.
    pub fn new(
        config: &Application,
        queue: &galgo_service::admission::AdmissionSettings,
        owners: Option<&Arc<Owners>>,
    ) -> io::Result<Self> {
        let owners = owners.filter(|_| config.remit.is_some());
        let to = match &config.to {
            To::Address(address) => {
                UpstreamTarget::Address(address.clone(), connect::controlling_account(address))
            }
            To::Workers(workers) => UpstreamTarget::Slots {
                slots: Arc::new(WorkerSlots::new(workers, owners.cloned())?),
                renew: watch::Sender::new(()),
            },
        };
        Ok(Self {
            to,
            // Use a separate limit, so that an application that hangs takes no permit from others.
            admission: Admission::new(&galgo_service::admission::AdmissionSettings {
                running: config.running,
                running_per_client: 0,
                ..queue.clone()
            }),
            connect_timeout: config.connect_timeout,
            keep: config.keep,
            idle: Arc::default(),
            unheard: AtomicUsize::new(0),
            starved: Mutex::default(),
            long: false.into(),
        })
    }

    /// Keeps no connection from now on, because no new request will come.
    pub fn stop_keeping(&self) {
        self.idle.close_for_good();
    }

    /// Replaces the workers, one after the other.
    pub fn renew_workers(&self) {
        if let UpstreamTarget::Slots { renew, .. } = &self.to {
            renew.send_replace(());
        }
    }

    /// Waits for a permit for a request of `peer` on the event loop `home`.
    ///
    /// # Errors
    /// No permit is free within `queue_wait`, or no worker can be started.
    pub async fn acquire_lease(
        self: &Arc<Self>,
        home: usize,
        peer: Peer,
    ) -> Result<UpstreamLease, Fault> {
        let permit = self.admission.admit(peer, None).await?;
        let slot = match &self.to {
            UpstreamTarget::Address(..) => None,
            UpstreamTarget::Slots { slots, .. } => Some(slots.take_slot()?),
        };
        Ok(UpstreamLease {
            upstream: self.clone(),
            home,
            slot,
            permit: Some(permit),
            unheard: None,
            answered: false,
        })
    }

    /// Returns whether galgo starts processes for this upstream.
    pub fn has_workers(&self) -> bool {
        matches!(self.to, UpstreamTarget::Slots { .. })
    }

    /// Returns the slots of the processes that galgo starts for this upstream.
    pub(super) fn worker_slots(&self) -> Option<(&Arc<WorkerSlots>, watch::Receiver<()>)> {
        match &self.to {
            UpstreamTarget::Address(..) => None,
            UpstreamTarget::Slots { slots, renew } => Some((slots, renew.subscribe())),
        }
    }

    /// Returns whether galgo asks the application to leave connections open.
    pub fn keeps_connections(&self) -> bool {
        self.keep > 0
    }

    /// Returns whether a request on a new connection may be waiting for the process behind an idle connection. Closing
    /// connections all the time would cost more than keeping them saves.
    fn has_waiting_request(&self) -> bool {
        self.unheard.load(Ordering::Relaxed) > 0
            && lock(&self.starved).is_some_and(|at| at.elapsed() < STARVED)
    }
}

/// The permit and the worker for one request to an upstream; dropping it gives both back.
#[derive(Debug)]
pub struct UpstreamLease {
    upstream: Arc<Upstream>,
    /// Event loop of the request.
    home: usize,
    slot: Option<usize>,
    permit: Option<Permit>,
    /// Set while a new connection has no byte of a response yet; shared with the task that watches for the first byte.
    unheard: Option<Arc<AtomicBool>>,
    /// Whether the answer was complete.
    answered: bool,
}

impl UpstreamLease {
    /// Returns the permit's hold, for code that waits for the client.
    pub fn holding(&self) -> Holding {
        self.permit
            .as_ref()
            .map_or_else(Holding::default, Permit::holding)
    }

    /// Returns an idle connection that is still good, if there is any.
    pub fn idle_connection(&self) -> Option<Sock> {
        self.upstream.idle.take_connection(self.home, self.slot)
    }

    /// Makes a new connection.
    pub async fn connect(&mut self) -> Result<Sock, Fault> {
        let up = &self.upstream;
        // Each idle connection may hold a process that this request needs.
        match self.slot {
            Some(slot) => up.idle.close_slot(slot),
            None => up.idle.close_oldest(),
        }
        let fd = match &up.to {
            UpstreamTarget::Address(address, others) => {
                connect::connect((address, *others), up.connect_timeout).await?
            }
            UpstreamTarget::Slots { slots, .. } => {
                let file = slots.slots[self.slot.unwrap_or(0)].socket_file();
                connect::connect_to_worker(&file, up.connect_timeout).await?
            }
        };
        if self.unheard.is_none() {
            up.unheard.fetch_add(1, Ordering::Relaxed);
            let unheard = Arc::new(AtomicBool::new(true));
            if self.slot.is_none() && up.keeps_connections() {
                tokio::task::spawn_local(listen(up.clone(), unheard.clone()));
            }
            self.unheard = Some(unheard);
        }
        Ok(fd)
    }

    /// Records that a part of a response has come.
    pub fn record_response(&mut self) {
        if self.unheard.is_some() {
            self.record_break_off();
        }
        self.stop_listening();
    }

    /// Records that galgo closes the connection before the request has ended: how the worker reacts says nothing about the
    /// worker.
    pub fn record_break_off(&self) {
        if let Some((slots, slot)) = self.worker() {
            slots.slots[slot].mark_proven();
        }
    }

    /// Returns the worker that gets the request, if galgo started it.
    fn worker(&self) -> Option<(&Arc<WorkerSlots>, usize)> {
        match &self.upstream.to {
            UpstreamTarget::Slots { slots, .. } => Some((slots, self.slot?)),
            UpstreamTarget::Address(..) => None,
        }
    }

    /// Ends the wait for the first byte.
    fn stop_listening(&mut self) {
        if let Some(unheard) = self.unheard.take() {
            unheard.store(false, Ordering::Relaxed);
            self.upstream.unheard.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether the last answer was long: the next answer probably is, too.
    pub fn is_long(&self) -> bool {
        self.upstream.long.load(Ordering::Relaxed)
    }

    /// Records a complete answer of `bytes`, including framing.
    pub fn record_answer(&mut self, bytes: usize) {
        self.answered = true;
        let long = bytes > pool::SIZE;
        // Write only on a change, because all event loops read the flag.
        if self.is_long() != long {
            self.upstream.long.store(long, Ordering::Relaxed);
        }
    }

    /// Ends a request without a fault: keeps the connection for the next request.
    pub fn give_back(mut self, conn: Sock) {
        self.stop_listening();
        let up = &self.upstream;
        let wanted = self.slot.is_none() && up.has_waiting_request();
        if !wanted && up.keeps_connections() {
            up.idle.keep_connection(conn, self.home, self.slot, up.keep);
        }
    }
}

impl Drop for UpstreamLease {
    fn drop(&mut self) {
        self.stop_listening();
        let permit = self.permit.take();
        if let (Some((slots, slot)), Some(permit)) = (self.worker(), permit) {
            slots.record_answered(slot, self.answered);
            slots.give_back(slot, permit);
        }
    }
}

/// Waits for a first byte; if none comes, closes all idle connections.
async fn listen(up: Arc<Upstream>, unheard: Arc<AtomicBool>) {
    for _ in 0..PATIENCE {
        tick::next().await;
        if !unheard.load(Ordering::Relaxed) {
            return;
        }
    }
    *lock(&up.starved) = Some(Instant::now());
    up.idle.close_all();
}

#[cfg(test)]
mod tests {
    use galgo_io::address::Address;

    use super::*;
    use crate::{application_settings::Protocol, program_settings::CgiOptions};

    #[tokio::test]
    async fn an_answer_tells_how_long_the_next_will_be() {
        let (admission, options) = (
            galgo_service::admission::AdmissionSettings::default(),
            CgiOptions::default(),
        );
        let to = To::Address(Address::Unix("/nowhere".into()));
        let config = Application::new(Protocol::Fastcgi, to, options);
        let upstream = Arc::new(Upstream::new(&config, &admission, None).unwrap());
        let mut lease = upstream.acquire_lease(0, Peer::default()).await.unwrap();
        let mut expected = vec![lease.is_long()];
        for bytes in [pool::SIZE, pool::SIZE + 1, 10 << 20, 500] {
            lease.record_answer(bytes);
            expected.push(
                upstream
                    .acquire_lease(1, Peer::default())
                    .await
                    .unwrap()
                    .is_long(),
            );
        }
        assert_eq!(expected, [false, false, true, true, false]);
    }
}
