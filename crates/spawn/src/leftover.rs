//! Ends processes that programs leave running outside of their process groups.
//!
//! The kernel makes orphans children of this process (PR_SET_CHILD_SUBREAPER). The [mark](crate::claims) of an orphan tells
//! which program it comes from. The mark is the soft limit RLIMIT_LOCKS, which a process inherits in every group or session,
//! and which the filter of system calls keeps it from changing. Nothing is decided by the number of a process alone: a process
//! that forks and exits again and again has another number at each look.
//!
//! 1. a look finds an orphan whose mark is no longer held: all processes below it get TERM, once for each mark
//! 2. after [`GRACE`] they get KILL, and so does every process that the next looks find, which follow without a pause
//! 3. two looks in a row find nothing
//!
//! A process that is killed cannot fork any more: fork(2) fails while a fatal signal is pending. Therefore a process that forks
//! at full speed ends with the first look that is faster than a fork.

use crate::{
    apart::{self, send_signal_to},
    claims,
    exit::ENDED,
};
use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open,
        pidfd_send_signal, waitid,
    },
};
use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    mem,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    process, ptr,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The time between two looks while there is nothing to end.
const ROUND: Duration = Duration::from_millis(250);
/// The time between TERM and KILL.
const GRACE: Duration = Duration::from_millis(300);
/// The time between two looks if the last one has found only processes that were killed before.
const DYING: Duration = Duration::from_millis(5);

/// After this time, killed processes that are still there are assumed to hang in the kernel, so that looks without a pause are
/// of no use. If the looks always find other processes, these win against the looks.
const HANGS: Duration = Duration::from_secs(10);

/// See [`end_with_namespace`].
static IS_INIT: AtomicBool = AtomicBool::new(false);

/// Notes that this process is the init of a PID namespace that holds nothing but programs. If they win against it, it ends, and
/// they end with it.
pub(crate) fn end_with_namespace() {
    IS_INIT.store(true, Ordering::Relaxed);
}

/// The known children that no part of this process waits for.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Zombies of the last round.
    zombies: HashSet<Pid>,
    /// The time when the last round began.
    round: Option<Instant>,
    /// Marks whose processes are to end.
    marks: HashMap<u64, EndingMark>,
    killed: HashSet<Pid>,
}

/// A mark whose processes are to end.
#[derive(Debug)]
struct EndingMark {
    /// The time when the first process was found.
    since: Instant,
    /// Whether the processes have got TERM.
    is_told: bool,
    /// Number of looks in a row that have found no process.
    quiet: u32,
}

impl Leftovers {
    /// Looks at the leftover processes, again and again while there is no pause between two looks. Returns the time until the
    /// next call.
    pub(crate) fn terminate_leftovers(&mut self) -> Duration {
        let unclaimed = |pid: &Pid| !claims::is_claimed(pid.as_raw_pid());
        if self.marks.is_empty() && !children().iter().any(unclaimed) {
            self.zombies.clear();
            kill_templates_with_children();
            return ROUND;
        }
        apart::act_as_programs_user(|| {
            let began = Instant::now();
            loop {
                let pause = self.check_once(Instant::now());
                if !pause.is_zero() || began.elapsed() >= DYING {
                    return pause;
                }
            }
        })
    }

    /// Looks at the leftover processes once. Returns the time until the next look.
    fn check_once(&mut self, now: Instant) -> Duration {
        let is_round = self.round.is_none_or(|last| now - last >= ROUND);
        let before = if is_round {
            self.round = Some(now);
            kill_templates_with_children();
            mem::take(&mut self.zombies)
        } else {
            HashSet::new()
        };
        self.marks.values_mut().for_each(|mark| mark.quiet += 1);
        let killed_before = mem::take(&mut self.killed);
        for (pid, mark) in self.kill_overdue(now) {
            if is_left_over(mark) {
                self.reap_or_terminate(pid, mark, now);
            } else if is_round && is_zombie(pid) {
                // A child that has just started may not be claimed yet: only a zombie that is met twice is reaped.
                if before.contains(&pid) {
                    let _ = waitid(WaitId::Pid(pid), ENDED);
                } else {
                    self.zombies.insert(pid);
                }
            }
        }
        self.marks.retain(|_, mark| mark.quiet < 2);
        let is_dying = !self.killed.is_empty() && self.killed.is_subset(&killed_before);
        if IS_INIT.load(Ordering::Relaxed) && self.is_losing(now, is_dying) {
            eprintln!(
                "galgo: a helper ends, because processes that a program left fork faster than it kills them: the kernel kills all in its PID namespace"
            );
            process::exit(1);
        }
        self.next_pause(now, is_dying)
    }

