//! The tick at which running guests are asked whether they may go on.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use wasmtime::Engine;

use crate::say::log_as_worker;

/// A guest in an endless loop notices its end within this time.
const PERIOD: Duration = Duration::from_millis(10);
/// Number of ticks without a guest after which the thread rests, so that an idle worker does not wake
/// the processor.
const PATIENCE: u32 = 100;

#[derive(Debug, Default, Clone)]
pub(super) struct Ticker(Arc<TickerState>);

#[derive(Debug, Default)]
struct TickerState {
    running: AtomicUsize,
    /// Whether the thread rests, until it is woken.
    rests: AtomicBool,
    thread: OnceLock<Thread>,
}

#[derive(Debug)]
pub(super) struct RunningGuest<'t>(&'t TickerState);

impl Ticker {
    pub(super) fn start_thread(&self, engine: Engine) {
        let shared = self.0.clone();
        let thread = thread::Builder::new().name("ticker".into());
        match thread.spawn(move || shared.run_ticks(&engine)) {
            Ok(started) => drop(self.0.thread.set(started.thread().clone())),
            Err(_) => {
                log_as_worker("no thread for the clock: a guest that loops would not end");
                std::process::exit(1);
            }
        }
    }

    /// Whether no guest runs.
    pub(super) fn is_idle(&self) -> bool {
        self.0.running.load(Ordering::SeqCst) == 0
    }

    pub(super) fn mark_running(&self) -> RunningGuest<'_> {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        if self.0.rests.load(Ordering::SeqCst) {
            self.0.thread.get().inspect(|thread| thread.unpark());
        }
        RunningGuest(&self.0)
    }
}

impl TickerState {
    fn run_ticks(&self, engine: &Engine) {
        let mut idle = 0;
        loop {
            thread::sleep(PERIOD);
            engine.increment_epoch();
            idle = match self.running.load(Ordering::SeqCst) {
                0 => idle + 1,
                _ => 0,
            };
            if idle > PATIENCE {
                self.rest_until_woken();
                idle = 0;
            }
        }
    }

    fn rest_until_woken(&self) {
        self.rests.store(true, Ordering::SeqCst);
        // A guest that came between the last check and the store did not see it.
        while self.running.load(Ordering::SeqCst) == 0 {
            thread::park();
        }
        self.rests.store(false, Ordering::SeqCst);
    }
}

impl Drop for RunningGuest<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}
