//! Which of this process's children are waited for, and which are not done with: a bit for each process id.
//!
//! The system may hand over children that this process did not start: a program that forks with
//! CLONE_PARENT, and orphans where the server is process 1 of a container. Only those are the
//! reaper's to find ([`crate::reaper`]). A request claims and releases without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// PID_MAX_LIMIT of 64-bit systems, proc(5). Pages of the table are there once they are touched.
const PIDS: usize = 1 << 22;

/// A set of process ids. Those beyond any that there can be are in it.
struct Pids([AtomicU64; PIDS / 64]);

/// Those that are waited for.
static CLAIMED: Pids = Pids([const { AtomicU64::new(0) }; PIDS / 64]);
/// Those of which a [`Child`](crate::Child) is still held, reaped or not.
static HELD: Pids = Pids([const { AtomicU64::new(0) }; PIDS / 64]);

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
pub(crate) fn hold(pid: i32) {
    HELD.insert(pid);
}

/// What `pid` has left running must end.
pub(crate) fn let_go(pid: i32) {
    HELD.remove(pid);
}

pub(crate) fn is_held(pid: i32) -> bool {
    HELD.contains(pid)
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
}
