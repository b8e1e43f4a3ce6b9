//! Admission: how many programs run at once, with a queue that has a length and a time limit, and 503 beyond. `queue` decides
//! which request gets a permit, and which gives way; `cpu` finds addresses that have used more processor time than their
//! share.

mod cpu;
mod crowding;
mod limit;
mod queue;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

use cpu::{Period, period_at};
pub use crowding::Crowding;
use galgo_io::rate_allowance::{self, Holding};
pub use limit::ConcurrencyLimit;

use crate::{fault::Fault, lock::lock, peer::Peer};
use limit::AddressLimits;
use queue::{Arrival, Freed, PermitQueue};

/// Programs at once for each processor. With fewer, the processor is idle while one program's output is sent and the next
/// program starts; see bench/notes/server.md.
const RUNNING: usize = 8;
/// Permits are counted in groups of this size: one permit in each is reserved for a second address, if one address holds all
/// others. So a second address does not wait for slow programs. Without a second address one permit for each processor stays
/// unused, which costs nothing: see [`RUNNING`].
const RESERVED: usize = 8;

/// Limits of running programs, and of requests that wait for a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Limit of programs at once.
    pub running: usize,
    /// Limit of programs at once for one address; 0: all but an eighth of `running`.
    pub running_per_client: usize,
    /// Percent of all programs' processor time that one address may use before other addresses are served first; 0: any.
    pub cpu_share: usize,
    /// Limit of requests that wait.
    pub queue: usize,
    /// Longest wait of a request.
    pub wait: Duration,
}

impl AdmissionSettings {
    /// Returns the limits of one address.
    fn address_limits(&self) -> AddressLimits {
        let each = match self.running_per_client {
            0 => self.running - self.running / RESERVED,
            each => each,
        };
        AddressLimits {
            each: each.max(1),
            cpu: self.cpu_share,
            processors: processors(),
        }
    }
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            running: RUNNING * processors(),
            running_per_client: 0,
            cpu_share: 50,
            queue: 512,
            wait: Duration::from_secs(10),
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The concurrency limit of programs: permits of the server, and of each route.
#[derive(Debug)]
pub struct Admission {
    permits: Arc<Permits>,
    settings: AdmissionSettings,
}

/// Permits that all readings of the configuration share.
#[derive(Debug)]
struct Permits {
    /// The server's limit, which can be read without the lock.
    server: Arc<ConcurrencyLimit>,
    line: Mutex<Line>,
}

type Line = PermitQueue<oneshot::Sender<Permit>>;

/// The permit of the route and of the server to run a program; given back when dropped.
#[derive(Debug)]
pub struct Permit(Arc<Held>);

#[derive(Debug)]
struct Held {
    permits: Arc<Permits>,
    peer: Peer,
    route: Option<Arc<ConcurrencyLimit>>,
    /// The crowding by the address when it got the permit.
    crowds: Crowding,
    /// The holder was told to give way.
    ending: AtomicBool,
    /// Microseconds of processor time that the holder's program has used.
    used: AtomicU64,
}

impl Admission {
    /// Makes the permits of this configuration.
    pub fn new(c: &AdmissionSettings) -> Self {
        let server = Arc::new(ConcurrencyLimit::new(c.running));
        Self {
            permits: Arc::new(Permits {
                line: Mutex::new(PermitQueue::new(server.clone(), c.address_limits())),
                server,
            }),
            settings: c.clone(),
        }
    }

    /// Returns the same permits, whose number becomes that of `c` when [`Admission::apply_settings`] is called. Requests with a
    /// permit, and requests that wait, go on as before.
    pub fn with_settings(&self, c: &AdmissionSettings) -> Self {
        Self {
            permits: self.permits.clone(),
            settings: c.clone(),
        }
    }

    /// Sets the number of shared permits to that of this configuration. Surplus permits vanish when they become free.
    pub fn apply_settings(&self) {
        let c = &self.settings;
        let mut line = self.permits.lock_queue();
        line.resize(c.running, c.address_limits());
        self.permits.grant_free_permits(line);
    }

