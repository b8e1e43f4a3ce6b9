//! The system calls that are refused, and why. It is a list of what is refused and not of what is allowed: programs are any
//! programs, and each kernel has new calls that a new C library uses.
//!
//! A program of the server's user, without rights of its own, is denied most of these already. The list is there for
//! programs that run as root, and because a call that cannot be made has no bugs to be used.

macro_rules! refused {
    ($_why:literal: $($call:ident)*) => {
        &[$((libc::$call, name(stringify!($call)))),*]
    };
}

/// Number and name of those that are refused for each reason: answered with EPERM, all of them. Beside these: clone3 is
/// answered with ENOSYS, for its flags lie in memory, where no filter sees them, and C libraries go on with clone(2); clone and
/// unshare are answered with EPERM where they ask for a namespace (`NAMESPACES`).
pub(super) const REFUSED: &[&[(libc::c_long, &str)]] = &[
    refused!("another process is looked into or changed, which Landlock forbids only where the kernel has it":
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp),
    refused!("file systems are mounted or moved":
        SYS_mount SYS_umount2 SYS_pivot_root SYS_open_tree SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick
        SYS_mount_setattr),
    refused!("a file is opened by number, past the folders that lead to it": SYS_open_by_handle_at),
    refused!("another namespace is entered": SYS_setns),
    refused!("code is loaded into the kernel": SYS_bpf SYS_init_module SYS_finit_module SYS_delete_module),
    refused!("another kernel is started, or none": SYS_kexec_load SYS_kexec_file_load SYS_reboot),
    refused!("keys of the kernel are shared by all programs of a user": SYS_keyctl SYS_add_key SYS_request_key),
    refused!("the processor's counters tell what other processes do; a frequent source of kernel bugs":
        SYS_perf_event_open),
    refused!("the kernel is stopped in the middle of an access to memory, which makes its races easy to win":
        SYS_userfaultfd),
    refused!("I/O is done past every filter of system calls": SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register),
    refused!("the clock of the machine is set": SYS_clock_settime SYS_settimeofday SYS_adjtimex SYS_clock_adjtime),
    refused!("the machine is administered": SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_syslog SYS_sethostname
        SYS_setdomainname SYS_vhangup SYS_nfsservctl),
    #[cfg(target_arch = "x86_64")]
    refused!("ports of devices are opened, or segments made for 16-bit programs": SYS_ioperm SYS_iopl SYS_modify_ldt),
];

/// What changes a file's mode, and which argument is the mode, from 0: answered with EPERM where that has S_ISUID. A new file
/// may have it (open(2)), but is empty, and the kernel takes it away as the file is written to.
pub(super) const MODES: &[(libc::c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
];

/// Flags of clone(2) and unshare(2) that make namespaces: a program in a user namespace of its own is root there, and
/// reaches parts of the kernel that are otherwise root's.
pub(super) const NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP)
    .cast_unsigned();

/// The name of `SYS_name`.
const fn name(constant: &'static str) -> &'static str {
    match constant.split_at_checked(4) {
        Some((_, name)) => name,
        None => constant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What runs is what the book says.
    #[test]
    fn the_book_names_each_call() {
        let book = include_str!("../../../../docs/security.md");
        for call in REFUSED.iter().copied().flatten() {
            assert!(book.contains(&format!("`{}`", call.1)), "{}", call.1);
        }
    }
}