    /// Returns whether looks keep finding other processes of a mark that has been ending for long.
    fn is_losing(&self, now: Instant, is_dying: bool) -> bool {
        let is_old = |mark: &EndingMark| now - mark.since > HANGS;
        !is_dying && self.marks.values().any(is_old)
    }

    /// Returns the children that no part of this process waits for. Processes whose time is over are killed before anything
    /// that takes longer, the youngest first: they may be about to fork, and thousands of zombies may precede them.
    fn kill_overdue(&self, now: Instant) -> Vec<(Pid, u64)> {
        let mut found = Vec::new();
        for pid in children().into_iter().rev() {
            if claims::is_claimed(pid.as_raw_pid()) {
                continue;
            }
            let Some(mark) = mark_of(pid.as_raw_pid()) else {
                continue;
            };
            let known = self.marks.get(&mark);
            if known.is_some_and(|known| now - known.since >= GRACE) && is_left_over(mark) {
                // The process is this process's child, and only reaped here: the number is its own.
                let _ = kill_process(pid, Signal::KILL);
            }
            found.push((pid, mark));
        }
        found
    }

    /// Reaps a child of this process if it has ended. Otherwise, ends it and all that is below it.
    fn reap_or_terminate(&mut self, pid: Pid, mark: u64, now: Instant) {
        let mark = self.marks.entry(mark).or_insert(EndingMark {
            since: now,
            is_told: false,
            quiet: 0,
        });
        // A zombie counts, too: if a process forks and exits at full speed, a look may find nothing else.
        mark.quiet = 0;
        let kills = now - mark.since >= GRACE;
        if matches!(waitid(WaitId::Pid(pid), ENDED), Ok(Some(_))) {
            return;
        }
        let signal = match (mark.is_told, kills) {
            (_, true) => Signal::KILL,
            (false, false) => Signal::TERM,
            (true, false) => return,
        };
        mark.is_told = true;
        for pid in signal_all_below(pid, signal, &is_left_over) {
            if signal == Signal::KILL {
                self.killed.insert(pid);
            }
        }
    }

    /// Returns the time until the next look. `is_dying`: the last look has found only processes that were killed before.
    fn next_pause(&self, now: Instant, is_dying: bool) -> Duration {
        let left = self.marks.values().map(|mark| {
            let age = now - mark.since;
            match GRACE.saturating_sub(age) {
                Duration::ZERO if is_dying && age > HANGS => ROUND,
                Duration::ZERO if is_dying => DYING,
                left => left,
            }
        });
        left.fold(ROUND, Duration::min)
    }
}

/// Templates that are watched.
static TEMPLATES: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A template that is killed if it has a child with a mark that is not held: then a fork handler has left the child behind. The
/// template makes children for this process alone (CLONE_PARENT). Drop this before the template is reaped.
#[derive(Debug)]
pub(crate) struct WatchedTemplate(Pid);

impl WatchedTemplate {
    /// Starts watching a template. `None`: no process has this number.
    pub(crate) fn new(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        templates().push(pid);
        Some(Self(pid))
    }
}

impl Drop for WatchedTemplate {
    fn drop(&mut self) {
        templates().retain(|pid| *pid != self.0);
    }
}

fn templates() -> MutexGuard<'static, Vec<Pid>> {
    TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills templates that have leftover children. The children become this process's, and end as other orphans do. If only the
/// children were killed, their template would keep the zombies.
fn kill_templates_with_children() {
    for pid in templates().iter() {
        let children = children_of(*pid);
        let is_left = |child: &Pid| mark_of(child.as_raw_pid()).is_some_and(is_left_over);
        if children.iter().any(is_left) {
            let _ = send_signal_to(pid.as_raw_pid(), libc::SIGKILL);
        }
    }
}

/// Signals a process and all processes below it. Returns the signalled processes. A process whose mark is not `to_end` is left
/// out: its number may be another's by now.
pub(crate) fn signal_all_below(pid: Pid, signal: Signal, to_end: &dyn Fn(u64) -> bool) -> Vec<Pid> {
    let mut signalled = Vec::new();
    let mut left = vec![pid];
    while let Some(pid) = left.pop() {
        // The signal comes first, because the process may be about to fork. If the process has ended, the next look finds the
        // processes below.
        if signal_marked(pid, signal, to_end).is_ok() {
            signalled.push(pid);
            left.extend(children_of(pid));
        }
    }
    signalled
}

fn signal_marked(pid: Pid, signal: Signal, to_end: &dyn Fn(u64) -> bool) -> Result<(), Errno> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    // The number's owner is known only while the descriptor is open.
    if mark_of(pid.as_raw_pid()).is_some_and(to_end) {
        pidfd_send_signal(pidfd, signal)
    } else {
        Err(Errno::SRCH)
    }
}