    /// Whether requests wait by the limits of `c`.
    pub fn has_same_queue(&self, c: &AdmissionSettings) -> bool {
        (self.settings.queue, self.settings.wait) == (c.queue, c.wait)
    }

    /// Waits for a permit for a request of `peer`.
    ///
    /// # Errors
    /// The queue is full, or no permit became free in time.
    pub async fn admit(
        &self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
    ) -> Result<Permit, Fault> {
        match self.permits.try_take(peer, route) {
            Some(permit) => Ok(permit),
            // Boxed, because nearly always a permit is free at once.
            None => Box::pin(self.wait_for_permit(peer, route)).await,
        }
    }

    async fn wait_for_permit(
        &self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
    ) -> Result<Permit, Fault> {
        let mut told = None;
        let came =
            self.permits
                .lock_queue()
                .admit_or_queue(peer, route, self.settings.queue, || {
                    let (tell, here) = oneshot::channel();
                    told = Some(here);
                    tell
                });
        let at = match came {
            Arrival::In(crowds) => {
                return Ok(self.permits.issue_permit(peer, route.cloned(), crowds));
            }
            Arrival::Full => return Err(FULL),
            // The request that gives way notices the drop of its sender.
            Arrival::Waits(at, _gave_way) => at,
        };
        let _waiting = QueueEntry {
            permits: &self.permits,
            peer,
            route,
            at,
        };
        // INVARIANT: a request that waits has left a sender.
        let Some(told) = told else { return Err(FULL) };
        match tokio::time::timeout(self.settings.wait, told).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_gave_way)) => Err(FULL),
            Err(_elapsed) => Err(Fault::Busy(
                "the limit of running programs (max_running) was reached; none ended within queue_wait",
            )),
        }
    }

    /// Returns a permit, if one is free at this moment.
    pub fn try_admit(&self) -> Option<Permit> {
        self.permits.try_take(Peer::default(), None)
    }

    /// Refuses a request that [`Admission::admit`] would refuse now, before anything is spent on it.
    ///
    /// # Errors
    /// The queue is full.
    pub fn refuse_if_full(&self, peer: Peer) -> Result<(), Fault> {
        let (server, queue) = (&self.permits.server, self.settings.queue);
        let full = server.waiting_count() >= queue && (queue > 0 || server.is_full());
        if full && self.permits.lock_queue().would_refuse(peer, queue) {
            Err(FULL)
        } else {
            Ok(())
        }
    }
}

const FULL: Fault = Fault::Busy("the queue for programs is full");

impl Permits {
    fn lock_queue(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    fn try_take(
        self: &Arc<Self>,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
    ) -> Option<Permit> {
        let crowds = self.lock_queue().try_take(peer, route)?;
        Some(self.issue_permit(peer, route.cloned(), crowds))
    }

    fn issue_permit(
        self: &Arc<Self>,
        peer: Peer,
        route: Option<Arc<ConcurrencyLimit>>,
        crowds: Crowding,
    ) -> Permit {
        Permit(Arc::new(Held {
            permits: self.clone(),
            peer,
            route,
            crowds,
            ending: false.into(),
            used: 0.into(),
        }))
    }

    /// Gives free permits to requests that wait. The lock is held until the first request is chosen.
    fn grant_free_permits<'p>(self: &'p Arc<Self>, mut line: MutexGuard<'p, Line>) {
        while let Some((one, crowds)) = line.grant_next() {
            // Without the lock: a request that does not wait any longer gives the permit back at once.
            drop(line);
            let _ = one
                .tell
                .send(self.issue_permit(one.peer, one.route, crowds));
            line = self.lock_queue();
        }
    }
}

impl Permit {
    /// Records the processor time that the holder's program has used.
    pub fn record_cpu_time(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.used.store(micros, Ordering::Relaxed);
    }

