//! The retry throttle: for clients that were told 503 and ask again at once.
//!
//! The 503 itself is never put off. But a client that answers it with its next request multiplies the load: each refusal costs
//! processor time that programs need. So after a refusal, the event loop reads the connection again only at a tick of its
//! clock, and reads a limited number of such connections at each tick. A request that comes sooner waits in the kernel, and
//! costs nothing.

use std::cell::Cell;

use galgo_io::tick;

/// Connections of one event loop that are read again at each tick: 2,000 refusals a second. At 15 µs each (measured,
/// Linux 6.18) they take 3 % of a processor.
const EACH_TICK: u32 = 100;
/// The longest pause, in ticks: a second, the Retry-After of a 503.
const MOST_TICKS: u64 = 20;
const _: () = assert!(MOST_TICKS as u128 * tick::LENGTH.as_millis() == 1000);

/// The pauses of one event loop's connections.
#[derive(Debug, Default)]
pub(crate) struct RetryThrottle {
    /// The last tick that connections wait for, and how many wait for it.
    tick: Cell<u64>,
    taken: Cell<u32>,
}

impl RetryThrottle {
    /// Waits until the connection may be read again, or until `over` says that it need not wait.
    pub(crate) async fn wait_to_read(&self, over: impl Fn() -> bool) {
        let until = self.reserve_tick(tick::elapsed_ticks());
        while tick::elapsed_ticks() < until && !over() {
            tick::next().await;
        }
    }

    /// Chooses the tick to wait for: the next tick that has room.
    fn reserve_tick(&self, now: u64) -> u64 {
        let (tick, taken) = match self.tick.get() {
            tick if tick <= now => (now + 1, 0),
            tick if self.taken.get() < EACH_TICK => (tick, self.taken.get()),
            tick => ((tick + 1).min(now + MOST_TICKS), 0),
        };
        self.tick.set(tick);
        self.taken.set(taken + 1);
        tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_each_tick() {
        let throttle = RetryThrottle::default();
        let mut ticks = vec![0; 4];
        for _ in 0..2 * EACH_TICK + 1 {
            ticks[usize::try_from(throttle.reserve_tick(0)).unwrap()] += 1;
        }
        assert_eq!(ticks, [0, EACH_TICK, EACH_TICK, 1]);
        // A connection that comes later waits for a later tick.
        assert_eq!(throttle.reserve_tick(2), 3);
        assert_eq!(throttle.reserve_tick(7), 8);
    }

    #[test]
    fn nobody_waits_longer_than_retry_after() {
        let throttle = RetryThrottle::default();
        let longest = (0..100_000).map(|_| throttle.reserve_tick(5)).max();
        assert_eq!(longest, Some(5 + MOST_TICKS));
    }

    #[test]
    fn a_pause_ends_with_its_tick_or_before() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let throttle = RetryThrottle::default();
        runtime.block_on(async {
            throttle.wait_to_read(|| true).await;
            let before = tick::elapsed_ticks();
            tokio::select! {
                () = tick::run_clock() => unreachable!("it never ends"),
                () = throttle.wait_to_read(|| false) => {}
            }
            assert!(tick::elapsed_ticks() > before);
        });
    }
}
