//! Threads that hang in file systems. Only the end of the process ends them. So the worker exits before there are many, and the
//! server starts another worker.

use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};

use crate::{say::log_as_worker, worker::worker_state::Worker};

/// Threads that do the file operations of one instance. An instance does one operation at a time, and needs another thread if one
/// is stuck.
const FILE_THREADS: usize = 4;
/// Threads that may hang while other instances run.
const MOST: usize = 64;
/// An idle thread begins a task within this time.
const BEGINS: Duration = Duration::from_millis(250);

/// Creates the event loop in which a thread waits with its guest.
pub(super) fn event_loop() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS)
        .build()
}

/// Called after a run was cancelled, maybe in the middle of a file operation. Abandons hanging threads with their event loop,
/// because the next instance needs working threads.
pub(super) fn abandon_hanging(worker: &Arc<Worker>, runtime: &mut Runtime) {
    let hang = count_hanging(runtime);
    if hang == 0 {
        return;
    }
    let all = worker.hung.fetch_add(hang, Ordering::SeqCst) + hang;
    let left = event_loop().and_then(|next| {
        let (old, worker) = (mem::replace(runtime, next), worker.clone());
        thread::Builder::new().name("left".into()).spawn(move || {
            // The drop waits for the threads: a thread that was only slow counts until it has its answer.
            drop(old);
            worker.hung.fetch_sub(hang, Ordering::SeqCst);
        })
    });
    if all >= MOST || worker.ticker.is_idle() || left.is_err() {
        log_as_worker("threads of modules hang in file systems: another worker replaces this one");
        std::process::exit(1);
    }
}

/// Returns the number of file threads that hang, because they do not begin a task in which all of them meet.
fn count_hanging(runtime: &Runtime) -> usize {
    let met = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + BEGINS;
    let all_met = move |met: &AtomicUsize| {
        while met.load(Ordering::SeqCst) < FILE_THREADS && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    };
    for _ in 0..FILE_THREADS {
        let met = met.clone();
        runtime.spawn_blocking(move || {
            met.fetch_add(1, Ordering::SeqCst);
            all_met(&met);
        });
    }
    all_met(&met);
    FILE_THREADS - met.load(Ordering::SeqCst)
}
