//! The pipes between a program and the server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use galgo_proto::h1::BodyLen;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::{sock::Sock, spool::Stored};

/// The three standard streams: the program's ends, and ours.
pub(super) struct Pipes {
    stdin: ProgramStdin,
    stdout: OwnedFd,
    stderr: OwnedFd,
    pub(super) ours: ServerEnds,
}

enum ProgramStdin {
    /// /dev/null.
    Nothing,
    Pipe(OwnedFd),
    File(Stored),
}

/// Ours, non-blocking.
pub(super) struct ServerEnds {
    pub(super) stdin: Option<Sock>,
    /// Standard input of a program that may be given the connection: nothing is written to it before.
    pub(super) held: Option<Sock>,
    pub(super) stdout: Sock,
    pub(super) stderr: Sock,
}

impl Pipes {
    /// `upgrades`: it may be given the connection.
    pub(super) fn new(
        file: Option<Stored>,
        body: BodyLen,
        upgrades: bool,
    ) -> std::io::Result<Self> {
        let (stdin, to_stdin) = match (file, body) {
            (Some(file), _) => (ProgramStdin::File(file), None),
            (None, BodyLen::None) if !upgrades => (ProgramStdin::Nothing, None),
            (None, _) => {
                let (theirs, ours) = pipe(|(_, ours)| ours)?;
                (ProgramStdin::Pipe(theirs), Some(Sock::writer(ours)))
            }
        };
        let (to_stdin, held) = match upgrades {
            true => (None, to_stdin),
            false => (to_stdin, None),
        };
        let (from_stdout, stdout) = pipe(|(ours, _)| ours)?;
        let (from_stderr, stderr) = pipe(|(ours, _)| ours)?;
        let ours = ServerEnds {
            stdin: to_stdin,
            held,
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
    pub(super) fn ours(self) -> (ServerEnds, Option<Stored>) {
        let file = match self.stdin {
            ProgramStdin::File(file) => Some(file),
            ProgramStdin::Nothing | ProgramStdin::Pipe(_) => None,
        };
        (self.ours, file)
    }

    /// The program's ends; `null` where it gets no body.
    pub(super) fn stdio<'p>(&'p self, null: &'p OwnedFd) -> [BorrowedFd<'p>; 3] {
        let stdin = match &self.stdin {
            ProgramStdin::Nothing => null.as_fd(),
            ProgramStdin::Pipe(fd) => fd.as_fd(),
            ProgramStdin::File(file) => file.as_fd(),
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
