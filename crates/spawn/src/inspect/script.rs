//! The `#!` line, read as the kernel reads it (fs/binfmt_script.c).

use super::{Finding, SCRIPTS_MAX, Subject, executable};
use crate::words::{self, escape};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Bytes of the line the kernel looks at, `#!` included.
const LINE_MAX: usize = 255;

/// What a `#!` line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    interpreter: &'a [u8],
    /// Everything behind it, as one argument.
    argument: &'a [u8],
    /// The kernel does not see the line's end.
    cut: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// Nothing behind `#!`.
    NoInterpreter,
    /// The interpreter's name itself is cut off.
    TooLong,
}

impl<'a> Line<'a> {
    /// `head` begins with `#!`.
    pub(super) fn parse(head: &'a [u8]) -> Result<Self, Bad> {
        // One byte more is read, so that a line of just that length is known to be whole.
        let seen = &head[2..head.len().min(LINE_MAX + 1)];
        let end = seen.iter().position(|&b| b == b'\n' || b == 0);
        let cut = end.is_none() && head.len() > LINE_MAX;
        let whole = if cut { LINE_MAX - 2 } else { seen.len() };
        let line = trim(&seen[..end.unwrap_or(whole)]);
        if line.is_empty() {
            return Err(Bad::NoInterpreter);
        }
        let (interpreter, argument) = match line.iter().position(|&b| blank(b)) {
            Some(at) => (&line[..at], trim(&line[at..])),
            None if cut && !seen.last().is_some_and(|&b| blank(b)) => return Err(Bad::TooLong),
            None => (line, &[][..]),
        };
        Ok(Self {
            interpreter,
            argument,
            cut,
        })
    }

    pub(super) fn interpreter(&self) -> &'a [u8] {
        self.interpreter
    }

    pub(super) fn argument(&self) -> &'a [u8] {
        self.argument
    }

    /// What `env` is told to run, and what follows; `None` where only env itself can tell: its
    /// options, quoted words.
    pub(super) fn program(&self) -> Option<(&'a [u8], &'a [u8])> {
        let mut words = self
            .argument
            .strip_prefix(b"-S")
            .map_or(self.argument, trim);
        loop {
            let end = words.iter().position(|&b| blank(b)).unwrap_or(words.len());
            let (word, rest) = (&words[..end], trim(&words[end..]));
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

fn blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// Spaces and tabs only: a carriage return is part of the name.
fn trim(mut line: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = line
        && blank(*first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && blank(*last)
    {
        line = rest;
    }
    line
}

/// What is wrong with the script at `path` that begins with `head`.
pub(super) fn check(path: &Path, head: &[u8], path_env: &str, depth: u32) -> Vec<Finding> {
    let program = Subject::Program;
    let line = match Line::parse(head) {
        Ok(line) => line,
        Err(Bad::NoInterpreter) => {
            return vec![program.fails("names no interpreter behind `#!`", "")];
        }
        Err(Bad::TooLong) => {
            let says = format!("has a `#!` line longer than the {LINE_MAX} bytes the kernel reads");
            return vec![program.fails(says, "")];
        }
    };
    if let Some(finding) = carriage_return(path, &line) {
        return vec![finding];
    }
    let mut found = Vec::new();
    if line.cut {
        let says = format!("has a `#!` line whose arguments are cut off after {LINE_MAX} bytes");
        found.push(program.warns(says, ""));
    }
    let interpreter = resolve(path, line.interpreter);
    let subject = Subject::Interpreter(line.interpreter);
    found.extend(executable(subject, &interpreter, path_env, depth + 1));
    if interpreter.file_name() == Some(OsStr::new("env")) && !found.iter().any(|f| f.fails) {
        found.extend(env(&line, path_env, depth));
    }
    found
}

/// Programs start in their own folder: that is where a relative interpreter is looked for.
fn resolve(script: &Path, interpreter: &[u8]) -> PathBuf {
    let folder = script.parent().unwrap_or(Path::new("/"));
    folder.join(OsStr::from_bytes(interpreter))
}

fn carriage_return(path: &Path, line: &Line<'_>) -> Option<Finding> {
    let mend = format!("sed -i 's/\\r$//' {}", words::argument(path));
    let why = "the first line ends in a carriage return";
    let interpreter = Subject::Interpreter(line.interpreter);
    if line.interpreter.ends_with(b"\r") && !resolve(path, line.interpreter).exists() {
        return Some(interpreter.fails(format!("does not exist: {why}"), mend));
    }
    let argument = escape(line.argument);
    let gets = || interpreter.fails(format!("is given the argument `{argument}`: {why}"), mend);
    line.argument.ends_with(b"\r").then(gets)
}

/// `#!/usr/bin/env NAME`: whether NAME will be found.
fn env(line: &Line<'_>, path_env: &str, depth: u32) -> Vec<Finding> {
    let argument = line.argument;
    let env = Subject::Interpreter(b"env");
    if argument.is_empty() {
        return vec![env.fails("is not told what to run", "#!/usr/bin/env NAME")];
    }
    let split = argument.starts_with(b"-S");
    if !split && argument.first() != Some(&b'-') && argument.iter().any(|&b| blank(b)) {
        let argument = escape(argument);
        let says = format!("looks for one program named `{argument}`");
        return vec![env.fails(says, format!("#!/usr/bin/env -S {argument}"))];
    }
    let Some((name, _)) = line.program() else {
        return Vec::new();
    };
    match search(name, path_env) {
        Some(found) if depth < SCRIPTS_MAX => {
            executable(Subject::Interpreter(name), &found, path_env, depth + 1)
        }
        Some(_) => Vec::new(),
        None => {
            let says = format!("is not in the PATH of programs, {path_env}");
            vec![Subject::Interpreter(name).fails(says, "install it, or name its full path")]
        }
    }
}

/// The file execvp(3) would take.
fn search(name: &[u8], path_env: &str) -> Option<PathBuf> {
    if name.contains(&b'/') {
        return Some(OsStr::from_bytes(name).into());
    }
    let runs = |p: &PathBuf| {
        super::access::regular(Subject::Program, p)
            .and_then(|mode| super::access::executable(Subject::Program, p, mode))
            .is_ok()
    };
    path_env
        .split(':')
        .map(|folder| Path::new(folder).join(OsStr::from_bytes(name)))
        .find(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

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
                Line::parse(head),
                Ok(Line {
                    interpreter,
                    argument,
                    cut
                }),
                "{}",
                escape(head)
            );
        }
        assert_eq!(Line::parse(b"#!"), Err(Bad::NoInterpreter));
        assert_eq!(Line::parse(b"#! \t\n/bin/sh"), Err(Bad::NoInterpreter));
    }

    #[test]
    fn an_interpreter_is_cut_after_255_bytes() {
        let line = |name: usize| format!("#!{}\n", "x".repeat(name)).into_bytes();
        assert!(Line::parse(&line(253)).is_ok_and(|l| l.interpreter.len() == 253 && !l.cut));
        assert_eq!(Line::parse(&line(254)), Err(Bad::TooLong));
    }
}
