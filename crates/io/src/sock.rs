//! A descriptor on the event loop: a socket, or our end of a pipe.
//!
//! Every operation tries the system call first and waits only when the kernel says `EAGAIN`. The event loop registers a
//! descriptor at the first wait for it, so a descriptor that never has to wait costs the event loop nothing.

use std::{
    cell::{Cell, OnceCell},
    future::poll_fn,
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    task::{Context, Poll, ready},
    time::Duration,
};

pub use crate::watch::{is_short, register};
use crate::{buf::Buf, pool, tick, turn, watch::Direction};
use rustix::{
    buffer::spare_capacity,
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
};
use tokio::io::{
    Interest, Ready,
    unix::{AsyncFd, AsyncFdReadyGuard},
};

/// Result of [`Sock::wait_for_output`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingInput {
    /// This many bytes were read; 0 is end of file.
    Read(usize),
    /// This many bytes wait in the pipe.
    Waiting(usize),
}

/// Bytes that one read into a [`Buf`] asks for at least.
const READ: usize = 4 << 10;
/// Bytes that the first read of a request asks for: most heads are smaller.
const HEAD_READ: usize = 4 << 10;

/// A descriptor in non-blocking mode, for the event loop of this thread.
#[derive(Debug)]
pub struct Sock {
    /// The event loop's registration of `fd`, by its number. It stands before `fd`, because the event loop must forget the
    /// number before `fd` is closed.
    watched: OnceCell<AsyncFd<RawFd>>,
    /// Set by a [`Sock::for_requests`] that has waited for room: a duplicate of the socket, registered for writing only.
    room: OnceCell<(AsyncFd<RawFd>, OwnedFd)>,
    fd: OwnedFd,
    interest: Interest,
    /// Whether the descriptor is a socket, whose bytes come as a stream.
    stream: bool,
    /// Whether unread data may be there that the event loop would not announce again.
    passed_over: Cell<bool>,
}

impl Sock {
    /// Wraps a socket, for both directions. The socket may be readable already.
    pub fn new(fd: OwnedFd) -> Self {
        Self {
            stream: true,
            ..Self::with_interest(fd, Interest::READABLE | Interest::WRITABLE)
        }
    }

    /// Wraps a Unix socket for questions to a peer that answers them. Each time the peer has read something, the kernel calls
    /// the socket writable anew. That would be an event for each question, while the task waits for the answer. So the event
    /// loop watches for room only after something did not fit.
    pub fn for_requests(fd: OwnedFd) -> Self {
        Self {
            stream: true,
            ..Self::with_interest(fd, Interest::READABLE)
        }
    }

    /// Frees the registration that waits for room. Call this if nothing is to be written for a while.
    pub fn unwatch_room(&mut self) {
        drop(self.room.take());
    }

