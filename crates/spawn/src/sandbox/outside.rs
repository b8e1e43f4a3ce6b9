//! Starts programs without the restrictions that this process has entered.

use std::{
    io, mem,
    sync::mpsc::{Sender, SyncSender, channel, sync_channel},
    thread,
};

type Job = Box<dyn FnOnce() + Send>;

/// A call whose caller waits for the result. The order of the fields matters: see [`call_on_thread`].
struct Call<F, T> {
    f: F,
    done: SyncSender<T>,
}

impl<F: FnOnce() -> T, T> Call<F, T> {
    fn call_and_send(self) {
        let Self { f, done } = self;
        // The waiting caller may be gone.
        let _ = done.send(f());
    }
}

/// Threads that were started before [`confine`](super::confine) was called. They start programs for confined threads, because a
/// program inherits the restrictions of the thread that starts it. There are two threads: a start that waits for `execve`,
/// which may hang, must not delay the launches of an event loop.
#[derive(Debug)]
pub struct Outside {
    waiting: Sender<Job>,
    launching: Sender<Job>,
}

impl Outside {
    /// Starts the threads, which last as long as the process. If a thread ended, all programs that it started would be killed
    /// ([`Direct::set_orphaned`](crate::Direct::set_orphaned)).
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waiting: start_thread()?,
            launching: start_thread()?,
        })
    }

    /// Makes a value without threads: its calls are never made.
    pub fn absent() -> Self {
        let absent = || channel().0;
        Self {
            waiting: absent(),
            launching: absent(),
        }
    }

    /// Calls `f`, which may wait for `execve`. `None`: the thread is gone.
    pub(crate) fn run_start<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send) -> Option<T> {
        call_on_thread(&self.waiting, f)
    }

    /// Calls `f`, which waits for nothing. `None`: the thread is gone.
    pub(crate) fn run_launch<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send) -> Option<T> {
        call_on_thread(&self.launching, f)
    }
}

fn start_thread() -> io::Result<Sender<Job>> {
    let (jobs, given) = channel::<Job>();
    let thread = thread::Builder::new().name("outside".into());
    thread.spawn(move || {
        given.iter().for_each(|job| job());
        loop {
            thread::park();
        }
    })?;
    Ok(jobs)
}

/// Calls `f` on another thread, and waits for it.
fn call_on_thread<T: Send + 'static>(
    jobs: &Sender<Job>,
    f: impl FnOnce() -> T + Send,
) -> Option<T> {
    let (done, is_done) = sync_channel(1);
    let call = Call { f, done };
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || call.call_and_send());
    // SAFETY: only the lifetime of what `f` borrows is forgotten. This function waits until `done` is sent to or dropped. By
    // then `f` is gone: `run` calls `f` first, even if that panics, and a job that is dropped without being run drops its
    // fields in their order. No borrow is used after this function has returned.
    let job: Job = unsafe { mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    jobs.send(job).ok()?;
    is_done.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_hangs_holds_up_no_launch() {
        let outside = Outside::new().unwrap();
        let (go_on, hangs) = channel::<()>();
        let (begins, begun) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                outside.run_start(move || begins.send(()).is_ok() && hangs.recv().is_err())
            });
            begun.recv().unwrap();
            assert_eq!(outside.run_launch(|| 1), Some(1));
            drop(go_on);
        });
    }

    #[test]
    fn without_a_thread_nothing_is_called() {
        assert_eq!(Outside::absent().run_launch(|| 1), None);
        assert_eq!(Outside::absent().run_start(|| 1), None);
    }
}
