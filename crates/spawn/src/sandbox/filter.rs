//! The filter in the kernel's form (seccomp(2), classic BPF).

use super::{
    allowed::ALLOWED,
    calls::{Comparison, LASTING, MODES, NAMESPACES, OF_WORKER, OWN_ONLY, REFUSED, Verdict},
    kernel::kernel,
    namespaces::Ipc,
    network::Network,
    opens::OPEN_HOW,
};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_LD, BPF_MISC, BPF_OR,
    BPF_RET, BPF_TAX, BPF_W, BPF_X, BPF_XOR, sock_filter,
};

/// Offsets in the kernel's `struct seccomp_data`; for arguments, of the lower half.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const ARGUMENT: u32 = 8;
const UPPER_HALF: u32 = 4;
const SECOND_ARGUMENT: u32 = 24;
const THIRD_ARGUMENT: u32 = 32;
const FOURTH_ARGUMENT: u32 = 40;
/// Mask of the type in the second argument of socket(2), without flags.
const SOCKET_TYPE: u32 = 0xf;
/// The argument that holds the key ([`key`](crate::key)).
const SIXTH_ARGUMENT: u32 = 56;

/// `AUDIT_ARCH_X86_64` or `AUDIT_ARCH_AARCH64`.
const OURS: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else {
    0xc000_00b7
};
/// Numbers from here on belong to x32, which gives the same calls other numbers (`__X32_SYSCALL_BIT`).
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// Kills a process that uses another architecture's calls, such as a 32-bit program: there the numbers mean other calls.
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
const EACCES: u32 = libc::SECCOMP_RET_ERRNO | libc::EACCES.cast_unsigned();
const EPROTONOSUPPORT: u32 = libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT.cast_unsigned();
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();

/// Returns the filter of `sandbox = "standard"`, which refuses `more` calls besides. Its length does not matter: for calls that
/// are always allowed, the kernel keeps a map.
pub(super) fn standard(ipc: Ipc, more: &[libc::c_long], key: u64) -> Vec<sock_filter> {
    let mut filter = refusing(OWN_ONLY.iter().flat_map(|call| own_only(*call, key)), ipc);
    for call in more {
        filter.extend(answer(BPF_JEQ, number(*call), 0, 1, EPERM));
    }
    filter.push(instruction(BPF_RET, 0, 0, ALLOW));
    filter
}

/// Returns the filter of a worker of modules: it starts threads and no processes, and changes no limits, not even its own.
pub(super) fn worker(network: bool) -> Vec<sock_filter> {
    let mut filter = refusing(std::iter::empty(), Ipc::Machine);
    let own = OWN_ONLY.iter().map(|(call, ..)| *call);
    let own = own.filter(|call| *call != libc::SYS_prlimit64);
    for call in OF_WORKER.iter().copied().chain(own) {
        filter.extend(answer(BPF_JEQ, number(call), 0, 1, EPERM));
    }
    let mut new_limit = vec![load_word(THIRD_ARGUMENT)];
    new_limit.extend(answer(BPF_JEQ, 0, 1, 0, EPERM));
    new_limit.push(load_word(THIRD_ARGUMENT + UPPER_HALF));
    new_limit.extend(answer(BPF_JEQ, 0, 1, 0, EPERM));
    let mut process = vec![load_word(FIRST_ARGUMENT)];
    process.extend(answer(
        BPF_JSET,
        libc::CLONE_THREAD.cast_unsigned(),
        1,
        0,
        EPERM,
    ));
    let mut socket = vec![load_word(FIRST_ARGUMENT)];
    if network {
        for family in [libc::AF_INET, libc::AF_INET6] {
            socket.extend(answer(BPF_JEQ, family.cast_unsigned(), 0, 1, ALLOW));
        }
    }
    socket.push(refuse(EPERM));
    // A thread must not wait in a file that a guest opens.
    let mut opening = vec![load_word(FOURTH_ARGUMENT)];
    opening.extend(answer(BPF_JEQ, OPEN_HOW, 1, 0, ALLOW));
    opening.push(load_word(FOURTH_ARGUMENT + UPPER_HALF));
    opening.extend(answer(BPF_JEQ, 0, 0, 1, libc::SECCOMP_RET_TRAP));
    for (call, mut checks) in [
        (libc::SYS_prlimit64, new_limit),
        (libc::SYS_clone, process),
        (libc::SYS_socket, socket),
        (libc::SYS_openat2, opening),
    ] {
        checks.push(instruction(BPF_RET, 0, 0, ALLOW));
        filter.extend(if_equal(&[call as i32], &checks)); // a small number
    }
    filter.push(instruction(BPF_RET, 0, 0, ALLOW));
    filter
}

