//! Opens files without waiting, for a process whose libraries open files on behalf of a guest.
//!
//! Opening a FIFO waits for its other end, and opening a file waits for the owner of a lease on it. A filter of system calls
//! can refuse openat2(2) but cannot change its flags. Therefore the filter has the kernel raise SIGSYS in the calling thread
//! (SECCOMP_RET_TRAP), and the handler makes the call instead, with O_NONBLOCK.

use crate::raw::syscall;
use std::{ffi::c_void, io, mem};

/// Bytes of the `struct open_how` that a caller of openat2(2) passes: the filter traps calls with this as their last argument.
pub(super) const OPEN_HOW: u32 = 24;

/// The kernel's `struct open_how`, then zeros, which the kernel accepts as a later version: a call of this size is not trapped.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
    zero: u64,
}

/// Number of times that a call is made if the kernel answers EAGAIN: something was renamed on the way.
const ATTEMPTS: usize = 8;

/// Handles openat2(2) that a filter traps. The handler opens regular files, folders, and devices without another end
/// (/dev/null), and never waits. Anything else is refused: EACCES.
///
/// # Errors
/// The handler could not be installed.
pub fn open_without_waiting() -> io::Result<()> {
    // SAFETY: all zeros are an action without flags.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: `action` lives, and its handler is safe in a signal: it calls the kernel alone.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn handle(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel gives a handler with SA_SIGINFO the registers of the thread, which has stopped for it.
    let registers = unsafe { &mut (*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    {
        let register = |at: libc::c_int| at as usize;
        let all = &mut registers.gregs;
        let [folder, path, how] =
            [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].map(|at| all[register(at)] as usize);
        all[register(libc::REG_RAX)] = open(folder, path, how) as i64;
    }
    #[cfg(target_arch = "aarch64")]
    {
        let [folder, path, how] = [0, 1, 2].map(|at| registers.regs[at] as usize);
        registers.regs[0] = open(folder, path, how) as u64;
    }
}

/// Makes the call. Returns a descriptor, or `-errno`.
fn open(folder: usize, path: usize, how: usize) -> isize {
    // SAFETY: the caller of openat2(2) passes a pointer to this structure; only its first 24 bytes are read.
    let [flags, mode, resolve] = unsafe { std::ptr::read_unaligned(how as *const [u64; 3]) };
    let is_path = flags & libc::O_PATH as u64 != 0;
    let how = OpenHow {
        flags: if is_path {
            flags
        } else {
            flags | libc::O_NONBLOCK as u64
        },
        mode,
        resolve,
        zero: 0,
    };
    let (at, size) = (&raw const how as usize, size_of::<OpenHow>());
    let mut opened = -libc::EAGAIN as isize;
    for _ in 0..ATTEMPTS {
        // SAFETY: `path` is the caller's own pointer; the kernel reads `size` bytes of `how`, which outlives the call.
        opened = unsafe { syscall(libc::SYS_openat2, [folder, path, at, size, 0, 0]) };
        if opened != -libc::EAGAIN as isize {
            break;
        }
    }
    match -opened as i32 {
        // After these errors the caller would try again, by calls that wait.
        libc::EAGAIN | libc::EPERM | libc::ENOSYS => -libc::EACCES as isize,
        _ if opened < 0 || is_path || never_waits(opened as i32) => opened,
        _ => {
            // SAFETY: a new descriptor that no other code knows.
            unsafe { libc::close(opened as i32) };
            -libc::EACCES as isize
        }
    }
}

/// Returns whether the opened file has no other end to wait for.
fn never_waits(fd: i32) -> bool {
    /// Devices of memory: null, zero, full, random (Documentation/admin-guide/devices.txt).
    const MEMORY: u32 = 1;
    // SAFETY: all zeros are a `stat`.
    let mut stat: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: `stat` lives.
    if unsafe { libc::fstat(fd, &raw mut stat) } != 0 {
        return false;
    }
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR => true,
        libc::S_IFCHR => libc::major(stat.st_rdev) == MEMORY,
        _ => false,
    }
}
