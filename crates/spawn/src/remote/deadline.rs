//! Until when something is waited for, as server, spawner and helpers tell each other: by the one clock that all processes
//! have. What was asked for and comes too late, nobody waits for: it is not done.

use rustix::{
    event::Timespec,
    time::{ClockId, clock_gettime},
};
use std::time::Duration;

/// Nothing that the spawner or a helper is asked for is waited for any longer.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// A moment of the machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Duration);

impl Deadline {
    /// Bytes of one in a message.
    pub(crate) const SIZE: usize = size_of::<u64>();

    /// So long from now.
    pub fn within(most: Duration) -> Self {
        Self(now().saturating_add(most))
    }

    /// How long it is until then; zero: it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(now())
    }

    /// An earlier one, after which there is time to say that it has passed.
    pub(crate) fn before(self) -> Self {
        let left = self.left();
        Self(self.0 - (left / 5).min(Duration::from_secs(1)))
    }

    /// Whether it has passed.
    pub fn has_passed(self) -> bool {
        self.left().is_zero()
    }

    pub(crate) fn encode(self) -> [u8; Self::SIZE] {
        let nanos = u64::try_from(self.0.as_nanos());
        nanos.unwrap_or(u64::MAX).to_ne_bytes()
    }

    /// In front of the rest of a message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (nanos, rest) = bytes.split_first_chunk()?;
        let nanos = u64::from_ne_bytes(*nanos);
        Some((Self(Duration::from_nanos(nanos)), rest))
    }
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// What poll(2) is told of a wait. Rounded up: who wakes before the deadline would look in vain.
pub(crate) fn patience(left: Duration) -> Timespec {
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
        assert!(!soon.has_passed() && soon.left() > Duration::from_secs(1));
        assert!(Deadline::within(Duration::ZERO).has_passed());
        assert!(Deadline::decode(&[0; 7]).is_none());
    }
}
