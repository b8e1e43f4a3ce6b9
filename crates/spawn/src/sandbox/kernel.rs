//! What of a strict sandbox this kernel has, and this process the right to.

use super::install;
use crate::{domain, raw::syscall};
use std::sync::OnceLock;

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Landlock's ABI; 0: there is none. Files need 1, whole renames 2, truncate(2) 3, TCP ports 4, scopes 6.
    pub landlock: u32,
    /// Filters of system calls.
    pub filters: bool,
    /// This process may make mount and PID namespaces.
    pub namespaces: bool,
}

/// What there is: looked at by the first call, which must come before the process gives up root's rights.
pub fn kernel() -> Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    *KERNEL.get_or_init(|| Kernel {
        landlock: domain::abi(),
        filters: install::is_available(),
        namespaces: may_make_namespaces(),
    })
}

/// Whether a child can be made in namespaces of its own.
fn may_make_namespaces() -> bool {
    let flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::SIGCHLD;
    // SAFETY: as fork(2): the child has a copy of this memory, takes no lock and makes but one system call, which ends it.
    let pid = unsafe { syscall(libc::SYS_clone, [flags as usize, 0, 0, 0, 0, 0]) };
    match pid {
        // SAFETY: ends the child.
        0 => unsafe { libc::_exit(0) },
        1.. => {
            let mut status = 0;
            // SAFETY: one live number. The child is this process's own, and was made a moment ago.
            unsafe { libc::waitpid(pid as i32, &raw mut status, 0) == pid as i32 && status == 0 }
        }
        _ => false,
    }
}
