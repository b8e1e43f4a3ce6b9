//! A process of the spawner's, of the same program: what is left to it of the spawner.

use crate::{
    claims::MarkRange,
    inherited::close_all_but,
    remote::{
        message::pair,
        shortage::{is_short, pause},
    },
};
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
    process::{
        Pid, PidfdFlags, Resource, Signal, getpid, getppid, pidfd_open,
        set_parent_process_death_signal, setrlimit,
    },
    stdio::{dup2_stdin, dup2_stdout},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// A process that does something, and its socket; `has_own_ids`: in a PID namespace of its own. For a process with one thread.
///
/// # Errors
/// Something is short. If there is a process all the same, it is a child that nobody knows.
pub(super) fn fork(
    has_own_ids: bool,
    marks: MarkRange,
    does: impl FnOnce(OwnedFd) -> Result<(), String>,
) -> io::Result<(Pid, OwnedFd, OwnedFd)> {
    let (ours, theirs) = pair()?;
    let here = has_own_ids.then(own_ids).transpose()?;
    let spawner = getpid();
    // SAFETY: this process has one thread, so that the child has all there is of it: no lock is held by a thread
    // that is not there.
    let pid = match unsafe { libc::fork() } {
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
        pid => pid,
    };
    let failed = io::Error::last_os_error();
    let returns = |here: &OwnedFd| {
        move_into_link_name_space(here.as_fd(), Some(LinkNameSpaceType::ProcessID))
    };
    while let Some(Err(e)) = here.as_ref().map(returns) {
        // INVARIANT: who may make a namespace may have children in its own again.
        assert!(
            is_short(e),
            "no children in this process's own PID namespace: {e}"
        );
        pause();
    }
    if pid < 0 {
        return Err(failed);
    }
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    Ok((pid, pidfd_open(pid, PidfdFlags::empty())?, ours))
}

/// Has the next children be in a PID namespace of their own, the first of them its init; what is to be entered after that. Such
/// a helper no program can signal, and the kernel ends with it all that it has started.
fn own_ids() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let here = open("/proc/self/ns/pid", flags, Mode::empty())?;
    // SAFETY: no descriptors are unshared. This process starts no threads.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?;
    Ok(here)
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
    match getppid().is_none_or(|parent| parent == spawner) {
        true => Ok(()),
        false => Err("the spawner has ended".into()),
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
