//! The pipes between a program and the server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use galgo_io::sock::Sock;
use galgo_proto::h1::BodyLen;
use galgo_service::spool::Stored;
use rustix::{
    fs::{Mode, fchmod},
    pipe::{PipeFlags, pipe_with},
};

use crate::relay::stdin::ProgramInput;

/// Pipes for the three standard streams: the program's ends, and the server's.
pub(crate) struct Pipes {
    /// Standard input; `None` if the program reads nothing.
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    pub(crate) ours: ServerEnds,
}

/// The server's ends, non-blocking.
pub(crate) struct ServerEnds {
    pub(crate) stdin: ProgramInput,
    /// Standard input of a program that may get the connection: nothing is written to it before that.
    pub(crate) held: Option<ProgramInput>,
    /// File that the program reads as standard input, if any.
    pub(crate) file: Option<Stored>,
    pub(crate) stdout: Sock,
    pub(crate) stderr: Sock,
}

impl Pipes {
    /// Makes the pipes. `upgrades`: the program may get the connection. `is_anothers`: the program runs as another user, and may
    /// open its standard streams by name nonetheless (`/dev/stdin`). No other process reaches them.
    pub(crate) fn new(
        file: Option<Stored>,
        body: BodyLen,
        upgrades: bool,
        is_anothers: bool,
    ) -> std::io::Result<Self> {
        let (stdin, to_stdin) = match &file {
            Some(file) => (Some(file.read_only_fd()?), ProgramInput::without_pipe()),
            None if upgrades || body != BodyLen::None => {
                let (theirs, ours) = make_pipe(|(_, ours)| ours)?;
                (
                    Some(theirs),
                    ProgramInput::from_pipe(Sock::pipe_writer(ours)),
                )
            }
            None => (None, ProgramInput::without_pipe()),
        };
        let (to_stdin, held) = if upgrades {
            (ProgramInput::without_pipe(), Some(to_stdin))
        } else {
            (to_stdin, None)
        };
        let (from_stdout, stdout) = make_pipe(|(ours, _)| ours)?;
        let (from_stderr, stderr) = make_pipe(|(ours, _)| ours)?;
        if is_anothers {
            let pipe = Mode::from_raw_mode(0o666);
            // A file can be opened by all users already.
            if let (Some(stdin), None) = (&stdin, &file) {
                fchmod(stdin, pipe)?;
            }
            fchmod(&stdout, pipe)?;
            fchmod(&stderr, pipe)?;
        }
        let ours = ServerEnds {
            stdin: to_stdin,
            held,
            file,
            stdout: Sock::pipe_reader(from_stdout),
            stderr: Sock::pipe_reader(from_stderr),
        };
        Ok(Self {
            stdin,
            stdout,
            stderr,
            ours,
        })
    }

    /// Returns the program's ends; standard input is `null` if the program gets no body.
    pub(crate) fn program_stdio<'p>(&'p self, null: &'p OwnedFd) -> [BorrowedFd<'p>; 3] {
        let stdin = self.stdin.as_ref().unwrap_or(null);
        [stdin.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()]
    }
}

/// Makes a pipe whose end `ours` never blocks. The program's end blocks, as programs expect.
pub(crate) fn make_pipe(
    ours: impl Fn(&(OwnedFd, OwnedFd)) -> &OwnedFd,
) -> std::io::Result<(OwnedFd, OwnedFd)> {
    let ends = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(ours(&ends), true)?;
    Ok(ends)
}
