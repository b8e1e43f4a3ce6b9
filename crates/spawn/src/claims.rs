//! Records which children this process waits for, and which marks are held: a bit for each process id, and for each mark.
//!
//! The system may hand over children that this process did not start: a program that forks with CLONE_PARENT, and orphans,
//! which become this process's children (PR_SET_CHILD_SUBREAPER). The reaper must find only those ([`crate::reaper`]). A
//! request claims and releases without a lock.
//!
//! A mark is a value of RLIMIT_LOCKS, which Linux does not enforce, and which a process passes on to all that it starts. The
//! marks of a server and of its helpers lie in the same range ([`MarkRange`]), so that its guard finds all of them
//! ([`crate::guard`]).

use crate::refusable::resource_limit;
use rustix::process::{Resource, Rlimit, getpid};
use std::sync::{
    OnceLock,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// PID_MAX_LIMIT of 64-bit systems, proc(5). Pages of the table are allocated once they are touched.
const PIDS: usize = 1 << 22;

/// A set of process ids. Numbers that no process can have count as members.
struct Pids([AtomicU64; PIDS / 64]);

/// Process ids that some part of this process waits for.
static CLAIMED: Pids = Pids([const { AtomicU64::new(0) }; PIDS / 64]);

/// Marks of each kind that a process has. A mark is used again after all others of its kind.
const MARKS: u64 = 1 << 20;
const KINDS: usize = 3;
const ALL_MARKS: u64 = KINDS as u64 * MARKS;
/// Marks that are held, of all kinds.
static HELD: [AtomicU64; (ALL_MARKS / 64) as usize] =
    [const { AtomicU64::new(0) }; (ALL_MARKS / 64) as usize];
/// Number of marks of each kind that were taken.
static TAKEN: [AtomicU32; KINDS] = [const { AtomicU32::new(0) }; KINDS];

/// The purpose of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// A program that serves a single request.
    Program,
    /// A worker or a template. The filter keeps a process from changing its limit (`sandbox::calls::OWN_ONLY`). Without a
    /// filter a process can lower its limit, and not raise it: therefore no program can pass as a process that a worker has
    /// started.
    Lasting,
    /// A program whose leftover processes may stay, once its request is complete. The guard leaves them alone.
    Staying,
}

/// The mark of a process and of all that it starts. They may run until the mark is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProcessMark(u64);

impl ProcessMark {
    /// Returns a mark that no process has.
    pub(crate) fn new(kind: MarkKind) -> Self {
        let first = kind as u64 * MARKS;
        loop {
            // Marks are taken downwards: a process without a filter can take only the mark of a later request.
            let taken = u64::from(TAKEN[kind as usize].fetch_add(1, Ordering::Relaxed));
            let index = first + (MARKS - 1 - taken % MARKS);
            let (word, bit) = locate_mark_bit(index);
            let was_held = word.fetch_or(bit, Ordering::Relaxed) & bit != 0;
            // After a million requests, processes that stay share their mark with another request.
            if !was_held || kind == MarkKind::Staying {
                return Self(index);
            }
        }
    }

    /// Returns whether processes with this mark may stay.
    pub(crate) fn may_stay(&self) -> bool {
        self.0 / MARKS == MarkKind::Staying as u64
    }

    /// Holds the mark for ever: its processes stay.
    pub(crate) fn leave_held(self) {
        std::mem::forget(self);
    }

    /// Returns RLIMIT_LOCKS, soft and hard. The soft limit is the mark. This process can raise a template's soft limit again.
    pub(crate) fn limits(&self) -> [u64; 2] {
        let own = MarkRange::of_this_process();
        let mark = own.first + self.0;
        if self.0 / MARKS == MarkKind::Lasting as u64 {
            [mark, own.last_number()]
        } else {
            [mark; 2]
        }
    }
}

impl Drop for ProcessMark {
    fn drop(&mut self) {
        let (word, bit) = locate_mark_bit(self.0);
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Returns whether processes with this limit may run. A limit that is no mark of this process counts as not held.
pub(crate) fn is_mark_held(limit: u64) -> bool {
    let index = limit.checked_sub(MarkRange::of_this_process().first);
    index
        .filter(|index| *index < ALL_MARKS)
        .is_some_and(|index| {
            let (word, bit) = locate_mark_bit(index);
            word.load(Ordering::Relaxed) & bit != 0
        })
}

/// Returns the word and bit of a mark in [`HELD`].
fn locate_mark_bit(index: u64) -> (&'static AtomicU64, u64) {
    (&HELD[(index / 64) as usize], 1 << (index % 64))
}

/// The marks of a server and its helpers, or of a single process among these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MarkRange {
    first: u64,
    count: u64,
}

impl MarkRange {
    /// Distance between the marks of two processes. The last number of a helper is its own limit, and no mark.
    const OF_PROCESS: u64 = 4 * MARKS;
    /// Numbers of a server: the first `OF_PROCESS` are its own, the rest is for its helpers.
    const OF_SERVER: u64 = 1 << 41;

    /// Returns the marks of the server with this process id. No other server of this machine has the same.
    pub(crate) fn for_server(pid: i32) -> Self {
        let pid = u64::from(pid.unsigned_abs()); // below 2^22 (PID_MAX_LIMIT)
        Self {
            first: pid * Self::OF_SERVER,
            count: Self::OF_SERVER,
        }
    }

    /// Returns the marks of the server's helper with this number, from 0.
    pub(crate) fn range_for_helper(self, number: u64) -> Self {
        let helpers = self.count / Self::OF_PROCESS - 1;
        Self {
            first: self.first + (1 + number % helpers) * Self::OF_PROCESS,
            count: Self::OF_PROCESS,
        }
    }

