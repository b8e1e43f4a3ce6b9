//! The three clocks of a program: first byte, idle, total.

use std::{pin::Pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::{config::CgiOptions, fault::Fault};

/// The clocks of one request. One timer serves all three; it is set again only when it rings.
#[derive(Debug)]
pub struct Clocks {
    timer: Pin<Box<Sleep>>,
    first: Option<Instant>,
    total: Instant,
    moved: Instant,
    idle: Duration,
    lengths: [Duration; 3],
}

impl Clocks {
    /// Starts all clocks now.
    pub fn start(options: &CgiOptions) -> Self {
        let now = Instant::now();
        let first = now + options.first_byte_timeout;
        let total = now + options.total_timeout;
        let soonest = first.min(total).min(now + options.idle_timeout);
        Self {
            timer: Box::pin(sleep_until(soonest)),
            first: Some(first),
            total,
            moved: now,
            idle: options.idle_timeout,
            lengths: [
                options.first_byte_timeout,
                options.idle_timeout,
                options.total_timeout,
            ],
        }
    }

    /// The response head is whole: the first clock stops.
    pub fn first_byte(&mut self) {
        self.first = None;
    }

    /// A byte moved, in either direction. While the request body moves, the first clock begins again:
    /// a slow upload is not the program's fault.
    pub fn moved(&mut self) {
        self.moved = Instant::now();
        if let Some(first) = &mut self.first {
            *first = self.moved + self.lengths[0];
        }
    }

    /// What is left of the total time.
    pub fn total_left(&self) -> Duration {
        self.total.saturating_duration_since(Instant::now())
    }

    /// Waits until one of the clocks has run out, and says which.
    pub async fn ring(&mut self) -> Fault {
        loop {
            let now = Instant::now();
            let [first, idle, total] = self.lengths;
            let idle_at = self.moved + self.idle;
            if self.total <= now {
                return late("total_timeout", total, "the request was not finished");
            }
            if self.first.is_some_and(|at| at <= now) {
                return late(
                    "first_byte_timeout",
                    first,
                    "no complete response head came",
                );
            }
            if idle_at <= now && self.first.is_none() {
                return late("idle_timeout", idle, "no byte moved in either direction");
            }
            // Before the head is whole only the first-byte clock counts.
            let next = self.first.unwrap_or(idle_at).min(self.total);
            if self.timer.deadline() <= now || self.timer.deadline() > next {
                self.timer.as_mut().reset(next);
            }
            self.timer.as_mut().await;
        }
    }
}

fn late(clock: &str, length: Duration, what: &str) -> Fault {
    Fault::Late(format!(
        "{what} within {length:?} ({clock}); the program was ended"
    ))
}
