//! A decision on every system call of the running kernel: refused, held to the calling process, allowed in every sandbox, or
//! allowed in the standard one, for the reasons below.

use super::{LASTING, OWN_ONLY, REFUSED};
use std::{collections::HashSet, fs};

/// Calls that the standard sandbox allows, with the reason why each does no harm there. A strict sandbox answers ENOSYS, unless
/// `allowed.rs` lists the call.
const STANDARD: &[(&str, &str)] = &[
    (
        "the filter looks at its arguments",
        "clone clone3 unshare socket fchmodat2",
    ),
    (
        "it acts on the caller's own memory",
        "map_shadow_stack mbind memfd_secret mseal remap_file_pages
        set_mempolicy set_mempolicy_home_node",
    ),
    (
        "it waits for, or wakes, who shares the memory",
        "futex_requeue futex_wait futex_waitv futex_wake",
    ),
    (
        "it does what older calls do, within the modes of files",
        "cachestat file_getattr file_setattr getxattrat listxattrat
        removexattrat setxattrat io_pgetevents",
    ),
    (
        "it only tells: of mounts, security modules or file systems",
        "listmount listns statmount lsm_get_self_attr lsm_list_modules sysfs ustat",
    ),
    (
        "a security module decides; it acts on the caller alone",
        "lsm_set_self_attr",
    ),
    (
        "it needs root's rights, and reaches nothing that root's programs cannot open",
        "chroot",
    ),
    (
        "it works only in the trampoline that the kernel itself has made",
        "uprobe uretprobe rseq_slice_yield",
    ),
    (
        "it loads a library of the a.out format, which kernels since 6.1 do not have",
        "uselib",
    ),
];

/// Names of kernel functions that differ from their call, and the call.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("newfstat", "fstat"),
    ("newlstat", "lstat"),
    ("newstat", "stat"),
    ("newuname", "uname"),
    ("sendfile64", "sendfile"),
    ("fadvise64_64", "fadvise64"),
    ("umount", "umount2"),
];

/// Functions without a number on x86-64 and aarch64: calls of 32-bit programs, which the filter kills, and of other
/// architectures.
const ELSEWHERE: &str = "get_thread_area set_thread_area gethostname ipc llseek mmap_pgoff ni_syscall nice
    olduname oldumount pciconfig_iobase pciconfig_read pciconfig_write recv rtas send sgetmask signal sigpending sigprocmask
    sigsuspend socketcall spu_create spu_run ssetmask fstatfs64 statfs64 stime subpage_prot sync_file_range2 vm86 vm86old waitpid
    adjtimex_time32 clock_adjtime32 clock_gettime32 clock_settime32 stime32 time32 timer_gettime32 timer_settime32
    timerfd_gettime32 timerfd_settime32 utime32 sigaction sigreturn arm64_personality";

fn has_no_number(name: &str) -> bool {
    let begins = ["ia32_", "old_", "s390_", "compat_", "mmap_", "aarch32_"];
    let ends = ["16", "_time32"];
    begins.iter().any(|b| name.starts_with(b))
        || ends.iter().any(|e| name.ends_with(e))
        || ELSEWHERE.split_ascii_whitespace().any(|n| n == name)
}

/// Returns the calls that this kernel has, from the names of its functions (CONFIG_KALLSYMS).
fn calls() -> HashSet<String> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let name = |line: &str| {
        let symbol = line.split_ascii_whitespace().nth(2)?;
        let prefixes = ["__x64_sys_", "__arm64_sys_"];
        let name = prefixes.iter().find_map(|p| symbol.strip_prefix(p))?;
        if name.contains('.') {
            return None; // a part of a function that the compiler has moved away (`setitimer.cold`)
        }
        let other = OTHER_NAMES.iter().find(|(function, _)| *function == name);
        Some(other.map_or(name, |(_, call)| call).to_owned())
    };
    symbols.lines().filter_map(name).collect()
}

#[test]
fn each_call_of_this_kernel_has_a_decision() {
    let mut decided: HashSet<&str> = HashSet::new();
    decided.extend(REFUSED.iter().copied().flatten().map(|(_, name)| *name));
    decided.extend(LASTING.iter().map(|(_, name)| *name));
    decided.extend(OWN_ONLY.iter().map(|(_, name, _)| *name));
    let words = |text: &'static str| text.split(|c: char| !c.is_alphanumeric() && c != '_');
    decided.extend(words(include_str!("../allowed.rs")).filter_map(|w| w.strip_prefix("SYS_")));
    decided.extend(STANDARD.iter().flat_map(|(_, names)| words(names)));
    let calls = calls();
    assert!(calls.len() > 300, "{calls:?}");
    let open: Vec<_> = calls
        .iter()
        .filter(|name| !decided.contains(name.as_str()) && !has_no_number(name))
        .collect();
    assert!(
        open.is_empty(),
        "decide whether programs may make these calls: {open:?}"
    );
}
