//! A running program that this process has started itself.

use crate::{
    apart::{call_on_program, programs_user, send_signal_to, with_ids_of},
    claims::{self, ProcessMark},
    exit::{Exit, peek_exit, reap_process},
    key::syscall_with_key,
    leftover,
    raw::syscall,
    reaper,
    start::Priority,
};
use rustix::{
    process::{PidfdFlags, getpid, pidfd_open},
    thread::{CpuSet, sched_getaffinity},
};
use std::{
    fs, io,
    mem::ManuallyDrop,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr,
    sync::OnceLock,
};

/// The highest nice value (sched(7)).
const LOWEST: usize = 19;

/// Returns the processors that this process may use, except the first; `None` if it has only one.
fn all_but_one() -> Option<&'static CpuSet> {
    static OTHERS: OnceLock<Option<CpuSet>> = OnceLock::new();
    let others = || {
        let mut set = sched_getaffinity(None).ok()?;
        let first = (0..CpuSet::MAX_CPU).find(|&n| set.is_set(n))?;
        set.unset(first);
        (set.count() > 0).then_some(set)
    };
    OTHERS.get_or_init(others).as_ref()
}

/// Implements [`Child`](crate::Child) for a child of this process, with functions of the same names.
#[derive(Debug)]
pub(crate) struct OwnChild {
    /// Taken out only in `drop`: by the reaper, or to be closed.
    pidfd: ManuallyDrop<OwnedFd>,
    pub(crate) pid: i32,
    /// The mark of the child and of its leftover processes, which may run as long as the mark exists.
    pub(crate) mark: Option<ProcessMark>,
    /// Whether leftover processes go on after this child.
    pub(crate) leftovers_stay: bool,
    /// The exit status; once set, the process is reaped and its numbers may be reused.
    exit: Option<Exit>,
    gone: bool,
    /// Whether the process was reaped and its group still had other processes at the last check.
    pub(crate) remains: bool,
    /// The number of a launch that was not waited for: the child may not have executed its program yet.
    pub(crate) launch_number: Option<u64>,
}

impl OwnChild {
    pub(crate) fn new(
        pidfd: OwnedFd,
        pid: i32,
        mark: Option<ProcessMark>,
        launch_number: Option<u64>,
    ) -> Self {
        claims::claim_pid(pid);
        Self {
            mark,
            leftovers_stay: false,
            pidfd: ManuallyDrop::new(pidfd),
            pid,
            exit: None,
            gone: false,
            remains: false,
            launch_number,
        }
    }

    /// Marks the process, and thereby all that it starts from now on. A process marks itself only between `clone` and `execve`,
    /// while it has the key.
    pub(crate) fn set_mark(&mut self, mark: ProcessMark) {
        set_limits(self.pid, &mark);
        self.mark = Some(mark);
    }

    /// Returns whether the process was reaped.
    pub(crate) fn is_known(&self) -> bool {
        self.exit.is_some()
    }

    pub(crate) fn has_exited(&self) -> io::Result<bool> {
        Ok(self.gone || peek_exit(self.pidfd.as_fd(), libc::WNOHANG)?)
    }

