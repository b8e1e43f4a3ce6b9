//! A coarse clock for waits that are longer than most requests.
//!
//! If each request had a timer, it would be set and cleared within a millisecond, and setting a timer makes the event loop wake
//! itself up. So all requests of an event loop share one tick. The tick runs only while a task waits for it, and tasks check
//! their time limits when it comes.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::sync::Notify;

/// The time between two ticks: the precision of the time limits of programs.
pub const LENGTH: Duration = Duration::from_millis(50);
/// If no task waits, the clock stops after this many ticks.
const IDLE_TICKS: u32 = 20;

#[derive(Debug, Default)]
struct Tick {
    came: Notify,
    start: Notify,
    running: Cell<bool>,
    waited: Cell<bool>,
    count: Cell<u64>,
    /// Tasks that wait by polling.
    tasks: RefCell<Vec<Waker>>,
}

thread_local! {
    static TICK: Rc<Tick> = Rc::default();
}

impl Tick {
    /// Notes that a task waits for the next tick, and starts the clock if it has stopped.
    fn request_tick(&self) {
        self.waited.set(true);
        if !self.running.replace(true) {
            self.start.notify_one();
        }
    }

    fn wake_waiters(&self) {
        self.count.set(self.count.get() + 1);
        self.came.notify_waiters();
        let mut tasks = self.tasks.take();
        tasks.drain(..).for_each(Waker::wake);
        // Put the empty vector back: its room is reused by the tasks that wait for the next tick.
        self.tasks.replace(tasks);
    }
}

/// Waits for the next tick, 0 to [`LENGTH`] from now.
pub async fn next() {
    let tick = TICK.with(Rc::clone);
    tick.request_tick();
    tick.came.notified().await;
}

/// Has the task polled again at the next tick.
pub fn wake_at_next(cx: &Context<'_>) {
    TICK.with(|tick| {
        tick.request_tick();
        let mut tasks = tick.tasks.borrow_mut();
        // A task that waits for several things is listed once.
        if !tasks.last().is_some_and(|last| last.will_wake(cx.waker())) {
            tasks.push(cx.waker().clone());
        }
    });
}

/// A wait for the next tick that survives between polls: a new poll continues the wait that was given up. Only one task polls
/// it.
#[derive(Debug, Default)]
pub struct Wait {
    since: Option<u64>,
}

impl Wait {
    /// Ready once a tick has come since the first poll; the poll after that begins another wait.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let now = elapsed_ticks();
        match self.since {
            Some(since) if since < now => {
                self.since = None;
                return Poll::Ready(());
            }
            Some(_) => {}
            None => {
                self.since = Some(now);
                wake_at_next(cx);
            }
        }
        Poll::Pending
    }
}

/// Returns the number of ticks so far. The clock may stand still if no task waits.
pub fn elapsed_ticks() -> u64 {
    TICK.with(|tick| tick.count.get())
}

/// Runs the clock of this thread's event loop; never ends.
pub async fn run_clock() {
    let tick = TICK.with(Rc::clone);
    loop {
        tick.start.notified().await;
        let mut idle = 0;
        while idle < IDLE_TICKS {
            tokio::time::sleep(LENGTH).await;
            idle = if tick.waited.replace(false) {
                0
            } else {
                idle + 1
            };
            tick.wake_waiters();
        }
        tick.running.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ticks_whenever_a_task_waits() {
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
                () = run_clock() => unreachable!("it never ends"),
                () = waits => {}
            }
            // Stop the clock, as after a pause: it starts again.
            TICK.with(|t| t.running.set(false));
            tokio::select! {
                () = run_clock() => unreachable!("it never ends"),
                () = next() => {}
            }
        });
    }
}
