//! A child of a template, or a parked process, that waits for its request.

use crate::{
    Child,
    claims::{self, MarkKind, ProcessMark},
    exit::reap_process,
    reaper,
    remote::template::RemotePreforked,
    start::ChildRequest,
};
use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    io::{Errno, pread},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
    },
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    ffi::CStr,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, OnceLock},
    time::Instant,
};

/// A child on its way, or waiting. Dropping it kills the child. The descriptor becomes readable when the child is ready, or
/// when there will never be a child.
#[derive(Debug)]
pub struct PreforkedChild(PreforkedHandle);

#[derive(Debug)]
enum PreforkedHandle {
    Own(OwnPreforked),
    Remote(RemotePreforked),
}

/// A preforked child of this process.
#[derive(Debug)]
pub(crate) struct OwnPreforked {
    /// `None` once the socket was given away.
    socket: Option<OwnedFd>,
    child: Option<Child>,
    /// The mark that the child was born with, until it has its own; `None`: leftover processes of the child may outlive it.
    born_with: Option<Arc<BirthMark>>,
}

/// The mark of a template while it makes children, and of each child until it has said hello.
#[derive(Debug)]
pub(super) struct BirthMark {
    pub(super) mark: ProcessMark,
    /// The kind of the child's own mark.
    pub(super) of_child: Option<MarkKind>,
    pub(super) since: Instant,
    /// The mark that the template got after this one. A child that was asked for earlier may have been born with that later
    /// mark.
    pub(super) next: OnceLock<Arc<BirthMark>>,
}

/// A child that serves its request.
#[derive(Debug)]
pub struct RunningChild {
    /// The process.
    pub child: Child,
    /// The report of a learning child about the modules that it loaded.
    pub report: Option<PreloadReport>,
    /// `None`: the child's own descriptor tells, because a helper has the socket.
    socket: Option<OwnedFd>,
}

/// A child's report of the modules that it loaded. The report is memory shared with the child, because no descriptor of ours
/// may stay open in a program.
#[derive(Debug)]
pub struct PreloadReport(OwnedFd);

impl PreforkedChild {
    pub(super) fn from_own(child: OwnPreforked) -> Self {
        Self(PreforkedHandle::Own(child))
    }

    pub(crate) fn from_remote(child: RemotePreforked) -> Self {
        Self(PreforkedHandle::Remote(child))
    }

    /// Returns whether the child is there and waits.
    ///
    /// # Errors
    /// There will be no child: the template is gone, could not fork, or another process answered.
    pub fn is_ready(&mut self) -> io::Result<bool> {
        match &mut self.0 {
            PreforkedHandle::Own(child) => child.is_ready(),
            PreforkedHandle::Remote(child) => child.is_ready(),
        }
    }

    /// Gives the request to the child, which is [`is_ready`](Self::is_ready). Does not block.
    ///
    /// # Errors
    /// The child is not there or has ended. Or the environment is larger than one message, some 200 KiB (SO_SNDBUF), or has a
    /// variable that no program takes. After an error the child is gone.
    pub fn give_request(self, request: &ChildRequest<'_>) -> io::Result<RunningChild> {
        let too_long = |e| io::Error::new(io::ErrorKind::ArgumentListTooLong, e);
        request.env.check_size().map_err(too_long)?;
        let report = request.learn.then(PreloadReport::new).transpose()?;
        let fd = report.as_ref().map(|l| l.0.as_fd());
        let (child, socket) = match self.0 {
            PreforkedHandle::Own(own) => {
                own.give_request(request, fd).map(|(c, s)| (c, Some(s)))?
            }
            PreforkedHandle::Remote(remote) => {
                (Child::from_remote(remote.give_request(request, fd)?), None)
            }
        };
        Ok(RunningChild {
            child,
            report,
            socket,
        })
    }
}

impl OwnPreforked {
    pub(super) fn new(socket: OwnedFd, born_with: Option<Arc<BirthMark>>) -> Self {
        Self {
            socket: Some(socket),
            child: None,
            born_with,
        }
    }

    pub(super) fn parked(socket: OwnedFd, child: Child) -> Self {
        Self {
            socket: Some(socket),
            child: Some(child),
            born_with: None,
        }
    }

    /// Implements [`PreforkedChild::is_ready`].
    pub(crate) fn is_ready(&mut self) -> io::Result<bool> {
        if self.child.is_none() {
            self.child = receive_hello(self.socket())?;
        }
        if let Some(child) = &mut self.child
            && let Some(born_with) = self.born_with.take()
        {
            if let Some(kind) = born_with.of_child {
                child.set_mark(ProcessMark::new(kind));
            }
            // Processes that others have started with this mark are killed now, if no other child is on its way.
            drop(born_with);
        }
        Ok(self.child.is_some())
    }

