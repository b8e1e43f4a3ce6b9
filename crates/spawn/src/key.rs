//! The key to calls on other processes.
//!
//! galgo lowers the priority of its programs and marks them by RLIMIT_LOCKS; the filter refuses both to programs (`OWN_ONLY` in
//! [`sandbox`](crate::sandbox)). The filter holds for galgo, too. Therefore the filter allows such a call if its sixth argument
//! is the key: a random number that the filter contains. The kernel ignores this argument.
//!
//! No program learns the key. It lies in the kernel's copy of the filter, which no process can read without ptrace(2), and in
//! the memory of the server or helper. execve(2) replaces that memory, and a template's children have the template's memory.
//! The server and helpers are not dumpable, so that /proc/PID/mem and /proc/PID/syscall are closed. Trying 2^64 numbers takes
//! millennia. The filter compares all bits at once, so that the time of a refusal tells nothing.

use crate::raw::syscall;
use rustix::rand::{GetRandomFlags, getrandom};
use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

/// 0 until this process enters a filter.
static KEY: AtomicUsize = AtomicUsize::new(0);

/// Returns the key of this process, for its filter. Several filters of one process have the same key.
pub(crate) fn make_key() -> io::Result<u64> {
    if KEY.load(Ordering::Relaxed) == 0 {
        let mut bytes = [0; size_of::<usize>()];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        KEY.store(usize::from_ne_bytes(bytes).max(1), Ordering::Relaxed);
    }
    Ok(KEY.load(Ordering::Relaxed) as u64)
}

/// Makes a system call that the filter refuses to programs. Takes no lock and allocates nothing.
///
/// # Safety
/// The same conditions as for [`syscall`].
pub(crate) unsafe fn syscall_with_key(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    let key = KEY.load(Ordering::Relaxed);
    // SAFETY: the caller's promise. No call that is made with the key has a sixth argument.
    unsafe { syscall(number, [a, b, c, d, 0, key]) }
}
