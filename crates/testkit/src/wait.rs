//! Waits for a state, and repeats an action meanwhile.

use std::{
    sync::{
        Arc, Once,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{JoinHandle, sleep, spawn},
    time::{Duration, Instant},
};

/// Limit for every wait of a test. Even the slowest machine needs less: this is a guard, not a
/// measure.
pub const LONG: Duration = Duration::from_secs(300);

/// Waits until `state` returns `Some`. Panics with `what` if that takes too long.
#[track_caller]
pub fn eventually<T>(what: &str, mut state: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LONG;
    loop {
        if let Some(found) = state() {
            return found;
        }
        assert!(Instant::now() < until, "never came: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// Waits until `reached` returns true. Panics with `what` if that takes too long.
#[track_caller]
pub fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    eventually(what, || reached().then_some(()));
}

/// The time that this machine has run since a start. The machine may stand still in between, for
/// minutes.
#[derive(Debug)]
pub struct RunningTime(Duration);

/// `LOOK` is the pause between two checks whether the machine runs. `COUNTS` is the longest part of
/// a pause that counts.
const LOOK: Duration = Duration::from_millis(10);
const COUNTS: Duration = Duration::from_millis(50);

impl RunningTime {
    /// Starts the measurement.
    pub fn start() -> Self {
        Self(ran())
    }

    /// Returns the upper bound of the time that the machine has run.
    pub fn elapsed(&self) -> Duration {
        ran().saturating_sub(self.0)
    }
}

/// Returns the running time since the first call.
fn ran() -> Duration {
    static MILLIS: AtomicU64 = AtomicU64::new(0);
    static COUNTER: Once = Once::new();
    COUNTER.call_once(|| {
        spawn(|| {
            loop {
                let look = Instant::now();
                sleep(LOOK);
                let ran = look.elapsed().min(COUNTS).subsec_millis();
                MILLIS.fetch_add(ran.into(), Ordering::Relaxed);
            }
        });
    });
    Duration::from_millis(MILLIS.load(Ordering::Relaxed))
}

/// An action that a thread repeats.
#[derive(Debug)]
pub struct Repeated {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Repeated {
    /// Starts the thread. The action runs at least once.
    pub fn start(mut once: impl FnMut() + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let again = move || {
            once();
            while !told.load(Ordering::Relaxed) {
                once();
            }
        };
        let thread = spawn(again);
        Self { over, thread }
    }

    /// Ends the thread. Panics if the action has panicked.
    pub fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_machine_runs_counts() {
        let (running, began) = (RunningTime::start(), Instant::now());
        wait_until("time", || running.elapsed() >= 4 * COUNTS);
        // The first check may have begun before the start.
        assert!(running.elapsed() <= began.elapsed() + COUNTS);
    }
}
