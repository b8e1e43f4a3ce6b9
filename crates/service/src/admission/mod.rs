//! How many programs run at once: a limit, a queue with a length and a longest wait, 503 beyond. [`queue`] decides
//! which request gets a permit, and which gives way.

mod queue;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

pub use queue::ConcurrencyLimit;
use queue::{Arrival, PermitQueue};

use crate::{
    fault::Fault,
    pace::{self, Holding},
    peer::Peer,
};

/// Programs running at once for each processor. Fewer leave it idle while a finished one is
/// answered and the next is started; see bench/notes/server.md.
const RUNNING: usize = 8;

/// How many programs may run, and how requests wait for a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Programs at once.
    pub running: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// How long one may wait.
    pub wait: Duration,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            running: RUNNING * std::thread::available_parallelism().map_or(1, usize::from),
            queue: 512,
            wait: Duration::from_secs(10),
        }
    }
}

/// The concurrency limit of programs: permits of the server, and of one route.
#[derive(Debug)]
pub struct Admission {
    permits: Arc<Permits>,
    running: usize,
    queue: usize,
    longest: Duration,
}

/// Permits that all readings of the configuration share.
#[derive(Debug)]
struct Permits {
    /// The server's limit, to be read without the lock.
    server: Arc<ConcurrencyLimit>,
    line: Mutex<PermitQueue<oneshot::Sender<Permit>>>,
}

/// The permit to run a program, of the route and of the server; given back when dropped.
#[derive(Debug)]
pub struct Permit(Arc<Held>);

#[derive(Debug)]
struct Held {
    permits: Arc<Permits>,
    peer: Peer,
    route: Option<Arc<ConcurrencyLimit>>,
    /// Its holder was told to give way.
    ending: AtomicBool,
}

impl Admission {
    /// As configured.
    pub fn new(c: &AdmissionSettings) -> Self {
        let server = Arc::new(ConcurrencyLimit::new(c.running));
        Self {
            permits: Arc::new(Permits {
                line: Mutex::new(PermitQueue::new(server.clone())),
                server,
            }),
            running: c.running,
            queue: c.queue,
            longest: c.wait,
        }
    }

    /// The same permits, as many as `c` says once [`Admission::settle`] is called. Requests that have one or wait for
    /// one go on as before.
    pub fn next(&self, c: &AdmissionSettings) -> Self {
        Self {
            permits: self.permits.clone(),
            running: c.running,
            queue: c.queue,
            longest: c.wait,
        }
    }

    /// Makes the shared permits as many as this one has. Those that are too many and taken go as they come free.
    pub fn settle(&self) {
        self.permits.lock().resize(self.running);
        self.permits.grant();
    }

    /// Whether requests wait as `c` says.
    pub fn waits_as(&self, c: &AdmissionSettings) -> bool {
        (self.queue, self.longest) == (c.queue, c.wait)
    }

    /// Waits for a permit for a request of `peer`.
    ///
    /// # Errors
    /// The queue is full, or no permit came free in time.
    pub async fn admit(
        &self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
    ) -> Result<Permit, Fault> {
        let taken = self.permits.lock().take(peer, route);
        match taken {
            true => Ok(self.permits.permit(peer, route.cloned())),
            // Boxed: nearly always there is one at once.
            false => Box::pin(self.wait(peer, route)).await,
        }
    }

    async fn wait(
        &self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
    ) -> Result<Permit, Fault> {
        let mut told = None;
        let came = self.permits.lock().come(peer, route, self.queue, || {
            let (tell, here) = oneshot::channel();
            told = Some(here);
            tell
        });
        let at = match came {
            Arrival::In => return Ok(self.permits.permit(peer, route.cloned())),
            Arrival::Full => return Err(FULL),
            // The request that gives way sees that its sender is dropped.
            Arrival::Waits(at, _gave_way) => at,
        };
        let _waiting = QueueEntry {
            permits: &self.permits,
            peer,
            at,
        };
        // INVARIANT: a request that waits has left a sender.
        let Some(told) = told else { return Err(FULL) };
        match tokio::time::timeout(self.longest, told).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_gave_way)) => Err(FULL),
            Err(_elapsed) => Err(Fault::Busy(
                "no permit for another program came free within queue_wait",
            )),
        }
    }

    /// A permit, if one is free at this moment.
    pub fn try_admit(&self) -> Option<Permit> {
        let nobody = Peer::default();
        let taken = self.permits.lock().take(nobody, None);
        taken.then(|| self.permits.permit(nobody, None))
    }

    /// Refuses what [`Admission::admit`] would refuse now, before anything is spent on it.
    ///
    /// # Errors
    /// The queue is full.
    pub fn refuse_if_full(&self, peer: Peer) -> Result<(), Fault> {
        let Permits { server, .. } = &*self.permits;
        let full = server.is_full() && server.waiting() >= self.queue;
        match full && self.permits.lock().refuses(peer, self.queue) {
            true => Err(FULL),
            false => Ok(()),
        }
    }
}

const FULL: Fault = Fault::Busy("the queue for programs is full");

impl Permits {
    fn lock(&self) -> MutexGuard<'_, PermitQueue<oneshot::Sender<Permit>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permit(self: &Arc<Self>, peer: Peer, route: Option<Arc<ConcurrencyLimit>>) -> Permit {
        Permit(Arc::new(Held {
            permits: self.clone(),
            peer,
            route,
            ending: false.into(),
        }))
    }

    /// Gives free permits to requests that wait.
    fn grant(self: &Arc<Self>) {
        loop {
            // Sent without the lock: a request that does not wait any longer gives the permit back at once.
            let Some(one) = self.lock().grant() else {
                return;
            };
            let _ = one.tell.send(self.permit(one.peer, one.route));
        }
    }
}

impl Permit {
    /// For code that waits for the client of its holder.
    pub fn holding(&self) -> Holding {
        Holding::of(&self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let ending = self.ending.load(Ordering::Relaxed);
        let route = self.route.as_ref();
        self.permits.lock().free(self.peer, route, ending);
        if self.permits.server.waiting() > 0 {
            self.permits.grant();
        }
    }
}

impl pace::Place for Held {
    /// Costs a look at two numbers as long as no request waits.
    fn gives_way(&self, slow_for_long: bool) -> bool {
        let route = self.route.as_ref();
        let wanted = self.permits.server.is_wanted() || route.is_some_and(|r| r.is_wanted());
        if !wanted || self.ending.load(Ordering::Relaxed) {
            return false;
        }
        let mut line = self.permits.lock();
        let ends = line.gives_way(self.peer, route, slow_for_long);
        drop(line);
        self.ending.fetch_or(ends, Ordering::Relaxed);
        ends
    }
}

/// A request in the queue.
struct QueueEntry<'a> {
    permits: &'a Arc<Permits>,
    peer: Peer,
    at: u64,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.permits.lock().leave(self.peer, self.at);
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
        let now = before.next(&config(1));
        now.settle();
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
        assert!(crate::pace::poll_once(waits.as_mut()).await.is_pending());
        let now = before.next(&config(2));
        now.settle();
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
            assert!(crate::pace::poll_once(waits.as_mut()).await.is_pending());
            drop(taken);
            assert!(
                permits.try_admit().is_none(),
                "it has been given to the request that waits"
            );
        }
        assert!(permits.try_admit().is_some());
    }
}
