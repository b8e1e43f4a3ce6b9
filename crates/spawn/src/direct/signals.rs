//! Reads and sets signal dispositions directly in the kernel.

use crate::raw::syscall;
use std::cell::Cell;

/// The kernel's `struct sigaction` on both architectures: handler, flags, restorer, mask.
type Action = [usize; 4];

/// Bytes of the kernel's signal set.
const SET: usize = 8;

/// Signals that a thread never leaves to others: faults of the thread itself, which end the process with a message, and the two
/// signals by which the C library reaches all threads. None of their handlers touches data that threads share.
const OF_A_THREAD: [libc::c_int; 9] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
    32,
    33,
];

thread_local! {
    /// Whether this thread has called [`leave_signals_to_others`].
    static LEFT_TO_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Leaves signals that are sent to this process to other threads from now on. Then this thread need not block them for each
/// start.
pub fn leave_signals_to_others() {
    let mut own = OF_A_THREAD.iter().fold(0, |set, n| set | 1u64 << (n - 1));
    // If no handler is set for SIGCHLD: while the parent blocks the signal, the kernel does not drop it when a child exits, but
    // wakes another thread to do so (sig_ignored() in kernel/signal.c).
    if read_action(libc::SIGCHLD as usize).is_some_and(|a| a[0] == libc::SIG_DFL) {
        own |= 1 << (libc::SIGCHLD - 1);
    }
    change_mask(libc::SIG_BLOCK, !own);
    LEFT_TO_OTHERS.set(true);
}

/// Calls `f` while no handler of this process can run in this thread, nor in a child that `f` makes: the child inherits the
/// mask.
pub(super) fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    if LEFT_TO_OTHERS.get() {
        return f();
    }
    let blocked = change_mask(libc::SIG_SETMASK, u64::MAX);
    let done = f();
    set_mask(blocked);
    done
}

/// Returns the signals that this process handles or ignores, as a set with bit n-1 for signal n. SIGPIPE is always in the set:
/// Rust programs ignore it from their start. A handler must not run in a child, which shares this process's memory. `execve`
/// leaves ignored signals ignored: a program that did not expect that would miss the end of its reader.
pub(super) fn non_default_signals() -> u64 {
    (1..=64)
        .filter(|&n| read_action(n).is_some_and(|a| a[0] != libc::SIG_DFL))
        .fold(1 << (libc::SIGPIPE - 1), |set, n| set | 1 << (n - 1))
}

/// Makes exited children wait to be reaped. If the server's own parent ignored SIGCHLD, the server inherits that, and the
/// kernel would throw every exit status away.
pub(super) fn keep_exited_children() {
    let discards = |a: Action| a[0] == libc::SIG_IGN || a[1] & libc::SA_NOCLDWAIT as usize != 0;
    if read_action(libc::SIGCHLD as usize).is_some_and(discards) {
        // SAFETY: the default disposition runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

fn read_action(signal: usize) -> Option<Action> {
    let mut old: Action = [0; 4];
    let to = &raw mut old as usize;
    // SAFETY: no new action is given; the kernel writes the old one to `old`, which has its size.
    let ret = unsafe { syscall(libc::SYS_rt_sigaction, [signal, 0, to, SET, 0, 0]) };
    (ret == 0).then_some(old)
}

/// Gives every signal of `set` its default disposition. Called in the child: raw calls only.
pub(super) fn reset_signals(mut set: u64) {
    let default: Action = [0; 4];
    while set != 0 {
        let signal = set.trailing_zeros() as usize + 1;
        let new = &raw const default as usize;
        // SAFETY: `default` outlives the call and has the size of the kernel's struct; SIG_DFL runs no code.
        unsafe { syscall(libc::SYS_rt_sigaction, [signal, new, 0, SET, 0, 0]) };
        set &= set - 1;
    }
}

/// Blocks the signals of `set` in this thread and unblocks all others. Called in the child: raw calls only.
pub(super) fn set_mask(set: u64) {
    change_mask(libc::SIG_SETMASK, set);
}

/// Changes the set of signals that this thread blocks. Returns the previous set.
fn change_mask(how: libc::c_int, new: u64) -> u64 {
    let mut old: u64 = 0;
    let (how, to) = (how as usize, &raw mut old as usize);
    let new = &raw const new as usize;
    // SAFETY: both sets outlive the call and have SET bytes.
    unsafe { syscall(libc::SYS_rt_sigprocmask, [how, new, to, SET, 0, 0]) };
    old
}
