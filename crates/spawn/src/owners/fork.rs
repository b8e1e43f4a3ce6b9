//! A process of the spawner's, of the same program: what is left to it of the spawner.

use crate::{claims::MarkRange, inherited::close_all_but, raw::syscall, remote::message::pair};
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

/// A process that does something, and its socket; `has_own_ids`: it is the init of a PID namespace, where no program can signal
/// it, and the kernel ends with it all that it has started. For a process with one thread.
///
/// # Errors
/// Something is short. If there is a process all the same, it is a child that nobody knows.
pub(super) fn fork(
    has_own_ids: bool,
    marks: MarkRange,
    does: impl FnOnce(OwnedFd) -> Result<(), String>,
) -> io::Result<(Pid, OwnedFd, OwnedFd)> {
    let (ours, theirs) = pair()?;
    let spawner = getpid();
    // No process can enter its own PID namespace again if that belongs to a user namespace above: a child has one from its start,
    // and this process never leaves its own.
    let own_ids = if has_own_ids { libc::CLONE_NEWPID } else { 0 };
    let flags = (libc::SIGCHLD | own_ids) as usize;
    // SAFETY: as fork(2). This process has one thread, so that the child has all there is of it: no lock is held by a thread
    // that is not there.
    let pid = match unsafe { syscall(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]) } {
        0 => {
            close_all_but([Some(&theirs)]);
            let ready = mark(marks)
                .and_then(|()| leave_streams())
                .and_then(|()| ends_with(spawner));
            let code = match ready.and_then(|()| does(theirs)) {
                Ok(()) => 0,
                Err(words) => {
                    eprintln!("galgo: {words}");
                    1
                }
            };
            // SAFETY: ends the process; what the spawner would do at its end is not this one's to do.
            unsafe { libc::_exit(code) }
        }
        errno @ ..0 => return Err(io::Error::from_raw_os_error(-errno as i32)),
        pid => pid,
    };
    let pid = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
    Ok((pid, pidfd_open(pid, PidfdFlags::empty())?, ours))
}

/// In a child of the spawner: whatever it starts is known as a helper's, also when the helper has ended.
fn mark(marks: MarkRange) -> Result<(), String> {
    setrlimit(Resource::Locks, marks.limit())
        .map_err(|e| format!("setrlimit: {}", io::Error::from(e)))
}

/// In a child of the spawner: it ends with the spawner.
fn ends_with(spawner: Pid) -> Result<(), String> {
    let asked = set_parent_process_death_signal(Some(Signal::KILL));
    asked.map_err(|e| format!("prctl: {}", io::Error::from(e)))?;
    // In a PID namespace of its own it has no parent.
    if getppid().is_none_or(|parent| parent == spawner) {
        Ok(())
    } else {
        Err("the spawner has ended".into())
    }
}

/// In a child of the spawner: the standard streams that a server which takes over is given are none of a helper's.
fn leave_streams() -> Result<(), String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = open("/dev/null", flags, Mode::empty());
    null.and_then(|null| {
        dup2_stdin(null)?;
        dup2_stdout(io::stderr())
    })
    .map_err(|e| format!("opening /dev/null: {}", io::Error::from(e)))
}