    /// Returns how much the holder's address crowded others when it got the permit.
    pub fn initial_crowding(&self) -> Crowding {
        self.0.crowds
    }

    /// Returns how much the address crowds others now. Takes a lock, unless this is the only permit in use.
    pub fn current_crowding(&self) -> Crowding {
        let Held { permits, peer, .. } = &*self.0;
        match permits.server.taken.load(Ordering::Relaxed) {
            0 | 1 => Crowding::None,
            _ => permits.lock_queue().current_crowding(*peer),
        }
    }

    /// Returns a handle for code that waits for the holder's client.
    pub fn holding(&self) -> Holding {
        Holding::from_permit(&self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let used = *self.used.get_mut();
        let freed = Freed {
            ending: *self.ending.get_mut(),
            used: (used > 0).then(|| (used, current_period())),
        };
        let mut line = self.permits.lock_queue();
        line.release_permit(self.peer, self.route.as_ref(), freed);
        // Under the same lock, so that no request that comes meanwhile takes the permit from requests that wait.
        self.permits.grant_free_permits(line);
    }
}

/// Returns the current period, by a clock that costs little.
fn current_period() -> Period {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    period_at(Duration::try_from(now).unwrap_or_default())
}

impl rate_allowance::HeldPermit for Held {
    /// Reads just two numbers as long as no request waits.
    fn must_give_way(&self, slow_for_long: bool) -> bool {
        let route = self.route.as_ref();
        let wanted = self.permits.server.is_wanted() || route.is_some_and(|r| r.is_wanted());
        if !wanted || self.ending.load(Ordering::Relaxed) {
            return false;
        }
        let mut line = self.permits.lock_queue();
        let ends = line.must_give_way(self.peer, route, slow_for_long);
        drop(line);
        self.ending.fetch_or(ends, Ordering::Relaxed);
        ends
    }
}

/// A request in the queue.
struct QueueEntry<'a> {
    permits: &'a Arc<Permits>,
    peer: Peer,
    route: Option<&'a Arc<ConcurrencyLimit>>,
    at: u64,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.permits
            .lock_queue()
            .remove_request(self.peer, self.route, self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(running: usize) -> AdmissionSettings {
        AdmissionSettings {
            running,
            ..AdmissionSettings::default()
        }
    }

    #[test]
    fn places_that_are_too_many_go_to_nobody() {
        let before = Admission::new(&config(2));
        let taken = [before.try_admit(), before.try_admit()];
        let now = before.with_settings(&config(1));
        now.apply_settings();
        let [first, second] = taken;
        drop(first);
        assert!(now.try_admit().is_none());
        drop(second);
        assert!(now.try_admit().is_some());
    }

    #[tokio::test]
    async fn more_places_go_to_those_who_wait() {
        let before = Admission::new(&config(1));
        let taken = before.try_admit();
        let mut waits = std::pin::pin!(before.admit(Peer::default(), None));
        assert!(
            galgo_io::rate_allowance::poll_once(waits.as_mut())
                .await
                .is_pending()
        );
        let now = before.with_settings(&config(2));
        now.apply_settings();
        let second = waits.await.unwrap();
        assert!(now.try_admit().is_none() && second.holding().is_held());
        drop((taken, second));
        assert!(now.try_admit().is_some());
    }

    #[tokio::test]
    async fn a_place_that_is_given_to_who_has_left_is_not_lost() {
        let permits = Admission::new(&config(1));
        let taken = permits.try_admit();
        {
            let mut waits = std::pin::pin!(permits.admit(Peer::default(), None));
            assert!(
                galgo_io::rate_allowance::poll_once(waits.as_mut())
                    .await
                    .is_pending()
            );
            drop(taken);
            assert!(
                permits.try_admit().is_none(),
                "it has been given to the request that waits"
            );
        }
        assert!(permits.try_admit().is_some());
    }
}
