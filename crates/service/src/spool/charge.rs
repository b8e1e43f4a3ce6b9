//! How many bytes wait, of how many that may.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Bytes of all requests in one kind of storage.
#[derive(Debug)]
pub(super) struct Used {
    bytes: Arc<AtomicU64>,
    most: u64,
}

/// Bytes of one request; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    own: AtomicU64,
    all: Arc<AtomicU64>,
    most: u64,
}

impl Used {
    /// At most so many; those that are charged `before` count.
    pub(super) fn most(most: u64, before: Option<&Self>) -> Arc<Self> {
        let bytes = before.map_or_else(Arc::default, |before| before.bytes.clone());
        Arc::new(Self { bytes, most })
    }

    /// Of a request that has none yet.
    pub(super) fn charge(&self) -> Charge {
        Charge {
            own: AtomicU64::new(0),
            all: self.bytes.clone(),
            most: self.most,
        }
    }
}

impl Charge {
    /// Takes as many more as make them so many; false, where those would be too many.
    pub fn reach(&self, bytes: u64) -> bool {
        match bytes.checked_sub(self.bytes()) {
            Some(more @ 1..) => self.grow(more),
            _ => true,
        }
    }

    /// Takes so many more; false, where those would be too many.
    pub(super) fn grow(&self, by: u64) -> bool {
        let more = |all: u64| all.checked_add(by).filter(|sum| *sum <= self.most);
        let order = Ordering::Relaxed;
        let taken = self.all.fetch_update(order, order, more).is_ok();
        if taken {
            self.own.fetch_add(by, order);
        }
        taken
    }

    /// How many it has.
    pub(super) fn bytes(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_has_already_counts() {
        let charge = Used::most(10, None).charge();
        assert!(charge.reach(6) && charge.reach(4) && charge.reach(10) && !charge.reach(11));
        assert_eq!(charge.bytes(), 10);
    }

    #[test]
    fn all_together_have_no_more_than_they_may() {
        let used = Used::most(10, None);
        let (a, b) = (used.charge(), used.charge());
        assert!(a.grow(6) && !b.grow(5) && b.grow(4) && !a.grow(1));
        drop(a);
        assert!(b.grow(6) && !b.grow(u64::MAX));
        // What was charged before counts under another limit, too.
        let less = Used::most(9, Some(&used)).charge();
        assert!(!less.grow(0));
        drop(b);
        assert!(less.grow(9));
    }
}
