//! A Landlock domain of its own for each program (landlock(7)): from inside it a process can neither signal, trace nor look into
//! a process outside, nor connect to an abstract Unix socket that was made outside. The server is outside of all domains, so it
//! can do all of that to its programs.
//!
//! No right to files or ports is handled. A domain that handles rights to files forbids, among others, to rename a file from
//! one folder into another.

use crate::raw::syscall;
use rustix::io::Errno;
use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

/// The kernel's `struct landlock_ruleset_attr`.
#[repr(C)]
struct Attributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET` and `LANDLOCK_SCOPE_SIGNAL`.
const SCOPED: u64 = 1 << 0 | 1 << 1;

/// What each program makes a domain of; `None` where the kernel has no scopes: they came with Landlock's ABI 6, Linux 6.12. The
/// descriptor is closed by `execve`.
///
/// # Errors
/// Descriptors or memory are short: whether there are scopes is not known.
pub(crate) fn ruleset() -> io::Result<Option<OwnedFd>> {
    let attributes = Attributes {
        handled_access_fs: 0,
        handled_access_net: 0,
        scoped: SCOPED,
    };
    let (at, size) = (&raw const attributes as usize, size_of::<Attributes>());
    // SAFETY: the kernel reads `size` bytes of `attributes`, which outlives the call.
    let made = unsafe { syscall(libc::SYS_landlock_create_ruleset, [at, size, 0, 0, 0, 0]) };
    match made {
        // SAFETY: a new descriptor that no other code knows.
        0.. => Ok(Some(unsafe { OwnedFd::from_raw_fd(made as RawFd) })),
        _ => match Errno::from_raw_os_error(-made as i32) {
            e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(e.into()),
            // No such call, switched off, an older one, or a filter of system calls.
            _ => Ok(None),
        },
    }
}

/// Whether the kernel keeps programs apart from each other and from this process.
///
/// # Errors
/// Descriptors or memory are short.
pub fn keeps_apart() -> io::Result<bool> {
    Ok(ruleset()?.is_some())
}