    /// Returns the marks of all helpers of a server.
    pub(crate) fn range_for_all_helpers(self) -> Self {
        Self {
            first: self.first + Self::OF_PROCESS,
            count: self.count - Self::OF_PROCESS,
        }
    }

    /// Returns the limit of a process that makes these marks, if it is a helper: all that it starts has this limit or a lower
    /// one.
    pub(crate) fn helper_limit(self) -> Rlimit {
        let last = Some(self.last_number());
        Rlimit {
            current: last,
            maximum: last,
        }
    }

    fn last_number(self) -> u64 {
        self.first + self.count - 1
    }

    /// Returns the marks of this process: a helper knows them by its limit.
    fn of_this_process() -> Self {
        static OWN: OnceLock<MarkRange> = OnceLock::new();
        *OWN.get_or_init(|| {
            let limit = resource_limit(Resource::Locks).and_then(|limit| limit.current);
            let is_last = |last: &u64| last % Self::OF_PROCESS == Self::OF_PROCESS - 1;
            match limit.filter(is_last) {
                Some(last) => Self {
                    first: last + 1 - Self::OF_PROCESS,
                    count: Self::OF_PROCESS,
                },
                None => Self::for_server(getpid().as_raw_pid()),
            }
        })
    }

    /// Returns whether a limit is among these marks.
    pub(crate) fn contains(self, limit: u64) -> bool {
        limit.wrapping_sub(self.first) < self.count
    }

    /// Returns whether a limit is among these marks, and its processes end with the server.
    pub(crate) fn ends_with_server(self, limit: u64) -> bool {
        let kind = limit % Self::OF_PROCESS / MARKS;
        self.contains(limit) && kind != MarkKind::Staying as u64
    }
}

/// Claims `pid`: from now on this process waits for it. Returns false if it is claimed already.
pub(crate) fn claim_pid(pid: i32) -> bool {
    CLAIMED.insert(pid)
}

/// Releases a claim. Call this just before the process is reaped: then its number may be reused.
pub(crate) fn release_pid(pid: i32) {
    CLAIMED.remove(pid);
}

pub(crate) fn is_claimed(pid: i32) -> bool {
    CLAIMED.contains(pid)
}

impl Pids {
    /// Adds a process id. Returns whether it was missing.
    fn insert(&self, pid: i32) -> bool {
        let Some((word, bit)) = self.locate_bit(pid) else {
            return true;
        };
        word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    fn remove(&self, pid: i32) {
        if let Some((word, bit)) = self.locate_bit(pid) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn contains(&self, pid: i32) -> bool {
        self.locate_bit(pid)
            .is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn locate_bit(&self, pid: i32) -> Option<(&AtomicU64, u64)> {
        let pid = usize::try_from(pid).ok()?;
        Some((self.0.get(pid / 64)?, 1 << (pid % 64)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_number_is_claimed_once() {
        // No process has these ids: they are the last possible ones.
        let (a, b) = (PIDS as i32 - 1, PIDS as i32 - 2);
        assert!(claim_pid(a) && !claim_pid(a) && is_claimed(a) && !is_claimed(b));
        release_pid(a);
        assert!(!is_claimed(a) && claim_pid(a));
        release_pid(a);
        assert!(is_claimed(-1) && is_claimed(i32::MAX), "never reaped");
    }

    #[test]
    fn a_mark_is_held_until_it_is_dropped() {
        let marks = [MarkKind::Program, MarkKind::Lasting].map(ProcessMark::new);
        let [program, lasting] = marks.each_ref().map(|mark| mark.limits()[0]);
        assert!(program < lasting && is_mark_held(program) && is_mark_held(lasting));
        let others: Vec<_> = (0..100)
            .map(|_| ProcessMark::new(MarkKind::Program))
            .collect();
        assert!(others.iter().all(|other| !marks.contains(other)));
        drop(marks);
        assert!(!is_mark_held(program) && !is_mark_held(lasting));
    }

    #[test]
    fn who_may_stay_stays_unless_its_request_is_given_up() {
        let [stays, ends] = [(); 2].map(|()| ProcessMark::new(MarkKind::Staying));
        let marks = [&stays, &ends].map(|mark| mark.limits()[0]);
        assert!(marks.iter().all(|mark| is_mark_held(*mark)));
        stays.leave_held();
        drop(ends);
        assert_eq!(marks.map(is_mark_held), [true, false]);
        let own = MarkRange::of_this_process();
        assert!(marks.iter().all(|mark| own.contains(*mark)));
        assert!(!marks.iter().any(|mark| own.ends_with_server(*mark)));
        for kind in [MarkKind::Program, MarkKind::Lasting] {
            assert!(own.ends_with_server(ProcessMark::new(kind).limits()[0]));
        }
    }

    #[test]
    fn no_other_number_is_held() {
        let first = MarkRange::of_this_process().first;
        for limit in [
            0,
            1,
            first - 1,
            first + ALL_MARKS,
            1 << 22,
            1 << 32,
            u64::MAX,
        ] {
            assert!(!is_mark_held(limit), "{limit}");
        }
    }

    #[test]
    fn processes_of_a_server_have_marks_of_their_own() {
        let server = MarkRange::for_server((1 << 22) - 1);
        let helpers = [0, 1, 77].map(|number| server.range_for_helper(number));
        for helper in helpers {
            let last = helper.helper_limit().maximum.unwrap();
            assert!(helper.contains(last) && server.contains(last) && !helper.contains(last + 1));
            assert!(!helper.contains(server.first) && helper.contains(helper.first));
        }
        assert!(!helpers[0].contains(helpers[1].first) && !helpers[1].contains(helpers[0].first));
        let other = MarkRange::for_server((1 << 22) - 2);
        assert!(!server.contains(other.helper_limit().maximum.unwrap()));
    }
}