    fn socket(&self) -> &OwnedFd {
        // INVARIANT: only `give_request` takes the socket, and `give_request` consumes `self`.
        let socket = self.socket.as_ref();
        socket.unwrap_or_else(|| unreachable!("a preforked child without a socket"))
    }

    /// Implements [`PreforkedChild::give_request`]; the child writes the modules that it loads to `report`.
    pub(crate) fn give_request(
        mut self,
        request: &ChildRequest<'_>,
        report: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Child, OwnedFd)> {
        let (Some(child), Some(socket)) = (self.child.take(), self.socket.take()) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let none = u64::MAX; // RLIM_INFINITY
        let dir = request.dir.map_or(&[][..], CStr::to_bytes_with_nul);
        let (soft, hard) = request
            .cpu
            .map_or((none, none), |s| (s, s.saturating_add(1)));
        let head = [soft, hard, dir.len() as u64].map(u64::to_ne_bytes);
        let fds: Vec<_> = request.stdio.into_iter().chain(report).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let parts = [head.as_flattened(), dir, request.env.as_bytes()].map(IoSlice::new);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        child.lower_priority(request.priority);
        sendmsg(&socket, &parts, &mut control, flags)?;
        Ok((child, socket))
    }
}

impl RunningChild {
    /// Returns whether the process has read its request. If not, the descriptor ([`AsFd`]) becomes readable when it has.
    ///
    /// # Errors
    /// The process ended before, and has done nothing.
    pub fn has_begun(&self) -> io::Result<bool> {
        match &self.socket {
            Some(socket) => has_read_request(socket),
            None => self
                .child
                .as_remote()
                .map_or(Ok(true), |child| child.has_begun()),
        }
    }
}

impl AsFd for RunningChild {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let own = self.socket.as_ref().map(AsFd::as_fd);
        own.unwrap_or_else(|| self.child.as_fd())
    }
}

impl AsFd for PreforkedChild {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            PreforkedHandle::Own(child) => child.as_fd(),
            PreforkedHandle::Remote(child) => child.as_fd(),
        }
    }
}

/// Returns whether the process at the other end of `socket` has read its request.
///
/// # Errors
/// The process ended before.
pub(crate) fn has_read_request(socket: &OwnedFd) -> io::Result<bool> {
    match recv(socket, &mut [0u8], RecvFlags::DONTWAIT) {
        Ok(_) => Ok(true), // the process has closed its end
        Err(Errno::AGAIN) => Ok(false),
        // ECONNRESET: closed with the request unread.
        Err(e) => Err(e.into()),
    }
}

impl AsFd for OwnPreforked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Drop for OwnPreforked {
    fn drop(&mut self) {
        // If the child is there, it is killed with its `Child`. A child that is still on its way reads the end of its socket
        // and exits; the reaper waits for it.
        if let (Some(socket), None) = (self.socket.take(), &self.child) {
            // If the child has arrived meanwhile, it is killed and reaped as it is dropped.
            reaper::adopt_starting(socket, |socket| !matches!(receive_hello(socket), Ok(None)));
        }
    }
}

impl PreloadReport {
    /// Bytes, the same number as in `shim/template.c`.
    const MOST: usize = 64 << 10;

    fn new() -> io::Result<Self> {
        let memory = memfd_create("galgo-preload-report", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, Self::MOST as u64)?;
        Ok(Self(memory))
    }

    /// Returns the modules of a child that has exited, one a line; empty if the child did not report.
    pub fn read_modules(self) -> Vec<u8> {
        let mut text = vec![0; Self::MOST];
        let read = pread(&self.0, &mut text[..], 0).unwrap_or(0);
        let end = text[..read].iter().position(|&b| b == 0);
        text.truncate(end.unwrap_or(read));
        text
    }
}

/// Returns the child that says hello on `socket`; `None` if nothing has arrived yet.
fn receive_hello(socket: &OwnedFd) -> io::Result<Option<Child>> {
    let mut byte = [0u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match recvmsg(socket, &mut parts, &mut control, flags) {
        Err(Errno::AGAIN) => return Ok(None),
        other => other?,
    };
    if message.bytes != 1 || byte != *b"H" {
        return Err(io::Error::other("the template could not fork"));
    }
    let pid = control.drain().find_map(|m| match m {
        RecvAncillaryMessage::ScmCredentials(who) => Some(who.pid),
        _ => None,
    });
    let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
    // The sender was alive with that number, and the kernel tells whether it is a child of ours. A child of ours stays ours to
    // reap, so its number cannot have been reused. But a child that ended long ago may have been reaped as a stranger, and
    // another child may have its number.
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    reap_process(pidfd.as_fd(), libc::WNOHANG | libc::WNOWAIT)?;
    if !claims::claim_pid(Pid::as_raw(Some(pid))) {
        return Err(io::Error::other("the child has ended"));
    }
    Ok(Some(Child::new(pidfd, pid.as_raw_pid(), None, None)))
}
