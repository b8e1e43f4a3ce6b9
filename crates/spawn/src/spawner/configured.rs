//! Remits that the spawner has read in the configuration, for programs that may be started now.

use crate::owners::{OLD, Remit};
use std::{collections::HashMap, sync::Arc, time::Instant};

/// Remits by digest. The time is set for a remit that is no longer configured, and says since when.
#[derive(Default)]
pub(crate) struct ConfiguredRemits(HashMap<u64, (Arc<Remit>, Option<Instant>)>);

impl ConfiguredRemits {
    /// Installs the remits of a new configuration. Requests that began before may still use the old remits for a while.
    pub(crate) fn replace(&mut self, remits: Vec<Arc<Remit>>, now: Instant) {
        for (_, since) in self.0.values_mut() {
            since.get_or_insert(now);
        }
        let new = remits.into_iter().map(|r| (r.digest(), (r, None)));
        self.0.extend(new);
    }

    pub(crate) fn get(&mut self, digest: u64, now: Instant) -> Option<Arc<Remit>> {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= OLD;
        self.0.retain(|_, (_, since)| !since.is_some_and(is_old));
        self.0.get(&digest).map(|(remit, _)| remit.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::spawner::{configured::*, tests::remit};

    #[test]
    fn what_was_configured_is_forgotten_after_a_while() {
        let (a, b) = (Arc::new(remit("/a")), Arc::new(remit("/b")));
        let mut remits = ConfiguredRemits::default();
        let start = Instant::now();
        remits.replace(vec![a.clone()], start);
        remits.replace(vec![b.clone()], start);
        assert!(remits.get(a.digest(), start).is_some());
        // Another reload must not renew the time: the first reload without the remit counts.
        let later = start + OLD / 2;
        remits.replace(vec![b.clone()], later);
        assert!(remits.get(a.digest(), later).is_some());
        assert!(remits.get(a.digest(), start + OLD).is_none());
        assert!(remits.get(b.digest(), start + 3 * OLD).is_some());
        // A remit that is configured again stays for good.
        remits.replace(vec![a.clone()], start + OLD);
        assert!(remits.get(a.digest(), start + 9 * OLD).is_some());
    }
}