fn is_zombie(pid: Pid) -> bool {
    let peeked = waitid(WaitId::Pid(pid), ENDED | WaitIdOptions::NOWAIT);
    matches!(peeked, Ok(Some(_)))
}

/// Returns whether processes with this mark are to end; see [`Limits::may_stay`](crate::Limits::may_stay).
fn is_left_over(mark: u64) -> bool {
    Some(mark) != mark_of(0) && !claims::is_mark_held(mark)
}

/// Returns the mark of a process; 0 means this process. A process that is not marked has the mark of the process that started
/// galgo.
pub(crate) fn mark_of(pid: i32) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: no new limit is given; the kernel writes the old one to `limit`.
    let read = unsafe { libc::prlimit(pid, libc::RLIMIT_LOCKS, ptr::null(), &raw mut limit) };
    match read {
        0 => Some(limit.rlim_cur),
        _ => mark_by_proc(pid),
    }
}

/// Does the same by proc(5). prlimit(2) needs CAP_SYS_RESOURCE for other users' processes, which root in a container does not
/// have.
fn mark_by_proc(pid: i32) -> Option<u64> {
    let limits = fs::read_to_string(proc_path(pid, "limits")).ok()?;
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max file locks"))?;
    match line.split_ascii_whitespace().nth(3)? {
        "unlimited" => Some(u64::MAX),
        soft => soft.parse().ok(),
    }
}

/// Returns this process's children (proc(5), CONFIG_PROC_CHILDREN; none without it).
pub(crate) fn children() -> Vec<Pid> {
    children_in("/proc/self/task")
}

/// Returns whether processes with a mark that nobody waits for are children of this process; `None`: the kernel does not tell.
/// It makes orphans children of the first thread, which calls this.
pub(crate) fn has_orphans(mark: u64) -> Option<bool> {
    static LIST: OnceLock<Option<File>> = OnceLock::new();
    let list = LIST.get_or_init(|| File::open("/proc/thread-self/children").ok());
    let mut text = [0; 1024];
    let n = list.as_ref()?.read_at(&mut text, 0).ok()?;
    let is_orphan = |pid: Pid| {
        let pid = pid.as_raw_pid();
        !claims::is_claimed(pid) && mark_of(pid) == Some(mark)
    };
    if n == text.len() {
        return Some(children().into_iter().any(is_orphan));
    }
    let list = str::from_utf8(&text[..n]).ok()?;
    Some(pids_of(list).any(is_orphan))
}

fn pids_of(list: &str) -> impl Iterator<Item = Pid> {
    let all = list.split_ascii_whitespace().map(str::parse);
    all.filter_map(|n| Pid::from_raw(n.ok()?))
}

/// A /proc that shows all processes of this process's PID namespace, if `/proc` does not.
static PROC: OnceLock<OwnedFd> = OnceLock::new();

/// Looks at other processes in this /proc from now on.
pub(crate) fn use_proc(proc: OwnedFd) {
    let _ = PROC.set(proc);
}

fn children_of(pid: Pid) -> Vec<Pid> {
    children_in(&proc_path(pid.as_raw_pid(), "task"))
}

fn proc_path(pid: i32, name: &str) -> String {
    match PROC.get() {
        Some(proc) => format!("/proc/self/fd/{}/{pid}/{name}", proc.as_raw_fd()),
        None => format!("/proc/{pid}/{name}"),
    }
}

fn children_in(tasks: &str) -> Vec<Pid> {
    let tasks = fs::read_dir(tasks).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| pids_of(&list).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hangs_in_the_kernel_is_looked_at_rarely_and_who_forks_on_is_not() {
        let now = Instant::now();
        let of = || Leftovers {
            marks: HashMap::from([(
                1,
                EndingMark {
                    since: now,
                    is_told: true,
                    quiet: 0,
                },
            )]),
            ..Leftovers::default()
        };
        for (age, is_dying, pause, is_losing) in [
            (Duration::ZERO, false, ROUND, false),
            (GRACE, false, Duration::ZERO, false),
            (GRACE, true, DYING, false),
            (2 * HANGS, true, ROUND, false),
            (2 * HANGS, false, Duration::ZERO, true),
        ] {
            let (leftovers, later) = (of(), now + age);
            assert_eq!(leftovers.next_pause(later, is_dying), pause, "{age:?}");
            assert_eq!(leftovers.is_losing(later, is_dying), is_losing, "{age:?}");
        }
        assert!(!Leftovers::default().is_losing(now, false));
    }
}