    pub(crate) fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() && peek_exit(self.pidfd.as_fd(), libc::WNOHANG)? {
            self.kill_group_and_reap()?;
        }
        Ok(self.exit)
    }

    pub(crate) fn try_wait_alone(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() && peek_exit(self.pidfd.as_fd(), libc::WNOHANG)? {
            self.reap_alone()?;
        }
        Ok(self.exit)
    }

    pub(crate) fn reap_alone(&mut self) -> io::Result<Exit> {
        if !groups_by_pidfd() {
            return self.kill_group_and_reap();
        }
        let exit = self.reap()?;
        self.remains = has_group_members(self.pidfd.as_fd());
        Ok(exit)
    }

    /// See [`Child::reap_and_find_others`](crate::Child::reap_and_find_others). Without others there is no need to ask for the
    /// group.
    pub(crate) fn reap_and_find_others(&mut self) -> io::Result<(Exit, bool)> {
        let Some(mark) = self.mark.as_ref().filter(|_| groups_by_pidfd()) else {
            return Ok((self.reap_alone()?, false));
        };
        let mark = mark.limits()[0];
        let exit = self.reap()?;
        let others = leftover::has_orphans(mark);
        self.remains = others != Some(false) && has_group_members(self.pidfd.as_fd());
        Ok((exit, others == Some(true)))
    }

    pub(crate) fn group_remains(&mut self) -> bool {
        self.remains = self.remains && has_group_members(self.pidfd.as_fd());
        self.remains
    }

    pub(crate) fn wait(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        peek_exit(self.pidfd.as_fd(), 0)?;
        self.kill_group_and_reap()
    }

    pub(crate) fn lower_priority(&self, to: Priority) {
        if to == Priority::Normal || self.gone || self.exit.is_some() {
            return;
        }
        let lowest = 0_i32;
        let (process, parameters) = (self.pid as usize, &raw const lowest as usize);
        let policy = libc::SCHED_IDLE as usize;
        // SAFETY: the kernel reads an `int` at `parameters` (sched_setscheduler(2)), which outlives the call.
        let _ = unsafe {
            call_on_program(
                libc::SYS_sched_setscheduler,
                [process, policy, parameters, 0],
            )
        };
        let group = libc::PRIO_PGRP as usize;
        // A process that is not in its group yet has started nothing.
        // SAFETY: numbers only.
        let _ = unsafe { call_on_program(libc::SYS_setpriority, [group, process, LOWEST, 0]) };
        if to == Priority::IdleLeavingOne
            && let Some(others) = all_but_one()
        {
            let set = [size_of::<CpuSet>(), ptr::from_ref(others) as usize];
            // SAFETY: the kernel reads as many bytes as it is told to from a set that outlives the call.
            let _ = unsafe {
                call_on_program(libc::SYS_sched_setaffinity, [process, set[0], set[1], 0])
            };
        }
        // With autogroups (sched(7)) priorities count within a session, and sessions have a priority, too. Before the program
        // has its own session, this would lower the server's; then `child_side` lowers it. The session id is 0 here, which
        // rustix does not expect, if the session's leader is outside of the server's PID namespace.
        // SAFETY: a number only.
        if unsafe { libc::getsid(self.pid) } == self.pid {
            let _ = fs::write(format!("/proc/{}/autogroup", self.pid), "19");
        }
    }

    pub(crate) fn signal_group(&self, signal: i32) -> io::Result<()> {
        if self.remains {
            return signal_group_of(self.pidfd.as_fd(), signal);
        }
        if self.gone {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        match signal_group(self.pidfd.as_fd(), self.pid, signal) {
            // The process is still on its way to its group, and alone.
            Err(e) if self.launch_number.is_some() && e.raw_os_error() == Some(libc::ESRCH) => {
                send_signal(self.pidfd.as_fd(), signal, 0)?;
                // Or the process has just arrived there, and may have company. SIGKILL stops it from starting more.
                if signal == libc::SIGKILL {
                    let _ = signal_group(self.pidfd.as_fd(), self.pid, signal);
                }
                Ok(())
            }
            done => done,
        }
    }

    /// See [`Child::let_go`](crate::Child::let_go).
    pub(crate) fn disown(mut self) {
        if !self.gone {
            claims::release_pid(self.pid);
            self.gone = true;
        }
        self.remains = false;
    }

    /// Ends the group of the exited process, and reaps the process. If the kernel knows the group only by its number, the order
    /// matters: a zombie keeps its id and the group's from being reused. Once it is reaped, a signal could meet strangers.
    fn kill_group_and_reap(&mut self) -> io::Result<Exit> {
        if !groups_by_pidfd() {
            let _ = self.signal_group(libc::SIGKILL);
            return self.reap();
        }
        // Most groups are empty by then, and signals to an empty group need no rights.
        let exit = self.reap()?;
        let _ = signal_group_of(self.pidfd.as_fd(), libc::SIGKILL);
        Ok(exit)
    }

    /// Reaps the process, which has exited or is on its way out.
    pub(crate) fn reap(&mut self) -> io::Result<Exit> {
        claims::release_pid(self.pid);
        let (status, usage) =
            reap_process(self.pidfd.as_fd(), 0)?.ok_or(io::ErrorKind::WouldBlock)?;
        let exit = Exit::new(status, &usage);
        self.gone = true;
        self.exit = Some(exit);
        Ok(exit)
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        if !self.gone || self.remains {
            // SIGKILL ends stopped processes too.
            let _ = self.signal_group(libc::SIGKILL);
        }
        match self.mark.take() {
            Some(mark) if self.leftovers_stay && mark.may_stay() => mark.leave_held(),
            mark => drop(mark),
        }
        // SAFETY: nothing uses the field after `drop`.
        let pidfd = unsafe { ManuallyDrop::take(&mut self.pidfd) };
        // A process in the middle of its I/O, or with much memory to free, does not end at once. The reaper waits for it,
        // because an event loop must not.
        if !self.gone {
            claims::release_pid(self.pid);
        }
        if !self.gone && matches!(reap_process(pidfd.as_fd(), libc::WNOHANG), Ok(None)) {
            reaper::adopt_process(pidfd);
        }
    }
}

