//! Counts of waiting bytes, with their limits: for all addresses together, and for each.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use super::full::Full;
use crate::{lock::lock, peer::Peer};

/// The limit of one address is the limit divided by this, so that there is room for other
/// addresses.
const PARTS: u64 = 2;

/// Bytes of all requests in one kind of storage.
#[derive(Debug, Clone)]
pub(super) struct Used {
    bytes: Arc<Mutex<Bytes>>,
    most: u64,
}

#[derive(Debug, Default)]
struct Bytes {
    all: u64,
    /// Bytes of each address that has any.
    by: HashMap<Peer, u64>,
}

/// Bytes of one request; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    own: AtomicU64,
    peer: Peer,
    used: Used,
}

impl Used {
    /// Sets a limit; bytes that are charged to `before` count.
    pub(super) fn with_limit(most: u64, before: Option<&Self>) -> Self {
        let bytes = before.map_or_else(Arc::default, |before| before.bytes.clone());
        Self { bytes, most }
    }

    /// Returns an empty charge for a request of `peer`.
    pub(super) fn charge(&self, peer: Peer) -> Charge {
        Charge {
            own: AtomicU64::new(0),
            peer,
            used: self.clone(),
        }
    }
}

impl Bytes {
    /// Adds bytes. Clients without an address are many clients, so they have no share of their own.
    fn try_grow(&mut self, peer: Peer, by: u64, most: u64) -> Result<(), Full> {
        let within = |bytes: u64, most| bytes.checked_add(by).filter(|sum| *sum <= most);
        let all = within(self.all, most).ok_or(Full::Limit)?;
        let parts = if peer == Peer::default() { 1 } else { PARTS };
        let each = most / parts;
        match self.by.entry(peer) {
            Entry::Occupied(mut own) => {
                let sum = within(*own.get(), each).ok_or(Full::Share)?;
                own.insert(sum);
            }
            Entry::Vacant(own) => {
                own.insert(within(0, each).ok_or(Full::Share)?);
            }
        }
        self.all = all;
        Ok(())
    }

    fn shrink(&mut self, peer: Peer, by: u64) {
        self.all -= by;
        if let Entry::Occupied(mut own) = self.by.entry(peer) {
            *own.get_mut() -= by;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

impl Charge {
    /// Grows the charge to this many bytes. Returns false, and changes nothing, if that would be
    /// too many.
    pub fn grow_to(&self, bytes: u64) -> bool {
        match bytes.checked_sub(self.charged_bytes()) {
            Some(more @ 1..) => self.try_grow(more).is_ok(),
            _ => true,
        }
    }

    /// Shrinks the charge to this many bytes, if it has more.
    pub fn shrink_to(&self, bytes: u64) {
        let less = self.charged_bytes().saturating_sub(bytes);
        if less > 0 {
            self.own.fetch_sub(less, Ordering::Relaxed);
            lock(&self.used.bytes).shrink(self.peer, less);
        }
    }

    /// Adds this many bytes, if that is not too many.
    pub(super) fn try_grow(&self, by: u64) -> Result<(), Full> {
        lock(&self.used.bytes).try_grow(self.peer, by, self.used.most)?;
        self.own.fetch_add(by, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of bytes.
    pub(super) fn charged_bytes(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> Peer {
        Peer::from_address(Some([10, 0, 0, n].into()))
    }

    #[test]
    fn what_it_has_already_counts() {
        let charge = Used::with_limit(20, None).charge(peer(1));
        assert!(
            charge.grow_to(6) && charge.grow_to(4) && charge.grow_to(10) && !charge.grow_to(11)
        );
        assert_eq!(charge.charged_bytes(), 10);
        charge.shrink_to(12);
        charge.shrink_to(3);
        assert!(charge.charged_bytes() == 3 && charge.grow_to(10));
    }

    #[test]
    fn all_together_have_no_more_than_they_may() {
        let used = Used::with_limit(10, None);
        let nobody = Peer::default();
        let (a, b) = (used.charge(nobody), used.charge(nobody));
        assert!(a.grow_to(6) && !b.grow_to(5) && b.grow_to(4) && !a.grow_to(7));
        drop(a);
        assert!(b.grow_to(10) && b.try_grow(u64::MAX).is_err());
        // Bytes that were charged before count under another limit, too.
        let less = Used::with_limit(9, Some(&used)).charge(nobody);
        assert!(less.try_grow(0).is_err());
        drop(b);
        assert!(less.grow_to(9));
    }

    #[test]
    fn an_address_has_half_and_leaves_nothing() {
        let used = Used::with_limit(10, None);
        let [a, more, b, c] = [1, 1, 2, 3].map(|n| used.charge(peer(n)));
        assert!(a.grow_to(3) && !more.grow_to(3) && more.grow_to(2) && !a.grow_to(4));
        assert!(matches!(a.try_grow(1), Err(Full::Share)));
        assert!(b.grow_to(5) && matches!(c.try_grow(1), Err(Full::Limit)));
        drop(a);
        assert!(c.grow_to(3) && !c.grow_to(4));
        drop((more, b, c));
        let left = used.bytes.lock().unwrap();
        assert!(left.all == 0 && left.by.is_empty());
    }
}
