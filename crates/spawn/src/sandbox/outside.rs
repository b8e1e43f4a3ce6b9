//! Programs that are not to have what this process has confined itself to.

use std::{
    io, mem,
    sync::mpsc::{Sender, channel, sync_channel},
    thread,
};

type Job = Box<dyn FnOnce() + Send>;

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
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || drop(done.send(f())));
        // SAFETY: only the lifetime of what `f` borrows is forgotten. `f` is used up before `done` is sent to or dropped,
        // and this function waits for either: no borrow is used after it has returned.
        let job: Job = unsafe { mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
        self.jobs.send(job).ok()?;
        is_done.recv().ok()
    }
}
