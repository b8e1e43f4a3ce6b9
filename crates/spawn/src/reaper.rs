//! Waits for processes that were killed, or left to run, but are not gone yet, so that nobody else
//! has to.

use crate::child;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::{read, write},
};
use std::{
    mem,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// What arrived since the thread last looked.
static ARRIVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// The thread, and what wakes it; `None` where the system gave neither: then the next process that
/// is handed over tries again, and until then exited ones stay zombies, which hurts less than
/// waiting here.
static WAKE: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// Takes over a process, by its pidfd.
pub(crate) fn adopt(pidfd: OwnedFd) {
    ARRIVED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(pidfd);
    let mut wake = WAKE.lock().unwrap_or_else(PoisonError::into_inner);
    if wake.is_none() {
        *wake = start();
    }
    if let Some(wake) = &*wake {
        let _ = write(wake, &1u64.to_ne_bytes());
    }
}

fn start() -> Option<Arc<OwnedFd>> {
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).ok()?);
    let theirs = Arc::clone(&wake);
    let thread = thread::Builder::new()
        .name("reaper".into())
        .stack_size(64 * 1024);
    thread.spawn(move || serve(&theirs)).ok()?;
    Some(wake)
}

fn serve(wake: &OwnedFd) {
    let mut waiting: Vec<OwnedFd> = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(waiting.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let polled = poll(&mut fds, None);
        if polled.is_ok() && !fds[0].revents().is_empty() {
            let _ = read(wake, &mut [0u8; 8]);
        }
        // Only those that are ready: one stuck in the kernel must not keep the others.
        let mut ready = fds[1..]
            .iter()
            .map(|fd| !fd.revents().is_empty())
            .collect::<Vec<_>>();
        ready.reverse();
        waiting.retain(|fd| {
            let done = || child::reap(fd.as_fd(), libc::WNOHANG).map_or(true, |r| r.is_some());
            !(ready.pop().unwrap_or(false) && done())
        });
        waiting.append(&mut mem::take(
            &mut *ARRIVED.lock().unwrap_or_else(PoisonError::into_inner),
        ));
    }
}
