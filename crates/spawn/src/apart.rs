//! The ids of a server and of helpers that root has started
//! ([`Identity::assume_apart`](crate::identity::Identity::assume_apart)), and calls on programs from such a process.
//!
//! A process of the programs' user may change limits, priority, scheduling, affinity and I/O class of each process that has
//! this user as real or effective id. Therefore galgo has other ids there: one for each user, from a range that no system gives
//! to accounts. The user is the saved id, so that a thread can take the user's ids and give them back. The user is also the id
//! for files (setfsuid(2)).
//!
//! Each thread has its own id for files. Threads inherit it; threads that have begun before take it when they open a file.
//!
//! The kernel compares the same ids if galgo signals, lowers or marks a program. Therefore galgo makes these calls in a thread
//! that takes the user's ids and ends after the calls. If a process lowers this thread meanwhile, no other thread is affected.
//! The thread's saved id keeps limits out of reach, because limits belong to the process.

use crate::{key::syscall_with_key, raw::syscall};
use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

/// An id that no user has.
pub(crate) const NOBODYS: u32 = u32::MAX;

/// The user of the programs, if this process has other ids.
static PROGRAMS_USER: AtomicU32 = AtomicU32::new(NOBODYS);

/// Returns the user of the programs, if this process has other ids.
pub(crate) fn programs_user() -> Option<u32> {
    Some(PROGRAMS_USER.load(Ordering::Relaxed)).filter(|user| *user != NOBODYS)
}

/// Notes that this process has other ids than its programs.
pub(crate) fn set_programs_user(user: u32) {
    PROGRAMS_USER.store(user, Ordering::Relaxed);
}

/// Returns the real and effective id of a process that starts this user's programs: 1879048192 to 2147483647, which systemd's list of ids
/// (UIDS-GIDS.md) leaves unused.
pub(crate) fn id_apart(user: u32) -> u32 {
    0x7000_0000 | user & 0x0fff_ffff
}

/// Makes this thread open files as the programs' user. A thread that began before the process got its ids must call this.
pub fn open_files_as_user() {
    if let Some(user) = programs_user() {
        // SAFETY: a number only; the kernel changes the id of this thread alone.
        unsafe { libc::setfsuid(user) };
    }
}

/// Becomes the programs' user with all ids, for a process that has been forked for that.
pub(crate) fn become_programs_user() {
    if let Some(user) = programs_user() {
        // SAFETY: numbers only.
        unsafe { libc::setresuid(user, user, user) };
        set_programs_user(NOBODYS);
    }
}

/// Calls `action` with the ids of the programs' user, in a thread that ends after it. If this process has no other ids, this
/// thread calls `action`.
pub(crate) fn act_as_programs_user<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    let Some(user) = programs_user() else {
        return action();
    };
    let (mut action, mut done) = (Some(action), None);
    thread::scope(|scope| {
        let run = || done = action.take().map(|action| with_ids_of(user, action));
        let thread = thread::Builder::new().name("signals".into());
        let _ = thread.stack_size(64 * 1024).spawn_scoped(scope, run);
    });
    match (done, action) {
        (Some(done), _) => done,
        // No thread could be started, maybe because of the programs that are to end.
        (None, Some(action)) => with_ids_of(user, action),
        (None, None) => unreachable!("a panic of the thread goes on here"),
    }
}

/// Signals a process by its number; a negative number names a group. The caller must know that the number is still the
/// process's own.
///
/// # Errors
/// The kernel's.
pub fn send_signal_to(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: numbers only.
    unsafe { call_on_program(libc::SYS_kill, [pid as usize, signal as usize, 0, 0]) }
}

/// Makes a call that changes a program. If the kernel refuses, repeats the call with the ids of the programs' user.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The same conditions as for [`syscall`].
pub(crate) unsafe fn call_on_program(number: libc::c_long, args: [usize; 4]) -> io::Result<()> {
    // SAFETY: this function's contract.
    let call = || unsafe { syscall_with_key(number, args) };
    let done = match call() {
        REFUSED if programs_user().is_some() => act_as_programs_user(call),
        done => done,
    };
    match done {
        0.. => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno as i32)),
    }
}

const REFUSED: isize = -(libc::EPERM as isize);

/// Calls `action` with the ids of a user in this thread. Meanwhile a process of this user can lower this thread.
pub(crate) fn with_ids_of<T>(user: u32, action: impl FnOnce() -> T) -> T {
    let own = id_apart(user);
    // When ids change, the kernel forgets this signal, and opens the memory as far as `fs.suid_dumpable` allows.
    let mut orphaned = 0_i32;
    let place = &raw mut orphaned as usize;
    prctl(libc::PR_GET_PDEATHSIG, place);
    set_ids([user, user, own]);
    let done = action();
    set_ids([own, own, user]);
    // SAFETY: a number only.
    unsafe { libc::setfsuid(user) };
    prctl(libc::PR_SET_DUMPABLE, 0);
    if orphaned != 0 {
        prctl(libc::PR_SET_PDEATHSIG, orphaned as usize);
    }
    done
}

/// Sets the real, effective and saved user id of this thread alone. libc's function would change all threads.
fn set_ids(ids: [u32; 3]) {
    let [real, effective, saved] = ids.map(|id| id as usize);
    // SAFETY: numbers only.
    unsafe { syscall(libc::SYS_setresuid, [real, effective, saved, 0, 0, 0]) };
}

fn prctl(option: libc::c_int, argument: usize) {
    // SAFETY: numbers, or the place of an `int` that the kernel writes to (PR_GET_PDEATHSIG).
    unsafe { syscall(libc::SYS_prctl, [option as usize, argument, 0, 0, 0, 0]) };
}
