//! The helpers that the server knows: whom it asks, and which of them it lets go.

use super::connection::HelperLink;
use std::{collections::HashMap, sync::Arc};

/// A helper: the digest of its remit, and its user.
pub(super) type HelperKey = (u64, u32);

/// Helpers without a program that are known at once. Whoever asks for one host after the other has a process made for each.
const MOST: usize = 256;

/// The helpers that the server knows.
#[derive(Debug, Default)]
pub(super) struct KnownHelpers {
    all: HashMap<HelperKey, KnownHelper>,
    /// How often one was asked for.
    asked: u64,
}

#[derive(Debug)]
struct KnownHelper {
    link: Arc<HelperLink>,
    /// When it was asked for last, by the number of that.
    asked: u64,
}

impl KnownHelper {
    /// Whether it has no program, and no request is about to ask it: such a request has the link, too.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.link) == 1
    }
}

impl KnownHelpers {
    pub(super) fn has(&self, key: HelperKey) -> bool {
        self.all.contains_key(&key)
    }

    /// The helper that is to be asked.
    pub(super) fn ask(&mut self, key: HelperKey) -> Option<Arc<HelperLink>> {
        self.asked += 1;
        let known = self.all.get_mut(&key)?;
        known.asked = self.asked;
        Some(known.link.clone())
    }

    /// All of them.
    pub(super) fn list(&self) -> Vec<(HelperKey, Arc<HelperLink>)> {
        let all = self.all.iter();
        all.map(|(key, known)| (*key, known.link.clone())).collect()
    }

    /// Knows a new one. What is returned leaves: too many are idle, and it was asked for longest ago.
    pub(super) fn add(&mut self, key: HelperKey, link: Arc<HelperLink>) -> Option<Arc<HelperLink>> {
        let idle = self.all.iter().filter(|(_, known)| known.is_idle());
        let (most, oldest) = idle.fold((0, None), |(n, oldest), (key, known)| {
            let this = (known.asked, *key);
            (n + 1, Some(oldest.map_or(this, |old| this.min(old))))
        });
        self.asked += 1;
        let asked = self.asked;
        self.all.insert(key, KnownHelper { link, asked });
        let (_, leaves) = oldest.filter(|_| most >= MOST)?;
        self.all.remove(&leaves).map(|known| known.link)
    }

    /// Forgets one that has gone. Another may have been made meanwhile.
    pub(super) fn forget(&mut self, key: HelperKey, gone: &Arc<HelperLink>) {
        let known = self.all.get(&key);
        if known.is_some_and(|known| Arc::ptr_eq(&known.link, gone)) {
            self.all.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::owners::message::pair;

    fn link() -> Arc<HelperLink> {
        HelperLink::new(pair().unwrap().0, &Arc::default())
    }

    #[test]
    fn of_too_many_that_are_idle_the_one_asked_longest_ago_leaves() {
        let mut known = KnownHelpers::default();
        let key = |n: usize| (n as u64, 1000);
        // One has a program.
        let busy = link();
        assert!(known.add(key(0), busy.clone()).is_none());
        for n in 1..=MOST {
            assert!(known.add(key(n), link()).is_none());
        }
        // As it is asked for, the next one is the oldest.
        assert!(known.ask(key(1)).is_some());
        let leaves = known.add(key(MOST + 1), link()).unwrap();
        assert!(Arc::strong_count(&leaves) == 1 && !known.has(key(2)));
        assert!([0, 1, 3, MOST + 1].iter().all(|n| known.has(key(*n))));
        // What is asked for just now stays.
        let asked = known.ask(key(3));
        assert!(known.add(key(MOST + 2), link()).is_none());
        assert!(known.add(key(MOST + 3), link()).is_some());
        assert!(asked.is_some() && known.has(key(3)) && !known.has(key(4)));
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
}
