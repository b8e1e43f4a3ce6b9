//! Checks whether the worker of modules has taken a request. A worker takes none if it is stopped, or if all its threads wait for
//! file systems that hang.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use galgo_io::{sock::Sock, tick};
use galgo_spawn::unacknowledged_bytes;
use tokio::time::Instant;

/// Least and greatest time for a worker to take a request: a process that others slow down is not a stopped process.
const TAKES: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(5));
/// Bytes that a worker reads at once.
const AT_ONCE: usize = 32 << 10;

/// A request that may still wait for its worker.
#[derive(Debug)]
pub(super) struct Untaken {
    by: Instant,
    tick: tick::Wait,
}

impl Untaken {
    /// Watches a request of `bytes`; the head of its response may take `first`. `None`: the request is too long for a worker to
    /// take at once.
    pub(super) fn within(first: Duration, bytes: usize) -> Option<Self> {
        let (least, most) = TAKES;
        // End before the clock of the first byte rings.
        let within = (first - first / 8).clamp(least, most);
        (bytes < AT_ONCE).then(|| Self {
            by: Instant::now() + within,
            tick: tick::Wait::default(),
        })
    }

    fn poll_late(&mut self, cx: &Context<'_>) -> Poll<()> {
        while Instant::now() < self.by {
            ready!(self.tick.poll(cx));
        }
        Poll::Ready(())
    }
}

/// Becomes ready if the worker at the other end of `conn` should have taken the request but has not.
pub(super) fn poll_untaken(
    untaken: &mut Option<Untaken>,
    conn: &Sock,
    cx: &Context<'_>,
) -> Poll<()> {
    let Some(waiting) = untaken else {
        return Poll::Pending;
    };
    ready!(waiting.poll_late(cx));
    *untaken = None;
    match unacknowledged_bytes(conn) {
        Ok(1..) => Poll::Ready(()),
        _ => Poll::Pending,
    }
}
