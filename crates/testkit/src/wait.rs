//! Waiting for a state, and doing something meanwhile.

use std::{
    sync::{
        Arc, Once,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{JoinHandle, sleep, spawn},
    time::{Duration, Instant},
};

/// Nothing that a test waits for takes longer, on the slowest machine: a guard, not a measure.
pub const LONG: Duration = Duration::from_secs(300);

/// Waits until `state` is there; panics with `what` when it does not come.
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

/// Waits until `reached` says so; panics with `what` when it does not.
#[track_caller]
pub fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    eventually(what, || reached().then_some(()));
}

/// How long this machine has run since something began: it may stand still in between, for minutes.
#[derive(Debug)]
pub struct RunningTime(Duration);

/// So often it is looked whether it runs, and so much of a pause between two looks counts.
const LOOK: Duration = Duration::from_millis(10);
const COUNTS: Duration = Duration::from_millis(50);

impl RunningTime {
    /// Begins.
    pub fn start() -> Self {
        Self(ran())
    }

    /// So long it ran, at most.
    pub fn elapsed(&self) -> Duration {
        ran().saturating_sub(self.0)
    }
}

/// Since the first call.
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

/// Something that a thread does again and again.
#[derive(Debug)]
pub struct Repeated {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Repeated {
    /// Begins; it is done once at least.
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

    /// Ends it; panics where it has.
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
        // One look may have begun before.
        assert!(running.elapsed() <= began.elapsed() + COUNTS);
    }
}
