//! Sockets between the server and a helper: a socket for orders, and a connection for each program that is started.
//!
//! Over a program's connection the server gets reports and sends signals. Closing the connection ends the program. When the
//! program is over, its connection is used again for another program, and orders name it by its number. A new socket for each
//! start would cost both sides five system calls. It would also make the kernel search for sockets in transit
//! (net/unix/garbage.c).

use crate::remote::{
    message::{MOST, Received, receive_all, receive_message, send_message, socket_pair},
    shortage::{is_short, pause_for_shortage},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RawAddressFamily, RecvFlags, SendFlags, getpeername,
        sockopt::set_socket_send_buffer_size,
    },
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::available_parallelism,
};

/// Limit of idle connections for each helper, which are kept for later programs.
const IDLE: usize = 64;

/// Limit of idle connections for all helpers together: each is a descriptor of the server.
const IDLE_OF_ALL: usize = 128;

/// Number of attempts to send a report if something is short.
const SHORT_TRIES: u32 = 5;

/// Number of helpers that the server reserves descriptors for. If more users have helpers at once, these take descriptors from
/// connections.
const HELPERS: usize = 32;

/// Returns the limit of helpers for one remit and user: one for each processor.
pub(crate) fn max_helpers_per_user() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns how many descriptors the server must reserve for helpers, in addition to those for programs. `remits` is the number
/// of configured remits. `owners`: a remit stands for any number of users.
pub fn reserved_descriptors(remits: usize, owners: bool) -> usize {
    match (remits, owners) {
        (0, _) => 0,
        (_, true) => IDLE_OF_ALL + HELPERS,
        (remits, false) => IDLE_OF_ALL + (remits * max_helpers_per_user()).min(HELPERS),
    }
}

/// A helper that takes orders.
#[derive(Debug)]
pub(crate) struct HelperLink {
    socket: OwnedFd,
    /// Idle connections: they have no program.
    idle: Mutex<Vec<(u64, OwnedFd)>>,
    /// Number of idle connections, over all helpers.
    idle_of_all: Arc<AtomicUsize>,
    /// Number of the next new connection.
    next: AtomicU64,
    /// Programs and templates of the helper that are not over.
    programs: AtomicUsize,
}

/// The server's end of a program's connection.
#[derive(Debug)]
pub(crate) struct ProgramConnection {
    number: u64,
    /// Taken out only in `drop`.
    socket: Option<OwnedFd>,
    pub(crate) helper: Arc<HelperLink>,
    /// The helper has sent its last report about the program.
    over: AtomicBool,
    /// The server has sent a byte. The helper may read it late, and must not apply it to another program.
    spoken: AtomicBool,
}

impl HelperLink {
    /// Creates the link from the socket that the spawner has sent, and the counter that all helpers share.
    pub(crate) fn new(socket: OwnedFd, idle_of_all: &Arc<AtomicUsize>) -> Arc<Self> {
        // The variables of a request must fit into one message. The kernel may allow less.
        let _ = set_socket_send_buffer_size(&socket, MOST * 2);
        Arc::new(Self {
            socket,
            idle: Mutex::default(),
            idle_of_all: idle_of_all.clone(),
            next: AtomicU64::new(0),
            programs: AtomicUsize::new(0),
        })
    }

    /// Returns the helper's load.
    pub(crate) fn programs(&self) -> usize {
        self.programs.load(Ordering::Relaxed)
    }

    /// Whether the helper has left, and carries out no more orders.
    pub(crate) fn is_over(&self) -> bool {
        has_hung_up(&self.socket)
    }

