//! System calls without libc.
//!
//! Between `clone` and `execve` the child runs in the memory of a server, with the thread-local storage of the thread that
//! started it. libc's wrappers would write that thread's `errno`. They may also be bound lazily, which takes the dynamic
//! linker's locks. A bare instruction does neither.

use std::arch::asm;

/// Makes a system call with six arguments. Returns the kernel's answer unchanged, `-errno` for a failure.
///
/// # Safety
/// The arguments must fit the call `number`: pointers must be valid for what the call reads or writes.
#[inline(always)]
pub(crate) unsafe fn syscall(number: libc::c_long, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the registers follow the kernel's calling convention; the call clobbers rcx and r11 only. The caller promises
    // that the call's effects on memory are sound.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: the same as above; the call clobbers x0 only.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a[0] as isize => ret,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    ret
}

/// Makes a child on its own stack in this process's memory (clone(2)). The child calls `entry(context)`; the caller goes on
/// with the child's pid or `-errno`.
///
/// # Safety
/// `args` must be valid for the call, with `CLONE_VM` and a stack whose top is 16-byte aligned; `entry` must not return. Until
/// the child has called `execve` or `exit`, nothing else may use the stack, and everything that the child reaches from
/// `context` must live. With `CLONE_VFORK` that is while this call lasts.
#[inline(never)]
pub(crate) unsafe fn clone<T>(
    args: [usize; 5],
    entry: unsafe extern "C" fn(*const T) -> !,
    context: *const T,
) -> isize {
    let ret: isize;
    // SAFETY: in the parent this is a plain system call. The child finds 0 in rax, rsp at its own stack's top, and never comes
    // out of `call`, so none of the compiler's assumptions about this frame apply to the child.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp", // the outermost frame, for debuggers
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4],
            in("r12") context,
            in("r13") entry,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    // SAFETY: the same as above, with x0, sp and `blr`.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr", // the outermost frame, for debuggers
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone,
            inlateout("x0") args[0] as isize => ret,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4],
            in("x20") context,
            in("x21") entry,
        );
    }
    ret
}
