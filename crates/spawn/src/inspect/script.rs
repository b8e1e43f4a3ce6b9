//! The `#!` line, read as the kernel reads it (fs/binfmt_script.c).

/// Bytes of the line that the kernel looks at, `#!` included.
pub(super) const LINE_MAX: usize = 255;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shebang<'a> {
    pub(super) interpreter: &'a [u8],
    pub(super) argument: &'a [u8],
    /// Whether the line's end is beyond the bytes that the kernel reads.
    pub(super) cut: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// Nothing follows `#!`.
    NoInterpreter,
    /// The name of the interpreter is cut off.
    TooLong,
}

impl<'a> Shebang<'a> {
    /// Parses `head`, which begins with `#!`.
    pub(super) fn parse(head: &'a [u8]) -> Result<Self, Bad> {
        // Another byte is read, to know that a line of exactly that length is whole.
        let seen = &head[2..head.len().min(LINE_MAX + 1)];
        let end = seen.iter().position(|&b| b == b'\n' || b == 0);
        let cut = end.is_none() && head.len() > LINE_MAX;
        let whole = if cut { LINE_MAX - 2 } else { seen.len() };
        let line = trim_blanks(&seen[..end.unwrap_or(whole)]);
        if line.is_empty() {
            return Err(Bad::NoInterpreter);
        }
        let (interpreter, argument) = match line.iter().position(|&b| is_blank(b)) {
            Some(at) => (&line[..at], trim_blanks(&line[at..])),
            None if cut && !seen.last().is_some_and(|&b| is_blank(b)) => return Err(Bad::TooLong),
            None => (line, &[][..]),
        };
        Ok(Self {
            interpreter,
            argument,
            cut,
        })
    }

    /// Returns the program that `env` is told to run, and the words that follow. `None`: only env itself can tell, because
    /// there are options or quoted words.
    pub(super) fn env_program(&self) -> Option<(&'a [u8], &'a [u8])> {
        let mut words = self
            .argument
            .strip_prefix(b"-S")
            .map_or(self.argument, trim_blanks);
        loop {
            let end = words
                .iter()
                .position(|&b| is_blank(b))
                .unwrap_or(words.len());
            let (word, rest) = (&words[..end], trim_blanks(&words[end..]));
            if word.is_empty()
                || word.starts_with(b"-")
                || word.iter().any(|b| b"\"'\\$".contains(b))
            {
                return None;
            }
            if !word.contains(&b'=') {
                return Some((word, rest));
            }
            words = rest;
        }
    }
}

pub(super) fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// Removes spaces and tabs only: a carriage return is part of the name.
fn trim_blanks(line: &[u8]) -> &[u8] {
    let begin = line
        .iter()
        .position(|&b| !is_blank(b))
        .unwrap_or(line.len());
    let end = line.iter().rposition(|&b| !is_blank(b));
    &line[begin..end.map_or(begin, |last| last + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::escape;

    #[test]
    fn the_line_is_read_as_the_kernel_reads_it() {
        let long = format!("#!/bin/sh {}\n", "x".repeat(300));
        type Row<'a> = (&'a [u8], &'a [u8], &'a [u8], bool);
        let table: [Row<'_>; 9] = [
            (b"#!/bin/sh\necho\n", b"/bin/sh", b"", false),
            (b"#!/bin/sh", b"/bin/sh", b"", false),
            (b"#! \t/bin/sh \t-e -u \t\n", b"/bin/sh", b"-e -u", false),
            (
                b"#!/usr/bin/env python3\n",
                b"/usr/bin/env",
                b"python3",
                false,
            ),
            (b"#!/bin/sh\r\n", b"/bin/sh\r", b"", false),
            (b"#!/bin/sh -e\r\n", b"/bin/sh", b"-e\r", false),
            (b"#!/bin/sh\0junk\n", b"/bin/sh", b"", false),
            (b"#!sh\n", b"sh", b"", false),
            (
                long.as_bytes(),
                b"/bin/sh",
                &long.as_bytes()[10..LINE_MAX],
                true,
            ),
        ];
        for (head, interpreter, argument, cut) in table {
            assert_eq!(
                Shebang::parse(head),
                Ok(Shebang {
                    interpreter,
                    argument,
                    cut
                }),
                "{}",
                escape(head)
            );
        }
        assert_eq!(Shebang::parse(b"#!"), Err(Bad::NoInterpreter));
        assert_eq!(Shebang::parse(b"#! \t\n/bin/sh"), Err(Bad::NoInterpreter));
    }

    #[test]
    fn an_interpreter_is_cut_after_255_bytes() {
        let line = |name: usize| format!("#!{}\n", "x".repeat(name)).into_bytes();
        assert!(Shebang::parse(&line(253)).is_ok_and(|l| l.interpreter.len() == 253 && !l.cut));
        assert_eq!(Shebang::parse(&line(254)), Err(Bad::TooLong));
    }
}
