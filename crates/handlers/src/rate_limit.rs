//! Limits how often an address may send requests to a route: `rate_limit`.
//!
//! This is the generic cell rate algorithm (ITU-T I.371, annex A) in integers. For each address it keeps a single moment, at
//! which all previous requests of the address will have been earned. A request is refused if that moment lies further ahead
//! than the time in which a burst is earned.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use galgo_service::{fault::Fault, lock::lock, peer::Peer};
use tokio::time::Instant;

/// Limit of the addresses that each route remembers: about 3 MiB. Beyond it, the addresses with the oldest requests are
/// forgotten, and start again. A client with so many addresses gains nothing if the route forgets an address.
const REMEMBERED: usize = 1 << 16;

/// `rate_limit = { requests = …, per = …, burst = … }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSettings {
    /// Requests that are earned in `per`; at least one.
    pub requests: usize,
    /// Time in which the `requests` are earned.
    pub per: Duration,
    /// Requests that may arrive at once; at least one.
    pub burst: usize,
}

/// The limit of one route, and the used time of each address. Two limits are equal if they are configured equally.
#[derive(Debug)]
pub struct RateLimit {
    settings: RateSettings,
    /// Start of the count of nanoseconds.
    from: Instant,
    asked: Mutex<ArrivalTimes>,
}

/// Moments up to which each address has used its share, in nanoseconds. Addresses with recent requests are in `now`, and
/// addresses with only older requests in `before`.
#[derive(Debug, Default)]
struct ArrivalTimes {
    now: HashMap<Peer, u64>,
    before: HashMap<Peer, u64>,
    /// The moment when `now` was last started.
    turned: u64,
}

impl RateLimit {
    /// Creates a limit without any addresses.
    pub fn new(settings: RateSettings) -> Self {
        Self {
            settings,
            from: Instant::now(),
            asked: Mutex::default(),
        }
    }

    /// Asks for a request of this address at that moment. Clients without an address are many, and are not limited.
    ///
    /// # Errors
    /// The address has sent too many requests.
    pub fn admit_request(&self, peer: Peer, at: Instant) -> Result<(), Fault> {
        if peer == Peer::default() {
            return Ok(());
        }
        let at = saturating_nanos(at.saturating_duration_since(self.from));
        let mut times = lock(&self.asked);
        let asked = times.admit_request(peer, at, &self.settings, REMEMBERED);
        asked.map_err(|early| Fault::TooMany(Duration::from_nanos(early)))
    }
}