    /// Sends an order with the standard descriptors of its program. Returns the program's connection.
    ///
    /// # Errors
    /// An error of the kernel; `MSGSIZE`: the order is too long.
    pub(crate) fn send_order(
        self: &Arc<Self>,
        order: &[&[u8]],
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<ProgramConnection, Errno> {
        if order.iter().map(|part| part.len()).sum::<usize>() > MOST - size_of::<u64>() {
            return Err(Errno::MSGSIZE);
        }
        self.connect(self.socket.as_fd(), order, &stdio)
    }

    /// Sends an order over `socket`, after the number of its connection. If the connection is new, attaches the helper's end of
    /// it after `fds`.
    pub(crate) fn connect(
        self: &Arc<Self>,
        socket: BorrowedFd<'_>,
        order: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) -> Result<ProgramConnection, Errno> {
        let idle = self.lock_idle().pop();
        let (number, ours, new) = match idle {
            Some((number, ours)) => {
                self.idle_of_all.fetch_sub(1, Ordering::Relaxed);
                (number, ours, None)
            }
            None => {
                let (ours, theirs) = socket_pair()?;
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                (number, ours, Some(theirs))
            }
        };
        let named = number.to_ne_bytes();
        let parts = [&named[..]].into_iter().chain(order.iter().copied());
        let fds = fds.iter().copied().chain(new.as_ref().map(AsFd::as_fd));
        let (parts, fds): (Vec<_>, Vec<_>) = (parts.collect(), fds.collect());
        // Count before waking the helper, because the helper may take this thread's processor, and other threads ask for its
        // load.
        self.programs.fetch_add(1, Ordering::Relaxed);
        let connection = ProgramConnection {
            number,
            socket: Some(ours),
            helper: self.clone(),
            over: AtomicBool::new(false),
            spoken: AtomicBool::new(false),
        };
        // On failure, the connection is closed, because the helper may not know it.
        send_message(socket, &parts, &fds, SendFlags::DONTWAIT)?;
        Ok(connection)
    }

    fn lock_idle(&self) -> MutexGuard<'_, Vec<(u64, OwnedFd)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a socket is connected to one without a name. A service that has a name could take reports for words of the user.
fn is_of_pair(socket: &OwnedFd) -> bool {
    let peer = getpeername(socket).ok().flatten();
    // Without a name, the address is the family alone.
    peer.is_some_and(|peer| {
        peer.address_family() == AddressFamily::UNIX
            && peer.addr_len() as usize == size_of::<RawAddressFamily>()
    })
}

/// Whether the other side has closed its socket.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let at_once = Timespec::default();
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

impl ProgramConnection {
    /// Receives the next report without waiting, as [`receive_message`] does.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
        receive_message(self.as_fd(), buffer, RecvFlags::DONTWAIT)
    }

    /// Works like [`receive`](Self::receive), and notes whether descriptors are missing.
    pub(crate) fn receive_all(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        receive_all(self.as_fd(), buffer, RecvFlags::DONTWAIT)
    }

    /// Sends one byte. The byte is lost if the helper cannot take it now.
    pub(crate) fn send_byte(&self, byte: u8) -> Result<(), Errno> {
        self.spoken.store(true, Ordering::Relaxed);
        send_message(self.as_fd(), &[&[byte]], &[], SendFlags::DONTWAIT)
    }

    /// Notes that the helper has sent its last report, so the connection can be used again.
    pub(crate) fn mark_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl AsFd for ProgramConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // INVARIANT: the socket is taken out in `drop` only.
        self.socket.as_ref().expect("a connection's socket").as_fd()
    }
}

impl Drop for ProgramConnection {
    fn drop(&mut self) {
        self.helper.programs.fetch_sub(1, Ordering::Relaxed);
        let is_free = *self.over.get_mut() && !*self.spoken.get_mut();
        let mut idle = self.helper.lock_idle();
        if !is_free || idle.len() >= IDLE {
            return;
        }
        let of_all = &self.helper.idle_of_all;
        if of_all.fetch_add(1, Ordering::Relaxed) < IDLE_OF_ALL {
            idle.extend(self.socket.take().map(|socket| (self.number, socket)))
        } else {
            of_all.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for HelperLink {
    fn drop(&mut self) {
        let idle = self.lock_idle().len();
        self.idle_of_all.fetch_sub(idle, Ordering::Relaxed);
    }
}

/// The helper's end of a connection.
#[derive(Debug)]
pub(crate) struct HelperEnd {
    number: u64,
    socket: OwnedFd,
}

impl HelperEnd {
    /// Whether the server has given up the order.
    pub(crate) fn is_closed(&self) -> bool {
        has_hung_up(&self.socket)
    }

    /// Sends a report. Returns whether the server can still hear it. Retries for a moment if something is short.
    pub(crate) fn send_report(&self, report: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        for _ in 0..SHORT_TRIES {
            match send_message(self.as_fd(), &[report], fds, SendFlags::DONTWAIT) {
                Err(e) if is_short(e) => pause_for_shortage(),
                sent => return sent.is_ok(),
            }
        }
        false
    }

    /// Receives the next message without waiting, as [`receive_message`] does.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
        receive_message(self.as_fd(), buffer, RecvFlags::DONTWAIT)
    }
}

impl AsFd for HelperEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The helper's ends of idle connections.
#[derive(Debug, Default)]
pub(crate) struct IdleEnds(Vec<HelperEnd>);

impl IdleEnds {
    /// Returns the connection that a message of [`HelperLink::connect`] names, and the order after its number; `None` if the
    /// message cannot be understood.
    pub(crate) fn take_named<'m, const N: usize>(
        &mut self,
        message: &'m [u8],
        mut fds: Vec<OwnedFd>,
    ) -> Option<(HelperEnd, &'m [u8], [OwnedFd; N])> {
        let (number, order) = message.split_first_chunk()?;
        let number = u64::from_ne_bytes(*number);
        let end = if fds.len() > N {
            let socket = fds.pop().filter(is_of_pair)?;
            HelperEnd { number, socket }
        } else {
            let at = self.0.iter().position(|end| end.number == number)?;
            self.0.swap_remove(at)
        };
        Some((end, order, fds.try_into().ok()?))
    }

    /// Keeps a connection whose program is over.
    pub(crate) fn keep_connection(&mut self, end: HelperEnd) {
        self.0.push(end);
    }

    /// Adds the descriptors to poll, but only for their end: the server closes connections that it does not keep. A byte on an
    /// idle connection is for a program whose order may still be unread, because the order comes over the other socket.
    pub(crate) fn wait_for<'f>(&'f self, fds: &mut Vec<PollFd<'f>>) {
        let ends = self.0.iter();
        fds.extend(ends.map(|end| PollFd::new(end, PollFlags::empty())));
    }

