//! Waits for processes that were killed, or left to run, but are not gone yet, so that no event loop has to; and ends those
//! that programs leave running outside of their groups.
//!
//! The kernel makes orphans children of this process (PR_SET_CHILD_SUBREAPER). Whose they are tells a limit that they
//! inherit, whatever group or session they are in: RLIMIT_LOCKS, the number of the process that was started
//! ([`ProcessMark`](claims::ProcessMark)). A hostile program can lower it, to the number of the program of a request that came earlier: then it
//! ends with that.

use crate::{claims, exit::reap};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{read, write},
    process::{
        Pid, Resource, Signal, WaitId, WaitIdOptions, getpid, getrlimit, kill_process,
        set_child_subreaper, waitid,
    },
};
use std::{
    fs, mem,
    os::fd::{AsFd, OwnedFd},
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// So often the thread looks for children that are not waited for. Slow: one that has just started or exited may not be
/// claimed, so only one that is met twice is a stranger.
const ROUND: Duration = Duration::from_secs(1);

/// For waitid(2): those that have ended, without waiting. Children made by clone(2) with another signal than SIGCHLD, too.
pub(crate) const ENDED: WaitIdOptions =
    WaitIdOptions::from_bits_retain((libc::WEXITED | libc::WNOHANG | libc::__WALL).cast_unsigned());

/// A descriptor to wait for, and what looks there whether nothing is left to wait for.
#[derive(Debug)]
struct Unreaped(OwnedFd, fn(&OwnedFd) -> bool);

/// What arrived since the thread last looked.
static ARRIVED: Mutex<Vec<Unreaped>> = Mutex::new(Vec::new());

/// The thread, and what wakes it; `None` where the system gave neither: then the next process that
/// is handed over tries again, and until then exited ones stay zombies, which hurts less than
/// waiting here.
static WAKE: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// Takes over a process, by its pidfd.
pub(crate) fn adopt(pidfd: OwnedFd) {
    adopt_starting(pidfd, |pidfd| {
        reap(pidfd.as_fd(), libc::WNOHANG).map_or(true, |reaped| reaped.is_some())
    });
}

/// Takes over a template's child that is not needed any more, before it is known which process it is: `is_over` is asked
/// when the `socket` that it will report on is ready. A child that is there is killed and reaped by that.
pub(crate) fn adopt_starting(socket: OwnedFd, is_over: fn(&OwnedFd) -> bool) {
    ARRIVED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Unreaped(socket, is_over));
    if let Some(wake) = &*wake() {
        let _ = write(wake, &1u64.to_ne_bytes());
    }
}

/// From now on what a program leaves running ends once its [`Child`](crate::Child) is dropped, whatever group or session it
/// is in, within three seconds; and zombies are reaped that became this process's children without being started here
/// (CLONE_PARENT). The caller starts no children but by this crate, or waits for them within seconds.
pub fn end_orphans() {
    // Where the kernel has no such thing (before Linux 3.4) orphans go on.
    let _ = set_child_subreaper(Some(getpid()));
    drop(wake());
}

/// What wakes the thread, which is started where there is none yet.
fn wake() -> MutexGuard<'static, Option<Arc<OwnedFd>>> {
    let mut wake = WAKE.lock().unwrap_or_else(PoisonError::into_inner);
    if wake.is_none() {
        *wake = start();
    }
    wake
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
    let mut strangers = Strangers::default();
    let mut looked = Instant::now();
    let round = Timespec::try_from(ROUND).ok();
    loop {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(waiting.iter().map(|w| PollFd::new(&w.0, PollFlags::IN)));
        let polled = poll(&mut fds, round.as_ref());
        if polled.is_ok() && !fds[0].revents().is_empty() {
            let _ = read(wake, &mut [0u8; 8]);
        }
        // Only those that are ready: one stuck in the kernel must not keep the others.
        let ready = fds[1..].iter().map(|fd| !fd.revents().is_empty());
        let mut ready = ready.collect::<Vec<_>>().into_iter();
        waiting.retain(|Unreaped(fd, is_over)| !(ready.next().unwrap_or(false) && is_over(fd)));
        waiting.append(&mut ARRIVED.lock().unwrap_or_else(PoisonError::into_inner));
        if looked.elapsed() >= ROUND {
            strangers.meet();
            looked = Instant::now();
        }
    }
}

/// What is known of children that are not claimed.
#[derive(Debug, Default)]
struct Strangers(Vec<(Pid, u32)>);

impl Strangers {
    /// Looks at them once more: zombies that are met again are reaped. A process that a program has left running, and that
    /// is met again after that program is done with, gets TERM, and KILL from the next time on.
    fn meet(&mut self) {
        let met = mem::take(&mut self.0);
        let times = |pid| met.iter().find(|(p, _)| *p == pid).map_or(0, |(_, n)| *n);
        for pid in children() {
            if claims::is_claimed(pid.as_raw_pid()) {
                continue;
            }
            let peeked = waitid(WaitId::Pid(pid), ENDED | WaitIdOptions::NOWAIT);
            let is_zombie = matches!(peeked, Ok(Some(_)));
            if !is_zombie && !is_left_over(pid) {
                continue;
            }
            // It is this process's child, and only reaped here: the number is its own.
            let _ = match (times(pid), is_zombie) {
                (0, _) => Ok(()),
                (_, true) => waitid(WaitId::Pid(pid), ENDED).map(drop),
                (1, false) => kill_process(pid, Signal::TERM),
                (_, false) => kill_process(pid, Signal::KILL),
            };
            self.0.push((pid, times(pid) + 1));
        }
    }
}

/// Whether a process was left running by a program that is done with; see [`Limits::may_stay`](crate::Limits::may_stay).
fn is_left_over(pid: Pid) -> bool {
    let mut own = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let pid = pid.as_raw_pid();
    // SAFETY: no new limit is given; the kernel writes the old one to `own`.
    if unsafe { libc::prlimit(pid, libc::RLIMIT_LOCKS, ptr::null(), &raw mut own) } != 0 {
        return false;
    }
    let started = own.rlim_max;
    // That of this process has none, but where what started it makes such marks, too.
    let ours = getrlimit(Resource::Locks).maximum;
    let is_marked = started != ours.unwrap_or(libc::RLIM_INFINITY);
    is_marked && !claims::is_held(started)
}

/// This process's children (proc(5), CONFIG_PROC_CHILDREN; none without it).
pub(crate) fn children() -> Vec<Pid> {
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
