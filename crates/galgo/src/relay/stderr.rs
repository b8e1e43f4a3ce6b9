//! Standard error of a program: whole lines to the error log, capped and escaped.

/// Cuts what a program writes to standard error into lines.
#[derive(Debug)]
pub struct Lines {
    part: Vec<u8>,
    left: usize,
    capped: bool,
    /// The last lines, for the page that shows a failure to its author.
    tail: Vec<u8>,
}

/// A longer line is logged in pieces.
const LINE: usize = 4 << 10;
/// What is kept for the failure page.
const TAIL: usize = 4 << 10;

impl Lines {
    /// At most `most` bytes go to the log.
    pub fn new(most: usize) -> Self {
        Self {
            part: Vec::new(),
            left: most,
            capped: false,
            tail: Vec::new(),
        }
    }

    /// Takes `bytes` and hands each line that is now whole to `log`.
    pub fn take(&mut self, bytes: &[u8], log: &mut dyn FnMut(&str)) {
        let keep = bytes.len().min(self.left);
        self.left -= keep;
        self.keep_tail(&bytes[..keep]);
        for piece in bytes[..keep].split_inclusive(|&b| b == b'\n') {
            self.part.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.part.len() >= LINE {
                self.flush(log);
            }
        }
        if keep < bytes.len() && !self.capped {
            self.capped = true;
            self.flush(log);
            log("[the rest of its standard error is not logged: max_stderr is reached]");
        }
    }

    /// The program has ended: hands over an unfinished last line.
    pub fn finish(&mut self, log: &mut dyn FnMut(&str)) {
        self.flush(log);
    }

    /// The end of what was written, escaped but for line ends.
    pub fn tail(&self) -> String {
        self.tail
            .split(|&b| b == b'\n')
            .map(escape)
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn flush(&mut self, log: &mut dyn FnMut(&str)) {
        let line = self.part.trim_ascii_end();
        if !line.is_empty() {
            log(&escape(line));
        }
        self.part.clear();
    }

    fn keep_tail(&mut self, bytes: &[u8]) {
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
    }
}

/// Makes `bytes` safe for a terminal and a log: control characters, and bytes that are not UTF-8, as `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => out.push(c),
                c if c.is_control() => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(most: usize, writes: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new(most);
        let mut out = Vec::new();
        for w in writes {
            lines.take(w, &mut |l| out.push(l.to_owned()));
        }
        lines.finish(&mut |l| out.push(l.to_owned()));
        out
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
    fn memory_is_bounded() {
        let mut l = Lines::new(usize::MAX);
        for _ in 0..1000 {
            l.take(&[b'x'; 5000], &mut |_| {});
        }
        assert!(l.part.len() <= LINE + 5000 && l.tail.len() <= 3 * TAIL);
    }
}
