//! Signal dispositions as the kernel holds them.

use crate::raw::syscall;
use std::cell::Cell;

/// The kernel's `struct sigaction` on both architectures: handler, flags, restorer, mask.
type Action = [usize; 4];

/// Bytes of the kernel's signal set.
const SET: usize = 8;

/// Those that stay a thread's own business for good: faults that it meets itself, which end the process with a word of
/// why, and the two by which the C library reaches all threads. None of their handlers touches what threads share.
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
    /// Whether this thread has given up signals by [`leave_signals_to_others`].
    static LEFT_TO_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// From now on other threads handle the signals that are sent to this process. Then this one need not block them each time
/// that it starts a program.
pub fn leave_signals_to_others() {
    let mut own = OF_A_THREAD.iter().fold(0, |set, n| set | 1u64 << (n - 1));
    // Where nothing handles it: if its parent blocks it, the kernel does not drop it when a child exits, but wakes another
    // thread to do so (sig_ignored() in kernel/signal.c).
    if action(libc::SIGCHLD as usize).is_some_and(|a| a[0] == libc::SIG_DFL) {
        own |= 1 << (libc::SIGCHLD - 1);
    }
    mask(libc::SIG_BLOCK, !own);
    LEFT_TO_OTHERS.set(true);
}

/// Calls `f` while no handler of this process can run in this thread, nor in a child that it makes, which inherits that.
pub(super) fn without<T>(f: impl FnOnce() -> T) -> T {
    if LEFT_TO_OTHERS.get() {
        return f();
    }
    let blocked = mask(libc::SIG_SETMASK, u64::MAX);
    let done = f();
    set_mask(blocked);
    done
}

/// The signals this process handles or ignores, as a set with bit n-1 for signal n, and SIGPIPE, which Rust
/// programs ignore from their start. A handler must not run in a child, which shares this process's memory. `execve` leaves
/// ignored signals ignored: a program that never asked for it would miss the end of its reader.
pub(super) fn not_default() -> u64 {
    (1..=64)
        .filter(|&n| action(n).is_some_and(|a| a[0] != libc::SIG_DFL))
        .fold(1 << (libc::SIGPIPE - 1), |set, n| set | 1 << (n - 1))
}

/// Makes exited children wait to be reaped. A server whose own parent ignored SIGCHLD inherits
/// that, and the kernel would throw every exit status away.
pub(super) fn keep_exited_children() {
    let discards = |a: Action| a[0] == libc::SIG_IGN || a[1] & libc::SA_NOCLDWAIT as usize != 0;
    if action(libc::SIGCHLD as usize).is_some_and(discards) {
        // SAFETY: the default disposition runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

fn action(signal: usize) -> Option<Action> {
    let mut old: Action = [0; 4];
    let to = &raw mut old as usize;
    // SAFETY: no new action is given; the kernel writes the old one to `old`, which has its size.
    let ret = unsafe { syscall(libc::SYS_rt_sigaction, [signal, 0, to, SET, 0, 0]) };
    (ret == 0).then_some(old)
}

/// Gives every signal of `set` its default disposition. Called in the child: raw calls only.
pub(super) fn reset(mut set: u64) {
    let default: Action = [0; 4];
    while set != 0 {
        let signal = set.trailing_zeros() as usize + 1;
        let new = &raw const default as usize;
        // SAFETY: `default` outlives the call and has the size of the kernel's struct; SIG_DFL runs
        // no code.
        unsafe { syscall(libc::SYS_rt_sigaction, [signal, new, 0, SET, 0, 0]) };
        set &= set - 1;
    }
}

/// Blocks the signals of `set` in this thread and unblocks all others. Called in the child: raw calls only.
pub(super) fn set_mask(set: u64) {
    mask(libc::SIG_SETMASK, set);
}

/// Changes what this thread blocks; what it has blocked before, as a set.
fn mask(how: libc::c_int, new: u64) -> u64 {
    let mut old: u64 = 0;
    let (how, to) = (how as usize, &raw mut old as usize);
    let new = &raw const new as usize;
    // SAFETY: both sets outlive the call and have SET bytes.
    unsafe { syscall(libc::SYS_rt_sigprocmask, [how, new, to, SET, 0, 0]) };
    old
}
