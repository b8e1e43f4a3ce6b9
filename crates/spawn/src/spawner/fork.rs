//! Forks the spawner, and drops everything in the child that belongs to the spawner.

use crate::{
    claims::MarkRange, inherited::close_all_but, raw::syscall, remote::message::socket_pair,
};
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
    process::{
        Pid, PidfdFlags, Resource, Signal, getpid, getppid, pidfd_open,
        set_parent_process_death_signal, setrlimit,
    },
    stdio::{dup2_stdin, dup2_stdout},
};
use std::{io, os::fd::OwnedFd};

/// Forks a process that runs `does` with its socket. Returns its id, its pidfd and the spawner's socket. `has_own_ids`: the
/// process is the init of a PID namespace. No program can signal this init, and with its end the kernel kills all that it has
/// started. The calling process must have only one thread.
///
/// # Errors
/// The system is short of something. A process that exists all the same is a child that the caller does not know.
pub(crate) fn fork_process(
    has_own_ids: bool,
    marks: MarkRange,
    does: impl FnOnce(OwnedFd) -> Result<(), String>,
) -> io::Result<(Pid, OwnedFd, OwnedFd)> {
    let (ours, theirs) = socket_pair()?;
    let spawner = getpid();
    // A process cannot enter its own PID namespace again if that namespace belongs to a user namespace above. So the child gets
    // its PID namespace at its start, and the spawner never leaves its own.
    let own_ids = if has_own_ids { libc::CLONE_NEWPID } else { 0 };
    let flags = (libc::SIGCHLD | own_ids) as usize;
    // SAFETY: like fork(2). This process has one thread, and the child has a copy of it: no lock is held by a thread that the
    // child lacks.
    let pid = match unsafe { syscall(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]) } {
        0 => {
            close_all_but([Some(&theirs)]);
            let ready = mark_process(marks)
                .and_then(|()| replace_streams())
                .and_then(|()| end_with_spawner(spawner));
            let code = match ready.and_then(|()| does(theirs)) {
                Ok(()) => 0,
                Err(words) => {
                    eprintln!("galgo: {words}");
                    1
                }
            };
            // SAFETY: ends the process. The child must not run the spawner's cleanup.
            unsafe { libc::_exit(code) }
        }
        errno @ ..0 => return Err(io::Error::from_raw_os_error(-errno as i32)),
        pid => pid,
    };
    let pid = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
    Ok((pid, pidfd_open(pid, PidfdFlags::empty())?, ours))
}

/// Marks a child of the spawner. Its descendants can then be recognized as a helper's, even after the helper has ended.
fn mark_process(marks: MarkRange) -> Result<(), String> {
    setrlimit(Resource::Locks, marks.helper_limit())
        .map_err(|e| format!("setrlimit: {}", io::Error::from(e)))
}

/// Makes a child of the spawner end with the spawner.
fn end_with_spawner(spawner: Pid) -> Result<(), String> {
    let asked = set_parent_process_death_signal(Some(Signal::KILL));
    asked.map_err(|e| format!("prctl: {}", io::Error::from(e)))?;
    // In its own PID namespace the child has no parent.
    if getppid().is_none_or(|parent| parent == spawner) {
        Ok(())
    } else {
        Err("the spawner has ended".into())
    }
}

/// Replaces the standard streams of a child of the spawner: they are kept for a server that takes over, not for helpers.
fn replace_streams() -> Result<(), String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = open("/dev/null", flags, Mode::empty());
    null.and_then(|null| {
        dup2_stdin(null)?;
        dup2_stdout(io::stderr())
    })
    .map_err(|e| format!("opening /dev/null: {}", io::Error::from(e)))
}
