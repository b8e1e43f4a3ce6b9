//! The system calls that are refused, and why. The list names refused calls and not allowed ones: galgo runs arbitrary
//! programs, and each kernel has new calls that a new C library uses.
//!
//! A program that runs as the server's user, without further rights, is denied most of these calls already. The list is for
//! programs that run as root. Besides, bugs in a call cannot be used by a program that cannot make the call.

macro_rules! refused {
    ($_why:literal: $($call:ident)*) => {
        &[$((numbers::$call, name(stringify!($call)))),*]
    };
}

/// The numbers of system calls, including calls that libc does not know yet.
mod numbers {
    pub(super) use libc::*;

    /// Linux 6.15; the same number on all architectures.
    #[allow(non_upper_case_globals)]
    pub(super) const SYS_open_tree_attr: c_long = 467;
}

/// Number and name of the calls that get EPERM, by the reason to refuse them. Two rules are elsewhere. First, clone3 gets
/// ENOSYS, because its flags lie in memory that no filter sees. C libraries then use clone(2). Second, clone and unshare get
/// EPERM if they ask for a namespace (`NAMESPACES`).
pub(super) const REFUSED: &[&[(libc::c_long, &str)]] = &[
    refused!("another process is looked into or changed, which Landlock forbids only where the kernel has it":
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp
        SYS_process_madvise SYS_process_mrelease),
    refused!("file systems are mounted or moved":
        SYS_mount SYS_umount2 SYS_pivot_root SYS_open_tree SYS_open_tree_attr SYS_move_mount SYS_fsopen SYS_fsconfig
        SYS_fsmount SYS_fspick SYS_mount_setattr),
    refused!("opening a file waits for the permission of this process, or tells it of what others open":
        SYS_fanotify_init SYS_fanotify_mark),
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
    refused!("the machine is administered": SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_quotactl_fd SYS_syslog SYS_sethostname
        SYS_setdomainname SYS_vhangup SYS_nfsservctl),
    #[cfg(target_arch = "x86_64")]
    refused!("ports of devices are opened, or segments made for 16-bit programs": SYS_ioperm SYS_iopl SYS_modify_ldt),
];

/// Calls that make shared memory, queues and semaphores, which outlive the process that makes them (sysvipc(7),
/// mq_overview(7)). They get EPERM unless the process is in its own IPC namespace, because those objects end with the
/// namespace.
pub(super) const LASTING: &[(libc::c_long, &str)] = refused!("they outlive the request and the server": SYS_shmget SYS_msgget SYS_semget SYS_mq_open);

/// Calls that a worker of modules must not make either. Some of its calls are refused by their arguments (`filter::worker`).
pub(super) const OF_WORKER: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_unshare,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Calls that change a file's mode, and the index of the mode argument, from 0: EPERM if the mode has S_ISUID. A new file may
/// get that bit by open(2), but is empty, and the kernel clears the bit as the file is written to.
pub(super) const MODES: &[(libc::c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
];

/// The decision after comparing an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The call is allowed.
    Allow,
    /// The call is allowed only with the key ([`key`](crate::key)); otherwise EPERM.
    WithKey,
    /// The next comparison decides; after the last one the call is allowed.
    Next,
    /// The comparison after the next one decides.
    Skip,
}
use Verdict::{Allow, Next, Skip, WithKey};

/// A comparison of half an argument: `argument` is its index, from 0, and `upper` selects the half. The verdict is `equal` if
/// the half is `with`, else `other`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comparison {
    pub(super) argument: u32,
    pub(super) upper: bool,
    pub(super) with: u32,
    pub(super) equal: Verdict,
    pub(super) other: Verdict,
}

impl Comparison {
    const fn new(argument: u32, with: u32, equal: Verdict, other: Verdict) -> Self {
        Self {
            argument,
            upper: false,
            with,
            equal,
            other,
        }
    }
}

/// Requires the argument to be this number.
const fn require_value(argument: u32, with: u32) -> Comparison {
    Comparison::new(argument, with, Next, WithKey)
}

/// Requires the first argument, the process or thread, to be 0: the calling one.
const ITSELF: &[Comparison] = &[require_value(0, 0)];

/// Requires the argument to be a limit other than RLIMIT_LOCKS, which marks the processes of a request ([`crate::reaper`]).
#[allow(clippy::unnecessary_cast)] // not every libc declares the constant with this type
const fn unmarked(argument: u32) -> Comparison {
    Comparison::new(argument, libc::RLIMIT_LOCKS as u32, WithKey, Next)
}

/// The first argument of setpriority(2) for a process.
const PRIO_PROCESS: u32 = 0;
/// IOPRIO_WHO_PROCESS, ioprio_set(2).
const IOPRIO_PROCESS: u32 = 1;

/// Calls that change limits, priority, scheduling or memory of a process, and the arguments that let a program reach only
/// itself. Landlock does not cover most of them, and the kernel allows them for each process of the same user. A filter cannot
/// know the number of its own process, so a program must name itself by 0. A process group is refused, too, because a program
/// may join the server's group (setpgid(2)). The calls of a start come first: for all calls after an entry the filter takes
/// longer.
pub(super) const OWN_ONLY: &[(libc::c_long, &str, &[Comparison])] = &[
    (
        libc::SYS_prlimit64,
        "prlimit64",
        &[
            // Without a new limit the call only returns the old one.
            Comparison {
                upper: true,
                ..Comparison::new(2, 0, Next, Skip)
            },
            Comparison::new(2, 0, Allow, Next),
            require_value(0, 0),
            unmarked(1),
        ],
    ),
    (libc::SYS_setrlimit, "setrlimit", &[unmarked(0)]),
    (
        libc::SYS_setpriority,
        "setpriority",
        &[require_value(0, PRIO_PROCESS), require_value(1, 0)],
    ),
    (
        libc::SYS_ioprio_set,
        "ioprio_set",
        &[require_value(0, IOPRIO_PROCESS), require_value(1, 0)],
    ),
    (libc::SYS_sched_setaffinity, "sched_setaffinity", ITSELF),
    (libc::SYS_sched_setscheduler, "sched_setscheduler", ITSELF),
    (libc::SYS_sched_setparam, "sched_setparam", ITSELF),
    (libc::SYS_sched_setattr, "sched_setattr", ITSELF),
    (libc::SYS_migrate_pages, "migrate_pages", ITSELF),
    (libc::SYS_move_pages, "move_pages", ITSELF),
];

/// Flags of clone(2) and unshare(2) that make namespaces. In its own user namespace a program is root, and reaches parts of the
/// kernel that are otherwise reserved for root.
pub(super) const NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP
    // In clone(2) this bit is part of the signal at the end of the child, but no signal's number has the bit.
    | CLONE_NEWTIME)
    .cast_unsigned();

/// The value since Linux 5.6.
const CLONE_NEWTIME: libc::c_int = 0x80;

/// Returns the system call's name from `SYS_name`.
const fn name(constant: &'static str) -> &'static str {
    match constant.split_at_checked(4) {
        Some((_, name)) => name,
        None => constant,
    }
}

#[cfg(test)]
mod decisions;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the code with the list in the book.
    #[test]
    fn the_book_names_each_call() {
        let book = include_str!("../../../../../docs/security.md");
        let own = OWN_ONLY.iter().map(|(call, name, _)| (*call, *name));
        let all = REFUSED.iter().copied().flatten().copied();
        for call in all.chain(LASTING.iter().copied()).chain(own) {
            assert!(book.contains(&format!("`{}`", call.1)), "{}", call.1);
        }
    }
}
