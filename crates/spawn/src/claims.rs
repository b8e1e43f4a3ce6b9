//! Which of this process's children are waited for: a bit for each process id.
//!
//! The system may hand over children that this process did not start: a program that forks with
//! CLONE_PARENT, and orphans where the server is process 1 of a container. Only those are the
//! reaper's to find ([`crate::reaper`]). A request claims and releases without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// PID_MAX_LIMIT of 64-bit systems, proc(5). Pages of the table are there once they are touched.
const PIDS: usize = 1 << 22;

static CLAIMED: [AtomicU64; PIDS / 64] = [const { AtomicU64::new(0) }; PIDS / 64];

/// From now on `pid` is waited for; false where it is already.
pub(crate) fn claim(pid: i32) -> bool {
    let Some((word, bit)) = place(pid) else {
        return true;
    };
    word.fetch_or(bit, Ordering::Relaxed) & bit == 0
}

/// To be called just before it is reaped: then its number may be reused.
pub(crate) fn release(pid: i32) {
    if let Some((word, bit)) = place(pid) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

pub(crate) fn is_claimed(pid: i32) -> bool {
    place(pid).is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

fn place(pid: i32) -> Option<(&'static AtomicU64, u64)> {
    let pid = usize::try_from(pid).ok()?;
    Some((CLAIMED.get(pid / 64)?, 1 << (pid % 64)))
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
