//! The system call that makes a child: clone(2).
//!
//! Not clone3, which the server's own filter of system calls refuses, as do those of containers: its flags lie in memory,
//! where no filter sees them. clone(2) has no CLONE_CLEAR_SIGHAND: signals wait until the child has given up the server's
//! handlers itself.

use super::{
    child_side::{self, ChildContext},
    signals,
    stack::Stack,
};
use crate::{
    error::{StartError, StartStage},
    raw,
};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

const FLAGS: libc::c_int = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD;

/// Runs `context` in a child: its pidfd and its number.
///
/// # Safety
/// Until the child has left this memory, by `execve` or by its end, the stack must be its alone, and `context`, all
/// that it points to and `cleared` must stay valid; nothing of it may be written to but by atomics. With CLONE_VFORK
/// among the `flags` it has left when this returns, with CLONE_CHILD_CLEARTID when `*cleared` is 0. The context
/// resets every signal that this process handles.
pub(super) unsafe fn child(
    flags: libc::c_int,
    stack: &Stack,
    cleared: *const u32,
    context: &ChildContext,
) -> Result<(OwnedFd, i32), StartError> {
    let mut pidfd: RawFd = -1;
    let args = in_registers(FLAGS | flags, stack, &raw mut pidfd, cleared);
    // SAFETY: the flags hold CLONE_VM, `pidfd` lives, and `run` never returns. No handler that touches what threads share
    // runs in the child, for those signals are blocked until it has reset them. The rest is this function's contract.
    let pid = signals::without(|| unsafe { raw::clone(args, child_side::run, context) });
    if pid < 0 {
        return Err(StartError::errno(StartStage::Clone, -pid as i32));
    }
    // SAFETY: CLONE_PIDFD stored a new descriptor there which no other code knows.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((pidfd, pid as i32))
}

/// The arguments. The exit signal stays 0: a child that fails before `execve` concerns this spawner alone, neither a
/// SIGCHLD handler nor a stray wait(2). `execve` itself makes it SIGCHLD; __WALL reaps both kinds.
fn in_registers(
    flags: libc::c_int,
    stack: &Stack,
    pidfd: *mut RawFd,
    cleared: *const u32,
) -> [usize; 5] {
    let (flags, top) = (flags.cast_unsigned() as usize, stack.top());
    let (pidfd, cleared) = (pidfd as usize, cleared as usize);
    match cfg!(target_arch = "x86_64") {
        true => [flags, top, pidfd, cleared, 0],
        // aarch64 has the thread pointer in between (clone(2), C library/kernel differences).
        false => [flags, top, pidfd, 0, cleared],
    }
}
