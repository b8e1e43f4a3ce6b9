//! Standard error of a running program, on its way to the log.

use std::convert::Infallible;

use tokio::time::Instant;

use super::{stderr::StderrLog, way::PIPE_MOST};
use crate::{log::Source, pool, sock::Sock, tick};

#[derive(Debug)]
pub(super) struct StderrPipe {
    sock: Option<Sock>,
    pub(super) log: StderrLog,
    buf: Vec<u8>,
    began: Instant,
}

/// Reads of standard error after the process is gone: a pipe holds no more.
const DRAINS: usize = PIPE_MOST / pool::SIZE;

impl StderrPipe {
    pub(super) fn new(sock: Sock, max: usize, source: Source) -> Self {
        Self {
            sock: Some(sock),
            log: StderrLog::new(max, source),
            buf: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Logs what comes on standard error, forever. Begins when the first tick is over: most programs are by
    /// then, and what they said is read at their end; the event loop never hears of their pipe.
    pub(super) async fn drain(&mut self) -> Infallible {
        while self.began.elapsed() < tick::LENGTH {
            tick::next().await;
        }
        while let Some(sock) = &self.sock {
            let read = match sock.read_later(&mut self.buf).await {
                Ok(n) => Ok(Some(n)),
                // The event loop may have no room for it: it is looked at with the next tick.
                Err(_) => {
                    tick::next().await;
                    sock.try_read(&mut self.buf)
                }
            };
            match read {
                Ok(None) => {}
                Ok(Some(n)) if n > 0 => self.log(),
                Ok(Some(_)) | Err(_) => self.sock = None,
            }
        }
        std::future::pending().await
    }

    fn drain_ready(&mut self) {
        // Bounded: a process that has left the group may still be writing.
        for _ in 0..DRAINS {
            let Some(sock) = &self.sock else { return };
            match sock.try_read(&mut self.buf) {
                Ok(Some(n)) if n > 0 => self.log(),
                _ => self.sock = None,
            }
        }
    }

    fn log(&mut self) {
        self.log.take(&self.buf);
        pool::give(std::mem::take(&mut self.buf));
    }

    pub(super) fn finish(&mut self) {
        self.drain_ready();
        self.log.finish();
    }
}

impl Drop for StderrPipe {
    fn drop(&mut self) {
        pool::give(std::mem::take(&mut self.buf));
    }
}
