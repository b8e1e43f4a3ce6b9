//! The system call that makes a child: clone3(2), or clone(2) where a filter keeps that away.
//!
//! Containers are started with a filter of system calls that answers ENOSYS (EPERM, before 2021) to clone3, for its
//! flags lie in memory, where no filter sees them. clone(2) has no CLONE_CLEAR_SIGHAND: signals wait until the child
//! has given up the server's handlers itself.

use super::{
    child_side::{self, ChildContext},
    signals,
    stack::Stack,
};
use crate::{
    error::{Stage, StartError},
    raw,
};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// `CLONE_CLEAR_SIGHAND`: Linux 5.5.
const CLEAR_SIGHAND: u64 = 0x1_0000_0000;

const FLAGS: u64 = (libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD) as u64;

/// Which one this process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloneCall {
    Clone3,
    Clone,
}

impl CloneCall {
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
        context: &ChildContext,
    ) -> Result<(OwnedFd, i32), StartError> {
        let mut pidfd: RawFd = -1;
        let to = &raw mut pidfd;
        let flags = FLAGS | flags as u64;
        let mut args;
        let (number, call) = match self {
            Self::Clone3 => {
                args = in_memory(flags | CLEAR_SIGHAND, stack, to, cleared);
                let size = size_of::<libc::clone_args>();
                (libc::SYS_clone3, [&raw mut args as usize, size, 0, 0, 0])
            }
            Self::Clone => (libc::SYS_clone, in_registers(flags, stack, to, cleared)),
        };
        let blocked = (self == Self::Clone).then(signals::block);
        // SAFETY: the flags hold CLONE_VM, the arguments and `pidfd` live, and `run` never returns. No handler runs in the
        // child: the call removes them, or every signal is blocked. The rest is this function's contract.
        let pid = unsafe { raw::clone(number, call, child_side::run, context) };
        if let Some(before) = blocked {
            signals::set_mask(before);
        }
        if pid < 0 {
            return Err(StartError::errno(Stage::Clone, -pid as i32));
        }
        // SAFETY: CLONE_PIDFD stored a new descriptor there which no other code knows.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok((pidfd, pid as i32))
    }
}

// The exit signal stays 0 in both: a child that fails before `execve` concerns this spawner alone, neither a SIGCHLD
// handler nor of a stray wait(2). `execve` itself makes it SIGCHLD; __WALL reaps both kinds.

/// The arguments of clone3.
fn in_memory(
    flags: u64,
    stack: &Stack,
    pidfd: *mut RawFd,
    cleared: *const u32,
) -> libc::clone_args {
    // SAFETY: a struct of integers, for which 0 means "not used".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.pidfd = pidfd as u64;
    args.child_tid = cleared as u64;
    (args.stack, args.stack_size) = stack.range();
    args
}

/// Those of clone.
fn in_registers(flags: u64, stack: &Stack, pidfd: *mut RawFd, cleared: *const u32) -> [usize; 5] {
    let (lowest, size) = stack.range();
    let (flags, top) = (flags as usize, (lowest + size) as usize);
    let (pidfd, cleared) = (pidfd as usize, cleared as usize);
    match cfg!(target_arch = "x86_64") {
        true => [flags, top, pidfd, cleared, 0],
        // aarch64 has the thread pointer in between (clone(2), C library/kernel differences).
        false => [flags, top, pidfd, 0, cleared],
    }
}
