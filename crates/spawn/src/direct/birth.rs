//! The system call that makes a child: clone3(2), or clone(2) where a filter keeps that away.
//!
//! Containers are started with a filter of system calls that answers ENOSYS (EPERM, before 2021) to clone3, for its
//! flags lie in memory, where no filter sees them. clone(2) has no CLONE_CLEAR_SIGHAND: signals wait until the child
//! has given up the server's handlers itself.

use super::{
    child_side::{self, Context},
    signals,
    stack::Stack,
};
use crate::{Stage, StartError, raw};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// `CLONE_CLEAR_SIGHAND`: Linux 5.5.
const CLEAR_SIGHAND: u64 = 0x1_0000_0000;

const FLAGS: u64 = (libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD) as u64;

/// Which one this process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Birth {
    Clone3,
    Clone,
}

impl Birth {
    /// Asks the system.
    pub(super) fn known() -> Self {
        // SAFETY: arguments of no size are refused (EINVAL) before anything is read.
        match -unsafe { raw::syscall(libc::SYS_clone3, [0; 6]) } as i32 {
            libc::ENOSYS | libc::EPERM => Self::Clone,
            _ => Self::Clone3,
        }
    }

    /// The signals whose dispositions a child must reset, of which the server has `ignored` some.
    pub(super) fn to_reset(self, ignored: u64) -> u64 {
        match self {
            Self::Clone3 => ignored,
            Self::Clone => u64::MAX,
        }
    }

    /// Runs `context` in a child: its pidfd and its number.
    ///
    /// # Safety
    /// Until the child has left this memory, by `execve` or by its end, the stack must be its alone, and `context`, all
    /// that it points to and `cleared` must stay valid; nothing of it may be written to but by atomics. With CLONE_VFORK
    /// among the `flags` it has left when this returns, with CLONE_CHILD_CLEARTID when `*cleared` is 0. The context
    /// resets what [`to_reset`](Self::to_reset) names.
    pub(super) unsafe fn child(
        self,
        flags: libc::c_int,
        stack: &Stack,
        cleared: *const u32,
        context: &Context,
    ) -> Result<(OwnedFd, i32), StartError> {
        let mut pidfd: RawFd = -1;
        let to = &raw mut pidfd;
        let flags = FLAGS | flags as u64;
        let pid = match self {
            // SAFETY: this function's contract.
            Self::Clone3 => unsafe { clone3(flags | CLEAR_SIGHAND, stack, to, cleared, context) },
            Self::Clone => {
                let before = signals::block();
                // SAFETY: this function's contract; no handler runs in the child, for its signals are blocked.
                let pid = unsafe { clone(flags, stack, to, cleared, context) };
                signals::set_mask(before);
                pid
            }
        };
        if pid < 0 {
            return Err(StartError::errno(Stage::Clone, -pid as i32));
        }
        // SAFETY: CLONE_PIDFD stored a new descriptor there which nobody else knows.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok((pidfd, pid as i32))
    }
}

// The exit signal stays 0 in both: a child that fails before `execve` is nobody's business but ours, neither of a SIGCHLD
// handler nor of a stray wait(2). `execve` itself makes it SIGCHLD; __WALL reaps both kinds.

/// # Safety
/// As [`Birth::child`].
unsafe fn clone3(
    flags: u64,
    stack: &Stack,
    pidfd: *mut RawFd,
    cleared: *const u32,
    context: &Context,
) -> isize {
    // SAFETY: a struct of integers, for which 0 means "not used".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.pidfd = pidfd as u64;
    args.child_tid = cleared as u64;
    (args.stack, args.stack_size) = stack.range();
    let call = [
        &raw mut args as usize,
        size_of::<libc::clone_args>(),
        0,
        0,
        0,
    ];
    // SAFETY: the flags hold CLONE_VM; `run` never returns; the rest is the caller's promise.
    unsafe { raw::clone(libc::SYS_clone3, call, child_side::run, context) }
}

/// # Safety
/// As [`Birth::child`]; and every signal is blocked.
unsafe fn clone(
    flags: u64,
    stack: &Stack,
    pidfd: *mut RawFd,
    cleared: *const u32,
    context: &Context,
) -> isize {
    let (lowest, size) = stack.range();
    let (flags, top) = (flags as usize, (lowest + size) as usize);
    let (pidfd, cleared) = (pidfd as usize, cleared as usize);
    #[cfg(target_arch = "x86_64")]
    let call = [flags, top, pidfd, cleared, 0];
    #[cfg(target_arch = "aarch64")]
    let call = [flags, top, pidfd, 0, cleared];
    // SAFETY: as in `clone3`.
    unsafe { raw::clone(libc::SYS_clone, call, child_side::run, context) }
}
