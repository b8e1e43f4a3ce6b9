//! Numbers of permits: the limit, and the permits in use.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The limits of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddressLimits {
    /// Limit of permits; at least one.
    pub(super) each: usize,
    /// Percent of all programs' processor time before other addresses are served first; 0: any.
    pub(super) cpu: usize,
    /// Number of programs that can run at the same moment: one on each processor.
    pub(super) processors: usize,
}

/// The permits of the server or of a route: the limit, and the permits in use. Written under the queue's lock, read
/// without it.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    pub(super) most: AtomicUsize,
    pub(super) taken: AtomicUsize,
    pub(super) waiting: AtomicUsize,
}

impl ConcurrencyLimit {
    /// Returns a limit of `most` permits, all free.
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

    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Whether a request waits for a permit of this limit.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting_count() > 0 && self.is_full()
    }
}

/// Whether both arguments are the limit of the same route, or both are `None`.
pub(super) fn is_same_limit(
    a: Option<&Arc<ConcurrencyLimit>>,
    b: Option<&Arc<ConcurrencyLimit>>,
) -> bool {
    a.map(Arc::as_ptr) == b.map(Arc::as_ptr)
}

/// Returns the limits that count a permit of that route, or the wait for a permit.
pub(super) fn applicable_limits<'a>(
    server: &'a ConcurrencyLimit,
    route: Option<&'a Arc<ConcurrencyLimit>>,
) -> impl Iterator<Item = &'a ConcurrencyLimit> {
    iter::once(server).chain(route.map(AsRef::as_ref))
}