impl PartialEq for RateLimit {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl RateSettings {
    /// Returns the time in which one request is earned, in nanoseconds.
    fn interval(&self) -> u64 {
        (saturating_nanos(self.per) / self.requests as u64).max(1)
    }
}

impl ArrivalTimes {
    /// Asks for a request of this address. The error says how many nanoseconds too early the request is.
    fn admit_request(
        &mut self,
        peer: Peer,
        at: u64,
        s: &RateSettings,
        most: usize,
    ) -> Result<(), u64> {
        let interval = s.interval();
        let full = interval.saturating_mul(s.burst as u64);
        // Requests that have been in `before` for this long are earned by now.
        if self.now.len() >= most / 2 || at.saturating_sub(self.turned) > full {
            self.before = std::mem::take(&mut self.now);
            self.turned = at;
        }
        let before = || self.before.get(&peer).copied();
        let used = self.now.get(&peer).copied().or_else(before);
        let next = used.unwrap_or(at).max(at).saturating_add(interval);
        match next.saturating_sub(at).checked_sub(full) {
            None | Some(0) => {
                self.now.insert(peer, next);
                Ok(())
            }
            Some(early) => {
                self.now.insert(peer, next - interval);
                Err(early)
            }
        }
    }
}

fn saturating_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u32) -> Peer {
        Peer::from_address(Some(std::net::Ipv4Addr::from(n).into()))
    }

    fn settings(requests: usize, per_ms: u64, burst: usize) -> RateSettings {
        RateSettings {
            requests,
            per: Duration::from_millis(per_ms),
            burst,
        }
    }

    /// Plays the steps. Each step holds the milliseconds at which the address asks, and how many it is too early.
    fn play(s: RateSettings, steps: &[(u64, u64)]) {
        let mut asked = ArrivalTimes::default();
        for (step, &(at, early)) in steps.iter().enumerate() {
            let said = asked.admit_request(peer(1), at * 1_000_000, &s, 100);
            let early = match early {
                0 => Ok(()),
                ms => Err(ms * 1_000_000),
            };
            assert_eq!(said, early, "step {step} of {steps:?}");
        }
    }

    #[test]
    fn a_table_of_requests() {
        // Ten requests a second, two at once.
        let s = settings(10, 1000, 2);
        play(
            s,
            &[(0, 0), (0, 0), (0, 100), (99, 1), (100, 0), (100, 100)],
        );
        play(s, &[(0, 0), (50, 0), (100, 0), (100, 100), (200, 0)]);
        // A refused request costs nothing, and a share that was earned long ago is not kept.
        play(
            s,
            &[
                (0, 0),
                (0, 0),
                (1, 99),
                (2, 98),
                (5000, 0),
                (5000, 0),
                (5000, 100),
            ],
        );
        // Two event loops may read the clock in another order.
        play(s, &[(10, 0), (9, 1), (10, 0), (10, 100)]);
        // A single request at once.
        play(settings(1, 60_000, 1), &[(0, 0), (1, 59_999), (60_000, 0)]);
        // A burst as large as `requests`.
        play(
            settings(3, 3000, 3),
            &[(0, 0), (0, 0), (0, 0), (0, 1000), (1000, 0)],
        );
    }

    #[test]
    fn each_address_has_its_own() {
        let s = settings(1, 1000, 1);
        let mut asked = ArrivalTimes::default();
        for n in 0..5 {
            assert_eq!(asked.admit_request(peer(n), 0, &s, 100), Ok(()));
        }
        assert!(asked.admit_request(peer(0), 1, &s, 100).is_err());
    }

    #[test]
    fn few_are_remembered_and_those_that_ask_go_on_being() {
        let s = settings(1, 1_000_000, 1);
        let mut asked = ArrivalTimes::default();
        assert_eq!(asked.admit_request(peer(0), 0, &s, 8), Ok(()));
        for n in 1..1000 {
            assert_eq!(asked.admit_request(peer(n), 1, &s, 8), Ok(()));
            assert!(asked.now.len() + asked.before.len() <= 8);
            assert!(
                asked.admit_request(peer(0), 1, &s, 8).is_err(),
                "after {n} others"
            );
        }
        assert_eq!(
            asked.admit_request(peer(1), 1, &s, 8),
            Ok(()),
            "it was forgotten"
        );
    }

    #[test]
    fn what_was_earned_long_ago_takes_no_memory() {
        let s = settings(1, 1000, 1);
        let mut asked = ArrivalTimes::default();
        for n in 0..10 {
            let _ = asked.admit_request(peer(n), 0, &s, 100);
        }
        let second = 1_000_000_000;
        let _ = asked.admit_request(peer(50), second + 1, &s, 100);
        let _ = asked.admit_request(peer(51), 2 * second + 2, &s, 100);
        assert_eq!(asked.now.len() + asked.before.len(), 2);
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let s = settings(1, 24 * 3_600_000, 100_000);
        let mut asked = ArrivalTimes::default();
        let late = 100 * 365 * 24 * 3_600_000_000_000;
        for _ in 0..100_000 {
            assert_eq!(asked.admit_request(peer(1), late, &s, 100), Ok(()));
        }
        assert!(asked.admit_request(peer(1), late, &s, 100).is_err());
        assert_eq!(settings(1_000_000, 1, 1).interval(), 1);
    }

    #[test]
    fn who_has_no_address_is_not_limited() {
        let limit = RateLimit::new(settings(1, 1_000_000, 1));
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(limit.admit_request(Peer::default(), now), Ok(()));
        }
        assert_eq!(limit.admit_request(peer(1), now), Ok(()));
        assert!(matches!(
            limit.admit_request(peer(1), now),
            Err(Fault::TooMany(_))
        ));
    }
}
