//! Finds which features of a strict sandbox this kernel has and this process may use.

use super::{install, namespaces};
use crate::{domain, raw::syscall};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::sync::OnceLock;

/// The available features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Landlock's ABI; 0: no Landlock. Files need 1, whole renames 2, truncate(2) 3, TCP ports 4, scopes 6.
    pub landlock: u32,
    /// The kernel filters system calls.
    pub filters: bool,
    /// This process may make mount and PID namespaces, and mount there what programs need.
    pub namespaces: bool,
    /// This process may make network namespaces, too.
    pub networks: bool,
}

/// Returns the available features. The first call detects them, and must come before the process gives up root's rights.
pub fn kernel() -> Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    *KERNEL.get_or_init(|| {
        let (namespaces, networks) = may_make_namespaces();
        Kernel {
            landlock: domain::landlock_abi(),
            filters: install::is_available(),
            namespaces,
            networks,
        }
    })
}

/// The exit status of a child that may not make networks.
const NO_NETWORKS: i32 = 2;

/// Returns whether a child can be made in its own namespaces and mount there, and whether it can make a network. This uses the
/// calls that make helpers, because a filter may refuse some of them.
fn may_make_namespaces() -> (bool, bool) {
    let flags = libc::CLONE_NEWPID | libc::SIGCHLD;
    // SAFETY: like fork(2): the child has a copy of this memory, takes no lock, allocates nothing, and ends.
    let pid = unsafe { syscall(libc::SYS_clone, [flags as usize, 0, 0, 0, 0, 0]) };
    match pid {
        0 => {
            // SAFETY: no descriptors are unshared; the child has one thread.
            let may = |flags| unsafe { unshare_unsafe(flags) }.is_ok();
            let status = match may(UnshareFlags::NEWNS | UnshareFlags::NEWIPC) {
                true if namespaces::can_mount() => {
                    if may(UnshareFlags::NEWNET) {
                        0
                    } else {
                        NO_NETWORKS
                    }
                }
                _ => 1,
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) }
        }
        1.. => {
            let mut status = 0;
            // SAFETY: the pointer is to a live number. The child is this process's own, and was made a moment ago.
            let ended = unsafe { libc::waitpid(pid as i32, &raw mut status, 0) };
            let exited =
                (ended == pid as i32 && libc::WIFEXITED(status)).then(|| libc::WEXITSTATUS(status));
            (matches!(exited, Some(0 | NO_NETWORKS)), exited == Some(0))
        }
        _ => (false, false),
    }
}
