//! The system call that makes a child: clone(2).
//!
//! clone3 is not used: the server's own filter of system calls refuses it, as containers' filters do. The flags of clone3 lie
//! in memory, and no filter can see them there. clone(2) has no CLONE_CLEAR_SIGHAND: signals wait until the child has reset the
//! server's handlers itself.

use super::{
    child_side::{self, ChildContext},
    signals,
    stack::Stack,
};
use crate::{
    raw,
    start_error::{StartError, StartStage},
};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

const FLAGS: libc::c_int = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD;

/// Runs `context` in a child. Returns the child's pidfd and process id.
///
/// # Safety
/// The child leaves this memory by `execve` or by ending. Until then, only the child may use the stack, and `context`, all that
/// it points to, and `cleared` must stay valid and may be written to only through atomics. With CLONE_VFORK among the `flags`,
/// the child has left when this returns; with CLONE_CHILD_CLEARTID, when `*cleared` is 0. The context must reset every signal
/// that this process handles.
pub(super) unsafe fn clone_child(
    flags: libc::c_int,
    stack: &Stack,
    cleared: *const u32,
    context: &ChildContext,
) -> Result<(OwnedFd, i32), StartError> {
    let mut pidfd: RawFd = -1;
    let args = clone_arguments(FLAGS | flags, stack, &raw mut pidfd, cleared);
    // SAFETY: the flags hold CLONE_VM, `pidfd` lives, and `run` never returns. No handler that touches data shared by threads
    // runs in the child, because those signals are blocked until the child has reset them. The rest is this function's
    // contract.
    let pid =
        signals::with_signals_blocked(|| unsafe { raw::clone(args, child_side::run, context) });
    if pid < 0 {
        return Err(StartError::from_errno(StartStage::Clone, -pid as i32));
    }
    // SAFETY: CLONE_PIDFD stored a new descriptor there, and no other code knows it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((pidfd, pid as i32))
}

/// Returns the arguments. The exit signal stays 0: a child that fails before `execve` concerns this spawner alone, and must not
/// trigger a SIGCHLD handler or a stray wait(2). `execve` itself changes the signal to SIGCHLD; __WALL reaps both kinds.
fn clone_arguments(
    flags: libc::c_int,
    stack: &Stack,
    pidfd: *mut RawFd,
    cleared: *const u32,
) -> [usize; 5] {
    let (flags, top) = (flags.cast_unsigned() as usize, stack.top_address());
    let (pidfd, cleared) = (pidfd as usize, cleared as usize);
    match cfg!(target_arch = "x86_64") {
        true => [flags, top, pidfd, cleared, 0],
        // aarch64 has the thread pointer in between (clone(2), C library/kernel differences).
        false => [flags, top, pidfd, 0, cleared],
    }
}
