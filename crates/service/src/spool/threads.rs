//! The threads that wait for the disk in place of the event loops.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use tokio::sync::{Semaphore, oneshot};

use crate::lock::lock;

/// Number of threads that wait for the disk at once: one thread would leave the disk's queue empty, more gain nothing.
const THREADS: usize = 4;
/// Limit of pieces in progress, each at most [`crate::pool::SIZE`]: 4 MiB in total. Other pieces wait in their source.
const JOBS: usize = 64;

type SpoolJob = Box<dyn FnOnce() + Send>;

/// Threads that are started on demand, and their queue of jobs.
pub(super) struct SpoolThreads {
    queue: Mutex<Queue>,
    work: Condvar,
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<SpoolJob>,
    threads: usize,
    idle: usize,
}

impl std::fmt::Debug for SpoolThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Threads")
    }
}

impl Default for SpoolThreads {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            work: Condvar::new(),
            room: Arc::new(Semaphore::new(JOBS)),
        }
    }
}

impl SpoolThreads {
    /// Does `work` on another thread. If the caller gives up before the work has begun, the work is not done.
    pub(super) async fn run_on_thread<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let ended = |_| io::Error::other("the thread that writes stored bodies has ended");
        let room = self.room.clone().acquire_owned().await;
        let room = room.map_err(io::Error::other)?;
        let (done, result) = oneshot::channel();
        let job = Box::new(move || {
            if !done.is_closed() {
                // The caller may have given up in the meantime.
                let _ = done.send(work());
            }
            drop(room);
        });
        self.push(job).map_err(|(e, _job)| e)?;
        result.await.map_err(ended)
    }

    /// Queues `job`, which is done some time, whatever else is in progress.
    ///
    /// # Errors
    /// There is no thread, and none can be started: the job comes back.
    pub(super) fn push(self: &Arc<Self>, job: SpoolJob) -> Result<(), (io::Error, SpoolJob)> {
        let mut queue = lock(&self.queue);
        if queue.idle <= queue.jobs.len() && queue.threads < THREADS {
            match self.spawn_thread() {
                Ok(()) => queue.threads += 1,
                Err(e) if queue.threads == 0 => return Err((e, job)),
                Err(_) => {}
            }
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.work.notify_one();
        Ok(())
    }

    fn spawn_thread(self: &Arc<Self>) -> io::Result<()> {
        let threads = self.clone();
        let thread = std::thread::Builder::new().name("spool".into());
        thread.spawn(move || threads.run_job_loop()).map(drop)
    }

    fn run_job_loop(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = lock(&self.queue);
                continue;
            }
            queue.idle += 1;
            let woken = self.work.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}
