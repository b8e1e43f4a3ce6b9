//! Deadlines that server, spawner and helpers tell each other, by the monotonic clock that they share. If an order arrives
//! after its deadline, the sender no longer waits for it, and it is not carried out.

use rustix::{
    event::Timespec,
    time::{ClockId, clock_gettime},
};
use std::time::Duration;

/// Longest time to wait for an answer of the spawner or of a helper.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// A moment of the machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Duration);

impl Deadline {
    /// Size of a deadline in a message, in bytes.
    pub(crate) const SIZE: usize = size_of::<u64>();

    /// Returns the deadline at this time from now.
    pub fn within(most: Duration) -> Self {
        Self(monotonic_now().saturating_add(most))
    }

    /// Returns the time until the deadline; zero if it has passed.
    pub fn time_left(self) -> Duration {
        self.0.saturating_sub(monotonic_now())
    }

    /// Returns an earlier deadline, which leaves time to report that it has passed.
    pub(crate) fn with_margin(self) -> Self {
        let left = self.time_left();
        Self(self.0 - (left / 5).min(Duration::from_secs(1)))
    }

    /// Whether the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.time_left().is_zero()
    }

    pub(crate) fn encode(self) -> [u8; Self::SIZE] {
        let nanos = u64::try_from(self.0.as_nanos());
        nanos.unwrap_or(u64::MAX).to_ne_bytes()
    }

    /// Reads the deadline at the front of a message. Returns it with the rest of the message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (nanos, rest) = bytes.split_first_chunk()?;
        let nanos = u64::from_ne_bytes(*nanos);
        Some((Self(Duration::from_nanos(nanos)), rest))
    }
}

fn monotonic_now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Converts a wait for poll(2). Rounds up, because a process that wakes before the deadline would find nothing to do.
pub(crate) fn to_timespec(left: Duration) -> Timespec {
    Timespec::try_from(left).unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::remote::deadline::*;

    #[test]
    fn a_deadline_is_told_and_passes() {
        let soon = Deadline::within(Duration::from_secs(60));
        let (told, rest) = Deadline::decode(&[&soon.encode()[..], b"rest"].concat())
            .map(|(told, rest)| (told, rest.to_vec()))
            .unwrap();
        assert_eq!((told, &rest[..]), (soon, &b"rest"[..]));
        assert!(!soon.has_passed() && soon.time_left() > Duration::from_secs(1));
        assert!(Deadline::within(Duration::ZERO).has_passed());
        assert!(Deadline::decode(&[0; 7]).is_none());
    }
}
