//! The code that the child runs between `clone` and `execve`.
//!
//! The child runs in the server's memory, on its own stack, while all other threads run on. The thread that started the child
//! is suspended (CLONE_VFORK) or runs on, too. Therefore this code makes raw system calls only: it neither allocates, nor
//! locks, nor does anything that could panic. Signals whose handlers touch data that threads share stay blocked until the child
//! has reset them.

use super::signals;
use crate::{
    key::syscall_with_key,
    raw::syscall,
    start_error::StartStage::{self, Chdir, Descriptors, Domain, Exec, Limits},
};
use std::{
    convert::Infallible,
    ffi::c_char,
    os::fd::RawFd,
    ptr, slice,
    sync::atomic::{AtomicU32, Ordering},
};

/// Everything that a child needs, prepared by the server.
#[derive(Debug)]
pub(super) struct ChildContext {
    pub(super) path: *const c_char,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    pub(super) dir: *const c_char,
    /// The descriptors for 0, 1 and 2: all above 2, in any order.
    pub(super) slots: [RawFd; 3],
    /// Descriptors for 3 and up. Their own numbers are above every number that they get in the child.
    pub(super) more: *const RawFd,
    pub(super) more_len: usize,
    /// Resource, soft limit, hard limit.
    pub(super) limits: [Option<(u32, u64, u64)>; 7],
    /// RLIMIT_LOCKS, which marks the process; `None`: processes that the program leaves running may outlive it.
    pub(super) mark: Option<[u64; 2]>,
    /// The user that the child becomes; `None`: the child already runs as that user.
    pub(super) user: Option<u32>,
    pub(super) umask: Option<u32>,
    pub(super) no_new_privs: bool,
    /// The ruleset that the child enters a domain with ([`crate::domain`]), if the kernel has Landlock.
    pub(super) ruleset: Option<RawFd>,
    /// The signal that the child gets if the server dies, and the server's process id.
    pub(super) orphaned: Option<(i32, i32)>,
    /// Signals that the child resets to their default disposition.
    pub(super) reset: u64,
    /// Run the program at a lower priority than others.
    pub(super) behind: bool,
    /// Write a byte to standard output if the start fails.
    pub(super) knocks: bool,
    /// The child's answer: 0, or stage and errno, packed by `run`.
    pub(super) failure: AtomicU32,
}

type Step = Result<(), (StartStage, i32)>;

/// The limit that marks which server a process belongs to; see [`crate::reaper`].
#[allow(clippy::unnecessary_cast)] // not every libc declares the constant with this type
const LOCKS: u32 = libc::RLIMIT_LOCKS as u32;

impl ChildContext {
    /// Returns the failure that the child reported; `None` if the child executed the program.
    pub(super) fn failure(&self) -> Option<(StartStage, i32)> {
        let word = self.failure.load(Ordering::Acquire);
        let stage = StartStage::from_number(u64::from(word >> 16));
        (word != 0).then(|| (stage.unwrap_or(Exec), (word & 0xffff) as i32))
    }
}

