//! The helpers that the server knows: which helper gets an order, and which helpers it drops.

use crate::remote::connection::HelperLink;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// The digest of a remit, and a user id. All helpers with the same key start the same programs.
pub(crate) type HelperKey = (u64, u32);

/// Limit of known helpers that run no program. A client that asks for one host after the other causes a new process for each.
const MOST: usize = 256;

/// Programs of a helper from which it counts as busy. A helper is one process, and starts its programs one after the other.
const BUSY: usize = 4;

/// Time until another helper is asked for again, if the last attempt has failed.
const AGAIN: Duration = Duration::from_secs(10);

/// Whether a helper must be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperNeed {
    /// There is no helper yet.
    First,
    /// Every helper is busy. Requests need not wait for the new helper.
    Another,
    /// There are enough helpers, or another helper is being made.
    Enough,
}

/// The helpers that the server knows.
#[derive(Debug, Default)]
pub(crate) struct KnownHelpers {
    all: HashMap<HelperKey, HelperPool>,
    /// Number of lookups so far.
    asked: u64,
}

/// The helpers for one remit and user. Never empty.
#[derive(Debug, Default)]
struct HelperPool {
    links: Vec<Arc<HelperLink>>,
    /// Sequence number of the last lookup, for eviction.
    asked: u64,
    /// Time of the last request for another helper that has not come yet.
    grows: Option<Instant>,
}

impl HelperPool {
    /// Whether no helper has a program or is about to get one. A request that is about to use a helper holds its link, too.
    fn is_idle(&self) -> bool {
        self.links.iter().all(|link| Arc::strong_count(link) == 1)
    }

    /// Returns the helper with the fewest programs. On a tie returns the oldest helper, so that the newer ones can become idle
    /// and leave.
    fn least_busy(&self) -> Option<&Arc<HelperLink>> {
        self.links.iter().min_by_key(|link| link.programs())
    }
}

impl KnownHelpers {
    /// Returns whether a helper must be made before the next start, or in parallel if there are fewer than `most`. Asks for
    /// another helper once, until it has come.
    pub(crate) fn helper_need(&mut self, key: HelperKey, most: usize) -> HelperNeed {
        let Some(pool) = self.all.get_mut(&key) else {
            return HelperNeed::First;
        };
        let busy = pool.links.iter().all(|link| link.programs() >= BUSY);
        let grows = || pool.grows.is_some_and(|since| since.elapsed() < AGAIN);
        if busy && pool.links.len() < most && !grows() {
            pool.grows = Some(Instant::now());
            HelperNeed::Another
        } else {
            HelperNeed::Enough
        }
    }

    pub(crate) fn has_helper(&self, key: HelperKey) -> bool {
        self.all.contains_key(&key)
    }

    /// Returns the helper for the start of a program.
    pub(crate) fn helper_for_start(&mut self, key: HelperKey) -> Option<Arc<HelperLink>> {
        self.find_pool(key)?.least_busy().cloned()
    }

    /// Returns the helper for loading a program. It is always the first: its earlier templates have told it what later ones may
    /// load.
    pub(crate) fn helper_for_load(&mut self, key: HelperKey) -> Option<Arc<HelperLink>> {
        self.find_pool(key)?.links.first().cloned()
    }

    fn find_pool(&mut self, key: HelperKey) -> Option<&mut HelperPool> {
        self.asked += 1;
        let pool = self.all.get_mut(&key)?;
        pool.asked = self.asked;
        Some(pool)
    }

    /// Returns all helpers.
    pub(crate) fn list_helpers(&self) -> Vec<(HelperKey, Arc<HelperLink>)> {
        let all = self.all.iter();
        let all = all.flat_map(|(key, pool)| pool.links.iter().map(|link| (*key, link.clone())));
        all.collect()
    }

    /// Adds a new helper. If too many others are idle, removes and returns the idle helpers with the oldest lookup.
    pub(crate) fn add_helper(
        &mut self,
        key: HelperKey,
        link: Arc<HelperLink>,
    ) -> Vec<Arc<HelperLink>> {
        let others = self.all.iter().filter(|(other, _)| **other != key);
        let idle = others.filter(|(_, pool)| pool.is_idle());
        let (most, oldest) = idle.fold((0, None), |(n, oldest), (key, pool)| {
            let this = (pool.asked, *key);
            let oldest = oldest.map_or(this, |old| this.min(old));
            (n + pool.links.len(), Some(oldest))
        });
        self.asked += 1;
        let pool = self.all.entry(key).or_default();
        pool.links.push(link);
        pool.asked = self.asked;
        pool.grows = None;
        let leaves = oldest.filter(|_| most >= MOST);
        let leaves = leaves.and_then(|(_, leaves)| self.all.remove(&leaves));
        leaves.map_or_else(Vec::new, |pool| pool.links)
    }

