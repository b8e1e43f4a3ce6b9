//! Output on its way from a connection to a client, in a pipe: without a copy through this process (splice(2)).

use std::{io, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, pipe_with, splice},
};

use crate::sock::Sock;

/// Room in a pipe, where the user's share of pipe memory allows (pipe(7)); with less it works in smaller pieces.
const ROOM: usize = 256 << 10;
/// Enough to be sent on.
const ENOUGH: usize = 128 << 10;

/// A pipe of our own.
#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe, and how much it holds. None is kept for another response: after each the server has the descriptors it had.
#[derive(Debug)]
pub(super) struct Aside {
    ends: Ends,
    held: usize,
}

impl Aside {
    /// An empty pipe; `None` where there is none to be had, and output is copied.
    pub(super) fn take() -> Option<Self> {
        let ends = Ends::new(ROOM).ok()?;
        Some(Self { ends, held: 0 })
    }

    /// What it holds, in bytes.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether it holds enough to be sent on.
    pub(super) fn is_enough(&self) -> bool {
        self.held >= ENOUGH
    }

    /// Takes in what is there of `most` bytes, without waiting: `None` when nothing is there, or no room;
    /// 0 at the end of the stream.
    pub(super) fn fill(&mut self, from: &Sock, most: usize) -> io::Result<Option<usize>> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        match splice(from, None, &self.ends.write, None, most.min(ENOUGH), flags) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(e) => Err(e.into()),
            Ok(n) => {
                self.held += n;
                Ok(Some(n))
            }
        }
    }

    /// Sends what fits of `most` bytes on.
    pub(super) async fn empty(&mut self, to: &Sock, most: usize) -> io::Result<usize> {
        let n = to.splice(&self.ends.read, most.min(self.held)).await?;
        self.held -= n;
        Ok(n)
    }
}

impl Ends {
    fn new(room: usize) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Beyond the user's share it stays as it is, which may be two pages (pipe(7)).
        let _ = rustix::pipe::fcntl_setpipe_size(&write, room);
        Ok(Self { read, write })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    /// A pipe that could not be widened, and one that was made small, still carry everything.
    #[test]
    fn a_pipe_without_room_carries_all_in_smaller_pieces() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        runtime.unwrap().block_on(async {
            for room in [usize::MAX >> 1, 4096] {
                let ends = Ends::new(room).unwrap();
                let size = rustix::pipe::fcntl_getpipe_size(&ends.write).unwrap();
                assert!(size < ROOM, "{size}");
                carries(ends).await;
            }
        });
    }

    async fn carries(ends: Ends) {
        let mut aside = Aside { ends, held: 0 };
        let (mut application, from) = UnixStream::pair().unwrap();
        let (to, mut client) = UnixStream::pair().unwrap();
        for end in [&from, &to] {
            end.set_nonblocking(true).unwrap();
        }
        let [from, to] = [from, to].map(|end| Sock::new(end.into()));
        let sent: Vec<u8> = (0..=250).cycle().take(100_000).collect();
        let mut got = Vec::new();
        for piece in sent.chunks(50_000) {
            application.write_all(piece).unwrap();
            let mut left = piece.len();
            while left > 0 {
                let n = aside.fill(&from, left).unwrap().unwrap();
                assert!(n > 0 && n == aside.held());
                let mut buf = vec![0; n];
                while aside.held() > 0 {
                    aside.empty(&to, n).await.unwrap();
                }
                client.read_exact(&mut buf).unwrap();
                got.extend(buf);
                left -= n;
            }
        }
        assert_eq!(aside.fill(&from, 1).unwrap(), None);
        assert!(got == sent);
    }
}
