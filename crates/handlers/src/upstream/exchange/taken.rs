//! Whether the worker of modules has taken a request. One that is stopped, or whose threads all wait for file systems that hang,
//! takes none.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use galgo_io::{sock::Sock, tick};
use galgo_spawn::unacknowledged;
use tokio::time::Instant;

/// How long a worker may take, and the least: a process that others slow down is not stopped.
const TAKES: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(5));
/// A worker reads so many bytes at once.
const AT_ONCE: usize = 32 << 10;

/// A request that may still be waiting for its worker.
#[derive(Debug)]
pub(super) struct Untaken {
    by: Instant,
    tick: tick::Wait,
}

impl Untaken {
    /// A request of `bytes`, of which a response head may take `first`. `None`: a worker takes only a part of it at once.
    pub(super) fn within(first: Duration, bytes: usize) -> Option<Self> {
        let (least, most) = TAKES;
        // Before the clock of the first byte rings.
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

/// Ready if the worker at the other end of `conn` should have taken the request, and has not.
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
    match unacknowledged(conn) {
        Ok(1..) => Poll::Ready(()),
        _ => Poll::Pending,
    }
}
