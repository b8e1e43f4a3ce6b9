//! Threads that hang in file systems. No call ends them but the end of the process: the worker leaves before they are many, and the server starts
//! another one.

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

use super::shared::Worker;
use crate::say::say;

/// Threads that do the file operations of one instance, which does one at a time; another where one is
/// stuck.
const FILE_THREADS: usize = 4;
/// Threads that may hang while other instances run.
const MOST: usize = 64;
/// A thread that does nothing else begins a task within this.
const BEGINS: Duration = Duration::from_millis(250);

/// What a thread waits with for its guest.
pub(super) fn event_loop() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS)
        .build()
}

/// A run was cancelled, maybe in the middle of a file operation. Threads that hang are left behind, with the event loop that they belong to: the next
/// instance needs others.
pub(super) fn leave_behind(worker: &Arc<Worker>, runtime: &mut Runtime) {
    let hang = hanging(runtime);
    if hang == 0 {
        return;
    }
    let all = worker.hung.fetch_add(hang, Ordering::SeqCst) + hang;
    let left = event_loop().and_then(|next| {
        let (old, worker) = (mem::replace(runtime, next), worker.clone());
        thread::Builder::new().name("left".into()).spawn(move || {
            // It waits for the threads: what is only slow, such as a name server, counts no longer when it has answered.
            drop(old);
            worker.hung.fetch_sub(hang, Ordering::SeqCst);
        })
    });
    if all >= MOST || worker.ticker.is_idle() || left.is_err() {
        say("threads of modules hang in file systems: another worker takes the place of this one");
        std::process::exit(1);
    }
}

/// How many threads for files hang: so many do not come to a place where all of them meet.
fn hanging(runtime: &Runtime) -> usize {
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
