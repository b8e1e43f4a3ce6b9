//! A running program.

use crate::{
    claims,
    exit::{Exit, peek, reap},
    raw::syscall,
    reaper,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::{
    io,
    mem::ManuallyDrop,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::OnceLock,
};

/// A running process, head of its own process group. Dropping it kills the group and reaps the
/// process.
///
/// Its descriptor ([`AsFd`]) becomes readable when the process has exited. A process that left the
/// group (setsid(2), setpgid(2)) is out of reach.
#[derive(Debug)]
pub struct Child {
    /// Taken out in `drop` only: by the reaper, or to be closed.
    pidfd: ManuallyDrop<OwnedFd>,
    pid: i32,
    /// How it ended; once set, the process is reaped and its numbers may be reused.
    exit: Option<Exit>,
    gone: bool,
    /// It was reaped, and others of its group were still there when that was last asked.
    remains: bool,
    /// Of a launch that was not waited for.
    launch_number: Option<u64>,
}

impl Child {
    pub(crate) fn new(pidfd: OwnedFd, pid: i32) -> Self {
        claims::claim(pid);
        Self {
            pidfd: ManuallyDrop::new(pidfd),
            pid,
            exit: None,
            gone: false,
            remains: false,
            launch_number: None,
        }
    }

    /// A child that may not have executed its program yet.
    pub(crate) fn under_way(pidfd: OwnedFd, pid: i32, launch_number: u64) -> Self {
        let mut child = Self::new(pidfd, pid);
        child.launch_number = Some(launch_number);
        child
    }

    /// The number of the launch, where it was not waited for.
    pub(crate) fn launch_number(&self) -> Option<u64> {
        self.launch_number
    }

    /// The process id, for logs; also the id of its process group.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the process has exited. Neither reaps it nor touches its group, so what it left
    /// running may still write: for a short grace, until [`try_wait`](Self::try_wait).
    pub fn has_exited(&self) -> io::Result<bool> {
        Ok(self.gone || peek(self.pidfd.as_fd(), libc::WNOHANG)?)
    }

    /// Whether the process is on its way out: it will do nothing more, though it may take the kernel a while until
    /// [`has_exited`](Self::has_exited) is true. Its files are closed in between. False where that cannot be seen.
    pub fn is_exiting(&self) -> bool {
        /// `PF_EXITING` among the flags in proc_pid_stat(5).
        const EXITING: u32 = 4;
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The name, in parentheses, may hold anything.
        let fields = stat.rsplit(|&b| b == b')').next().unwrap_or_default();
        let flags = fields.split(|&b| b == b' ').nth(7);
        let flags = flags.and_then(|f| std::str::from_utf8(f).ok()?.parse::<u32>().ok());
        self.exit.is_none() && flags.is_some_and(|f| f & EXITING != 0)
    }

    /// How the process ended, or `None` while it runs. Ends what is left of its group first. The same answer when
    /// asked again.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() && peek(self.pidfd.as_fd(), libc::WNOHANG)? {
            self.finish()?;
        }
        Ok(self.exit)
    }

    /// As [`try_wait`](Self::try_wait), but the rest of the group goes on: [`group_remains`](Self::group_remains) says
    /// whether there is any, [`signal_group`](Self::signal_group) still reaches them, and dropping the [`Child`] ends
    /// them. Before Linux 6.9, where a group cannot be named but by its number, they are ended.
    pub fn try_wait_alone(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_some() || !groups_by_pidfd() {
            return self.try_wait();
        }
        if peek(self.pidfd.as_fd(), libc::WNOHANG)? {
            self.reap()?;
            self.remains = signal_group_of(self.pidfd.as_fd(), 0).is_ok();
        }
        Ok(self.exit)
    }

    /// Whether others of the group were there when the process was reaped by [`try_wait_alone`](Self::try_wait_alone).
    pub fn left_others(&self) -> bool {
        self.remains
    }

    /// Whether they still are.
    pub fn group_remains(&mut self) -> bool {
        self.remains = self.remains && signal_group_of(self.pidfd.as_fd(), 0).is_ok();
        self.remains
    }

    /// As [`try_wait`](Self::try_wait), but waits for the end.
    pub fn wait(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        peek(self.pidfd.as_fd(), 0)?;
        self.finish()
    }

    /// Sends a signal to every process of the group. An error ESRCH when the process was reaped
    /// already.
    pub fn signal_group(&self, signal: i32) -> io::Result<()> {
        if self.remains {
            return signal_group_of(self.pidfd.as_fd(), signal);
        }
        if self.gone {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        match signal_group(self.pidfd.as_fd(), self.pid, signal) {
            // It is still on its way to its group, and alone.
            Err(e) if self.launch_number.is_some() && e.raw_os_error() == Some(libc::ESRCH) => {
                signal_process(self.pidfd.as_fd(), signal)?;
                // Or it has just arrived there, and is not alone any more. SIGKILL stops it from becoming more.
                if signal == libc::SIGKILL {
                    let _ = signal_group(self.pidfd.as_fd(), self.pid, signal);
                }
                Ok(())
            }
            done => done,
        }
    }

    /// The process has exited: ends its group and reaps it, in this order. A zombie keeps its id,
    /// and the group's, from being reused; once it is reaped a signal could meet
    /// strangers.
    fn finish(&mut self) -> io::Result<Exit> {
        let _ = self.signal_group(libc::SIGKILL);
        self.reap()
    }

    /// The process has exited: reaps it.
    fn reap(&mut self) -> io::Result<Exit> {
        claims::release(self.pid);
        let (status, usage) = reap(self.pidfd.as_fd(), 0)?.ok_or(io::ErrorKind::WouldBlock)?;
        let exit = Exit::new(status, &usage);
        self.gone = true;
        self.exit = Some(exit);
        Ok(exit)
    }

    /// Reaps a child that is on its way out before it executed anything.
    pub(crate) fn reap_failed(&mut self) {
        claims::release(self.pid);
        let _ = reap(self.pidfd.as_fd(), 0);
        self.gone = true;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.gone || self.remains {
            // Ends stopped processes too.
            let _ = self.signal_group(libc::SIGKILL);
        }
        // SAFETY: nothing uses the field after `drop`.
        let pidfd = unsafe { ManuallyDrop::take(&mut self.pidfd) };
        // A process in the middle of its I/O, or with much memory to give back, is not gone at once, and an event loop
        // must not wait for it: the reaper does.
        if !self.gone {
            claims::release(self.pid);
        }
        if !self.gone && matches!(reap(pidfd.as_fd(), libc::WNOHANG), Ok(None)) {
            reaper::adopt(pidfd);
        }
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl AsRawFd for Child {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

/// Signals the process alone.
fn signal_process(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let args = [pidfd.as_raw_fd() as usize, signal as usize, 0, 0, 0, 0];
    // SAFETY: numbers only; a null siginfo stands for the usual one.
    match -unsafe { syscall(libc::SYS_pidfd_send_signal, args) } as i32 {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

/// Whether the kernel signals the group of a pidfd's process (Linux 6.9).
fn groups_by_pidfd() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let own = pidfd_open(getpid(), PidfdFlags::empty());
        let asked = own.map(|own| signal_group_of(own.as_fd(), 0));
        // ESRCH: this process leads no group.
        let errno = |e: io::Error| e.raw_os_error();
        asked.is_ok_and(|done| matches!(done.map_err(errno), Ok(()) | Err(Some(libc::ESRCH))))
    })
}

/// Signals the process group that `pidfd` leads, or led: the kernel finds it by what the descriptor holds on to, and by no
/// number that could be another's by now.
fn signal_group_of(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    /// PIDFD_SIGNAL_PROCESS_GROUP: Linux 6.9.
    const PROCESS_GROUP: usize = 1 << 2;
    let (fd, signal) = (pidfd.as_raw_fd() as usize, signal as usize);
    let args = [fd, signal, 0, PROCESS_GROUP, 0, 0];
    // SAFETY: numbers only; a null siginfo stands for the usual one.
    match -unsafe { syscall(libc::SYS_pidfd_send_signal, args) } as i32 {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

/// The processes of a group that have not ended: their ids, and their names as they call themselves. For logs.
pub fn group_members(group: i32) -> Vec<(i32, Vec<u8>)> {
    let listing = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let member = |pid: i32| {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let from = stat.iter().position(|&b| b == b'(')?;
        let to = stat.iter().rposition(|&b| b == b')')?;
        let mut fields = stat.get(to + 2..)?.split(|&b| b == b' ');
        let ended = matches!(fields.next()?, b"Z" | b"X");
        let of = std::str::from_utf8(fields.nth(1)?).ok()?.parse();
        (of == Ok(group) && !ended).then(|| (pid, stat[from + 1..to].to_vec()))
    };
    pids.filter_map(member).collect()
}

/// Signals the process group that `pidfd` leads.
fn signal_group(pidfd: BorrowedFd<'_>, pid: i32, signal: i32) -> io::Result<()> {
    if groups_by_pidfd() {
        return signal_group_of(pidfd, signal);
    }
    // The number is still ours: the caller has not reaped the leader, and running or zombie it
    // holds the id.
    // SAFETY: numbers only.
    match unsafe { libc::kill(-pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
