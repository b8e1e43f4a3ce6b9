//! Signal dispositions as the kernel holds them.

use crate::raw::syscall;

/// The kernel's `struct sigaction` on both architectures: handler, flags, restorer, mask.
type Action = [usize; 4];

/// Bytes of the kernel's signal set.
const SET: usize = 8;

/// The signals this process ignores, as a set with bit n-1 for signal n, and SIGPIPE, which Rust
/// programs ignore from their start. CLONE_CLEAR_SIGHAND resets handlers, but leaves ignored
/// signals ignored, and so does `execve`: a program that never asked for it would miss the end of
/// its reader.
pub(super) fn ignored() -> u64 {
    (1..=64)
        .filter(|&n| action(n).is_some_and(|a| a[0] == libc::SIG_IGN))
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

/// Blocks every signal of this thread; those that were blocked, as a set.
pub(super) fn block() -> u64 {
    mask(u64::MAX)
}

/// Blocks the signals of `set` in this thread and unblocks all others. Called in the child: raw calls only.
pub(super) fn set_mask(set: u64) {
    mask(set);
}

fn mask(new: u64) -> u64 {
    let mut old: u64 = 0;
    let (how, to) = (libc::SIG_SETMASK as usize, &raw mut old as usize);
    let new = &raw const new as usize;
    // SAFETY: both sets outlive the call and have SET bytes.
    unsafe { syscall(libc::SYS_rt_sigprocmask, [how, new, to, SET, 0, 0]) };
    old
}
