//! How many programs run at once: a limit, a queue with a length and a longest wait, 503 beyond.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{config, fault::Fault};

/// The places for running programs, of the server and of one route.
#[derive(Debug)]
pub struct Admission {
    places: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    running: usize,
    queue: usize,
    wait: Duration,
}

/// A place among the programs running, in the route and in the server; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    _server: OwnedSemaphorePermit,
    _route: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// Places as configured.
    pub fn new(c: &config::Admission) -> Self {
        Self {
            places: Arc::new(Semaphore::new(c.running)),
            waiting: Arc::default(),
            running: c.running,
            queue: c.queue,
            wait: c.wait,
        }
    }

    /// The same places, as many as `c` says once [`Admission::settle`] is called. Whoever has one or waits for
    /// one goes on as before.
    pub fn next(&self, c: &config::Admission) -> Self {
        Self {
            places: self.places.clone(),
            waiting: self.waiting.clone(),
            ..Self::new(c)
        }
    }

    /// Makes the places of `before`, which are shared, as many as this one has. Those that are too many and taken
    /// go as they come free, before anybody else has them.
    pub fn settle(&self, before: &Self) {
        self.places
            .add_permits(self.running.saturating_sub(before.running));
        let less = before.running.saturating_sub(self.running);
        for _ in self.places.forget_permits(less)..less {
            let mut one = Box::pin(self.places.clone().acquire_owned());
            // It stands in the queue from now on, not from when somebody has time for it.
            let mut unheard = Context::from_waker(Waker::noop());
            let there = one.as_mut().poll(&mut unheard);
            tokio::spawn(async move {
                let one = match there {
                    Poll::Ready(one) => one,
                    Poll::Pending => one.await,
                };
                one.into_iter().for_each(OwnedSemaphorePermit::forget);
            });
        }
    }

    /// Whether requests wait as `c` says.
    pub fn waits_as(&self, c: &config::Admission) -> bool {
        (self.queue, self.wait) == (c.queue, c.wait)
    }

    /// Waits for a place, first come, first served.
    pub async fn admit(&self, route: Option<&Arc<Semaphore>>) -> Result<Permit, Fault> {
        if let Some(permit) = self.at_once(route) {
            return Ok(permit);
        }
        let _waiting = Waiting::enter(self)?;
        tokio::time::timeout(self.wait, async {
            let route = match route {
                Some(route) => Some(own(route).await?),
                None => None,
            };
            Ok(Permit {
                _server: own(&self.places).await?,
                _route: route,
            })
        })
        .await
        .unwrap_or(Err(Fault::Busy(
            "no place for another program came free within queue_wait",
        )))
    }

    /// A place, if one is free at this moment.
    pub fn try_admit(&self) -> Option<Permit> {
        self.at_once(None)
    }

    /// Refuses what [`Admission::admit`] would refuse now, before anything is spent on it.
    pub fn refuse_if_full(&self) -> Result<(), Fault> {
        match self.places.available_permits() == 0 && self.waiting() >= self.queue {
            true => Err(FULL),
            false => Ok(()),
        }
    }

    fn at_once(&self, route: Option<&Arc<Semaphore>>) -> Option<Permit> {
        let route = match route {
            Some(route) => Some(route.clone().try_acquire_owned().ok()?),
            None => None,
        };
        Some(Permit {
            _server: self.places.clone().try_acquire_owned().ok()?,
            _route: route,
        })
    }

    /// Requests waiting now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

const FULL: Fault = Fault::Busy("the queue for programs is full");

async fn own(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Fault> {
    let closed = |_| Fault::Busy("the server is shutting down");
    places.clone().acquire_owned().await.map_err(closed)
}

/// A place in the queue.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(a: &'a Admission) -> Result<Self, Fault> {
        if a.waiting.fetch_add(1, Ordering::Relaxed) >= a.queue {
            a.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(FULL);
        }
        Ok(Self(&a.waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing else runs on this thread between the two: whoever waits to be polled first has not been.
    #[tokio::test]
    async fn places_that_are_too_many_go_to_nobody() {
        let config = |running| config::Admission {
            running,
            ..config::Config::default().admission
        };
        let before = Admission::new(&config(2));
        let taken = [before.try_admit(), before.try_admit()];
        let now = before.next(&config(1));
        now.settle(&before);
        let [first, second] = taken;
        drop(first);
        assert!(now.try_admit().is_none());
        drop(second);
        assert!(now.try_admit().is_some());
    }
}
