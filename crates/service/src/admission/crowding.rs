//! Whether an address has more programs at once than others bear, and whether there are others.

use super::cpu::Period;
use crate::peer::Peer;

/// Addresses that got permits in this period or so many before it share the processors now.
const LATELY: Period = 1;

/// Whether an address has more programs at once than others bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crowding {
    /// It has not, or there are no others.
    None,
    /// Its programs run behind those of others.
    Some,
    /// The same, and it has more than half of all programs: one processor is left to others.
    Most,
}

/// Whether several addresses got permits lately.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// The address that got the last one.
    last: Option<Peer>,
    /// When one followed another.
    mixed: Option<Period>,
}

impl Meeting {
    /// An address got a permit.
    pub(super) fn note(&mut self, peer: Peer, now: Period) {
        if self.last != Some(peer) {
            self.mixed = self.last.replace(peer).map(|_| now);
        }
    }

    /// Whether several did lately.
    pub(super) fn is_mixed(&self, now: Period) -> bool {
        self.mixed.is_some_and(|mixed| now - mixed <= LATELY)
    }
}