/// Returns the filter of a strict sandbox. Besides the calls refused with EPERM, all calls that are not allowed get ENOSYS, as
/// from a kernel that does not have them.
pub(super) fn strict(network: Network, ipc: Ipc, key: u64) -> Vec<sock_filter> {
    let allowed = |call| ALLOWED.iter().copied().flatten().any(|a| *a == call);
    let own = OWN_ONLY.iter().filter(|call| allowed(call.0));
    let mut filter = refusing(own.flat_map(|call| own_only(*call, key)), ipc);
    filter.extend(check_sockets(network));
    let abi = kernel().landlock;
    // Refused because Landlock does not cover the call here.
    let refused = [
        (abi < 3, libc::SYS_truncate),
        // Landlock controls bind(2) alone, and listen(2) gives a port to a socket that has none.
        (network == Network::Out, libc::SYS_listen),
    ];
    for (_, call) in refused.into_iter().filter(|(refused, _)| *refused) {
        filter.extend(answer(BPF_JEQ, number(call), 0, 1, EACCES));
    }
    for call in ALLOWED.iter().copied().flatten() {
        filter.extend(answer(BPF_JEQ, number(*call), 0, 1, ALLOW));
    }
    filter.push(instruction(BPF_RET, 0, 0, ENOSYS));
    filter
}

/// Checks which sockets a program may make: Unix sockets and, if it has a network, TCP, UDP and ping (icmp(7)). Landlock cannot
/// control ports of other protocols, such as MPTCP. A raw socket would receive other programs' data. socketpair(2) makes no
/// socket that reaches another process. The filter has loaded the number of the call before, and is left with it loaded.
fn check_sockets(network: Network) -> Vec<sock_filter> {
    let mut checks = vec![load_word(FIRST_ARGUMENT)];
    checks.extend(answer(BPF_JEQ, libc::AF_UNIX.cast_unsigned(), 0, 1, ALLOW));
    if network != Network::None {
        // C libraries ask this socket for the machine's addresses.
        let route = answer(BPF_JEQ, libc::NETLINK_ROUTE.cast_unsigned(), 0, 1, ALLOW);
        let netlink = [&[load_word(THIRD_ARGUMENT)], &route[..], &[refuse(EACCES)]].concat();
        checks.extend(if_equal(&[libc::AF_NETLINK], &netlink));
        checks.extend(if_equal(&[libc::AF_INET, libc::AF_INET6], &inet_sockets()));
    }
    checks.push(refuse(EACCES));
    if_equal(&[libc::SYS_socket as i32], &checks) // a small number
}

/// Checks types and protocols, alike for IPv4 and IPv6.
fn inet_sockets() -> Vec<sock_filter> {
    let protocols = [
        libc::IPPROTO_IP, // the default protocol of the type
        libc::IPPROTO_TCP,
        libc::IPPROTO_UDP,
        libc::IPPROTO_ICMP,
        libc::IPPROTO_ICMPV6,
    ];
    let mut allowed = vec![load_word(THIRD_ARGUMENT)];
    for protocol in protocols {
        allowed.extend(answer(BPF_JEQ, protocol.cast_unsigned(), 0, 1, ALLOW));
    }
    // A kernel without MPTCP answers so: programs then use TCP instead of MPTCP.
    allowed.push(refuse(EPROTONOSUPPORT));
    let mut checks = vec![
        load_word(SECOND_ARGUMENT),
        instruction(BPF_ALU | BPF_AND, 0, 0, SOCKET_TYPE),
    ];
    checks.extend(if_equal(&[libc::SOCK_STREAM, libc::SOCK_DGRAM], &allowed));
    checks.push(refuse(EACCES));
    checks
}

/// Returns steps that are skipped unless one value of `values` is loaded.
fn if_equal(values: &[i32], steps: &[sock_filter]) -> Vec<sock_filter> {
    let past = steps.len() as u8; // a few dozen
    let last = values.len() as u8 - 1;
    let compares = (0..).zip(values).map(|(at, value)| {
        let skip_else = if at == last { past } else { 0 };
        instruction(
            BPF_JMP | BPF_JEQ,
            last - at,
            skip_else,
            value.cast_unsigned(),
        )
    });
    compares.chain(steps.iter().copied()).collect()
}

