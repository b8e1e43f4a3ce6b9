//! One descriptor on the event loop: a socket or our end of a pipe.
//!
//! Every operation tries the system call first and waits only when the kernel says `EAGAIN`. The event loop
//! hears of a descriptor when it is waited for the first time: one that never is costs it nothing.

use std::{
    cell::{Cell, OnceCell},
    future::poll_fn,
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    task::{Context, Poll, ready},
    time::Duration,
};

pub use crate::watch::{is_short, register};
use crate::{buf::Buf, pool, tick, turn};
use rustix::{
    buffer::spare_capacity,
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
};
use tokio::io::{
    Interest, Ready,
    unix::{AsyncFd, AsyncFdReadyGuard},
};

/// What [`Sock::waiting`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingInput {
    /// This many bytes were read; 0 is end of file.
    Read(usize),
    /// This many bytes wait in the pipe.
    Waiting(usize),
}

/// A direction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    In,
    Out,
}

/// What one read into a [`Buf`] asks for at least.
const READ: usize = 4 << 10;
/// What the first read of a request asks for: most heads are smaller.
const HEAD_READ: usize = 4 << 10;

/// A descriptor in non-blocking mode, for the event loop of this thread.
#[derive(Debug)]
pub struct Sock {
    /// The number of `fd`, once the event loop knows it. Before `fd`: it must forget it before that is closed.
    watched: OnceCell<AsyncFd<RawFd>>,
    /// Of [`Sock::asking`]: the same socket once more, on the event loop for being written to.
    room: OnceCell<(AsyncFd<RawFd>, OwnedFd)>,
    fd: OwnedFd,
    interest: Interest,
    /// It is a socket: bytes come as a stream.
    stream: bool,
    /// Something unread may be there though the event loop would not say so again.
    passed_over: Cell<bool>,
}

impl Sock {
    /// A socket, for both directions. It may be readable already.
    pub fn new(fd: OwnedFd) -> Self {
        Self {
            stream: true,
            ..Self::with_interest(fd, Interest::READABLE | Interest::WRITABLE)
        }
    }

    /// A Unix socket whose peer is asked, and answers. The kernel calls it writable anew each time the peer has
    /// read something: an event for each question, while the answer is waited for. So the event loop is told to
    /// look for that only once something did not fit.
    pub fn asking(fd: OwnedFd) -> Self {
        Self {
            stream: true,
            ..Self::with_interest(fd, Interest::READABLE)
        }
    }

    /// Nothing is to be written for a while: gives back what waiting for room has taken.
    pub fn rest(&mut self) {
        drop(self.room.take());
    }

    /// The same descriptor, for the event loop of this thread.
    #[must_use]
    pub fn moved(self) -> Self {
        let Self {
            watched,
            room,
            fd,
            interest,
            stream,
            ..
        } = self;
        drop((watched, room));
        Self {
            stream,
            ..Self::with_interest(fd, interest)
        }
    }

    /// The end of a pipe that we read.
    pub fn reader(fd: OwnedFd) -> Self {
        Self::with_interest(fd, Interest::READABLE)
    }

    /// The end of a pipe that we write.
    pub fn writer(fd: OwnedFd) -> Self {
        Self::with_interest(fd, Interest::WRITABLE)
    }

    fn with_interest(fd: OwnedFd, interest: Interest) -> Self {
        Self {
            watched: OnceCell::new(),
            room: OnceCell::new(),
            fd,
            interest,
            stream: false,
            passed_over: Cell::new(true),
        }
    }

