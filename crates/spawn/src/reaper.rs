//! Waits for processes that were killed, or left to run, but are not gone yet, so that nobody else
//! has to.

use crate::{child, template};
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

/// Who is waited for.
#[derive(Debug)]
enum Waiting {
    /// A process, by its pidfd.
    Process(OwnedFd),
    /// A template's child that is still on its way, by the socket it will report on.
    Unborn(OwnedFd),
}

/// What arrived since the thread last looked.
static ARRIVED: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());

/// The thread, and what wakes it; `None` where the system gave neither: then the next process that
/// is handed over tries again, and until then exited ones stay zombies, which hurts less than
/// waiting here.
static WAKE: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// Takes over a process, by its pidfd.
pub(crate) fn adopt(pidfd: OwnedFd) {
    wait_for(Waiting::Process(pidfd));
}

/// Takes over a child that nobody needs any more, before it is known which process it is.
pub(crate) fn adopt_unborn(socket: OwnedFd) {
    wait_for(Waiting::Unborn(socket));
}

fn wait_for(waiting: Waiting) {
    ARRIVED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(waiting);
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
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(waiting.iter().map(|w| PollFd::new(w.fd(), PollFlags::IN)));
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
        waiting.retain(|w| !(ready.pop().unwrap_or(false) && w.is_over()));
        waiting.append(&mut mem::take(
            &mut *ARRIVED.lock().unwrap_or_else(PoisonError::into_inner),
        ));
    }
}

impl Waiting {
    fn fd(&self) -> &OwnedFd {
        match self {
            Self::Process(fd) | Self::Unborn(fd) => fd,
        }
    }

    /// Reaps it where it is ready; whether nothing is left to wait for.
    fn is_over(&self) -> bool {
        match self {
            Self::Process(fd) => {
                child::reap(fd.as_fd(), libc::WNOHANG).map_or(true, |r| r.is_some())
            }
            // A child that is there is killed and reaped as it is dropped.
            Self::Unborn(socket) => !matches!(template::hello(socket), Ok(None)),
        }
    }
}