    /// Drops the connections that are `ready`, in the order of [`wait_for`](Self::wait_for).
    pub(crate) fn drop_ready(&mut self, ready: &mut impl Iterator<Item = bool>) {
        self.0.retain(|_| !ready.next().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::remote::connection::*;

    /// A signal overtakes the order for its program if the helper reads the order late.
    #[test]
    fn a_signal_before_its_order_closes_no_connection() {
        let (ours, theirs) = socket_pair().unwrap();
        let link = HelperLink::new(ours, &Arc::default());
        let mut idle = IdleEnds::default();
        let mut buffer = [0; 16];
        let mut take = |idle: &mut IdleEnds| {
            let (n, fds) =
                receive_message(theirs.as_fd(), &mut buffer, RecvFlags::DONTWAIT).unwrap();
            let (end, ..) = idle.take_named::<0>(&buffer[..n], fds)?;
            Some(end)
        };
        let look = |idle: &mut IdleEnds| {
            let mut fds = Vec::new();
            idle.wait_for(&mut fds);
            poll(&mut fds, Some(&Timespec::default())).unwrap();
            let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            idle.drop_ready(&mut ready.into_iter());
        };
        let first = link.connect(link.socket.as_fd(), &[b"x"], &[]).unwrap();
        let end = take(&mut idle).unwrap();
        idle.keep_connection(end);
        first.mark_over();
        drop(first);
        let next = link.connect(link.socket.as_fd(), &[b"x"], &[]).unwrap();
        next.send_byte(15).unwrap();
        look(&mut idle);
        let end = take(&mut idle).expect("the connection that the order names");
        assert_eq!(end.receive(&mut [0; 1]).unwrap().0, 1);
        idle.keep_connection(end);
        look(&mut idle);
        assert_eq!(idle.0.len(), 1);
        drop(next);
        look(&mut idle);
        assert_eq!(idle.0.len(), 0);
    }

    #[test]
    fn idle_connections_are_bounded_for_all_helpers_together() {
        let of_all = Arc::default();
        let (links, theirs): (Vec<_>, Vec<_>) = (0..2 * IDLE_OF_ALL / IDLE)
            .map(|_| {
                let (ours, theirs) = socket_pair().unwrap();
                (HelperLink::new(ours, &of_all), theirs)
            })
            .unzip();
        let idle =
            |links: &[Arc<HelperLink>]| links.iter().map(|l| l.lock_idle().len()).sum::<usize>();
        for (link, theirs) in links.iter().zip(&theirs) {
            let mut asked = Vec::new();
            for _ in 0..2 * IDLE {
                asked.push(link.connect(link.socket.as_fd(), &[b"x"], &[]).unwrap());
                while receive_message(theirs.as_fd(), &mut [0; 16], RecvFlags::DONTWAIT).is_ok() {}
            }
            asked.iter().for_each(ProgramConnection::mark_over);
        }
        assert_eq!(idle(&links), IDLE_OF_ALL);
        assert!(links.iter().all(|link| link.lock_idle().len() <= IDLE));
        let rest = links.into_iter().skip(1).collect::<Vec<_>>();
        assert_eq!(of_all.load(Ordering::Relaxed), idle(&rest));
        assert!(!rest[0].is_over());
        drop(theirs);
        for link in &rest {
            // A process forked by another test holds copies of the socket until it executes a program.
            poll(&mut [PollFd::new(&link.socket, PollFlags::empty())], None).unwrap();
            assert!(link.is_over());
        }
    }
}
