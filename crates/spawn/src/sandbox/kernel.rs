//! What of a strict sandbox this kernel has, and this process the right to.

use super::{install, namespaces};
use crate::{domain, raw::syscall};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::sync::OnceLock;

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Landlock's ABI; 0: there is none. Files need 1, whole renames 2, truncate(2) 3, TCP ports 4, scopes 6.
    pub landlock: u32,
    /// Filters of system calls.
    pub filters: bool,
    /// This process may make mount and PID namespaces, and mount there what programs need.
    pub namespaces: bool,
    /// It may make network namespaces, too.
    pub networks: bool,
}

/// What there is: looked at by the first call, which must come before the process gives up root's rights.
pub fn kernel() -> Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    *KERNEL.get_or_init(|| {
        let (namespaces, networks) = may_make_namespaces();
        Kernel {
            landlock: domain::abi(),
            filters: install::is_available(),
            namespaces,
            networks,
        }
    })
}

/// The exit status of a child that may not make networks.
const NO_NETWORKS: i32 = 2;

/// Whether a child can be made in namespaces of its own and mount there; whether it can make a network. By the calls that make
/// helpers: a filter may refuse some of them.
fn may_make_namespaces() -> (bool, bool) {
    let flags = libc::CLONE_NEWPID | libc::SIGCHLD;
    // SAFETY: as fork(2): the child has a copy of this memory, takes no lock, allocates nothing, and ends.
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
            // SAFETY: one live number. The child is this process's own, and was made a moment ago.
            let ended = unsafe { libc::waitpid(pid as i32, &raw mut status, 0) };
            let exited =
                (ended == pid as i32 && libc::WIFEXITED(status)).then(|| libc::WEXITSTATUS(status));
            (matches!(exited, Some(0 | NO_NETWORKS)), exited == Some(0))
        }
        _ => (false, false),
    }
}
