//! Enters a filter of system calls.

use crate::{key, raw::syscall};
use libc::sock_filter;
use rustix::thread::set_no_new_privs;
use std::io;

/// The threads that enter a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilteredThreads {
    /// The calling thread, and threads that it starts.
    This,
    /// Every thread that the process has, and will have.
    All,
    /// Like `This`, with the processor's mitigations, because the threads run code of guests.
    Worker,
}

/// Gives up new privileges and enters the filter, which is made with the key of this process, if the kernel has filters.
pub(super) fn enter_filter(
    threads: FilteredThreads,
    filter: impl FnOnce(u64) -> Vec<sock_filter>,
) -> io::Result<()> {
    set_no_new_privs(true)?;
    if is_available() {
        install_filter(threads, &filter(key::make_key()?))
    } else {
        Ok(())
    }
}

/// Enters the filter. The thread must have given up new privileges.
pub(super) fn install_filter(threads: FilteredThreads, filter: &[sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // A program chooses the processor's mitigations itself, as without a filter: the default since Linux 5.16.
    let flags = match threads {
        FilteredThreads::This => libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
        FilteredThreads::All => {
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW | libc::SECCOMP_FILTER_FLAG_TSYNC
        }
        FilteredThreads::Worker => 0,
    } as usize;
    let set = libc::SECCOMP_SET_MODE_FILTER as usize;
    let args = [set, flags, &raw const program as usize, 0, 0, 0];
    // SAFETY: the kernel reads `program` and the `len` instructions that it points to; both outlive the call. The kernel checks
    // the instructions, and changes nothing of this process except which calls are answered.
    match unsafe { syscall(libc::SYS_seccomp, args) } {
        0 => Ok(()),
        thread @ 1.. => Err(io::Error::other(format!(
            "the thread {thread} has another filter"
        ))),
        errno => Err(io::Error::from_raw_os_error(-errno as i32)),
    }
}

/// Returns whether the kernel filters system calls (CONFIG_SECCOMP_FILTER).
pub fn is_available() -> bool {
    let (asks, action) = (libc::SECCOMP_GET_ACTION_AVAIL, libc::SECCOMP_RET_ERRNO);
    let args = [asks as usize, 0, &raw const action as usize, 0, 0, 0];
    // SAFETY: the kernel reads the four bytes of `action`, which outlives the call.
    unsafe { syscall(libc::SYS_seccomp, args) == 0 }
}
