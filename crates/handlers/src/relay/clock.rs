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

/// The clocks of one request, checked with every [`tick`].
#[derive(Debug)]
pub struct Clocks {
    first: Option<Instant>,
    total: Instant,
    moved: Instant,
    lengths: [Duration; 3],
    /// Movement since the last check.
    since: Moved,
    /// Tick of the next check.
    tick: tick::Wait,
    /// Words for the error: what happened to the late program or connection.
    after: &'static str,
}

/// A time longer than any connection lasts.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Movement since the last check. The time of the movement is taken at the next tick: reading a clock for each piece would cost
/// more than everything else here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moved {
    Nothing,
    Something,
    /// A piece of the request body moved, perhaps among others.
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

    /// Returns how long a response head may take.
    pub fn first_length(&self) -> Duration {
        self.lengths[0]
    }

    /// Stops the first clock, because the response head is complete.
    pub fn stop_first_clock(&mut self) {
        self.first = None;
    }

    /// Notes that a byte moved, in either direction.
    pub fn record_move(&mut self) {
        self.since = self.since.max(Moved::Something);
    }

    /// Notes that a byte of the request body moved. The first clock restarts, because a slow upload is not the program's fault.
    pub fn record_body_move(&mut self) {
        self.since = Moved::Body;
    }

    /// Stops the clock of the total time, because the program now has the client's connection. Only silence ends the program.
    pub fn stop_total_clock(&mut self) {
        self.total = Instant::now() + CENTURY;
    }

    /// Returns how long a program may go on after its output is no longer read: the rest of the total time if it `finishes`.
    pub fn patience(&self, finishes: bool, otherwise: Duration) -> Duration {
        if finishes {
            self.total.saturating_duration_since(Instant::now())
        } else {
            otherwise
        }
    }

    /// Lets another task wait for the clocks from now on.
    pub fn change_task(&mut self) {
        self.tick = tick::Wait::default();
    }

    /// Waits until a clock runs out, and returns its fault. The task may drop this future and begin again many times between two
    /// ticks.
    pub fn await_expiry(&mut self) -> impl Future<Output = Fault> {
        poll_fn(|cx| self.poll_expiry(cx))
    }

    /// Does the same as [`Clocks::await_expiry`], as a poll function.
    pub fn poll_expiry(&mut self, cx: &Context<'_>) -> Poll<Fault> {
        loop {
            ready!(self.tick.poll(cx));
            if let Some(fault) = self.check_expiry(Instant::now()) {
                return Poll::Ready(fault);
            }
        }
    }

    /// Returns the fault of the clock that has run out.
    fn check_expiry(&mut self, now: Instant) -> Option<Fault> {
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
            let what = "no complete response head arrived";
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

    /// This happens when a program goes on by itself after its client has left.
    #[tokio::test]
    async fn another_task_hears_a_clock_that_one_had_waited_for() {
        let on_a_loop = LocalSet::new();
        let ringing = on_a_loop.run_until(async {
            spawn_local(tick::run_clock());
            let options = CgiOptions {
                total_timeout: Duration::ZERO,
                ..CgiOptions::default()
            };
            let mut clocks = Clocks::start(&options, "");
            let first = poll_fn(|cx| Poll::Ready(clocks.poll_expiry(cx).is_pending()));
            assert!(first.await);
            clocks.change_task();
            spawn_local(async move { clocks.await_expiry().await }).await
        });
        let rung = tokio::time::timeout(Duration::from_secs(60), ringing).await;
        assert!(matches!(rung, Ok(Ok(Fault::Late(_)))));
    }
}
