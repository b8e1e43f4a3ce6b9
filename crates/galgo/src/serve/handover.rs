//! What the process that is replaced and the one that replaces it tell each other, over a pair of sockets.
//!
//! ```text
//! old -> new   passed NAME | queue ADDRESS | lock DEVICE INODE PATH | store PATH   with a descriptor each
//! old -> new   end
//! new -> old   ready, or: failed WORDS
//! old -> new   go
//! new -> old   serves                         if a spawner has started the new one, and knows that
//! new -> old   stop                           when the new one ends, if the old one is still there
//! ```
//! Both keep the sockets until they end: so the new one knows when the old one has.
//!
//! They may be of different versions: a message with another first word is ignored, and its descriptor closed.

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

pub(super) const PASSED: &[u8] = b"passed";
pub(super) const QUEUE: &[u8] = b"queue";
pub(super) const LOCK: &[u8] = b"lock";
pub(super) const STORE: &[u8] = b"store";
pub(super) const END: &[u8] = b"end";
pub(super) const READY: &[u8] = b"ready";
pub(super) const FAILED: &[u8] = b"failed";
pub(super) const GO: &[u8] = b"go";
pub(super) const SERVES: &[u8] = b"serves";
pub(super) const STOP: &[u8] = b"stop";

/// Bytes of a message; more are cut.
const LONGEST: usize = 8 << 10;

/// What is handed over: the first word, what follows it, and the descriptor.
pub(super) type Item = (&'static [u8], Vec<u8>, OwnedFd);

/// One end.
#[derive(Debug)]
pub(super) struct HandoverSocket(OwnedFd);

/// What was heard.
#[derive(Debug)]
pub(super) struct HandoverMessage {
    text: Vec<u8>,
    /// The descriptor that came with it.
    pub(super) fd: Option<OwnedFd>,
}

impl HandoverMessage {
    /// Its first word, and what follows.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        let mut parts = self.text.splitn(2, |&b| b == b' ');
        let mut part = || parts.next().unwrap_or_default();
        (part(), part())
    }
}

impl HandoverSocket {
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = message::pair()?;
        Ok((Self(ours), theirs))
    }

    /// The end that a process was started with; `None`: that is no such socket.
    pub(super) fn of(fd: OwnedFd) -> Option<Self> {
        let kind = sockopt::socket_type(&fd);
        (kind == Ok(SocketType::SEQPACKET)).then_some(Self(fd))
    }

    /// The other side may take so long for each message.
    pub(super) fn waits(&self, most: Duration) -> io::Result<()> {
        for direction in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&self.0, direction, Some(most))?;
        }
        Ok(())
    }

    pub(super) fn say(
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
        Ok(message::send(socket, &[&text], fd.as_slice(), flags)?)
    }

    /// The next message; `None`: the other side is gone.
    pub(super) fn hear(&self) -> io::Result<Option<HandoverMessage>> {
        self.receive(RecvFlags::empty())
    }

    /// The same, without holding up the thread.
    pub(super) async fn heard(&self) -> io::Result<Option<HandoverMessage>> {
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
            // It left without hearing all.
            Err(Errno::CONNRESET) => return Ok(None),
            received => received?,
        };
        let fd = fds.into_iter().next();
        text.truncate(length);
        Ok((length > 0).then_some(HandoverMessage { text, fd }))
    }
}
