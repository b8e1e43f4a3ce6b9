//! Programs that are not to have what this process has confined itself to.

use std::{
    io, mem,
    sync::mpsc::{Sender, SyncSender, channel, sync_channel},
    thread,
};

type Job = Box<dyn FnOnce() + Send>;

/// A call that somebody waits for. The order of the fields matters: see [`Outside::call`].
struct Call<F, T> {
    f: F,
    done: SyncSender<T>,
}

impl<F: FnOnce() -> T, T> Call<F, T> {
    fn run(self) {
        let Self { f, done } = self;
        // Whoever waited may be gone.
        let _ = done.send(f());
    }
}

/// A thread that was started before [`confine`](super::confine) was called, and starts programs for those that are confined:
/// what a program inherits is that of the thread that starts it.
#[derive(Debug)]
pub struct Outside {
    jobs: Sender<Job>,
}

impl Outside {
    /// Starts the thread, which lasts as long as the process: with its end all that it has started would be killed
    /// ([`Direct::set_orphaned`](crate::Direct::set_orphaned)).
    pub fn new() -> io::Result<Self> {
        let (jobs, given) = channel::<Job>();
        let thread = thread::Builder::new().name("outside".into());
        thread.spawn(move || {
            given.iter().for_each(|job| job());
            loop {
                thread::park();
            }
        })?;
        Ok(Self { jobs })
    }

    /// No such thread: what it would start is not started.
    pub fn absent() -> Self {
        let (jobs, _) = channel();
        Self { jobs }
    }

    /// Calls `f` on that thread, and waits for it. `None`: the thread is gone.
    pub(crate) fn call<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send) -> Option<T> {
        let (done, is_done) = sync_channel(1);
        let call = Call { f, done };
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || call.run());
        // SAFETY: only the lifetime of what `f` borrows is forgotten. This function waits until `done` is sent to or dropped.
        // Before that `f` is gone: `run` calls it first, also where that panics, and a job that is dropped without being run
        // drops its fields in their order. No borrow is used after this function has returned.
        let job: Job = unsafe { mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
        self.jobs.send(job).ok()?;
        is_done.recv().ok()
    }
}
