//! Launches that the server does not wait for: keeps all memory that a child uses until the child has left it.
//!
//! Without CLONE_VFORK the server runs on beside the child, so the data that the child reads belongs to the start, not to a
//! stack frame of the server. The kernel tells when that data may be reused: it clears a word in it (CLONE_CHILD_CLEARTID) as
//! the child leaves this memory, by `execve` or by ending. By then the program has its descriptors.

use super::{child_side::ChildContext, slots::StdioSlots, stack::Stack};
use crate::{
    start::{FailedLaunch, Launch, LaunchOutcome},
    start_error::StartError,
};
use std::{
    cmp::Reverse,
    collections::VecDeque,
    ffi::c_char,
    io, mem,
    os::fd::{OwnedFd, RawFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Number of starts that each thread prepares for. Each start has three descriptors below all others, and every child copies
/// them. Further starts allocate descriptors when they begin, with the numbers that are free then.
pub(super) const PREPARED: usize = 8;
/// Number of failures that are kept for a later question; older ones are forgotten.
const FAILED_MOST: usize = 64;

/// The stack and slots that a child runs on until it has left this memory.
#[derive(Debug)]
pub(super) struct LaunchMemory {
    pub(super) stack: Stack,
    pub(super) slots: StdioSlots,
}

/// Data that the child process reads until it executes the program.
#[derive(Debug)]
pub(super) struct LaunchData {
    pub(super) context: ChildContext,
    pub(super) launch: Launch,
    /// The arrays that the context points to: `_argv`, `_envp`, `_numbers`.
    pub(super) _argv: Vec<*const c_char>,
    pub(super) _envp: Vec<*const c_char>,
    pub(super) _numbers: Vec<RawFd>,
    /// The descriptors that `_numbers` holds the numbers of.
    pub(super) _more: Vec<OwnedFd>,
    /// The descriptor that the context names as its ruleset.
    pub(super) _ruleset: Option<Arc<OwnedFd>>,
    /// Not 0 while a child may use this data; the kernel clears it.
    pub(super) in_use: AtomicU32,
}

/// A start whose child has not yet been seen to leave this memory.
#[derive(Debug)]
struct PendingLaunch {
    number: u64,
    memory: LaunchMemory,
    /// The pointer that [`Box::into_raw`] returned.
    data: NonNull<LaunchData>,
}

/// The starts of one thread.
#[derive(Debug)]
pub(super) struct Launches {
    null: Arc<OwnedFd>,
    /// Memory that no child uses; the lowest descriptor numbers come last.
    free: Vec<LaunchMemory>,
    under_way: Vec<PendingLaunch>,
    failed: VecDeque<(u64, Box<FailedLaunch>)>,
    last: u64,
}

// SAFETY: the pointers lead to data that belongs to this value alone, and to children, which read the same memory from any
// thread.
unsafe impl Send for Launches {}

impl LaunchMemory {
    fn new(null: &Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self {
            stack: Stack::new()?,
            slots: StdioSlots::new(null)?,
        })
    }
}

impl PendingLaunch {
    fn has_left(&self) -> bool {
        // SAFETY: the data lives until it is reclaimed. Until then the kernel and the child write to its atomics only, and this
        // code makes only shared references to it.
        unsafe { self.data.as_ref() }.in_use.load(Ordering::Acquire) == 0
    }

    /// Returns the memory and data of a child that has left.
    fn reclaim(self) -> (LaunchMemory, Box<LaunchData>) {
        // SAFETY: `Box::into_raw` made the pointer in `begin`, and it is taken back once, because `self` is consumed. The
        // caller has seen that the child has left this memory.
        (self.memory, unsafe { Box::from_raw(self.data.as_ptr()) })
    }
}

impl Launches {
    /// Creates the starts of one thread, with nothing prepared.
    pub(super) fn new(null: &Arc<OwnedFd>) -> Self {
        Self {
            null: null.clone(),
            free: Vec::new(),
            under_way: Vec::new(),
            failed: VecDeque::new(),
            last: 0,
        }
    }

    /// Creates the starts of `threads` threads, each with memory for [`PREPARED`] launches.
    pub(super) fn for_threads(threads: usize, null: &Arc<OwnedFd>) -> io::Result<Vec<Self>> {
        let mut all: Vec<Self> = (0..threads).map(|_| Self::new(null)).collect();
        for _ in 0..PREPARED {
            for own in &mut all {
                own.free.push(LaunchMemory::new(null)?);
            }
        }
        // The numbers do not always rise: another thread may close descriptors meanwhile.
        for own in &mut all {
            own.free.sort_by_key(|free| Reverse(free.slots.numbers()));
        }
        Ok(all)
    }

    /// Returns memory for another launch: the entry with the lowest descriptor numbers, because a child copies all below them.
    ///
    /// If all prepared memory is in use, new memory is made. Waiting for a launch under way could take forever: it may hang.
    pub(super) fn take_memory(&mut self) -> io::Result<LaunchMemory> {
        self.reclaim();
        match self.free.pop() {
            Some(lowest) => Ok(lowest),
            None => LaunchMemory::new(&self.null),
        }
    }

    /// Gives back memory that no child uses any longer.
    ///
    /// If many simultaneous starts have made more memory than was prepared, the entry with the highest descriptor numbers is
    /// dropped. If low numbers were freed, connections would get them, and every later start would copy all descriptors in
    /// between.
    pub(super) fn give_back(&mut self, mut memory: LaunchMemory) {
        // A descriptor that stays in a slot would keep a pipe open.
        if memory.slots.release_descriptors().is_err() {
            return;
        }
        let is_higher = |free: &LaunchMemory| free.slots.numbers() > memory.slots.numbers();
        let at = self.free.partition_point(is_higher);
        self.free.insert(at, memory);
        if self.free.len() > PREPARED {
            self.free.remove(0);
        }
    }

    /// Records that a child is under way with this data, from [`Box::into_raw`]. Returns the number of the start.
    pub(super) fn add_pending(&mut self, memory: LaunchMemory, data: NonNull<LaunchData>) -> u64 {
        self.last += 1;
        self.under_way.push(PendingLaunch {
            number: self.last,
            memory,
            data,
        });
        self.last
    }

    /// Returns the outcome of the start with this number. A failure is reported only once.
    pub(super) fn outcome(&mut self, number: u64) -> LaunchOutcome {
        self.reclaim();
        if self.under_way.iter().any(|f| f.number == number) {
            return LaunchOutcome::UnderWay;
        }
        match self.take_failure(number) {
            Some(failed) => LaunchOutcome::Failed(failed),
            None => LaunchOutcome::Started,
        }
    }

    fn take_failure(&mut self, number: u64) -> Option<Box<FailedLaunch>> {
        let at = self.failed.iter().position(|(n, _)| *n == number)?;
        self.failed.remove(at).map(|(_, failed)| failed)
    }

    /// Returns why the program of this start, which has exited, was not executed. Its descriptors stay open.
    pub(super) fn failure(&mut self, number: u64) -> Option<StartError> {
        let Some(launch) = self.under_way.iter().find(|f| f.number == number) else {
            return self.take_failure(number).map(|failed| failed.error);
        };
        // SAFETY: the same as in `has_left`.
        let (stage, errno) = unsafe { launch.data.as_ref() }.context.failure()?;
        Some(StartError::from_errno(stage, errno))
    }

    /// Takes back the memory that children have left: from then on, only the children hold their ends of pipes.
    fn reclaim(&mut self) {
        while let Some(at) = self.under_way.iter().position(PendingLaunch::has_left) {
            let launch = self.under_way.swap_remove(at);
            let number = launch.number;
            let (memory, data) = launch.reclaim();
            self.give_back(memory);
            let LaunchData {
                context, launch, ..
            } = *data;
            if let Some((stage, errno)) = context.failure() {
                let error = StartError::from_errno(stage, errno);
                self.failed.truncate(FAILED_MOST - 1);
                self.failed
                    .push_front((number, Box::new(FailedLaunch { error, launch })));
            }
        }
    }
}

impl Drop for Launches {
    fn drop(&mut self) {
        self.reclaim();
        // A child that is still under way uses its stack and data: both stay as long as this process lives.
        mem::forget(mem::take(&mut self.under_way));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::slots::open_null, *};

    #[test]
    fn the_lowest_numbers_that_are_free_are_used() {
        let mut all = Launches::for_threads(2, &open_null().unwrap()).unwrap();
        let own = &mut all[0];
        let mut memories: Vec<_> = (0..PREPARED).map(|_| own.take_memory().unwrap()).collect();
        assert!(own.free.is_empty());
        let numbers: Vec<_> = memories.iter().map(|g| g.slots.numbers()).collect();
        assert!(numbers.is_sorted());
        for at in [2, 0, 1] {
            own.give_back(memories.remove(at.min(memories.len() - 1)));
        }
        let lowest = own.take_memory().unwrap().slots.numbers();
        assert_eq!(lowest, numbers[0]);
    }

    /// The order in which they come back does not matter.
    #[test]
    fn of_more_than_are_prepared_the_lowest_numbers_stay() {
        let mut own = Launches::for_threads(1, &open_null().unwrap())
            .unwrap()
            .remove(0);
        let taken = |own: &mut Launches, n| -> Vec<_> {
            (0..n).map(|_| own.take_memory().unwrap()).collect()
        };
        let numbers =
            |many: &[LaunchMemory]| many.iter().map(|g| g.slots.numbers()).collect::<Vec<_>>();
        let mut many = taken(&mut own, 3 * PREPARED);
        // These are not always the numbers of `several`: other threads of this process free numbers, too.
        let mut lowest = numbers(&many);
        lowest.sort();
        lowest.truncate(PREPARED);
        many.reverse();
        many.into_iter().for_each(|memory| own.give_back(memory));
        let kept = taken(&mut own, PREPARED);
        assert!(own.free.is_empty());
        assert_eq!(numbers(&kept), lowest);
    }
}
