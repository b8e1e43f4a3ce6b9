//! Which of this process's children are waited for, and which are not done with: a bit for each process id.
//!
//! The system may hand over children that this process did not start: a program that forks with
//! CLONE_PARENT, and orphans where the server is process 1 of a container. Only those are the
//! reaper's to find ([`crate::reaper`]). A request claims and releases without a lock.

use rustix::process::Rlimit;
use std::sync::atomic::{AtomicU64, Ordering};

/// PID_MAX_LIMIT of 64-bit systems, proc(5). Pages of the table are there once they are touched.
const PIDS: usize = 1 << 22;

/// A set of process ids. Those beyond any that there can be are in it.
struct Pids([AtomicU64; PIDS / 64]);

/// Those that are waited for.
static CLAIMED: Pids = Pids([const { AtomicU64::new(0) }; PIDS / 64]);
/// Those of which a [`Child`](crate::Child) is still held, reaped or not, by their mark.
static HELD: [Pids; 2] = [const { Pids([const { AtomicU64::new(0) }; PIDS / 64]) }; 2];

/// What RLIMIT_LOCKS says of a process and of all that it starts ([`crate::reaper`]): the number of the process that was started
/// here, and so much more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessMark {
    /// A program that has one request.
    Program,
    /// A program that stays. The filter keeps a process from changing its limit (`sandbox::calls::OWN_ONLY`). Without a filter it can lower its
    /// limit, and not raise it: none of a request passes for one of a worker, which would let it stay as long.
    Worker,
}

impl ProcessMark {
    /// What the limit is larger by than any process id.
    const WORKER: u64 = 1 << 32;

    /// The limit of a helper: all that it starts has this one, or a lower one.
    pub(crate) fn of_helpers() -> Rlimit {
        let most = Some(2 * Self::WORKER);
        Rlimit {
            current: most,
            maximum: most,
        }
    }

    /// The limit of the process `pid` and of all that it starts.
    pub(crate) fn limit(self, pid: i32) -> u64 {
        let offset = match self {
            Self::Program => 0,
            Self::Worker => Self::WORKER,
        };
        offset + pid as u64 // no id is negative
    }

    /// The mark, and the process, that a limit says.
    fn of(limit: u64) -> (Self, Option<i32>) {
        match limit.checked_sub(Self::WORKER) {
            Some(pid) => (Self::Worker, i32::try_from(pid).ok()),
            None => (Self::Program, i32::try_from(limit).ok()),
        }
    }

    fn held(self) -> &'static Pids {
        &HELD[self as usize]
    }
}

/// From now on `pid` is waited for; false where it is already.
pub(crate) fn claim(pid: i32) -> bool {
    CLAIMED.insert(pid)
}

/// To be called just before it is reaped: then its number may be reused.
pub(crate) fn release(pid: i32) {
    CLAIMED.remove(pid);
}

pub(crate) fn is_claimed(pid: i32) -> bool {
    CLAIMED.contains(pid)
}

/// From now on what `pid` leaves running may run.
pub(crate) fn hold(mark: ProcessMark, pid: i32) {
    mark.held().insert(pid);
}

/// What `pid` has left running must end.
pub(crate) fn let_go(mark: ProcessMark, pid: i32) {
    mark.held().remove(pid);
}

/// Whether a process with this limit may run.
pub(crate) fn is_held(limit: u64) -> bool {
    let (mark, pid) = ProcessMark::of(limit);
    pid.is_some_and(|pid| mark.held().contains(pid))
}

impl Pids {
    /// Whether it was not in it.
    fn insert(&self, pid: i32) -> bool {
        let Some((word, bit)) = self.place(pid) else {
            return true;
        };
        word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    fn remove(&self, pid: i32) {
        if let Some((word, bit)) = self.place(pid) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn contains(&self, pid: i32) -> bool {
        self.place(pid)
            .is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn place(&self, pid: i32) -> Option<(&AtomicU64, u64)> {
        let pid = usize::try_from(pid).ok()?;
        Some((self.0.get(pid / 64)?, 1 << (pid % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_claimed_once() {
        // No process has these: they are the last there can be.
        let (a, b) = (PIDS as i32 - 1, PIDS as i32 - 2);
        assert!(claim(a) && !claim(a) && is_claimed(a) && !is_claimed(b));
        release(a);
        assert!(!is_claimed(a) && claim(a));
        release(a);
        assert!(is_claimed(-1) && is_claimed(i32::MAX), "never reaped");
    }

    #[test]
    fn a_worker_is_held_by_a_mark_that_no_program_can_have() {
        let pid = PIDS as i32 - 3;
        let limits = [ProcessMark::Program, ProcessMark::Worker].map(|mark| mark.limit(pid));
        assert!(limits[1] > PIDS as u64);
        hold(ProcessMark::Worker, pid);
        assert_eq!(limits.map(is_held), [false, true]);
        hold(ProcessMark::Program, pid);
        let_go(ProcessMark::Worker, pid);
        assert_eq!(limits.map(is_held), [true, false]);
        let_go(ProcessMark::Program, pid);
        assert!(
            ![1, ProcessMark::WORKER, ProcessMark::WORKER - 1, u64::MAX]
                .iter()
                .any(|limit| is_held(*limit))
        );
    }
}
