//! Logs standard error of a program as whole lines, capped and escaped.

use std::convert::Infallible;

use galgo_io::{pool, sock::Sock, tick};
use galgo_service::log::LogSource;
use galgo_spawn::words::escape;
use tokio::time::Instant;

use super::transfer::PIPE_MOST;

/// Standard error of a running program: its pipe and its log.
#[derive(Debug)]
pub(super) struct StderrPipe {
    sock: Option<Sock>,
    pub(super) log: StderrLog,
    buf: Vec<u8>,
    began: Instant,
}

/// Limit for reads of standard error after the process has ended: a pipe holds no more.
const DRAINS: usize = PIPE_MOST / pool::SIZE;

impl StderrPipe {
    pub(super) fn new(sock: Sock, max: usize, source: LogSource) -> Self {
        Self {
            sock: Some(sock),
            log: StderrLog::new(max, source),
            buf: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Logs standard error, forever. Begins after the first tick: most programs have ended by then, and their standard error is
    /// read at their end. The event loop never hears of their pipes.
    pub(super) async fn drain_pipe(&mut self) -> Infallible {
        while self.began.elapsed() < tick::LENGTH {
            tick::next().await;
        }
        while let Some(sock) = &self.sock {
            let read = match sock.read_later(&mut self.buf).await {
                Ok(n) => Ok(Some(n)),
                // The event loop may have no room for the pipe: try again with the next tick.
                Err(_) => {
                    tick::next().await;
                    sock.try_read(&mut self.buf)
                }
            };
            match read {
                Ok(None) => {}
                Ok(Some(n)) if n > 0 => self.log_buffer(),
                Ok(Some(_)) | Err(_) => self.sock = None,
            }
        }
        std::future::pending().await
    }

    /// Logs the rest of the pipe, after the program has ended.
    pub(super) fn finish(&mut self) {
        // Limit the reads, because a process that has left the group may still be writing.
        for _ in 0..DRAINS {
            let Some(sock) = &self.sock else { break };
            match sock.try_read(&mut self.buf) {
                Ok(Some(n)) if n > 0 => self.log_buffer(),
                _ => self.sock = None,
            }
        }
        self.log.finish();
    }

    fn log_buffer(&mut self) {
        self.log.log_bytes(&self.buf);
        pool::return_buffer(std::mem::take(&mut self.buf));
    }
}

impl Drop for StderrPipe {
    fn drop(&mut self) {
        pool::return_buffer(std::mem::take(&mut self.buf));
    }
}

/// The log of one request's standard error.
#[derive(Debug)]
pub(crate) struct StderrLog {
    lines: Lines,
    /// Name of the program in the log.
    pub(crate) source: LogSource,
}

impl StderrLog {
    /// Makes a log that takes at most `most` bytes.
    pub(crate) fn new(most: usize, source: LogSource) -> Self {
        let lines = Lines::new(most);
        Self { lines, source }
    }

    pub(crate) fn log_bytes(&mut self, bytes: &[u8]) {
        self.lines
            .log_bytes(bytes, &mut |line| self.source.write_stderr_line(line));
    }

    pub(crate) fn finish(&mut self) {
        self.lines
            .flush(&mut |line| self.source.write_stderr_line(line));
    }

    pub(crate) fn last_lines(&self) -> String {
        self.lines.last_lines()
    }
}

/// Splits a program's standard error into lines.
#[derive(Debug)]
pub(crate) struct Lines {
    part: Vec<u8>,
    /// Bytes that may still be added to the log.
    left: usize,
    capped: bool,
    /// The last lines, for the page that shows a failure to the program's author.
    tail: Vec<u8>,
}

/// Length at which a line is logged in pieces.
const LINE: usize = 4 << 10;
/// Bytes that are kept for the failure page.
const TAIL: usize = 4 << 10;

impl Lines {
    /// Limits the growth of the log to `most` bytes. The prefix of each line counts, too, and so does escaping.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            part: Vec::new(),
            left: most,
            capped: false,
            tail: Vec::new(),
        }
    }

    /// Takes `bytes` and hands each complete line to `log`, which returns how many bytes the log grew by.
    pub(crate) fn log_bytes(&mut self, bytes: &[u8], log: &mut dyn FnMut(&str) -> usize) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            if self.capped {
                return;
            }
            self.keep_tail(piece);
            self.part.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.part.len() >= LINE {
                self.flush(log);
            }
        }
    }

    /// Returns the last lines, escaped except for line ends.
    pub(crate) fn last_lines(&self) -> String {
        self.tail
            .split(|&b| b == b'\n')
            .map(escape)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Hands over the current line, because it is complete, or long, or the program has ended.
    pub(crate) fn flush(&mut self, log: &mut dyn FnMut(&str) -> usize) {
        let line = escape(self.part.trim_ascii_end());
        self.part.clear();
        if line.is_empty() || self.capped {
            return;
        }
        let fits = line.floor_char_boundary(self.left);
        if fits > 0 {
            self.left = self.left.saturating_sub(log(&line[..fits]));
        }
        if fits < line.len() {
            self.capped = true;
            log("[the rest of its standard error is not logged: max_stderr is reached]");
        }
    }

    fn keep_tail(&mut self, bytes: &[u8]) {
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a log that puts `prefix` bytes before each line.
    fn logged(most: usize, prefix: usize, writes: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new(most);
        let mut out = Vec::new();
        let mut log = |line: &str| {
            out.push(line.to_owned());
            prefix + line.len()
        };
        for w in writes {
            lines.log_bytes(w, &mut log);
        }
        lines.flush(&mut log);
        out
    }

    fn run(most: usize, writes: &[&[u8]]) -> Vec<String> {
        logged(most, 0, writes)
    }

    #[test]
    fn lines_are_whole_whatever_the_writes() {
        assert_eq!(run(100, &[b"a", b"b\nc", b"d\n", b"e"]), ["ab", "cd", "e"]);
    }

    #[test]
    fn control_bytes_are_escaped() {
        assert_eq!(
            run(100, &[b"\x1b[31mred\x07\xff\r\n"]),
            ["\\u{1b}[31mred\\u{7}\\xff"]
        );
    }

    #[test]
    fn the_cap_is_said_once() {
        let out = run(4, &[b"abcdefgh\n", b"more\n"]);
        assert_eq!(out.len(), 2);
        assert_eq!(out[0], "abcd");
        assert!(out[1].contains("max_stderr"));
    }

    #[test]
    fn what_stands_before_a_line_counts_too() {
        let out = logged(1000, 48, &[&b"x\n".repeat(10_000)]);
        assert_eq!(out.len(), 1000_usize.div_ceil(49) + 1);
        assert!(out[out.len() - 1].contains("max_stderr"));
        // Bytes that escaping adds count, too.
        let out = run(1000, &[&b"\x01\x01\x01\x01\n".repeat(10_000)]);
        let bytes: usize = out.iter().map(String::len).sum();
        assert!(bytes < 1100, "{bytes}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut l = Lines::new(usize::MAX);
        for _ in 0..1000 {
            l.log_bytes(&[b'x'; 5000], &mut |_| 0);
        }
        assert!(l.part.len() <= LINE + 5000 && l.tail.len() <= 3 * TAIL);
    }
}