    /// Waits until the event loop calls it ready in that direction. One task waits for each at a time: its waker has a
    /// place of its own then, where one among many would take a list, and a future five times as large.
    fn ready(
        &self,
        to: Direction,
    ) -> impl Future<Output = io::Result<AsyncFdReadyGuard<'_, RawFd>>> {
        poll_fn(move |cx| self.poll_ready(to, cx))
    }

    fn poll_ready(
        &self,
        to: Direction,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'_, RawFd>>> {
        match to {
            Direction::In => self.watched()?.poll_read_ready(cx),
            Direction::Out if !self.interest.is_writable() => self.room()?.poll_write_ready(cx),
            Direction::Out => self.watched()?.poll_write_ready(cx),
        }
    }

    /// Whether the event loop knows it: it has been waited for.
    pub fn is_watched(&self) -> bool {
        self.watched.get().is_some()
    }

    fn watched(&self) -> io::Result<&AsyncFd<RawFd>> {
        if let Some(watched) = self.watched.get() {
            return Ok(watched);
        }
        let watched = register(self.fd.as_raw_fd(), self.interest)?;
        Ok(self.watched.get_or_init(|| watched))
    }

    /// A registration of its own: the first cannot be changed, and a task may be waiting on it.
    fn room(&self) -> io::Result<&AsyncFd<RawFd>> {
        if self.room.get().is_none() {
            let again = rustix::io::fcntl_dupfd_cloexec(&self.fd, 3)?;
            let room = register(again.as_raw_fd(), Interest::WRITABLE)?;
            let _ = self.room.set((room, again));
        }
        self.room
            .get()
            .map(|(room, _fd)| room)
            .ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Waits until the socket may be written to: that a connection has been made, or has failed.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Direction::Out).await?.retain_ready();
        Ok(())
    }

    /// Waits until something may be there to be read, and reads nothing: who reads next need not wait.
    pub async fn arrives(&self) -> io::Result<()> {
        self.ready(Direction::In).await?.retain_ready();
        Ok(())
    }

    /// Bytes that are there to be read (FIONREAD); 0 where that cannot be asked.
    pub fn holds(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.fd).unwrap_or_default()
    }

    /// Calls at once, and again whenever the event loop calls it ready, until there is nothing to wait for. `waits`: the call
    /// has been made at once.
    pub(crate) fn poll_run(
        &self,
        to: Direction,
        waits: &mut bool,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_left(cx));
        let mut call = |fd: BorrowedFd<'_>| {
            let done = call(fd);
            turn::called(*done.as_ref().unwrap_or(&0));
            done
        };
        if !std::mem::replace(waits, true) {
            match call(self.fd.as_fd()) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return Poll::Ready(done.map_err(Into::into)),
            }
        }
        loop {
            let mut guard = ready!(self.poll_ready(to, cx))?;
            match guard.try_io(|_| call(self.fd.as_fd()).map_err(Into::into)) {
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return Poll::Ready(done),
                Err(_would_block) => {}
            }
        }
    }

    /// Reads `want` bytes or so into `buf`; 0 is end of file. `waits`: it was tried at once already, and is awaited.
    pub fn poll_fill(
        &self,
        buf: &mut Buf,
        want: usize,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // Not after that: it was not tried.
        ready!(turn::poll_left(cx));
        let buf = buf.room(want.max(READ));
        // The event loop may not say again what it has told another task, which read nothing.
        *waits &= !self.passed_over.get();
        let read = self.poll_run(Direction::In, waits, cx, |fd| {
            rustix::io::read(fd, spare_capacity(&mut *buf))
        });
        *waits = read.is_pending();
        if read.is_pending() {
            self.passed_over.set(false);
        }
        read
    }

    /// Appends what can be read to `buf`, within its spare capacity; 0 is end of file. Data is not expected to be there
    /// yet: waits first, and takes a buffer only then.
    pub fn read_later(&self, buf: &mut Vec<u8>) -> impl Future<Output = io::Result<usize>> {
        poll_fn(|cx| self.poll_read_later(buf, cx))
    }

    /// As [`Sock::read_later`], polled.
    pub fn poll_read_later(
        &self,
        buf: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(turn::poll_left(cx));
            let mut guard = ready!(self.poll_ready(Direction::In, cx))?;
            pool::room(buf);
            let read = rustix::io::read(&self.fd, spare_capacity(buf));
            turn::called(*read.as_ref().unwrap_or(&0));
            match read {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => guard.clear_ready_matching(Ready::READABLE),
                Ok(n) => {
                    // All that was there, where bytes come as a stream: whatever comes now is a new event
                    // (epoll(7), edge-triggered). A pipe may hold packets.
                    if n > 0 && buf.len() < buf.capacity() && self.stream {
                        guard.clear_ready_matching(Ready::READABLE);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// As [`Sock::read_later`], but never waits: `None` when nothing is there.
    pub fn try_read(&self, buf: &mut Vec<u8>) -> io::Result<Option<usize>> {
        pool::room(buf);
        at_once(rustix::io::read(&self.fd, spare_capacity(buf)))
    }

    /// As [`Sock::try_read`], no more than fits into `buf`.
    pub fn try_take(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        at_once(rustix::io::read(&self.fd, buf))
    }

    /// Writes what fits of `bufs`. `waits`: it was tried at once already, and is awaited.
    pub fn poll_write(
        &self,
        bufs: &[IoSlice<'_>],
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_run(Direction::Out, waits, cx, |fd| rustix::io::writev(fd, bufs))
    }

    /// As [`Sock::poll_write`], and lets what does not fill a segment wait for more, or for the end of the
    /// connection (`MSG_MORE`).
    pub fn poll_write_more(
        &self,
        bufs: &[IoSlice<'_>],
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_run(Direction::Out, waits, cx, |fd| {
            let mut nothing = SendAncillaryBuffer::default();
            sendmsg(fd, bufs, &mut nothing, SendFlags::MORE)
        })
    }

    /// Waits for output that may stay where it is: says how much is in the pipe. Less than `least`, and
    /// the end of file, are read instead.
    pub async fn waiting(&self, least: usize, buf: &mut Vec<u8>) -> io::Result<WaitingInput> {
        loop {
            let mut guard = self.ready(Direction::In).await?;
            let there = rustix::io::ioctl_fionread(&self.fd)?;
            if let Ok(there) = usize::try_from(there)
                && there >= least
            {
                return Ok(WaitingInput::Waiting(there));
            }
            match self.try_read(buf)? {
                Some(n) => return Ok(WaitingInput::Read(n)),
                None => guard.clear_ready(),
            }
        }
    }

    /// Waits until something is there to be read, or nothing more will come; reads nothing, so 0.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.passed_over.set(true);
        while rustix::io::ioctl_fionread(&self.fd)? == 0 {
            let mut guard = ready!(self.poll_ready(Direction::In, cx))?;
            if guard.ready().is_read_closed() {
                break;
            }
            guard.clear_ready_matching(Ready::READABLE);
        }
        Poll::Ready(Ok(0))
    }

    /// Gives the pipe room for `bytes`, where the user's share of pipe memory allows (pipe(7)).
    pub fn widen(&self, bytes: usize) {
        if rustix::pipe::fcntl_getpipe_size(&self.fd).is_ok_and(|size| size >= bytes) {
            return;
        }
        // Without it everything works, in smaller pieces.
        let _ = rustix::pipe::fcntl_setpipe_size(&self.fd, bytes);
    }

    /// Bytes that were written and that the peer has not acknowledged, where the system knows.
    pub fn unacknowledged(&self) -> Option<usize> {
        galgo_spawn::unacknowledged(&self.fd).ok()
    }

    /// Sends at once what `MSG_MORE` held back.
    pub fn push(&self) {
        // Setting the option again pushes (tcp(7)); it fails only on a Unix socket, which holds nothing back.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&self.fd, true);
    }

    /// Whether all that the peer has sent so far was read: closing then makes no reset.
    pub fn is_drained(&self) -> bool {
        rustix::io::ioctl_fionread(&self.fd) == Ok(0)
    }

    /// Shuts down the sending side.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn end_output(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(
            &self.fd,
            rustix::net::Shutdown::Write,
        )?)
    }

    /// Closing resets the connection, so that the peer sees that something is missing.
    pub fn reset_on_close(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// Writes what fits of `bytes`, but never waits: `None` when nothing does.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        at_once(rustix::io::write(&self.fd, bytes))
    }

    /// Waits for the next request; holds no memory while there is none.
    pub fn poll_read_idle(&self, buf: &mut Buf, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(turn::poll_left(cx));
        if self.passed_over.get() {
            turn::called(0);
            match rustix::io::read(&self.fd, spare_capacity(buf.room(HEAD_READ))) {
                Err(Errno::AGAIN | Errno::INTR) => buf.shrink(),
                done => {
                    self.passed_over.set(!buf.has_room());
                    return Poll::Ready(done.map_err(Into::into));
                }
            }
            self.passed_over.set(false);
        }
        loop {
            let mut guard = ready!(self.poll_ready(Direction::In, cx))?;
            turn::called(0);
            let read = rustix::io::read(&self.fd, spare_capacity(buf.room(HEAD_READ)));
            match read {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    buf.shrink();
                    guard.clear_ready_matching(Ready::READABLE);
                }
                // All that was there: whatever comes now is a new event (epoll(7), edge-triggered).
                Ok(n) if n > 0 && buf.has_room() => {
                    guard.clear_ready_matching(Ready::READABLE);
                    return Poll::Ready(Ok(n));
                }
                done => return Poll::Ready(done.map_err(Into::into)),
            }
        }
    }

    /// As [`Sock::poll_ready`]; where the kernel lacks room to watch it, it is asked again with the next tick. `None`: it
    /// cannot be watched.
    fn poll_watched(
        &self,
        to: Direction,
        cx: &mut Context<'_>,
    ) -> Poll<Option<AsyncFdReadyGuard<'_, RawFd>>> {
        match ready!(self.poll_ready(to, cx)) {
            Ok(guard) => Poll::Ready(Some(guard)),
            Err(e) if is_short(&e) => {
                tick::wake(cx);
                Poll::Pending
            }
            Err(_) => Poll::Ready(None),
        }
    }

    /// Waits until the peer has shut down its sending side or is gone, whatever is still unread. What breaks a stream
    /// socket closes it, so an error is not asked for by itself (EPOLLHUP comes with EPOLLERR).
    pub fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(mut guard) = ready!(self.poll_watched(Direction::In, cx)) else {
                return Poll::Ready(());
            };
            if guard.ready().is_read_closed() {
                return Poll::Ready(());
            }
            self.passed_over.set(true);
            guard.clear_ready_matching(Ready::READABLE);
        }
    }

    /// Waits until the connection is broken in both directions (RST, or a Unix peer that closed).
    /// A half-close is not enough.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(mut guard) = ready!(self.poll_watched(Direction::Out, cx)) else {
                return Poll::Ready(());
            };
            if guard.ready().is_write_closed() {
                return Poll::Ready(());
            }
            guard.clear_ready_matching(Ready::WRITABLE);
        }
    }
}