    /// Forgets a helper that has gone. Other helpers with the same key stay.
    pub(crate) fn forget_helper(&mut self, key: HelperKey, gone: &Arc<HelperLink>) {
        let Some(pool) = self.all.get_mut(&key) else {
            return;
        };
        pool.links.retain(|link| !Arc::ptr_eq(link, gone));
        if pool.links.is_empty() {
            self.all.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::remote::message::socket_pair;
    use std::os::fd::AsFd;

    fn link() -> Arc<HelperLink> {
        HelperLink::new(socket_pair().unwrap().0, &Arc::default())
    }

    #[test]
    fn of_too_many_that_are_idle_those_asked_longest_ago_leave() {
        let mut known = KnownHelpers::default();
        let key = |n: usize| (n as u64, 1000);
        // This helper has a program.
        let busy = link();
        assert!(known.add_helper(key(0), busy.clone()).is_empty());
        for n in 1..=MOST {
            assert!(known.add_helper(key(n), link()).is_empty());
        }
        // After this lookup the next key is the oldest.
        assert!(known.helper_for_start(key(1)).is_some());
        let leaves = known.add_helper(key(MOST + 1), link());
        assert!(
            leaves.len() == 1 && Arc::strong_count(&leaves[0]) == 1 && !known.has_helper(key(2))
        );
        assert!(
            [0, 1, 3, MOST + 1]
                .iter()
                .all(|n| known.has_helper(key(*n)))
        );
        // A helper that is about to be used stays.
        let asked = known.helper_for_start(key(3));
        assert!(known.add_helper(key(MOST + 2), link()).is_empty());
        assert_eq!(known.add_helper(key(MOST + 3), link()).len(), 1);
        assert!(asked.is_some() && known.has_helper(key(3)) && !known.has_helper(key(4)));
    }

    #[test]
    fn several_of_one_user_leave_together_and_not_for_each_other() {
        let mut known = KnownHelpers::default();
        for n in 0..MOST {
            assert!(known.add_helper((1, 1), link()).is_empty(), "{n}");
        }
        assert!(known.add_helper((1, 1), link()).is_empty());
        assert_eq!(known.add_helper((2, 2), link()).len(), MOST + 1);
        assert!(known.list_helpers().len() == 1 && known.has_helper((2, 2)));
    }

    #[test]
    fn one_that_has_gone_is_forgotten_and_its_successor_is_not() {
        let mut known = KnownHelpers::default();
        let (gone, next) = (link(), link());
        known.add_helper((1, 1), gone.clone());
        known.add_helper((1, 1), next.clone());
        known.forget_helper((1, 1), &gone);
        assert!(known.has_helper((1, 1)));
        known.forget_helper((1, 1), &next);
        assert!(known.list_helpers().is_empty() && known.helper_for_start((1, 1)).is_none());
    }

    #[test]
    fn there_are_more_where_all_have_much_to_do() {
        let (known, mut helpers) = (&mut KnownHelpers::default(), Vec::new());
        let key = (1, 1);
        let mut add = |known: &mut KnownHelpers| {
            let (ours, theirs) = socket_pair().unwrap();
            known.add_helper(key, HelperLink::new(ours, &Arc::default()));
            helpers.push(theirs);
        };
        let start = |known: &mut KnownHelpers| {
            let link = known.helper_for_start(key).unwrap();
            let null = std::fs::File::open("/dev/null").unwrap();
            link.send_order(&[b"x"], [null.as_fd(); 3]).unwrap()
        };
        assert_eq!(known.helper_need(key, 2), HelperNeed::First);
        add(known);
        let _few: Vec<_> = (1..BUSY).map(|_| start(known)).collect();
        assert_eq!(known.helper_need(key, 2), HelperNeed::Enough);
        let one_more = start(known);
        // The other helper is being made during the next look.
        assert_eq!(known.helper_need(key, 2), HelperNeed::Another);
        assert_eq!(known.helper_need(key, 2), HelperNeed::Enough);
        add(known);
        let [first, second] =
            [known.helper_for_load(key), known.helper_for_start(key)].map(Option::unwrap);
        assert!(!Arc::ptr_eq(&first, &second));
        // Prefers the helper with fewer programs, and on a tie the first.
        let _many: Vec<_> = (0..BUSY).map(|_| start(known)).collect();
        assert_eq!([&first, &second].map(|link| link.programs()), [BUSY; 2]);
        assert!(Arc::ptr_eq(&known.helper_for_start(key).unwrap(), &first));
        // Stays within the limit.
        assert_eq!(known.helper_need(key, 2), HelperNeed::Enough);
        // After a helper has left, another may be made, unless the first is less busy.
        known.forget_helper(key, &second);
        drop(one_more);
        assert_eq!(known.helper_need(key, 2), HelperNeed::Enough);
        let _one_more = start(known);
        assert_eq!(known.helper_need(key, 2), HelperNeed::Another);
    }
}
