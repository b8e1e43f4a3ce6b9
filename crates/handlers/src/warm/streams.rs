//! The standard streams of programs that are being loaded, and what they say there.

use std::{
    io::{self, PipeReader, Read, pipe},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use galgo_spawn::words::escape;
use rustix::fs::{OFlags, fcntl_setfl};

/// What a program says on standard error while it is loaded: this much goes to the log.
const SAID: u64 = 4 << 10;

/// Its ends. Those of the server are dropped once it has them.
pub(super) struct Streams([OwnedFd; 3]);

/// The server's ends.
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

    /// It ended before it stopped: most often the program has an error that a cold start shows as well.
    pub(super) fn at_the_end(&mut self) -> String {
        let said = self.errors();
        match said.lines().rfind(|l| !l.trim().is_empty()) {
            Some(line) => format!("it ended while loading: {line}"),
            None => "it ended while loading".to_owned(),
        }
    }
}

/// What is in a pipe, without waiting for more.
fn said(pipe: &mut PipeReader) -> String {
    let mut bytes = Vec::new();
    if fcntl_setfl(&*pipe, OFlags::NONBLOCK).is_ok() {
        // Where a child keeps it open: what there is, then WouldBlock.
        let _ = pipe.by_ref().take(SAID).read_to_end(&mut bytes);
    }
    let lines: Vec<String> = bytes.split(|&b| b == b'\n').map(escape).collect();
    lines.join("\n")
}
