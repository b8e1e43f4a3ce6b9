//! Output for people. On a terminal, no text may contain characters that the terminal would obey, or that would move text
//! about.

use std::{borrow::Cow, fmt::Display, io::IsTerminal};

use galgo_spawn::words::escape;

/// Escapes each line.
pub(crate) fn escape_lines(text: impl Display) -> String {
    let text = text.to_string();
    let lines: Vec<_> = text.split('\n').map(|l| escape(l.as_bytes())).collect();
    lines.join("\n")
}

/// A stream of bytes to a terminal or a file. A terminal gets the bytes escaped, line by line; a file gets them unchanged.
#[derive(Debug)]
pub(crate) struct Screen {
    terminal: bool,
    /// Bytes at the end that may be the first part of a character, or of a line's end.
    part: Vec<u8>,
}

impl Screen {
    /// Prepares output to `stream`.
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Self {
        Self {
            terminal: stream.is_terminal(),
            part: Vec::new(),
        }
    }

    /// Returns the text to write for `bytes`.
    pub(crate) fn escape_chunk<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        if !self.terminal {
            return bytes.into();
        }
        let mut all = std::mem::take(&mut self.part);
        all.extend_from_slice(bytes);
        self.part = all.split_off(all.len() - unfinished(&all));
        escape_for_terminal(&all).into()
    }

    /// Returns the text for the bytes that are left.
    pub(crate) fn escape_rest(&mut self) -> Vec<u8> {
        escape_for_terminal(&std::mem::take(&mut self.part))
    }
}

fn escape_for_terminal(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|&b| b == b'\n');
    let lines = lines.map(|line| match line.strip_suffix(b"\n") {
        Some(line) => escape(line.strip_suffix(b"\r").unwrap_or(line)) + "\n",
        None => escape(line),
    });
    lines.collect::<String>().into_bytes()
}

/// Returns how many bytes at the end wait for more: a carriage return, or a character that is not complete.
fn unfinished(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r") {
        return 1;
    }
    let invalid = bytes.utf8_chunks().last().map_or(&[][..], |c| c.invalid());
    match std::str::from_utf8(invalid) {
        Err(e) if e.error_len().is_none() => invalid.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use crate::command::screen::*;

    #[test]
    fn any_split_shows_the_same() {
        let text = "a\r\nä\u{1b}[2J\u{202e}x\r\u{1f600}\n".as_bytes();
        let bytes = [text, b"\xff\xe2\x80", b"\xf0\x9f"].concat();
        let whole = {
            let mut screen = Screen {
                terminal: true,
                part: Vec::new(),
            };
            [
                screen.escape_chunk(&bytes).into_owned(),
                screen.escape_rest(),
            ]
            .concat()
        };
        let want = "a\nä\\u{1b}[2J\\u{202e}x\\r\u{1f600}\n\\xff\\xe2\\x80\\xf0\\x9f";
        assert_eq!(String::from_utf8(whole).unwrap(), want);
        for size in 1..6 {
            let mut screen = Screen {
                terminal: true,
                part: Vec::new(),
            };
            let mut all = Vec::new();
            for piece in bytes.chunks(size) {
                all.extend_from_slice(&screen.escape_chunk(piece));
            }
            all.extend(screen.escape_rest());
            assert_eq!(String::from_utf8(all).unwrap(), want, "{size}");
        }
    }

    #[test]
    fn a_file_gets_bytes() {
        let mut screen = Screen {
            terminal: false,
            part: Vec::new(),
        };
        assert_eq!(&*screen.escape_chunk(b"\x1b\xff\r"), b"\x1b\xff\r");
        assert!(screen.escape_rest().is_empty());
    }
}
