//! What is wrong with a program, in words, and how to mend it. Reads files; starts nothing but the
//! system's dynamic linker, and that only in [`check`].

mod access;
mod elf;
mod entry;
mod libraries;
mod script;
mod warm;

pub use warm::{kind, kind_by_interpreter};

use crate::{Stage, StartError, words};
use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// One thing that is wrong with a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What, as a sentence without its full stop: "the program is not executable".
    pub says: String,
    /// What to do about it, most often a command; empty where that is plain.
    pub mend: String,
    /// The program cannot run like this; otherwise it is a warning.
    pub fails: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.says)?;
        if self.mend.is_empty() {
            Ok(())
        } else {
            write!(f, " (try: {})", self.mend)
        }
    }
}

/// Everything that is wrong with the program at `path`, as far as this process may see: whatever
/// keeps it from starting, shared libraries that are missing, and who else could replace it.
/// `path_env` is the PATH that programs are given. An empty list is a good program.
///
/// Shared libraries are found by the dynamic linker's own `--list`, for only it knows its rules. It
/// maps the program and runs none of it; and it is run only where it is the system's, not one a
/// program brought along.
pub fn check(path: &Path, path_env: &str) -> Vec<Finding> {
    let mut all = executable(Subject::Program, path, path_env, 0);
    if !all.iter().any(|f| f.fails) {
        all.extend(libraries::missing(path));
    }
    all.extend(access::writable(path));
    all
}

/// As [`check`], for a file that a configured interpreter runs: it needs no executable bit and no
/// `#!`.
pub fn check_source(path: &Path) -> Vec<Finding> {
    let mut all: Vec<_> = access::regular(Subject::Program, path)
        .err()
        .into_iter()
        .collect();
    if all.is_empty()
        && let Err(e) = head(path)
    {
        all.push(Subject::Program.fails(format!("cannot be read: {e}"), chmod("+r", path)));
    }
    all.extend(access::writable(path));
    all
}

/// Why this process may not enter or look through a folder of programs; `None`: it may do both.
pub fn closed(folder: &Path) -> Option<Finding> {
    access::closed(folder)
}

/// Why the program at `path` did not start, in words its author can act on. Looks at the file as it
/// is now, which may be a moment too late; then the system's own words have to do.
pub fn diagnose(path: &Path, path_env: &str, error: &StartError) -> String {
    if error.stage == Stage::Chdir
        && let Some(finding) = path.parent().and_then(closed).filter(|f| f.fails)
    {
        return finding.to_string();
    }
    if error.stage != Stage::Exec {
        return error.to_string();
    }
    if error.is_busy() {
        return "the program is open for writing: it is being replaced in place \
                (try: write a new file beside it, then rename it over the old one)"
            .into();
    }
    let found = executable(Subject::Program, path, path_env, 0);
    if let Some(finding) = found.iter().find(|f| f.fails) {
        return finding.to_string();
    }
    match error.source.raw_os_error() {
        Some(libc::EACCES) => {
            "the program may not be executed: its file system is mounted noexec, \
                               or a security module forbids it"
                .into()
        }
        Some(libc::ENOEXEC) => "the program has a format the kernel does not know".into(),
        Some(libc::ELOOP) => "too many symbolic links, or scripts that interpret scripts".into(),
        _ => error.to_string(),
    }
}

/// Whose fault a finding is.
#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    Program,
    /// As named in the `#!` line or the ELF header.
    Interpreter(&'a [u8]),
}

impl Subject<'_> {
    fn fails(self, says: impl fmt::Display, mend: impl Into<String>) -> Finding {
        Finding {
            says: format!("{self} {says}"),
            mend: mend.into(),
            fails: true,
        }
    }
    fn warns(self, says: impl fmt::Display, mend: impl Into<String>) -> Finding {
        Finding {
            fails: false,
            ..self.fails(says, mend)
        }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("the program"),
            Self::Interpreter(name) => write!(f, "interpreter `{}`", words::escape(name)),
        }
    }
}

/// The kernel follows that many interpreters that are scripts themselves (fs/exec.c, exec_binprm).
const SCRIPTS_MAX: u32 = 5;

/// What keeps the file at `path` from being executed, and its interpreters.
fn executable(subject: Subject<'_>, path: &Path, path_env: &str, depth: u32) -> Vec<Finding> {
    if let Err(finding) =
        access::regular(subject, path).and_then(|mode| access::executable(subject, path, mode))
    {
        return vec![finding];
    }
    let head = match head(path) {
        Ok(head) => head,
        // Enough for a binary; a script's interpreter could not read it.
        Err(e) => {
            return vec![subject.warns(format!("cannot be read: {e}"), chmod("+r", path))];
        }
    };
    if head.starts_with(b"#!") {
        if depth >= SCRIPTS_MAX {
            return vec![subject.fails("is one of too many scripts that interpret scripts", "")];
        }
        return script::check(path, &head, path_env, depth);
    }
    if head.starts_with(elf::MAGIC) {
        return elf::check(subject, path, &head).into_iter().collect();
    }
    vec![unknown(subject, path, &head)]
}

/// Neither a script nor an ELF file.
fn unknown(subject: Subject<'_>, path: &Path, head: &[u8]) -> Finding {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    if head.is_empty() {
        return subject.fails("is an empty file", "");
    }
    if head.starts_with(BOM) && head[BOM.len()..].starts_with(b"#!") {
        let mend = format!("sed -i '1s/^\\xef\\xbb\\xbf//' {}", words::argument(path));
        return subject.fails(
            "begins with a byte order mark; `#!` must be its first bytes",
            mend,
        );
    }
    if head.contains(&0) {
        let finding = subject.fails("is neither a script nor a program for Linux", "");
        // Java archives, programs for Windows and the like may have been registered with the
        // kernel.
        return Finding {
            fails: !other_formats(),
            ..finding
        };
    }
    let mend = "a first line such as #!/bin/sh or #!/usr/bin/env python3";
    subject.fails("has no `#!` line that names its interpreter", mend)
}

/// Whether the kernel was told of further formats (binfmt_misc).
fn other_formats() -> bool {
    let known = |name: &std::ffi::OsStr| name == "register" || name == "status";
    std::fs::read_dir("/proc/sys/fs/binfmt_misc")
        .is_ok_and(|entries| entries.flatten().any(|e| !known(&e.file_name())))
}

/// The first bytes of a file: all that the kernel looks at, and the program headers of an ELF file.
fn head(path: &Path) -> io::Result<Vec<u8>> {
    const MOST: u64 = 4096;
    // Should a pipe have taken the file's place, this must not wait for a writer.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let mut head = Vec::new();
    file.take(MOST).read_to_end(&mut head)?;
    Ok(head)
}

fn chmod(mode: &str, path: &Path) -> String {
    format!("chmod {mode} {}", words::argument(path))
}
