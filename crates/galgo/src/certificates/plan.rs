//! The times of renewals, and of retries after failures. Clocks and random numbers are arguments.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, SystemTime},
};

use galgo_io::tls::Facts;

/// The period in which the authority suggests to renew (RFC 9773, 4.2): its start and its end.
pub(super) type Window = (SystemTime, SystemTime);

/// The kind of a failure, which sets the pause before the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The authority did not answer, or its answer makes no sense: another try counts against no limit.
    Unreachable,
    /// The authority could not verify that the host is ours, or wants something else. Another try counts against its limits.
    Refused,
    /// The authority was asked too often.
    Limited,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Least time between two renewals of a certificate, or a tenth of its lifetime if that is shorter. The authority's suggestion
/// does not change that.
const LEAST: Duration = HOUR;

/// Returns the time to renew a certificate: a moment in the period that the authority suggests, or when a third of its lifetime
/// is left. `chance` (0 to 1) spreads servers that were started together, so that they do not ask together.
pub(super) fn renewal_time(facts: &Facts, suggested: Option<Window>, chance: f64) -> SystemTime {
    let span = |from: SystemTime, to: SystemTime| to.duration_since(from).unwrap_or_default();
    if let Some((start, end)) = suggested {
        // A suggestion after the certificate's end counts as its end.
        return (start + span(start, end).mul_f64(chance)).min(facts.not_after);
    }
    let life = span(facts.not_before, facts.not_after);
    facts.not_before + life.mul_f64(2.0 / 3.0 + chance / 50.0)
}

/// Returns how long a new certificate is kept at least.
pub(super) fn min_keep_time(facts: &Facts) -> Duration {
    let life = facts.not_after.duration_since(facts.not_before);
    LEAST.min(life.unwrap_or_default() / 10)
}

/// Returns the pause after a failure; the first failure has the number 1. Let's Encrypt accepts five wrong proofs of a host in
/// an hour.
pub(super) fn retry_delay(failed: FailureKind, number: u32, chance: f64) -> Duration {
    let doubled = |times: u32| 1 << times.min(16);
    let pause = match (failed, number) {
        (FailureKind::Unreachable, n) => {
            (Duration::from_secs(1) * doubled(n.saturating_sub(1))).min(10 * MINUTE)
        }
        // The next try proves the host in the other way.
        (FailureKind::Refused, 0 | 1) => Duration::from_secs(5),
        (FailureKind::Refused, 2) => MINUTE,
        (FailureKind::Refused, 3) => 10 * MINUTE,
        (FailureKind::Refused, n) => (HOUR / 2 * doubled(n - 4)).min(6 * HOUR),
        (FailureKind::Limited, n) => (HOUR * doubled(n.saturating_sub(1))).min(24 * HOUR),
    };
    pause + pause.mul_f64(chance / 4.0)
}

/// Returns a number between 0 and 1 that is always the same for the same value.
pub(super) fn chance(of: impl Hash) -> f64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    f64::from((hasher.finish() >> 32) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn day(n: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(n * DAY)
    }

    fn facts(from: u64, to: u64) -> Facts {
        Facts {
            subject: String::new(),
            common_name: None,
            issuer: String::new(),
            serial: vec![1],
            authority_key: None,
            not_before: day(from),
            not_after: day(to),
        }
    }

    #[test]
    fn a_third_of_its_life_is_left() {
        let ninety = facts(100, 190);
        assert_eq!(renewal_time(&ninety, None, 0.0), day(160));
        let latest = renewal_time(&ninety, None, 1.0);
        assert!(latest > day(161) && latest < day(162));
        // A lifetime of six days.
        assert_eq!(renewal_time(&facts(100, 106), None, 0.0), day(104));
        assert_eq!(renewal_time(&facts(100, 100), None, 1.0), day(100));
    }

    #[test]
    fn the_authority_may_suggest_a_time() {
        let ninety = facts(100, 190);
        let suggested = Some((day(120), day(122)));
        for (chance, want) in [(0.0, 120), (0.5, 121), (1.0, 122)] {
            assert_eq!(renewal_time(&ninety, suggested, chance), day(want));
        }
        // A suggestion that begins after the certificate's end, or that ends before it begins, is not waited for.
        assert_eq!(
            renewal_time(&ninety, Some((day(300), day(400))), 0.5),
            day(190)
        );
        assert_eq!(
            renewal_time(&ninety, Some((day(120), day(1))), 0.5),
            day(120)
        );
    }

    #[test]
    fn what_has_come_is_kept_for_a_while() {
        assert_eq!(min_keep_time(&facts(100, 190)), HOUR);
        assert_eq!(min_keep_time(&facts(100, 100)), Duration::ZERO);
    }

    #[test]
    fn pauses_grow_and_end() {
        use FailureKind::{Limited, Refused, Unreachable};
        let s = Duration::from_secs;
        let table = [
            (Unreachable, 1, s(1)),
            (Unreachable, 2, s(2)),
            (Unreachable, 8, s(128)),
            (Unreachable, 4_000_000_000, 10 * MINUTE),
            (Refused, 1, s(5)),
            (Refused, 2, MINUTE),
            (Refused, 3, 10 * MINUTE),
            (Refused, 4, HOUR / 2),
            (Refused, 5, HOUR),
            (Refused, u32::MAX, 6 * HOUR),
            (Limited, 1, HOUR),
            (Limited, u32::MAX, 24 * HOUR),
        ];
        for (failed, number, want) in table {
            assert_eq!(
                retry_delay(failed, number, 0.0),
                want,
                "{failed:?} {number}"
            );
            assert_eq!(retry_delay(failed, number, 1.0), want + want / 4);
        }
        // Five tries in the first hour, including the first failure.
        let hour: Duration = (1..=4).map(|n| retry_delay(Refused, n, 0.0)).sum();
        assert!(hour < HOUR && hour + retry_delay(Refused, 5, 0.0) > HOUR);
    }

    #[test]
    fn chance_is_between_0_and_1() {
        assert!((0..1000).all(|n| (0.0..=1.0).contains(&chance(n))));
        assert!((chance("a") - chance("b")).abs() > 0.0);
    }
}
