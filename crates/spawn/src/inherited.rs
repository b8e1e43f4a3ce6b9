//! Descriptors that the parent of this process left open for it.

use crate::raw::syscall;
use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    net::sockopt::socket_type,
};
use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Returns whether this process may call close_range(2), which each start of a program uses. Closes nothing.
pub fn may_close_ranges() -> bool {
    let last = u32::MAX as usize;
    // SAFETY: numbers only. No process has a descriptor of this number.
    unsafe { syscall(libc::SYS_close_range, [last, last, 0, 0, 0, 0]) >= 0 }
}

/// The first such descriptor, after the standard ones: SD_LISTEN_FDS_START of sd_listen_fds(3).
const FIRST: RawFd = 3;

/// Takes `count` descriptors: 3, 4, … From here on no program inherits them, so each is given once.
///
/// # Errors
/// A descriptor is not open, or was not inherited: this process has opened it itself, or has taken it before.
pub fn take_inherited(count: usize) -> io::Result<Vec<OwnedFd>> {
    let one = |number: RawFd| {
        // SAFETY: numbers only.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        match flags {
            ..0 => return Err(io::Error::last_os_error()),
            flags if flags & libc::FD_CLOEXEC != 0 => return Err(Errno::BADF.into()),
            _ => {}
        }
        // SAFETY: the descriptor is open, and has come over execve, because it has no FD_CLOEXEC. This process opens all
        // descriptors with that flag, so no other value owns this number.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        Ok(fd)
    };
    (FIRST..).take(count).map(one).collect()
}

/// Returns the process that has made the pair of Unix sockets to which descriptor 3 belongs. The kernel knows that process even
/// after its end (SO_PEERCRED, unix(7)). `None`: there is no such socket.
pub fn first_socket_creator() -> Option<i32> {
    let mut made_by = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes into `made_by`, for which every value is valid; both outlive the call.
    let got = unsafe {
        libc::getsockopt(
            FIRST,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut made_by).cast(),
            &raw mut size,
        )
    };
    (got == 0 && made_by.pid > 0).then_some(made_by.pid)
}

/// Closes all descriptors of a child of this process but the standard streams and `kept`.
pub(crate) fn close_all_but<const N: usize>(kept: [Option<&OwnedFd>; N]) {
    let kept = kept.into_iter().flatten();
    let mut kept: Vec<_> = kept.map(|fd| fd.as_raw_fd() as usize).collect();
    kept.sort_unstable();
    let ends = kept.iter().map(|fd| fd - 1).chain([u32::MAX as usize]);
    let begins = std::iter::once(3).chain(kept.iter().map(|fd| fd + 1));
    for (from, to) in begins.zip(ends) {
        if from <= to {
            // SAFETY: numbers only. The child neither uses nor drops values in memory that own these descriptors: it ends by
            // `_exit`.
            unsafe { syscall(libc::SYS_close_range, [from, to, 0, 0, 0, 0]) };
        }
    }
}
/// Returns the socket that this process was executed with. Call this once.
///
/// # Errors
/// There is no socket: the process was executed for another purpose.
pub fn take_spawner_socket() -> Result<OwnedFd, String> {
    let words = |e: io::Error| format!("this is what `galgo serve` starts for itself: {e}");
    let mut given = take_inherited(1).map_err(words)?;
    // INVARIANT: there are as many descriptors as were asked for.
    let socket = given.pop().expect("one descriptor");
    socket_type(&socket).map_err(|e| words(e.into()))?;
    Ok(socket)
}
