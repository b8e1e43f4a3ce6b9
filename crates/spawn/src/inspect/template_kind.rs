//! Determines which kind of template a program can be.

use super::{elf, entry, format::read_head, script::Shebang};
use crate::{
    template::{TemplateKind, Unfit},
    words::escape,
};
use std::{
    ffi::OsStr,
    fs,
    io::{self, ErrorKind},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

/// Returns the kind of template: where the program at `path` would be stopped to be forked for each request.
///
/// # Errors
/// Why the program cannot be a template, in words to follow its name.
pub fn detect_kind(path: &Path) -> Result<TemplateKind, Unfit> {
    // ld.so(8) ignores LD_PRELOAD for such programs (secure-execution mode).
    if fs::metadata(path).map_err(unreadable)?.mode() & 0o6000 != 0 {
        return Err(unfit("is set-user-ID or set-group-ID"));
    }
    let head = read_head(path).map_err(unreadable)?;
    if head.starts_with(b"#!") {
        return script_kind(&head, check_interpreter);
    }
    if !head.starts_with(elf::MAGIC) {
        return Err(unfit("is neither a script nor a program of this system"));
    }
    let header = elf::ElfHeader::parse(&head);
    match header.and_then(|header| header.interpreter) {
        None => Err(unfit(
            "is linked statically: nothing can be loaded ahead of it",
        )),
        Some(linker) if base_name(linker).starts_with(b"ld-linux") => {
            check_stoppable(path, true)?;
            Ok(TemplateKind::Elf)
        }
        Some(linker) => Err(unfit(format!(
            "is linked for another C library than glibc ({})",
            escape(linker)
        ))),
    }
}

/// Does the same as [`detect_kind`] for a file that may have a configured `interpreter`.
///
/// # Errors
/// The same errors as [`detect_kind`].
pub fn find_kind(path: &Path, interpreter: Option<&Path>) -> Result<TemplateKind, Unfit> {
    let Some(interpreter) = interpreter else {
        return detect_kind(path);
    };
    let kind = language_kind(base_name(interpreter.as_os_str().as_encoded_bytes()))?;
    check_interpreter(interpreter)?;
    Ok(kind)
}

/// Returns whether one template of the configured `interpreter` serves all its files, because the request names the file.
pub fn serves_all(interpreter: &Path) -> bool {
    let name = base_name(interpreter.as_os_str().as_encoded_bytes());
    kind_by_name(name) == Some(TemplateKind::Php)
}

/// Checks that an ELF file can be stopped before its `main`: otherwise it would run without a request.
fn check_stoppable(path: &Path, is_program: bool) -> Result<(), Unfit> {
    let capable = rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64][..])
        .is_ok_and(|length| length > 0);
    if capable {
        return Err(unfit("has capabilities of its own (setcap)"));
    }
    match entry::is_of_libc(path, is_program) {
        Ok(true) => Ok(()),
        Ok(false) => Err(unfit(
            "does not enter `main` through the C library (nor do programs that Go links itself), so galgo cannot stop it there",
        )),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            Err(unfit("is truncated: its header describes a longer file"))
        }
        Err(e) => Err(unreadable(e)),
    }
}

/// Checks the interpreter if the line names its path and the file is no script. Other interpreters fail when they are started.
fn check_interpreter(interpreter: &Path) -> Result<(), Unfit> {
    match read_head(interpreter) {
        Ok(head) if head.starts_with(elf::MAGIC) => {
            let because = |Unfit { why, passes }| Unfit {
                why: format!("is run by {}, which {why}", interpreter.display()),
                passes,
            };
            check_stoppable(interpreter, false).map_err(because)
        }
        // A cold start fails too, or explains more. An interpreter need not be readable to be executed.
        Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            Err(unreadable(e))
        }
        _ => Ok(()),
    }
}

