//! The standard streams of programs that are being loaded, and their output.

use std::{
    io::{self, PipeReader, Read, pipe},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use galgo_spawn::words::escape;
use rustix::fs::{OFlags, fcntl_setfl};

/// Limit of the bytes that are read from each output of a program while it is loaded.
const SAID: u64 = 4 << 10;

/// The program's ends. The server drops them once the program has them.
pub(super) struct Streams([OwnedFd; 3]);

/// The server's ends of the pipes.
pub(super) struct Said {
    out: PipeReader,
    err: PipeReader,
}

impl Streams {
    pub(super) fn new() -> io::Result<(Self, Said)> {
        let (stdin, _) = pipe()?;
        let (out, stdout) = pipe()?;
        let (err, stderr) = pipe()?;
        let theirs = [stdin.into(), stdout.into(), stderr.into()];
        Ok((Self(theirs), Said { out, err }))
    }

    pub(super) fn stdio(&self) -> [BorrowedFd<'_>; 3] {
        self.0.each_ref().map(AsFd::as_fd)
    }
}

impl Said {
    pub(super) fn output(&mut self) -> String {
        said(&mut self.out)
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
