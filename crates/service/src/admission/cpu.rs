//! The processor time that the programs of each address used lately, and whether it is more than the address's share.
//!
//! Used time counts half as much after each [`HALF`]: an eighth after a minute. So one number for each address is enough, and
//! the ratio of two such numbers does not change while no program ends.

use std::time::Duration;

/// After this time, used processor time counts half as much.
const HALF: Duration = Duration::from_secs(20);
/// Addresses that have used less are forgotten as soon as they run no program. So each remembered address has used a
/// hundredth of a second in the last minutes: there cannot be many.
const FORGOTTEN: u64 = 10_000;

/// Number of times that [`HALF`] has passed.
pub(super) type Period = u32;

/// Returns the period of a moment, which is given as the time since any fixed moment.
pub(super) fn period_at(since: Duration) -> Period {
    Period::try_from(since.as_secs() / HALF.as_secs()).unwrap_or(Period::MAX)
}

/// Processor time that was used lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuUse {
    /// Microseconds, as they counted in period `at`.
    used: u64,
    at: Period,
}

impl CpuUse {
    /// Adds `used` microseconds in the current period.
    pub(super) fn add_micros(&mut self, used: u64, now: Period) {
        self.used = self.recent_micros(now).saturating_add(used);
        self.at = now;
    }

    /// Whether the time is too short to be remembered.
    pub(super) fn is_negligible(self, now: Period) -> bool {
        self.recent_micros(now) < FORGOTTEN
    }

    /// Whether this time is more than `percent` of the time `all`; with 0 percent, never.
    pub(super) fn exceeds_share(self, percent: usize, all: Self, now: Period) -> bool {
        let (own, all) = (self.recent_micros(now), all.recent_micros(now));
        percent > 0 && u128::from(own) * 100 > u128::from(all) * percent as u128
    }

    fn recent_micros(self, now: Period) -> u64 {
        self.used
            .checked_shr(now.saturating_sub(self.at))
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_counts_less_and_less() {
        let mut used = CpuUse::default();
        used.add_micros(80_000, 1);
        for (period, lately) in [(1, 80_000), (2, 40_000), (4, 10_000), (5, 5000), (90, 0)] {
            assert_eq!(used.recent_micros(period), lately);
            assert_eq!(used.is_negligible(period), lately < FORGOTTEN);
        }
        used.add_micros(1, 3);
        assert_eq!(used.recent_micros(3), 20_001);
        used.add_micros(u64::MAX, 3);
        assert_eq!(used.recent_micros(3), u64::MAX);
        assert_eq!(period_at(Duration::from_secs(59)), 2);
    }

    #[test]
    fn more_than_a_share() {
        let used = |used| CpuUse { used, at: 0 };
        for (own, all, percent, exceeds) in [
            (51, 100, 50, true),
            (50, 100, 50, false),
            (100, 100, 100, false),
            (1, 100, 0, false),
            (0, 0, 50, false),
            (u64::MAX, u64::MAX, 50, true),
        ] {
            let said = used(own).exceeds_share(percent, used(all), 0);
            assert_eq!(said, exceeds, "{own} of {all}, {percent} %");
            // The ratio does not change while no program uses time.
            let later = used(own << 8 >> 8).exceeds_share(percent, used(all << 8 >> 8), 1);
            assert!(own < 60 || later == exceeds);
        }
    }
}