/// Becomes the program, or reports the failure and exits.
///
/// # Safety
/// `context` and all it points to must stay valid until the program is executed. Call this only on a stack of its own, in a
/// child made with CLONE_VM and CLONE_FILES, while [`signals::with_signals_blocked`] keeps handlers from running.
pub(super) unsafe extern "C" fn run(context: *const ChildContext) -> ! {
    // SAFETY: valid by this function's contract; meanwhile the server does not write to any of it.
    let context = unsafe { &*context };
    let Err((stage, errno)) = become_program(context);
    let word = (stage as u32) << 16 | (errno as u32 & 0xffff);
    context.failure.store(word, Ordering::Release);
    // In earlier stages standard output is still the server's.
    if context.knocks && !matches!(stage, Domain | Descriptors) {
        let _ = call_kernel(stage, libc::SYS_write, [1, c"".as_ptr() as usize, 1, 0]);
    }
    loop {
        // SAFETY: ends this process, which is not the server: the two share only memory.
        unsafe { syscall(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    }
}

fn become_program(c: &ChildContext) -> Result<Infallible, (StartStage, i32)> {
    become_user(c)?;
    unshare_descriptors(c)?;
    // The group exists before the program does, so a waiting server can signal the group from the first moment. In its own
    // session a program has no terminal to fake key presses on (TIOCSTI, ioctl_tty(2)), and cannot join other process groups.
    call_kernel(Domain, libc::SYS_setsid, [0, 0, 0, 0])?;
    // The domain closes the file that lowers the session.
    if c.behind {
        lower_session();
    }
    enter_domain(c)?;
    arrange_descriptors(c)?;
    signals::reset_signals(c.reset);
    signals::set_mask(0);
    if let Some(mask) = c.umask {
        call_kernel(Limits, libc::SYS_umask, [mask as usize, 0, 0, 0])?;
    }
    call_kernel(Chdir, libc::SYS_chdir, [c.dir as usize, 0, 0, 0])?;
    c.limits.iter().flatten().try_for_each(set_limit)?;
    if let Some([soft, hard]) = c.mark {
        match set_limit(&(LOCKS, soft, hard)) {
            // If this galgo is itself a program of another galgo, it does not have the key of that other galgo.
            Err((_, libc::EPERM)) => {}
            marked => marked?,
        }
    }
    if let Some(orphaned) = c.orphaned {
        die_with_parent(orphaned)?;
    }
    let exec = [c.path as usize, c.argv as usize, c.envp as usize, 0];
    call_kernel(Exec, libc::SYS_execve, exec)?;
    Err((Exec, libc::ENOEXEC)) // not reached: execve returns failures only
}

/// Becomes the programs' user. This process may lack that user's ids ([`crate::apart`]).
fn become_user(c: &ChildContext) -> Step {
    let Some(user) = c.user.map(|user| user as usize) else {
        return Ok(());
    };
    call_kernel(Domain, libc::SYS_setresuid, [user, user, user, 0])?;
    // After a change of ids the kernel opens the memory, which the server shares, as far as `fs.suid_dumpable` allows.
    let closed = libc::PR_SET_DUMPABLE as usize;
    call_kernel(Domain, libc::SYS_prctl, [closed, 0, 0, 0])
}

/// Lowers the session below others: with autogroups (sched(7)) the priority of a process counts only within its session.
/// Without autogroups the file does not exist. Without root the kernel accepts ten such writes a second.
fn lower_session() {
    let path = c"/proc/self/autogroup".as_ptr() as usize;
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: both pointers are to constants; the descriptor is this function's own.
    unsafe {
        let here = libc::AT_FDCWD as usize;
        let file = syscall(libc::SYS_openat, [here, path, flags, 0, 0, 0]);
        if file >= 0 {
            let lowest = b"19";
            let (file, text) = (file as usize, lowest.as_ptr() as usize);
            syscall(libc::SYS_write, [file, text, lowest.len(), 0, 0, 0]);
            syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
        }
    }
}

/// Gives up new privileges and enters a new domain. This runs while the table of descriptors still holds the ruleset.
fn enter_domain(c: &ChildContext) -> Step {
    if c.no_new_privs {
        let set = libc::PR_SET_NO_NEW_PRIVS as usize;
        call_kernel(Domain, libc::SYS_prctl, [set, 1, 0, 0])?;
    }
    let Some(ruleset) = c.ruleset else {
        return Ok(());
    };
    let ruleset = [ruleset as usize, 0, 0, 0];
    match call_kernel(Domain, libc::SYS_landlock_restrict_self, ruleset) {
        // A process that may gain privileges may not enter a domain, except root (CAP_SYS_ADMIN).
        Err((_, libc::EPERM)) if !c.no_new_privs => Ok(()),
        entered => entered,
    }
}

/// Asks the kernel to send this process the signal when the thread that starts it ends (prctl(2)).
fn die_with_parent((signal, server): (i32, i32)) -> Step {
    call_kernel(
        Limits,
        libc::SYS_prctl,
        [libc::PR_SET_PDEATHSIG as usize, signal as usize, 0, 0],
    )?;
    // SAFETY: takes no arguments.
    let parent = unsafe { syscall(libc::SYS_getppid, [0; 6]) };
    // The server died before the signal was ordered, so no signal will come.
    if parent != server as isize {
        return Err((Limits, libc::ESRCH));
    }
    Ok(())
}

/// Leaves the server's table of descriptors for a copy of its lower part.
fn unshare_descriptors(c: &ChildContext) -> Step {
    let all = c.slots.iter().chain(further_descriptors(c)).copied();
    let highest = all.chain(c.ruleset).max().unwrap_or_default();
    let above = highest as usize + 1;
    let unshare = libc::CLOSE_RANGE_UNSHARE as usize;
    call_kernel(
        Descriptors,
        libc::SYS_close_range,
        [above, u32::MAX as usize, unshare, 0],
    )
}

fn further_descriptors(c: &ChildContext) -> &[RawFd] {
    // SAFETY: the context gives their number, and they live as long as the context does.
    unsafe { slice::from_raw_parts(c.more, c.more_len) }
}

/// Leaves 0, 1 and 2, copied from the slots, and the further descriptors after them.
fn arrange_descriptors(c: &ChildContext) -> Step {
    let more = further_descriptors(c);
    for (target, &slot) in c.slots.iter().enumerate() {
        call_kernel(Descriptors, libc::SYS_dup3, [slot as usize, target, 0, 0])?;
    }
    for (target, &fd) in (3..).zip(more) {
        call_kernel(Descriptors, libc::SYS_dup3, [fd as usize, target, 0, 0])?;
    }
    // O_CLOEXEC alone is not enough: a library may have opened a descriptor without it. This also closes at once the slots of
    // other spawners, which may hold pipe ends just now.
    call_kernel(
        Descriptors,
        libc::SYS_close_range,
        [3 + more.len(), u32::MAX as usize, 0, 0],
    )
}

/// Sets a limit, or the server's own limit if that is lower. Sends the key along, for RLIMIT_LOCKS.
fn set_limit(&(resource, soft, hard): &(u32, u64, u64)) -> Step {
    let resource = resource as usize;
    let prlimit = |new: *const [u64; 2], old: *mut [u64; 2]| {
        let args = [0, resource, new as usize, old as usize];
        // SAFETY: each pointer is null, or of two live numbers, which the kernel reads or writes.
        match unsafe { syscall_with_key(libc::SYS_prlimit64, args) } {
            0.. => Ok(()),
            errno => Err((Limits, -errno as i32)),
        }
    };
    if prlimit(&[soft, hard], ptr::null_mut()).is_ok() {
        return Ok(());
    }
    let mut old = [0u64; 2];
    prlimit(ptr::null(), &raw mut old)?;
    let [_, most] = old;
    prlimit(&[soft.min(most), hard.min(most)], ptr::null_mut())
}

fn call_kernel(stage: StartStage, number: libc::c_long, [a, b, c, d]: [usize; 4]) -> Step {
    // SAFETY: every caller in this file passes numbers, pointers from the valid context, or pointers to its own live locals of
    // the size that the call reads or writes.
    let ret = unsafe { syscall(number, [a, b, c, d, 0, 0]) };
    if ret < 0 {
        Err((stage, -ret as i32))
    } else {
        Ok(())
    }
}
