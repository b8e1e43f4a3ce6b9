//! The three clocks of a program: first byte, idle, total.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use galgo_io::tick;
use galgo_service::fault::Fault;
use tokio::time::Instant;

use crate::program_settings::CgiOptions;

/// The clocks of one request, looked at with every [`tick`].
#[derive(Debug)]
pub struct Clocks {
    first: Option<Instant>,
    total: Instant,
    moved: Instant,
    lengths: [Duration; 3],
    /// What has moved since the clocks were looked at.
    since: Moved,
    /// The tick with which they are looked at next.
    tick: tick::Wait,
    /// What became of the program or connection that was too late.
    after: &'static str,
}

/// Longer than any connection lasts.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Whether anything has moved. When is asked with the next tick: reading a clock for each piece would cost more than
/// the rest of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moved {
    Nothing,
    Something,
    /// A piece of the request body, among others.
    Body,
}

impl Clocks {
    /// Starts all clocks now.
    pub fn start(options: &CgiOptions, after: &'static str) -> Self {
        let now = Instant::now();
        Self {
            first: Some(now + options.first_byte_timeout),
            total: now + options.total_timeout,
            moved: now,
            lengths: [
                options.first_byte_timeout,
                options.idle_timeout,
                options.total_timeout,
            ],
            since: Moved::Nothing,
            tick: tick::Wait::default(),
            after,
        }
    }

    /// How long a response head may take.
    pub fn first_length(&self) -> Duration {
        self.lengths[0]
    }

    /// The response head is whole: the first clock stops.
    pub fn first_byte(&mut self) {
        self.first = None;
    }

    /// A byte moved, in either direction.
    pub fn moved(&mut self) {
        self.since = self.since.max(Moved::Something);
    }

    /// A byte of the request body moved: the first clock begins again, for a slow upload is not the
    /// program's fault.
    pub fn body_moved(&mut self) {
        self.since = Moved::Body;
    }

    /// The program has the client's connection: only a silent one ends it, however long it lasts.
    pub fn only_idle(&mut self) {
        self.total = Instant::now() + CENTURY;
    }

    /// How long a program may go on whose output is no longer read: what is left of the total time, where it `finishes`.
    pub fn patience(&self, finishes: bool, otherwise: Duration) -> Duration {
        if finishes {
            self.total.saturating_duration_since(Instant::now())
        } else {
            otherwise
        }
    }

    /// Another task waits for them from now on.
    pub fn change_task(&mut self) {
        self.tick = tick::Wait::default();
    }

    /// Waits until one of the clocks has run out, and says which. The task may give up and begin again many times between two
    /// ticks.
    pub fn ring(&mut self) -> impl Future<Output = Fault> {
        poll_fn(|cx| self.poll_ring(cx))
    }

    /// As [`Clocks::ring`], polled.
    pub fn poll_ring(&mut self, cx: &Context<'_>) -> Poll<Fault> {
        loop {
            ready!(self.tick.poll(cx));
            if let Some(fault) = self.look(Instant::now()) {
                return Poll::Ready(fault);
            }
        }
    }

    /// Which clock has run out.
    fn look(&mut self, now: Instant) -> Option<Fault> {
        let [first, idle, total] = self.lengths;
        let since = std::mem::replace(&mut self.since, Moved::Nothing);
        if since >= Moved::Something {
            self.moved = now;
        }
        if since == Moved::Body {
            self.first = self.first.map(|_| now + first);
        }
        let (what, length, clock) = if self.total <= now {
            ("the request was not finished", total, "total_timeout")
        } else if self.first.is_some_and(|at| at <= now) {
            let what = "no complete response head came";
            (what, first, "first_byte_timeout")
        } else if self.moved + idle <= now && self.first.is_none() {
            ("no byte moved in either direction", idle, "idle_timeout")
        } else {
            return None;
        };
        let after = self.after;
        Some(Fault::Late(format!(
            "{what} within {length:?} ({clock}); {after}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    /// As when a program goes on by itself after its client has left.
    #[tokio::test]
    async fn another_task_hears_a_clock_that_one_had_waited_for() {
        let on_a_loop = LocalSet::new();
        let ringing = on_a_loop.run_until(async {
            spawn_local(tick::run());
            let options = CgiOptions {
                total_timeout: Duration::ZERO,
                ..CgiOptions::default()
            };
            let mut clocks = Clocks::start(&options, "");
            let first = poll_fn(|cx| Poll::Ready(clocks.poll_ring(cx).is_pending()));
            assert!(first.await);
            clocks.change_task();
            spawn_local(async move { clocks.ring().await }).await
        });
        let rung = tokio::time::timeout(Duration::from_secs(60), ringing).await;
        assert!(matches!(rung, Ok(Ok(Fault::Late(_)))));
    }
}