    /// Returns the same descriptor without its registrations, for the event loop of this thread.
    #[must_use]
    pub fn without_registrations(self) -> Self {
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

    /// Wraps the end of a pipe that we read.
    pub fn pipe_reader(fd: OwnedFd) -> Self {
        Self::with_interest(fd, Interest::READABLE)
    }

    /// Wraps the end of a pipe that we write.
    pub fn pipe_writer(fd: OwnedFd) -> Self {
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

    /// Waits until the event loop calls the descriptor ready in that direction. Only one task at a time waits in each
    /// direction, so its waker has a place of its own. A list of wakers would make the future five times as large.
    fn wait_until_ready(
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
            Direction::In => self.registration()?.poll_read_ready(cx),
            Direction::Out if !self.interest.is_writable() => {
                self.write_registration()?.poll_write_ready(cx)
            }
            Direction::Out => self.registration()?.poll_write_ready(cx),
        }
    }

    /// Returns whether the event loop knows the descriptor, because a task has waited for it.
    pub fn is_watched(&self) -> bool {
        self.watched.get().is_some()
    }

    fn registration(&self) -> io::Result<&AsyncFd<RawFd>> {
        if let Some(watched) = self.watched.get() {
            return Ok(watched);
        }
        let watched = register(self.fd.as_raw_fd(), self.interest)?;
        Ok(self.watched.get_or_init(|| watched))
    }

    /// Returns the registration for writing. It is separate, because the first registration cannot be changed and a task may be
    /// waiting on it.
    fn write_registration(&self) -> io::Result<&AsyncFd<RawFd>> {
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

    /// Waits until the socket is writable: a connection was established, or it failed.
    pub async fn wait_until_writable(&self) -> io::Result<()> {
        self.wait_until_ready(Direction::Out).await?.retain_ready();
        Ok(())
    }

    /// Waits until there may be something to read. Reads nothing, so the next read finds the data without another wait.
    pub async fn wait_until_readable(&self) -> io::Result<()> {
        self.wait_until_ready(Direction::In).await?.retain_ready();
        Ok(())
    }

    /// Returns the number of bytes that are ready to be read (FIONREAD); 0 if the system call fails.
    pub fn readable_len(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.fd).unwrap_or_default()
    }

    /// Makes the system call at once, and again whenever the event loop calls the descriptor ready, until the call does not
    /// have to wait. `waits`: the first, immediate call was made already.
    pub(crate) fn poll_call(
        &self,
        to: Direction,
        waits: &mut bool,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_turn(cx));
        let mut call = |fd: BorrowedFd<'_>| {
            let done = call(fd);
            turn::count_call(*done.as_ref().unwrap_or(&0));
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

    /// Reads about `want` bytes into `buf`; 0 is end of file. `waits`: a read was tried already, and this call waits for its
    /// data.
    pub fn poll_fill(
        &self,
        buf: &mut Buf,
        want: usize,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // Look at the turn before `waits` is changed: if the turn is over, no read was tried.
        ready!(turn::poll_turn(cx));
        let buf = buf.reserve_read(want.max(READ));
        // The event loop may have announced this data to another task, which read nothing. It may not announce the data again.
        *waits &= !self.passed_over.get();
        let read = self.poll_call(Direction::In, waits, cx, |fd| {
            rustix::io::read(fd, spare_capacity(&mut *buf))
        });
        *waits = read.is_pending();
        if read.is_pending() {
            self.passed_over.set(false);
        }
        read
    }

    /// Appends data to `buf`, within its spare capacity; 0 is end of file. The caller expects no data yet, so this waits first,
    /// and takes a buffer only when data has come.
    pub fn read_later(&self, buf: &mut Vec<u8>) -> impl Future<Output = io::Result<usize>> {
        poll_fn(|cx| self.poll_read_later(buf, cx))
    }

    /// Does the same as [`Sock::read_later`], as a poll function.
    pub fn poll_read_later(
        &self,
        buf: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(turn::poll_turn(cx));
            let mut guard = ready!(self.poll_ready(Direction::In, cx))?;
            pool::reserve_read(buf);
            let read = rustix::io::read(&self.fd, spare_capacity(buf));
            turn::count_call(*read.as_ref().unwrap_or(&0));
            match read {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => guard.clear_ready_matching(Ready::READABLE),
                Ok(n) => {
                    // On a stream, a read that leaves room has taken all the data: later data is a new event (epoll(7),
                    // edge-triggered). A pipe may hold packets, so this is not true of a pipe.
                    if n > 0 && buf.len() < buf.capacity() && self.stream {
                        guard.clear_ready_matching(Ready::READABLE);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// Reads like [`Sock::read_later`], but never waits: `None` if there is no data.
    pub fn try_read(&self, buf: &mut Vec<u8>) -> io::Result<Option<usize>> {
        pool::reserve_read(buf);
        nonblocking_result(rustix::io::read(&self.fd, spare_capacity(buf)))
    }

    /// Reads like [`Sock::try_read`], but no more than fits into `buf`.
    pub fn try_take(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        nonblocking_result(rustix::io::read(&self.fd, buf))
    }

    /// Writes as much of `bufs` as fits. `waits`: a write was tried already, and this call waits for room.
    pub fn poll_write(
        &self,
        bufs: &[IoSlice<'_>],
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_call(Direction::Out, waits, cx, |fd| rustix::io::writev(fd, bufs))
    }

    /// Writes like [`Sock::poll_write`], but the kernel holds back a part of a segment until more data follows or the
    /// connection ends (`MSG_MORE`).
    pub fn poll_write_more(
        &self,
        bufs: &[IoSlice<'_>],
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.poll_call(Direction::Out, waits, cx, |fd| {
            let mut nothing = SendAncillaryBuffer::default();
            sendmsg(fd, bufs, &mut nothing, SendFlags::MORE)
        })
    }

    /// Waits for output, and returns how many bytes are in the pipe, so that they may stay there. Reads the bytes instead if
    /// there are fewer than `least`, or if the file ends.
    pub async fn wait_for_output(
        &self,
        least: usize,
        buf: &mut Vec<u8>,
    ) -> io::Result<WaitingInput> {
        loop {
            let mut guard = self.wait_until_ready(Direction::In).await?;
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

    /// Waits until there is something to read, or nothing more will come. Reads nothing, so the result is 0.
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

    /// Gives the pipe room for `bytes`, if the user's share of pipe memory allows that (pipe(7)).
    pub fn grow_pipe(&self, bytes: usize) {
        if rustix::pipe::fcntl_getpipe_size(&self.fd).is_ok_and(|size| size >= bytes) {
            return;
        }
        // If this fails, everything still works, in smaller pieces.
        let _ = rustix::pipe::fcntl_setpipe_size(&self.fd, bytes);
    }

    /// Returns how many written bytes the peer has not acknowledged; `None` if the system does not know.
    pub fn unacknowledged_bytes(&self) -> Option<usize> {
        galgo_spawn::unacknowledged_bytes(&self.fd).ok()
    }

    /// Sends at once the bytes that `MSG_MORE` held back.
    pub fn push(&self) {
        // Setting the option again pushes (tcp(7)); it fails only on a Unix socket, which holds nothing back.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&self.fd, true);
    }

    /// Returns whether everything that the peer has sent so far was read. If so, closing the socket sends no reset.
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

    /// Makes closing reset the connection, so that the peer sees that something is missing.
    pub fn reset_on_close(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// Writes as much of `bytes` as fits, but never waits: `None` if nothing fits.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        nonblocking_result(rustix::io::write(&self.fd, bytes))
    }

    /// Waits for the next request. Holds no memory while it waits.
    pub fn poll_read_idle(&self, buf: &mut Buf, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(turn::poll_turn(cx));
        if self.passed_over.get() {
            turn::count_call(0);
            match rustix::io::read(&self.fd, spare_capacity(buf.reserve_read(HEAD_READ))) {
                Err(Errno::AGAIN | Errno::INTR) => buf.free_if_empty(),
                done => {
                    self.passed_over.set(!buf.has_spare_capacity());
                    return Poll::Ready(done.map_err(Into::into));
                }
            }
            self.passed_over.set(false);
        }
        loop {
            let mut guard = ready!(self.poll_ready(Direction::In, cx))?;
            turn::count_call(0);
            let read = rustix::io::read(&self.fd, spare_capacity(buf.reserve_read(HEAD_READ)));
            match read {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    buf.free_if_empty();
                    guard.clear_ready_matching(Ready::READABLE);
                }
                // This read has taken all the data: later data is a new event (epoll(7), edge-triggered).
                Ok(n) if n > 0 && buf.has_spare_capacity() => {
                    guard.clear_ready_matching(Ready::READABLE);
                    return Poll::Ready(Ok(n));
                }
                done => return Poll::Ready(done.map_err(Into::into)),
            }
        }
    }

    /// Does the same as [`Sock::poll_ready`]. If the kernel lacks room to watch the descriptor, tries again with the next tick.
    /// `None`: the descriptor cannot be watched.
    fn poll_watched(
        &self,
        to: Direction,
        cx: &mut Context<'_>,
    ) -> Poll<Option<AsyncFdReadyGuard<'_, RawFd>>> {
        match ready!(self.poll_ready(to, cx)) {
            Ok(guard) => Poll::Ready(Some(guard)),
            Err(e) if is_short(&e) => {
                tick::wake_at_next(cx);
                Poll::Pending
            }
            Err(_) => Poll::Ready(None),
        }
    }

    /// Waits until the peer has shut down its sending side or is gone, even if data is still unread. An error breaks a stream
    /// socket and thereby closes it, so errors need no separate check (EPOLLHUP comes with EPOLLERR).
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

/// Converts the result of a call that does not wait; `None`: the call could do nothing now.
fn nonblocking_result(done: Result<usize, Errno>) -> io::Result<Option<usize>> {
    turn::count_call(*done.as_ref().unwrap_or(&0));
    match done {
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        done => Ok(Some(done?)),
    }
}

impl Sock {
    /// Returns the descriptor, after the event loop has forgotten it.
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
            // A read waits for data, and that wait is given up.
            let first = poll_fn(|cx| Poll::Ready(sock.poll_fill(&mut buf, 1, &mut waits, cx)));
            assert!(first.await.is_pending());
            client.write_all(b"x").unwrap();
            // The check whether the client is gone takes the event, and reads nothing.
            sock.wait_until_readable().await.unwrap();
            let closed = poll_fn(|cx| Poll::Ready(sock.poll_read_closed(cx)));
            assert!(closed.await.is_pending());
            let again = poll_fn(|cx| Poll::Ready(sock.poll_fill(&mut buf, 1, &mut waits, cx)));
            assert!(matches!(again.await, Poll::Ready(Ok(1))));
        });
    }
}
