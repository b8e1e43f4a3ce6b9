//! Clients that were told 503 and ask again at once.
//!
//! The 503 itself is never put off. But a client that answers it with its next request multiplies the load:
//! each refusal costs the processor that programs need. So a connection on which a request was refused is
//! looked at again at a beat of the clock, and only so many of them at each: what comes sooner waits unread
//! where it is, and costs nothing.

use std::cell::Cell;

use crate::tick;

/// Connections of one loop that are looked at again with each beat: 2,000 refusals a second. At 15 µs each
/// (measured, Linux 6.18) those of a processor's loop take 3 % of it.
const EACH_BEAT: u32 = 100;
/// The longest pause, in beats: a second, the Retry-After of a 503.
const MOST_BEATS: u64 = 20;
const _: () = assert!(MOST_BEATS as u128 * tick::BEAT.as_millis() == 1000);

/// The pauses of one loop's connections.
#[derive(Debug, Default)]
pub struct Refused {
    /// The last beat that anybody waits for, and how many do.
    beat: Cell<u64>,
    taken: Cell<u32>,
}

impl Refused {
    /// Waits until the connection may be looked at again, or until `over` says that nobody should wait.
    pub async fn pause(&self, over: impl Fn() -> bool) {
        let beat = self.take(tick::beats());
        while tick::beats() < beat && !over() {
            tick::next().await;
        }
    }

    /// The beat to wait for: the next one that is not taken.
    fn take(&self, now: u64) -> u64 {
        let (beat, taken) = match self.beat.get() {
            beat if beat <= now => (now + 1, 0),
            beat if self.taken.get() < EACH_BEAT => (beat, self.taken.get()),
            beat => ((beat + 1).min(now + MOST_BEATS), 0),
        };
        self.beat.set(beat);
        self.taken.set(taken + 1);
        beat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_for_each_beat() {
        let refused = Refused::default();
        let mut beats = vec![0; 4];
        for _ in 0..2 * EACH_BEAT + 1 {
            beats[usize::try_from(refused.take(0)).unwrap()] += 1;
        }
        assert_eq!(beats, [0, EACH_BEAT, EACH_BEAT, 1]);
        // Whoever comes later waits for a beat that is still to come.
        assert_eq!(refused.take(2), 3);
        assert_eq!(refused.take(7), 8);
    }

    #[test]
    fn nobody_waits_longer_than_retry_after() {
        let refused = Refused::default();
        let longest = (0..100_000).map(|_| refused.take(5)).max();
        assert_eq!(longest, Some(5 + MOST_BEATS));
    }

    #[test]
    fn a_pause_ends_with_its_beat_or_before() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let refused = Refused::default();
        runtime.block_on(async {
            refused.pause(|| true).await;
            let before = tick::beats();
            tokio::select! {
                () = tick::run() => unreachable!("it never ends"),
                () = refused.pause(|| false) => {}
            }
            assert!(tick::beats() > before);
        });
    }
}
