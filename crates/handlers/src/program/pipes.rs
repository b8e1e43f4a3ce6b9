//! The pipes between a program and the server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use galgo_proto::h1::BodyLen;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::{sock::Sock, spool::Stored};

/// The three standard streams: the program's ends, and ours.
pub(super) struct Pipes {
    stdin: Stdin,
    stdout: OwnedFd,
    stderr: OwnedFd,
    pub(super) ours: Ends,
}

/// What a program reads.
enum Stdin {
    /// /dev/null.
    Nothing,
    Pipe(OwnedFd),
    File(Stored),
}

/// Ours, non-blocking.
pub(super) struct Ends {
    pub(super) stdin: Option<Sock>,
    pub(super) stdout: Sock,
    pub(super) stderr: Sock,
}

impl Pipes {
    pub(super) fn new(file: Option<Stored>, body: BodyLen) -> std::io::Result<Self> {
        let (stdin, to_stdin) = match (file, body) {
            (Some(file), _) => (Stdin::File(file), None),
            (None, BodyLen::None) => (Stdin::Nothing, None),
            (None, _) => {
                let (theirs, ours) = pipe(|(_, ours)| ours)?;
                (Stdin::Pipe(theirs), Some(ours))
            }
        };
        let (from_stdout, stdout) = pipe(|(ours, _)| ours)?;
        let (from_stderr, stderr) = pipe(|(ours, _)| ours)?;
        let ours = Ends {
            stdin: to_stdin.map(Sock::writer),
            stdout: Sock::reader(from_stdout),
            stderr: Sock::reader(from_stderr),
        };
        Ok(Self {
            stdin,
            stdout,
            stderr,
            ours,
        })
    }

    /// Ours, and the file that the program reads.
    pub(super) fn ours(self) -> (Ends, Option<Stored>) {
        let file = match self.stdin {
            Stdin::File(file) => Some(file),
            Stdin::Nothing | Stdin::Pipe(_) => None,
        };
        (self.ours, file)
    }

    /// The program's ends; `null` where it gets no body.
    pub(super) fn stdio<'p>(&'p self, null: &'p OwnedFd) -> [BorrowedFd<'p>; 3] {
        let stdin = match &self.stdin {
            Stdin::Nothing => null.as_fd(),
            Stdin::Pipe(fd) => fd.as_fd(),
            Stdin::File(file) => file.as_fd(),
        };
        [stdin, self.stdout.as_fd(), self.stderr.as_fd()]
    }
}

/// A pipe whose end `ours` never waits; the program's is as programs expect theirs.
fn pipe(ours: impl Fn(&(OwnedFd, OwnedFd)) -> &OwnedFd) -> std::io::Result<(OwnedFd, OwnedFd)> {
    let ends = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(ours(&ends), true)?;
    Ok(ends)
}
