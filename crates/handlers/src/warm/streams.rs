//! The standard streams of programs that are being loaded, and their output.

use std::{
    io::{self, PipeReader, Read, Write, pipe},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use galgo_spawn::words::escape;
use rustix::{
    fs::{OFlags, fcntl_setfl},
    io::ioctl_fionread,
};

/// Limit of the bytes that are read from each output of a program while it is loaded.
const SAID: u64 = 4 << 10;

const READS: &str = "reads its standard input while loading, when there is no request yet: leave that until the program runs, \
                     or keep it cold";

/// The standard input of a program that is being loaded. A byte that is missing later was read: a request's body would have been
/// read in its place. A program that takes this line for a body finds it empty.
const UNREAD: &[u8] = b"\n";

/// The program's ends. The server drops them once the program has them.
pub(super) struct Streams([OwnedFd; 3]);

/// The server's ends of the pipes, and another descriptor of the program's standard input.
pub(super) struct Said {
    stdin: PipeReader,
    out: PipeReader,
    err: PipeReader,
}

impl Streams {
    pub(super) fn new() -> io::Result<(Self, Said)> {
        let (stdin, mut unread) = pipe()?;
        unread.write_all(UNREAD)?;
        let (out, stdout) = pipe()?;
        let (err, stderr) = pipe()?;
        let theirs = [stdin.try_clone()?.into(), stdout.into(), stderr.into()];
        Ok((Self(theirs), Said { stdin, out, err }))
    }

    pub(super) fn stdio(&self) -> [BorrowedFd<'_>; 3] {
        self.0.each_ref().map(AsFd::as_fd)
    }
}

impl Said {
    /// Returns what a program that has stopped did to its standard input and output, if it is to do that for each request.
    pub(super) fn obstacle(&mut self) -> Option<&'static str> {
        let unread = ioctl_fionread(&self.stdin).unwrap_or_default();
        if unread != UNREAD.len() as u64 {
            return Some(READS);
        }
        (!said(&mut self.out).is_empty()).then_some("prints while loading")
    }

    pub(super) fn errors(&mut self) -> String {
        said(&mut self.err)
    }

    /// Describes a program that ended before it stopped. Most often the program has an error that a
    /// cold start shows as well.
    pub(super) fn at_the_end(&mut self) -> String {
        let said = self.errors();
        match said.lines().rfind(|l| !l.trim().is_empty()) {
            Some(line) => format!("it ended while loading: {line}"),
            None => "it ended while loading".to_owned(),
        }
    }
}

/// Reads the bytes that are in a pipe, without waiting for more.
fn said(pipe: &mut PipeReader) -> String {
    let mut bytes = Vec::new();
    if fcntl_setfl(&*pipe, OFlags::NONBLOCK).is_ok() {
        // If a child keeps the pipe open, this reads the bytes that are there, then gets WouldBlock.
        let _ = pipe.by_ref().take(SAID).read_to_end(&mut bytes);
    }
    let lines: Vec<String> = bytes.split(|&b| b == b'\n').map(escape).collect();
    lines.join("\n")
}
