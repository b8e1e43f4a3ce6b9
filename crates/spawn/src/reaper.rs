//! Waits for processes that were killed, or left to run, but are not gone yet, because no event loop may wait for them. Also
//! ends processes that programs leave running outside of their groups ([`crate::leftover`]), and keeps the ruleset of programs current.

use crate::{exit::reap_process, leftover::Leftovers, standard_ruleset::renew_standard_ruleset};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{read, write},
    process::{getpid, set_child_subreaper},
};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A descriptor to wait for, and a function that returns whether the wait is over.
#[derive(Debug)]
struct Unreaped(OwnedFd, fn(&OwnedFd) -> bool);

/// Descriptors that have arrived since the thread last looked.
static ARRIVED: Mutex<Vec<Unreaped>> = Mutex::new(Vec::new());

/// The descriptor that wakes the thread; `None` if the system could start neither. Then the next process that is handed over
/// tries again. Until then exited processes stay zombies, which is less harmful than waiting here.
static WAKE: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// Takes over a process, by its pidfd.
pub(crate) fn adopt_process(pidfd: OwnedFd) {
    adopt_starting(pidfd, |pidfd| {
        reap_process(pidfd.as_fd(), libc::WNOHANG).map_or(true, |reaped| reaped.is_some())
    });
}

/// Takes over a template's child that is not needed any more, before its process is known. `is_over` is called when the
/// `socket` that the child will report on is ready. If the child is there, `is_over` kills and reaps it.
pub(crate) fn adopt_starting(socket: OwnedFd, is_over: fn(&OwnedFd) -> bool) {
    ARRIVED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Unreaped(socket, is_over));
    if let Some(wake) = &*ensure_thread() {
        let _ = write(wake, &1u64.to_ne_bytes());
    }
}

/// Number of pipes that are kept for their readers.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Keeps the write end of a pipe until no process holds its read end. Otherwise a reader would take the closed pipe for the end
/// of the input, although the writer gave up.
pub fn keep_until_unread(writer: OwnedFd) {
    if is_unread(&writer) {
        return;
    }
    KEPT.fetch_add(1, Ordering::Relaxed);
    adopt_starting(writer, |writer| {
        let unread = is_unread(writer);
        KEPT.fetch_sub(usize::from(unread), Ordering::Relaxed);
        unread
    });
}

/// Returns whether the read end of a pipe is closed: then poll(2) reports POLLERR for the write end.
fn is_unread(writer: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(writer, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds[0].revents().contains(PollFlags::ERR)
}

/// Waits until the readers of all pipes that are [kept](keep_until_unread) have ended, for a server that ends itself: its end
/// would close the pipes.
pub fn wait_until_unread(most: Duration) {
    let began = Instant::now();
    while KEPT.load(Ordering::Relaxed) > 0 && began.elapsed() < most {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends leftover processes from now on. Once a program's [`Child`](crate::Child) is dropped, its leftover processes in any
/// group or session end within a second. Zombies that became this process's children without being started here (CLONE_PARENT)
/// are reaped. The caller must start children only through this crate, or wait for them within seconds.
pub fn end_orphans() {
    // If the kernel lacks subreapers (before Linux 3.4), orphans go on.
    let _ = set_child_subreaper(Some(getpid()));
    drop(ensure_thread());
}

/// Returns the descriptor that wakes the thread. If there is no thread yet, starts it.
fn ensure_thread() -> MutexGuard<'static, Option<Arc<OwnedFd>>> {
    let mut wake = WAKE.lock().unwrap_or_else(PoisonError::into_inner);
    if wake.is_none() {
        *wake = start_thread();
    }
    wake
}

fn start_thread() -> Option<Arc<OwnedFd>> {
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).ok()?);
    let theirs = Arc::clone(&wake);
    let thread = thread::Builder::new()
        .name("reaper".into())
        .stack_size(64 * 1024);
    thread.spawn(move || run_reaper(&theirs)).ok()?;
    Some(wake)
}

fn run_reaper(wake: &OwnedFd) {
    let mut waiting: Vec<Unreaped> = Vec::new();
    let mut leftovers = Leftovers::default();
    let mut next = Instant::now();
    loop {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(waiting.iter().map(|w| PollFd::new(&w.0, PollFlags::IN)));
        let left = next.saturating_duration_since(Instant::now());
        let polled = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        if polled.is_ok() && !fds[0].revents().is_empty() {
            let _ = read(wake, &mut [0u8; 8]);
        }
        // Only ready descriptors are checked: a process stuck in the kernel must not delay the others.
        let ready = fds[1..].iter().map(|fd| !fd.revents().is_empty());
        let mut ready = ready.collect::<Vec<_>>().into_iter();
        waiting.retain(|Unreaped(fd, is_over)| !(ready.next().unwrap_or(false) && is_over(fd)));
        waiting.append(&mut ARRIVED.lock().unwrap_or_else(PoisonError::into_inner));
        let now = Instant::now();
        if now >= next {
            renew_standard_ruleset();
            next = now + leftovers.terminate_leftovers();
        }
    }
}