fn script_kind(
    head: &[u8],
    fits: impl Fn(&Path) -> Result<(), Unfit>,
) -> Result<TemplateKind, Unfit> {
    let line =
        Shebang::parse(head).map_err(|_| unfit("has a `#!` line that names no interpreter"))?;
    let mut name = base_name(line.interpreter);
    let mut options = line.argument;
    if name == b"env" {
        let (program, rest) = line.env_program().unwrap_or((b"env", b""));
        (name, options) = (base_name(program), rest);
    }
    let kind = language_kind(name)?;
    if base_name(line.interpreter) == name {
        fits(Path::new(OsStr::from_bytes(line.interpreter)))?;
    }
    let taints = |word: &[u8]| word.starts_with(b"-") && word.iter().any(|b| b"tT".contains(b));
    if kind == TemplateKind::Perl && options.split(|&b| b == b' ').any(taints) {
        return Err(unfit(
            "runs with taint checks (-T), so Perl loads only modules that the script asks for",
        ));
    }
    // A cold php-cgi honours these options or not, depending on the query.
    if kind == TemplateKind::Php && !options.is_empty() {
        return Err(unfit(
            "gives php-cgi options in its `#!` line: put settings into a php.ini or a .user.ini",
        ));
    }
    Ok(kind)
}

/// Returns the kind by the interpreter's name: "python3.11", "perl", "ruby3.1".
fn kind_by_name(name: &[u8]) -> Option<TemplateKind> {
    let versioned = |stem: &[u8]| {
        name.strip_prefix(stem)
            .is_some_and(|rest| rest.iter().all(|b| b.is_ascii_digit() || *b == b'.'))
    };
    let languages = [
        (&b"perl"[..], TemplateKind::Perl),
        (b"python", TemplateKind::Python),
        (b"ruby", TemplateKind::Ruby),
        (b"node", TemplateKind::Node),
        (b"nodejs", TemplateKind::Node),
        (b"php-cgi", TemplateKind::Php),
    ];
    let known = languages.iter().find(|(stem, _)| versioned(stem));
    known.map(|(_, kind)| *kind)
}

fn language_kind(name: &[u8]) -> Result<TemplateKind, Unfit> {
    kind_by_name(name).ok_or_else(|| {
        if name.starts_with(b"php") {
            return unfit("is run by PHP for the command line: php-cgi can start warm");
        }
        unfit(format!(
            "is a script for {}; Perl, Python, Ruby, Node, PHP and linked programs can be",
            escape(name)
        ))
    })
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

fn unfit(why: impl Into<String>) -> Unfit {
    let (why, passes) = (why.into(), false);
    Unfit { why, passes }
}

/// Makes a refusal that passes: a shortage of descriptors or a failing disk says nothing about the program.
fn unreadable(e: io::Error) -> Unfit {
    Unfit {
        why: format!("cannot be read: {e}"),
        passes: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_the_language() {
        let rows: [(&str, Option<TemplateKind>); 21] = [
            ("#!/usr/bin/perl", Some(TemplateKind::Perl)),
            ("#!/usr/bin/perl -w", Some(TemplateKind::Perl)),
            ("#!/usr/bin/perl -T", None),
            ("#!/usr/bin/perl -wT", None),
            ("#!/usr/bin/env perl", Some(TemplateKind::Perl)),
            ("#!/usr/bin/env -S perl -w", Some(TemplateKind::Perl)),
            ("#!/usr/bin/env -S perl -T", None),
            ("#!/opt/venv/bin/python", Some(TemplateKind::Python)),
            ("#!/usr/bin/python3.11 -I", Some(TemplateKind::Python)),
            ("#!/usr/bin/env python3", Some(TemplateKind::Python)),
            ("#!/usr/bin/ruby3.1", Some(TemplateKind::Ruby)),
            ("#!/usr/bin/env node", Some(TemplateKind::Node)),
            ("#!/usr/bin/nodejs", Some(TemplateKind::Node)),
            ("#!/bin/sh", None),
            ("#!/usr/bin/php-cgi", Some(TemplateKind::Php)),
            ("#!/usr/bin/env php-cgi8.2", Some(TemplateKind::Php)),
            ("#!/usr/bin/php-cgi -q", None),
            ("#!/usr/bin/env -S php-cgi -q", None),
            ("#!/usr/bin/php", None),
            ("#!/usr/bin/pythonish", None),
            ("#!", None),
        ];
        for (line, kind) in rows {
            assert_eq!(
                script_kind(line.as_bytes(), |_| Ok(())).ok(),
                kind,
                "{line}"
            );
        }
    }

    #[test]
    fn a_program_of_this_system_stops_before_main() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(detect_kind(&own), Ok(TemplateKind::Elf));
    }
}