/// Checks a call that the filter allows only on the calling process itself, or with the key. The number of the call is loaded
/// before and, for other calls, after these steps.
fn own_only(
    (call, _, comparisons): (libc::c_long, &str, &[Comparison]),
    key: u64,
) -> Vec<sock_filter> {
    let with_key = 2 * comparisons.len() as u8 + 1; // a few
    let mut checks = Vec::new();
    for (at, comparison) in (0..).step_by(2).zip(comparisons) {
        // Jumps are counted from the step after the comparison.
        let jump = |verdict| match verdict {
            Verdict::Next => 0,
            Verdict::Skip => 2,
            Verdict::Allow => with_key - 1 - (at + 2),
            Verdict::WithKey => with_key - (at + 2),
        };
        let half = if comparison.upper { UPPER_HALF } else { 0 };
        let (equal, other) = (jump(comparison.equal), jump(comparison.other));
        checks.push(load_word(
            FIRST_ARGUMENT + ARGUMENT * comparison.argument + half,
        ));
        checks.push(instruction(
            BPF_JMP | BPF_JEQ,
            equal,
            other,
            comparison.with,
        ));
    }
    checks.extend([
        instruction(BPF_RET, 0, 0, ALLOW),
        // Compares all bits of the key at once.
        load_word(SIXTH_ARGUMENT),
        instruction(BPF_ALU | BPF_XOR, 0, 0, key as u32), // the key's lower half
        instruction(BPF_MISC | BPF_TAX, 0, 0, 0),
        load_word(SIXTH_ARGUMENT + UPPER_HALF),
        instruction(BPF_ALU | BPF_XOR, 0, 0, (key >> 32) as u32),
        instruction(BPF_ALU | BPF_OR | BPF_X, 0, 0, 0),
    ]);
    checks.extend(answer(BPF_JEQ, 0, 0, 1, ALLOW));
    checks.push(instruction(BPF_RET, 0, 0, EPERM));
    let past = checks.len() as u8; // two dozen
    let call = instruction(BPF_JMP | BPF_JEQ, 0, past, number(call));
    std::iter::once(call).chain(checks).collect()
}

/// Returns the steps that refuse calls to every program, with `own_only` first. They leave the number of the call loaded.
fn refusing(own_only: impl Iterator<Item = sock_filter>, ipc: Ipc) -> Vec<sock_filter> {
    let mut filter = vec![load_word(ARCHITECTURE)];
    filter.extend(answer(BPF_JEQ, OURS, 1, 0, KILL));
    filter.push(load_word(NUMBER));
    filter.extend(answer(BPF_JGE, X32, 0, 1, ENOSYS));
    filter.extend(own_only);
    let lasting = LASTING.iter().filter(|_| ipc == Ipc::Machine);
    for (call, _) in REFUSED.iter().copied().flatten().chain(lasting) {
        filter.extend(answer(BPF_JEQ, number(*call), 0, 1, EPERM));
    }
    filter.extend(answer(BPF_JEQ, number(libc::SYS_clone3), 0, 1, ENOSYS));
    filter.extend([
        instruction(BPF_JMP | BPF_JEQ, 1, 0, number(libc::SYS_clone)),
        instruction(BPF_JMP | BPF_JEQ, 0, 3, number(libc::SYS_unshare)),
        load_word(FIRST_ARGUMENT),
    ]);
    filter.extend(answer(BPF_JSET, NAMESPACES, 0, 1, EPERM));
    // The first argument of clone may have been loaded.
    filter.push(load_word(NUMBER));
    for (call, argument) in MODES {
        filter.push(instruction(BPF_JMP | BPF_JEQ, 0, 4, number(*call)));
        filter.push(load_word(FIRST_ARGUMENT + ARGUMENT * argument));
        filter.extend(answer(BPF_JSET, libc::S_ISUID, 0, 1, EPERM));
        filter.push(load_word(NUMBER));
    }
    filter
}

/// Loads a word of the kernel's `struct seccomp_data`.
fn load_word(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)
}

fn refuse(error: u32) -> sock_filter {
    instruction(BPF_RET, 0, 0, error)
}

/// Compares the loaded value, and gives an answer unless the comparison skips it.
fn answer(compares: u32, with: u32, skip_if: u8, skip_else: u8, answer: u32) -> [sock_filter; 2] {
    [
        instruction(BPF_JMP | compares, skip_if, skip_else, with),
        instruction(BPF_RET, 0, 0, answer),
    ]
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16, // every code fits into a byte
        jt,
        jf,
        k,
    }
}

/// Returns a call's number as the filter sees it.
fn number(call: libc::c_long) -> u32 {
    call as u32 // no architecture has larger numbers
}
