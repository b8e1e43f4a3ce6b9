//! A coarse clock for what lasts longer than most requests.
//!
//! A timer of its own for each request would be set and cleared within a millisecond, and setting it
//! makes the event loop wake itself up. So all requests of a worker share one beat: it is there
//! only while somebody waits for it, and limits of time are looked at when it comes.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::sync::Notify;

/// The time between two beats: how exact the clocks of programs are.
pub const BEAT: Duration = Duration::from_millis(50);
/// Without anybody waiting, the clock stops after this many beats.
const IDLE_BEATS: u32 = 20;

#[derive(Debug, Default)]
struct Tick {
    beat: Notify,
    start: Notify,
    running: Cell<bool>,
    waited: Cell<bool>,
    beats: Cell<u64>,
}

thread_local! {
    static TICK: Rc<Tick> = Rc::default();
}

/// Waits for the next beat, 0 to [`BEAT`] from now.
pub async fn next() {
    let tick = TICK.with(Rc::clone);
    tick.waited.set(true);
    if !tick.running.replace(true) {
        tick.start.notify_one();
    }
    tick.beat.notified().await;
}

/// Beats so far. Without anybody waiting there may be none.
pub fn beats() -> u64 {
    TICK.with(|tick| tick.beats.get())
}

/// Beats, for the event loop of this thread; never ends.
pub async fn run() {
    let tick = TICK.with(Rc::clone);
    loop {
        tick.start.notified().await;
        let mut idle = 0;
        while idle < IDLE_BEATS {
            tokio::time::sleep(BEAT).await;
            idle = if tick.waited.replace(false) {
                0
            } else {
                idle + 1
            };
            tick.beats.set(tick.beats.get() + 1);
            tick.beat.notify_waiters();
        }
        tick.running.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_beats_whenever_somebody_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let waits = async {
            next().await;
            next().await;
        };
        runtime.block_on(async {
            tokio::select! {
                () = run() => unreachable!("it never ends"),
                () = waits => {}
            }
            // A clock that begins anew, as after a pause.
            TICK.with(|t| t.running.set(false));
            tokio::select! {
                () = run() => unreachable!("it never ends"),
                () = next() => {}
            }
        });
    }
}
