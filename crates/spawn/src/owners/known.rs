//! The helpers that the server knows: whom it asks, and which of them it lets go.

use crate::remote::connection::HelperLink;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// A remit, by its digest, and a user: the helpers of both start the same programs.
pub(super) type HelperKey = (u64, u32);

/// Helpers without a program that are known at once. Whoever asks for one host after the other has a process made for each.
const MOST: usize = 256;

/// A helper has so many programs before there is another one: it is one process, and starts one after the other.
const BUSY: usize = 4;

/// Another helper that was not to be had is asked for again after this.
const AGAIN: Duration = Duration::from_secs(10);

/// Whether another helper is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperNeed {
    /// There is none.
    First,
    /// All have much to do. Nobody has to wait for it.
    Another,
    /// There are enough, or another one is on its way.
    Enough,
}

/// The helpers that the server knows.
#[derive(Debug, Default)]
pub(super) struct KnownHelpers {
    all: HashMap<HelperKey, HelperPool>,
    /// How often one was asked for.
    asked: u64,
}

/// Those of one remit and user, of which there is one at least.
#[derive(Debug, Default)]
struct HelperPool {
    links: Vec<Arc<HelperLink>>,
    /// When one was asked for last, by the number of that.
    asked: u64,
    /// When another one was asked for that has not come.
    grows: Option<Instant>,
}

impl HelperPool {
    /// Whether none has a program, and no request is about to ask one: such a request has the link, too.
    fn is_idle(&self) -> bool {
        self.links.iter().all(|link| Arc::strong_count(link) == 1)
    }

    /// The one with the fewest programs; of several the one that was made first, so that the others may leave.
    fn least_busy(&self) -> Option<&Arc<HelperLink>> {
        self.links.iter().min_by_key(|link| link.programs())
    }
}

impl KnownHelpers {
    /// Whether one is to be made before the next start, or beside it, where `most` may be. Another one is asked for once, until
    /// it is there.
    pub(super) fn need(&mut self, key: HelperKey, most: usize) -> HelperNeed {
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

    pub(super) fn has(&self, key: HelperKey) -> bool {
        self.all.contains_key(&key)
    }

    /// The helper that is to start a program.
    pub(super) fn ask(&mut self, key: HelperKey) -> Option<Arc<HelperLink>> {
        self.pool(key)?.least_busy().cloned()
    }

    /// The helper that is to load a program: it knows from one template of a program what the next may load.
    pub(super) fn ask_first(&mut self, key: HelperKey) -> Option<Arc<HelperLink>> {
        self.pool(key)?.links.first().cloned()
    }

    fn pool(&mut self, key: HelperKey) -> Option<&mut HelperPool> {
        self.asked += 1;
        let pool = self.all.get_mut(&key)?;
        pool.asked = self.asked;
        Some(pool)
    }

    /// All of them.
    pub(super) fn list(&self) -> Vec<(HelperKey, Arc<HelperLink>)> {
        let all = self.all.iter();
        let all = all.flat_map(|(key, pool)| pool.links.iter().map(|link| (*key, link.clone())));
        all.collect()
    }

    /// Knows a new one. What is returned leaves: too many of others are idle, and these were asked for longest ago.
    pub(super) fn add(&mut self, key: HelperKey, link: Arc<HelperLink>) -> Vec<Arc<HelperLink>> {
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

    /// Forgets one that has gone. Others may have been made meanwhile.
    pub(super) fn forget(&mut self, key: HelperKey, gone: &Arc<HelperLink>) {
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
    use crate::remote::message::pair;
    use std::os::fd::AsFd;

    fn link() -> Arc<HelperLink> {
        HelperLink::new(pair().unwrap().0, &Arc::default())
    }

    #[test]
    fn of_too_many_that_are_idle_those_asked_longest_ago_leave() {
        let mut known = KnownHelpers::default();
        let key = |n: usize| (n as u64, 1000);
        // One has a program.
        let busy = link();
        assert!(known.add(key(0), busy.clone()).is_empty());
        for n in 1..=MOST {
            assert!(known.add(key(n), link()).is_empty());
        }
        // As it is asked for, the next one is the oldest.
        assert!(known.ask(key(1)).is_some());
        let leaves = known.add(key(MOST + 1), link());
        assert!(leaves.len() == 1 && Arc::strong_count(&leaves[0]) == 1 && !known.has(key(2)));
        assert!([0, 1, 3, MOST + 1].iter().all(|n| known.has(key(*n))));
        // What is asked for just now stays.
        let asked = known.ask(key(3));
        assert!(known.add(key(MOST + 2), link()).is_empty());
        assert_eq!(known.add(key(MOST + 3), link()).len(), 1);
        assert!(asked.is_some() && known.has(key(3)) && !known.has(key(4)));
    }

    #[test]
    fn several_of_one_user_leave_together_and_not_for_each_other() {
        let mut known = KnownHelpers::default();
        for n in 0..MOST {
            assert!(known.add((1, 1), link()).is_empty(), "{n}");
        }
        assert!(known.add((1, 1), link()).is_empty());
        assert_eq!(known.add((2, 2), link()).len(), MOST + 1);
        assert!(known.list().len() == 1 && known.has((2, 2)));
    }

    #[test]
    fn one_that_has_gone_is_forgotten_and_its_successor_is_not() {
        let mut known = KnownHelpers::default();
        let (gone, next) = (link(), link());
        known.add((1, 1), gone.clone());
        known.add((1, 1), next.clone());
        known.forget((1, 1), &gone);
        assert!(known.has((1, 1)));
        known.forget((1, 1), &next);
        assert!(known.list().is_empty() && known.ask((1, 1)).is_none());
    }

    #[test]
    fn there_are_more_where_all_have_much_to_do() {
        let (known, mut helpers) = (&mut KnownHelpers::default(), Vec::new());
        let key = (1, 1);
        let mut add = |known: &mut KnownHelpers| {
            let (ours, theirs) = pair().unwrap();
            known.add(key, HelperLink::new(ours, &Arc::default()));
            helpers.push(theirs);
        };
        let start = |known: &mut KnownHelpers| {
            let link = known.ask(key).unwrap();
            let null = std::fs::File::open("/dev/null").unwrap();
            link.ask(&[b"x"], [null.as_fd(); 3]).unwrap()
        };
        assert_eq!(known.need(key, 2), HelperNeed::First);
        add(known);
        let _few: Vec<_> = (1..BUSY).map(|_| start(known)).collect();
        assert_eq!(known.need(key, 2), HelperNeed::Enough);
        let one_more = start(known);
        // It is on its way when others look.
        assert_eq!(known.need(key, 2), HelperNeed::Another);
        assert_eq!(known.need(key, 2), HelperNeed::Enough);
        add(known);
        let [first, second] = [known.ask_first(key), known.ask(key)].map(Option::unwrap);
        assert!(!Arc::ptr_eq(&first, &second));
        // The one with fewer; of two that have as many the first.
        let _many: Vec<_> = (0..BUSY).map(|_| start(known)).collect();
        assert_eq!([&first, &second].map(|link| link.programs()), [BUSY; 2]);
        assert!(Arc::ptr_eq(&known.ask(key).unwrap(), &first));
        // No more than may be.
        assert_eq!(known.need(key, 2), HelperNeed::Enough);
        // One has left: there may be another again, unless the first has less to do.
        known.forget(key, &second);
        drop(one_more);
        assert_eq!(known.need(key, 2), HelperNeed::Enough);
        let _one_more = start(known);
        assert_eq!(known.need(key, 2), HelperNeed::Another);
    }
}
