//! How many permits there are, and how many are taken.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// How many permits the server or one route has, and how many are taken. Written under the queue's lock, read without it.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    pub(super) most: AtomicUsize,
    pub(super) taken: AtomicUsize,
    waiting: AtomicUsize,
}

impl ConcurrencyLimit {
    /// A limit of `most` permits, all free.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.into(),
            taken: 0.into(),
            waiting: 0.into(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.taken.load(Relaxed) >= self.most.load(Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Whether a request waits for one of these permits.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting() > 0 && self.is_full()
    }
}

/// Whether both are the limit of one route, or both of none.
pub(super) fn same(a: Option<&Arc<ConcurrencyLimit>>, b: Option<&Arc<ConcurrencyLimit>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Takes a permit.
pub(super) fn occupy(server: &ConcurrencyLimit, route: Option<&Arc<ConcurrencyLimit>>) {
    server.taken.fetch_add(1, Relaxed);
    if let Some(route) = route {
        route.taken.fetch_add(1, Relaxed);
    }
}

/// A request waits.
pub(super) fn count(server: &ConcurrencyLimit, route: Option<&Arc<ConcurrencyLimit>>) {
    server.waiting.fetch_add(1, Relaxed);
    if let Some(route) = route {
        route.waiting.fetch_add(1, Relaxed);
    }
}

/// A request waits no longer.
pub(super) fn uncount(server: &ConcurrencyLimit, route: Option<&Arc<ConcurrencyLimit>>) {
    server.waiting.fetch_sub(1, Relaxed);
    if let Some(route) = route {
        route.waiting.fetch_sub(1, Relaxed);
    }
}

/// A permit is free again.
pub(super) fn vacate(server: &ConcurrencyLimit, route: Option<&Arc<ConcurrencyLimit>>) {
    server.taken.fetch_sub(1, Relaxed);
    if let Some(route) = route {
        route.taken.fetch_sub(1, Relaxed);
    }
}