/// What a call has done that does not wait; `None`: there is nothing that could be done.
fn at_once(done: Result<usize, Errno>) -> io::Result<Option<usize>> {
    turn::called(*done.as_ref().unwrap_or(&0));
    match done {
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        done => Ok(Some(done?)),
    }
}

impl Sock {
    /// The descriptor, which the event loop no longer knows.
    pub fn into_fd(self) -> OwnedFd {
        let Self {
            watched, room, fd, ..
        } = self;
        drop((watched, room));
        fd
    }
}

impl AsFd for Sock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream};

    use super::*;

    #[test]
    fn what_was_passed_over_is_read_by_who_waited_before() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        runtime.unwrap().block_on(async {
            let (mut client, ours) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let sock = Sock::new(ours.into());
            let (mut buf, mut waits) = (Buf::default(), false);
            // It is awaited, and the wait is given up.
            let first = poll_fn(|cx| Poll::Ready(sock.poll_fill(&mut buf, 1, &mut waits, cx)));
            assert!(first.await.is_pending());
            client.write_all(b"x").unwrap();
            // Who looks whether the client is gone has the event, and reads nothing.
            sock.arrives().await.unwrap();
            let closed = poll_fn(|cx| Poll::Ready(sock.poll_read_closed(cx)));
            assert!(closed.await.is_pending());
            let again = poll_fn(|cx| Poll::Ready(sock.poll_fill(&mut buf, 1, &mut waits, cx)));
            assert!(matches!(again.await, Poll::Ready(Ok(1))));
        });
    }
}
