//! How many programs run at once: a limit, a queue with a length and a longest wait, 503 beyond. Who gets a place, and who
//! gives way, is for [`queue`] to say.

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

/// How many programs may run, and how requests wait for their turn.
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

/// The places for running programs, of the server and of one route.
#[derive(Debug)]
pub struct Admission {
    places: Arc<Permits>,
    running: usize,
    queue: usize,
    longest: Duration,
}

/// Places that all readings of the configuration share.
#[derive(Debug)]
struct Permits {
    /// Those of the server, for who does not want to wait for the lock.
    server: Arc<ConcurrencyLimit>,
    line: Mutex<PermitQueue<oneshot::Sender<Permit>>>,
}

/// A place among the programs running, in the route and in the server; given back when dropped.
#[derive(Debug)]
pub struct Permit(Arc<Held>);

#[derive(Debug)]
struct Held {
    places: Arc<Permits>,
    peer: Peer,
    route: Option<Arc<ConcurrencyLimit>>,
    /// Its holder was told to give way.
    ending: AtomicBool,
}

impl Admission {
    /// Places as configured.
    pub fn new(c: &AdmissionSettings) -> Self {
        let server = Arc::new(ConcurrencyLimit::new(c.running));
        Self {
            places: Arc::new(Permits {
                line: Mutex::new(PermitQueue::new(server.clone())),
                server,
            }),
            running: c.running,
            queue: c.queue,
            longest: c.wait,
        }
    }

    /// The same places, as many as `c` says once [`Admission::settle`] is called. Whoever has one or waits for
    /// one goes on as before.
    pub fn next(&self, c: &AdmissionSettings) -> Self {
        Self {
            places: self.places.clone(),
            running: c.running,
            queue: c.queue,
            longest: c.wait,
        }
    }

    /// Makes the places, which others share, as many as this one has. Those that are too many and taken go as
    /// they come free, before anybody else has them.
    pub fn settle(&self) {
        self.places.lock().resize(self.running);
        self.places.grant();
    }

    /// Whether requests wait as `c` says.
    pub fn waits_as(&self, c: &AdmissionSettings) -> bool {
        (self.queue, self.longest) == (c.queue, c.wait)
    }

    /// Waits for a place for a request of `peer`.
    ///
    /// # Errors
    /// The queue is full, or no place came free in time.
    pub async fn admit(
        &self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
    ) -> Result<Permit, Fault> {
        let taken = self.places.lock().take(peer, route);
        match taken {
            true => Ok(self.places.permit(peer, route.cloned())),
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
        let came = self.places.lock().come(peer, route, self.queue, || {
            let (tell, here) = oneshot::channel();
            told = Some(here);
            tell
        });
        let at = match came {
            Arrival::In => return Ok(self.places.permit(peer, route.cloned())),
            Arrival::Full => return Err(FULL),
            // Who gives way hears of it as its sender is dropped.
            Arrival::Waits(at, _gave_way) => at,
        };
        let _waiting = QueueEntry {
            places: &self.places,
            peer,
            at,
        };
        // INVARIANT: who waits has left a sender.
        let Some(told) = told else { return Err(FULL) };
        match tokio::time::timeout(self.longest, told).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_gave_way)) => Err(FULL),
            Err(_elapsed) => Err(Fault::Busy(
                "no place for another program came free within queue_wait",
            )),
        }
    }

    /// A place, if one is free at this moment.
    pub fn try_admit(&self) -> Option<Permit> {
        let nobody = Peer::default();
        let taken = self.places.lock().take(nobody, None);
        taken.then(|| self.places.permit(nobody, None))
    }

    /// Refuses what [`Admission::admit`] would refuse now, before anything is spent on it.
    ///
    /// # Errors
    /// The queue is full.
    pub fn refuse_if_full(&self, peer: Peer) -> Result<(), Fault> {
        let Permits { server, .. } = &*self.places;
        let full = server.is_full() && server.waiting() >= self.queue;
        match full && self.places.lock().refuses(peer, self.queue) {
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
            places: self.clone(),
            peer,
            route,
            ending: false.into(),
        }))
    }

    /// Gives places that are free to those who wait.
    fn grant(self: &Arc<Self>) {
        loop {
            // Nobody is told while the lock is held: who does not wait any longer gives the place back at once.
            let Some(one) = self.lock().grant() else {
                return;
            };
            let _ = one.tell.send(self.permit(one.peer, one.route));
        }
    }
}

impl Permit {
    /// For those who wait for the client of its holder.
    pub fn holding(&self) -> Holding {
        Holding::of(&self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let ending = self.ending.load(Ordering::Relaxed);
        let route = self.route.as_ref();
        self.places.lock().free(self.peer, route, ending);
        if self.places.server.waiting() > 0 {
            self.places.grant();
        }
    }
}

impl pace::Place for Held {
    /// Costs a look at two numbers as long as nobody waits.
    fn gives_way(&self, slow_for_long: bool) -> bool {
        let route = self.route.as_ref();
        let wanted = self.places.server.is_wanted() || route.is_some_and(|r| r.is_wanted());
        if !wanted || self.ending.load(Ordering::Relaxed) {
            return false;
        }
        let mut line = self.places.lock();
        let ends = line.gives_way(self.peer, route, slow_for_long);
        drop(line);
        self.ending.fetch_or(ends, Ordering::Relaxed);
        ends
    }
}

/// Somebody in the queue.
struct QueueEntry<'a> {
    places: &'a Arc<Permits>,
    peer: Peer,
    at: u64,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.places.lock().leave(self.peer, self.at);
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
        let places = Admission::new(&config(1));
        let taken = places.try_admit();
        {
            let mut waits = std::pin::pin!(places.admit(Peer::default(), None));
            assert!(crate::pace::poll_once(waits.as_mut()).await.is_pending());
            drop(taken);
            assert!(
                places.try_admit().is_none(),
                "it has been given to who waits"
            );
        }
        assert!(places.try_admit().is_some());
    }
}
