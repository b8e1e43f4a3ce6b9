//! Whether an address has more programs at once than other addresses can bear, and whether there
//! are other addresses.

use super::cpu::Period;
use crate::peer::Peer;

/// Addresses that got permits in this period, or in this many periods before it, share the
/// processors now.
const LATELY: Period = 1;

/// The degree to which the programs of an address crowd out other addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crowding {
    /// The address has few programs, or there are no other addresses.
    None,
    /// The programs of the address get less priority than other programs.
    Some,
    /// The address also has more than half of all programs: one processor is left to other
    /// addresses.
    Most,
}

/// Tells whether several addresses got permits lately.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// The address that got the last permit.
    last: Option<Peer>,
    /// The period in which a permit last went to another address than the permit before.
    mixed: Option<Period>,
}

impl Meeting {
    /// Notes that an address got a permit.
    pub(super) fn record_permit(&mut self, peer: Peer, now: Period) {
        if self.last != Some(peer) {
            self.mixed = self.last.replace(peer).map(|_| now);
        }
    }

    /// Whether several addresses got permits lately.
    pub(super) fn is_mixed(&self, now: Period) -> bool {
        self.mixed.is_some_and(|mixed| now - mixed <= LATELY)
    }
}
