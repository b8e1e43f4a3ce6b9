//! The messages between the old and the new process during an upgrade, over a pair of sockets.
//!
//! ```text
//! old -> new   passed NAME | queue ADDRESS | lock DEVICE INODE PATH | store PATH   each with a descriptor
//! old -> new   end
//! new -> old   ready, or: failed WORDS
//! old -> new   go
//! new -> old   serves                         if a spawner has started the new process, and knows that
//! new -> old   stop                           when the new process ends, if the old one is still there
//! ```
//! Both processes keep their sockets until they end, so the new process notices the end of the old one.
//!
//! The processes may be of different versions. A message with an unknown first word is ignored, and its
//! descriptor is closed.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use galgo_io::watch;
use galgo_spawn::remote::message;
use rustix::{
    io::Errno,
    net::{
        RecvFlags, SendFlags, SocketType,
        sockopt::{self, Timeout},
    },
};
use tokio::io::Interest;

pub(crate) const PASSED: &[u8] = b"passed";
pub(crate) const QUEUE: &[u8] = b"queue";
pub(crate) const LOCK: &[u8] = b"lock";
pub(crate) const STORE: &[u8] = b"store";
pub(crate) const END: &[u8] = b"end";
pub(crate) const READY: &[u8] = b"ready";
pub(crate) const FAILED: &[u8] = b"failed";
pub(crate) const GO: &[u8] = b"go";
pub(crate) const SERVES: &[u8] = b"serves";
pub(crate) const STOP: &[u8] = b"stop";

/// Largest size of a message; the rest is cut off.
const LONGEST: usize = 8 << 10;

/// An item to hand over: the first word, the words after it, and the descriptor.
pub(crate) type Item = (&'static [u8], Vec<u8>, OwnedFd);

/// An end of the pair of sockets.
#[derive(Debug)]
pub(crate) struct HandoverSocket(OwnedFd);

/// A message from the other process.
#[derive(Debug)]
pub(crate) struct HandoverMessage {
    text: Vec<u8>,
    /// The descriptor that came with the message.
    pub(crate) fd: Option<OwnedFd>,
}

impl HandoverMessage {
    /// Splits the text into its first word and the rest.
    pub(crate) fn split_first_word(&self) -> (&[u8], &[u8]) {
        let mut parts = self.text.splitn(2, |&b| b == b' ');
        let mut part = || parts.next().unwrap_or_default();
        (part(), part())
    }
}

impl HandoverSocket {
    pub(crate) fn new_pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = message::socket_pair()?;
        Ok((Self(ours), theirs))
    }

    /// Wraps the socket that a process was started with; `None`: the descriptor is no such socket.
    pub(crate) fn from_fd(fd: OwnedFd) -> Option<Self> {
        let kind = sockopt::socket_type(&fd);
        (kind == Ok(SocketType::SEQPACKET)).then_some(Self(fd))
    }

    /// Sets how long the other process may take for each message.
    pub(crate) fn set_timeout(&self, most: Duration) -> io::Result<()> {
        for direction in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&self.0, direction, Some(most))?;
        }
        Ok(())
    }

    pub(crate) fn send_message(
        &self,
        word: &[u8],
        rest: &[u8],
        fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut text = word.to_vec();
        if !rest.is_empty() {
            text.push(b' ');
            text.extend_from_slice(rest);
        }
        text.truncate(LONGEST);
        let (socket, flags) = (self.0.as_fd(), SendFlags::empty());
        Ok(message::send_message(
            socket,
            &[&text],
            fd.as_slice(),
            flags,
        )?)
    }

    /// Returns the next message; `None`: the other process has closed its end.
    pub(crate) fn receive_message(&self) -> io::Result<Option<HandoverMessage>> {
        self.receive(RecvFlags::empty())
    }

    /// Like `receive_message`, without blocking the thread.
    pub(crate) async fn wait_for_message(&self) -> io::Result<Option<HandoverMessage>> {
        let socket = watch::register(self.0.as_fd(), Interest::READABLE)?;
        loop {
            let mut ready = socket.readable().await?;
            match self.receive(RecvFlags::DONTWAIT) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                heard => return heard,
            }
        }
    }

    fn receive(&self, flags: RecvFlags) -> io::Result<Option<HandoverMessage>> {
        let mut text = vec![0; LONGEST];
        let received = message::receive_once(self.0.as_fd(), &mut text, flags);
        let (length, fds) = match received {
            // The other process ended without reading everything.
            Err(Errno::CONNRESET) => return Ok(None),
            received => received?,
        };
        let fd = fds.into_iter().next();
        text.truncate(length);
        Ok((length > 0).then_some(HandoverMessage { text, fd }))
    }
}