/// Gives a child of this process a mark. A process that has just ended needs none.
pub(crate) fn set_limits(pid: i32, mark: &ProcessMark) {
    let limits = mark.limits();
    let (process, resource) = (pid as usize, libc::RLIMIT_LOCKS as usize);
    let args = [process, resource, limits.as_ptr() as usize, 0];
    // SAFETY: the kernel reads a soft and a hard limit, which outlive the call.
    let call = || unsafe { syscall_with_key(libc::SYS_prlimit64, args) };
    match programs_user() {
        // Each request of a warm program does this: a thread would take longer than the rest of the request.
        Some(user) => with_ids_of(user, call),
        None => call(),
    };
}

impl AsFd for OwnChild {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// PIDFD_SIGNAL_PROCESS_GROUP: Linux 6.9.
const PROCESS_GROUP: usize = 1 << 2;

/// Signals the process of `pidfd`; without `flags` only that process.
fn send_signal(pidfd: BorrowedFd<'_>, signal: i32, flags: usize) -> io::Result<()> {
    let args = [pidfd.as_raw_fd() as usize, signal as usize, 0, flags];
    // SAFETY: numbers only; a null siginfo stands for the usual one.
    unsafe { call_on_program(libc::SYS_pidfd_send_signal, args) }
}

/// Kills the process of a pidfd (SIGKILL).
///
/// # Errors
/// The kernel's: the process has ended.
pub fn kill_by_pidfd(process: impl AsFd) -> io::Result<()> {
    send_signal(process.as_fd(), libc::SIGKILL, 0)
}

/// Returns whether there is a process in the group of `pidfd`, even if this process may not signal it.
fn has_group_members(pidfd: BorrowedFd<'_>) -> bool {
    let args = [pidfd.as_raw_fd() as usize, 0, 0, PROCESS_GROUP, 0, 0];
    // SAFETY: numbers only.
    unsafe { syscall(libc::SYS_pidfd_send_signal, args) != -(libc::ESRCH as isize) }
}

/// Returns whether the kernel can signal the group of a pidfd's process (Linux 6.9).
pub(crate) fn groups_by_pidfd() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let own = pidfd_open(getpid(), PidfdFlags::empty());
        let asked = own.map(|own| signal_group_of(own.as_fd(), 0));
        // ESRCH: this process leads no group.
        let errno = |e: io::Error| e.raw_os_error();
        asked.is_ok_and(|done| matches!(done.map_err(errno), Ok(()) | Err(Some(libc::ESRCH))))
    })
}

/// Signals the process group that `pidfd` leads, or led. The kernel finds the group by the descriptor, not by a number that
/// could belong to another group by now.
fn signal_group_of(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    send_signal(pidfd, signal, PROCESS_GROUP)
}

/// Signals the process group that `pidfd` leads.
fn signal_group(pidfd: BorrowedFd<'_>, pid: i32, signal: i32) -> io::Result<()> {
    if groups_by_pidfd() {
        return signal_group_of(pidfd, signal);
    }
    // The number is still ours: the caller has not reaped the leader, which keeps the id as a running process or a zombie.
    send_signal_to(-pid, signal)
}
