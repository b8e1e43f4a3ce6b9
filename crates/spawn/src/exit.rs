//! Reads how a process ended.

use crate::raw::syscall;
use rustix::process::WaitIdOptions;
use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

/// Options of waitid(2) for children that have ended, without waiting. Includes children that clone(2) made with another signal
/// than SIGCHLD.
pub(crate) const ENDED: WaitIdOptions =
    WaitIdOptions::from_bits_retain((libc::WEXITED | libc::WNOHANG | libc::__WALL).cast_unsigned());

/// The end of a process, and the resources that were used (getrusage(2)) by the process and by the children that it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, or signal number.
    pub status: Status,
    /// User CPU time.
    pub user: Duration,
    /// System CPU time.
    pub system: Duration,
    /// Peak resident set size, bytes. The kernel includes the server's own peak, because the process ran in the server's memory
    /// before it became the program: the value is never less than that.
    pub max_rss: u64,
}

/// Exit code or signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The process called exit(3) with this code, 0 to 255.
    Code(i32),
    /// This signal ended the process.
    Signal(i32),
}

impl Status {
    /// Returns whether the exit code is 0.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

impl Exit {
    pub(crate) fn new(status: Status, usage: &libc::rusage) -> Self {
        let time = |t: libc::timeval| {
            let (s, us) = (t.tv_sec.unsigned_abs(), t.tv_usec.unsigned_abs());
            Duration::from_secs(s) + Duration::from_micros(us)
        };
        Self {
            status,
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            max_rss: usage.ru_maxrss.unsigned_abs() * 1024,
        }
    }
}

/// Returns whether the process has exited, without reaping it.
pub(crate) fn peek_exit(pidfd: BorrowedFd<'_>, options: i32) -> io::Result<bool> {
    Ok(waitid(pidfd, options | libc::WNOWAIT)?.is_some())
}

/// Reaps the process; `None` if it still runs and WNOHANG was asked for.
pub(crate) fn reap_process(
    pidfd: BorrowedFd<'_>,
    options: i32,
) -> io::Result<Option<(Status, libc::rusage)>> {
    waitid(pidfd, options)
}

/// Calls waitid(2) on a pidfd. libc's wrapper lacks the resource usage, the kernel's fifth argument.
fn waitid(pidfd: BorrowedFd<'_>, options: i32) -> io::Result<Option<(Status, libc::rusage)>> {
    // SAFETY: both are plain structs of integers and pointers for which zeros are a value.
    let mut info: libc::siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the same as above.
    let mut usage: libc::rusage = unsafe { MaybeUninit::zeroed().assume_init() };
    let args = [
        libc::P_PIDFD as usize,
        pidfd.as_raw_fd() as usize,
        &raw mut info as usize,
        (libc::WEXITED | libc::__WALL | options) as usize,
        &raw mut usage as usize,
        0,
    ];
    loop {
        // SAFETY: the kernel writes to `info` and `usage`, which have the sizes that it expects and live on.
        match unsafe { syscall(libc::SYS_waitid, args) } {
            0 => break,
            e if -e == libc::EINTR as isize => {}
            e => return Err(io::Error::from_raw_os_error(-e as i32)),
        }
    }
    // SAFETY: waitid filled in the SIGCHLD form, or left the zeros, which read as pid 0: no child has ended yet.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let status = match info.si_code {
        libc::CLD_EXITED => Status::Code(status),
        _ => Status::Signal(status),
    };
    Ok((pid != 0).then_some((status, usage)))
}
