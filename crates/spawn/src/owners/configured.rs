//! What may be started now, as the spawner has read the configuration.

use super::{OLD, Remit};
use std::{collections::HashMap, sync::Arc, time::Instant};

/// What may be started: by its digest, and since when that is not configured any more.
#[derive(Default)]
pub(super) struct ConfiguredRemits(HashMap<u64, (Arc<Remit>, Option<Instant>)>);

impl ConfiguredRemits {
    /// These are configured now. Requests that began before go on with what they began with.
    pub(super) fn replace(&mut self, remits: Vec<Arc<Remit>>, now: Instant) {
        for (_, since) in self.0.values_mut() {
            since.get_or_insert(now);
        }
        let new = remits.into_iter().map(|r| (r.digest(), (r, None)));
        self.0.extend(new);
    }

    pub(super) fn get(&mut self, digest: u64, now: Instant) -> Option<Arc<Remit>> {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= OLD;
        self.0.retain(|_, (_, since)| !since.is_some_and(is_old));
        self.0.get(&digest).map(|(remit, _)| remit.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::owners::tests::remit;

    #[test]
    fn what_was_configured_is_forgotten_after_a_while() {
        let (a, b) = (Arc::new(remit("/a")), Arc::new(remit("/b")));
        let mut remits = ConfiguredRemits::default();
        let start = Instant::now();
        remits.replace(vec![a.clone()], start);
        remits.replace(vec![b.clone()], start);
        assert!(remits.get(a.digest(), start).is_some());
        // Read again: what counts is when it was gone first.
        let later = start + OLD / 2;
        remits.replace(vec![b.clone()], later);
        assert!(remits.get(a.digest(), later).is_some());
        assert!(remits.get(a.digest(), start + OLD).is_none());
        assert!(remits.get(b.digest(), start + 3 * OLD).is_some());
        // What comes back is there for good.
        remits.replace(vec![a.clone()], start + OLD);
        assert!(remits.get(a.digest(), start + 9 * OLD).is_some());
    }
}
