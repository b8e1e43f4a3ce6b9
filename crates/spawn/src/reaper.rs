//! Waits for processes that were killed, or left to run, but are not gone yet, so that no event loop has to.

use crate::{claims, exit::reap};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{read, write},
    process::{Pid, WaitId, WaitIdOptions, waitid},
};
use std::{
    fs, mem,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// So often the thread looks for children that are not waited for. Slow: one that has just started or exited may not be
/// claimed, so only one that is met twice is a stranger.
const ROUND: Duration = Duration::from_secs(5);

/// Children made by clone(2) with another signal than SIGCHLD, too.
const WALL: u32 = libc::__WALL.cast_unsigned();

#[derive(Debug)]
enum Unreaped {
    /// A process, by its pidfd.
    Process(OwnedFd),
    /// A template's child that is still on its way, by the socket it will report on, and what looks there whether
    /// nothing is left to wait for. A child that is there is killed and reaped by that.
    Starting(OwnedFd, fn(&OwnedFd) -> bool),
}

/// What arrived since the thread last looked.
static ARRIVED: Mutex<Vec<Unreaped>> = Mutex::new(Vec::new());

/// The thread, and what wakes it; `None` where the system gave neither: then the next process that
/// is handed over tries again, and until then exited ones stay zombies, which hurts less than
/// waiting here.
static WAKE: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// Takes over a process, by its pidfd.
pub(crate) fn adopt(pidfd: OwnedFd) {
    wait_for(Unreaped::Process(pidfd));
}

/// Takes over a child that is not needed any more, before it is known which process it is: `is_over` is asked when
/// `socket` is ready.
pub(crate) fn adopt_starting(socket: OwnedFd, is_over: fn(&OwnedFd) -> bool) {
    wait_for(Unreaped::Starting(socket, is_over));
}

/// From now on zombies are reaped that became this process's children without being started here
/// (CLONE_PARENT; orphans, where it is process 1 of a container). The caller starts no
/// children but by this crate, or waits for them within seconds.
pub fn reap_strangers() {
    let mut wake = WAKE.lock().unwrap_or_else(PoisonError::into_inner);
    if wake.is_none() {
        *wake = start();
    }
}

fn wait_for(waiting: Unreaped) {
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
    let mut waiting: Vec<Unreaped> = Vec::new();
    let mut strangers: Vec<Pid> = Vec::new();
    let mut looked = Instant::now();
    let round = Timespec {
        tv_sec: ROUND.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    loop {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(waiting.iter().map(|w| PollFd::new(w.fd(), PollFlags::IN)));
        let polled = poll(&mut fds, Some(&round));
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
        if looked.elapsed() >= ROUND {
            strangers = reap_those_met_again(&strangers);
            looked = Instant::now();
        }
    }
}

/// Reaps the zombies that are not claimed and are in `met`; returns the others.
fn reap_those_met_again(met: &[Pid]) -> Vec<Pid> {
    let all = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::from_bits_retain(WALL);
    let peek = |who| waitid(who, all | WaitIdOptions::NOWAIT).ok().flatten();
    if peek(WaitId::All).is_none() {
        return Vec::new();
    }
    let mut strangers = children();
    strangers.retain(|&pid| {
        !claims::is_claimed(Pid::as_raw(Some(pid))) && peek(WaitId::Pid(pid)).is_some()
    });
    let (again, new) = strangers
        .into_iter()
        .partition::<Vec<_>, _>(|pid| met.contains(pid));
    for pid in again {
        let _ = waitid(WaitId::Pid(pid), all);
    }
    new
}

/// This process's children (proc(5), CONFIG_PROC_CHILDREN; none without it).
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers = |list: String| -> Vec<Pid> {
        let all = list.split_ascii_whitespace().map(str::parse);
        all.filter_map(|n| Pid::from_raw(n.ok()?)).collect()
    };
    lists.flat_map(numbers).collect()
}

impl Unreaped {
    fn fd(&self) -> &OwnedFd {
        match self {
            Self::Process(fd) | Self::Starting(fd, _) => fd,
        }
    }

    /// Reaps it where it is ready; whether nothing is left to wait for.
    fn is_over(&self) -> bool {
        match self {
            Self::Process(fd) => reap(fd.as_fd(), libc::WNOHANG).map_or(true, |r| r.is_some()),
            Self::Starting(socket, is_over) => is_over(socket),
        }
    }
}
