//! Standard error of a running program, on its way to the log.

use std::convert::Infallible;

use super::{program::PIPE_MOST, stderr::Lines};
use crate::{log::Source, pool, sock::Sock};

#[derive(Debug)]
pub(super) struct Errors {
    pub(super) sock: Option<Sock>,
    pub(super) lines: Lines,
    pub(super) source: Source,
    pub(super) buf: Vec<u8>,
}

/// Reads of standard error after the process is gone: a pipe holds no more.
const DRAINS: usize = PIPE_MOST / pool::SIZE;

impl Errors {
    /// Logs what comes on standard error, forever.
    pub(super) async fn drain(&mut self) -> Infallible {
        while let Some(sock) = &self.sock {
            match sock.read_later(&mut self.buf).await {
                Ok(n) if n > 0 => self.log(),
                _ => self.sock = None,
            }
        }
        std::future::pending().await
    }

    pub(super) fn drain_ready(&mut self) {
        // Bounded: who has left the group may still be writing.
        for _ in 0..DRAINS {
            let Some(sock) = &self.sock else { return };
            match sock.try_read(&mut self.buf) {
                Ok(Some(n)) if n > 0 => self.log(),
                _ => self.sock = None,
            }
        }
    }

    fn log(&mut self) {
        let Self {
            lines, source, buf, ..
        } = self;
        lines.take(buf, &mut |line| source.line(line));
        pool::give(std::mem::take(buf));
    }

    pub(super) fn finish(&mut self) {
        let Self { lines, source, .. } = self;
        lines.finish(&mut |line| source.line(line));
    }
}
