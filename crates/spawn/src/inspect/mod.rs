//! Explains the problems of a program in words, and how to fix them. This module reads files. Only [`check_program`] starts a program:
//! the system's dynamic linker.

mod access;
mod elf;
mod entry;
mod execute;
mod finding;
mod format;
mod libraries;
mod php;
mod script;
mod template_kind;

pub use access::{can_access, check_folder_access};
pub use execute::check_module_name;
pub use finding::Finding;
pub use php::shares_memory;
pub use template_kind::{detect_kind, find_kind, serves_all};

use crate::{StartError, StartStage};
use execute::diagnose_executable;
use finding::{Subject, chmod_command};
use format::read_head;
use std::path::Path;

/// Returns everything that is wrong with the program at `path`, as far as this process can see. That includes problems that
/// keep the program from starting, missing shared libraries, and other users that could replace it. `path_env` is the PATH that
/// programs get. An empty list is a good program.
///
/// Shared libraries are found by the dynamic linker's own `--list`, because only the linker knows its rules. It maps the
/// program and runs none of it. A linker that a program brought along is never run, only the system's.
pub fn check_program(path: &Path, path_env: &str) -> Vec<Finding> {
    let mut all = diagnose_executable(Subject::Program, path, path_env, 0);
    if !all.iter().any(|f| f.fails) {
        all.extend(libraries::find_missing(path));
    }
    all.extend(access::warn_if_writable(path));
    all
}

/// Does the same as [`check_program`] for a file that a configured interpreter runs: such a file needs no executable bit and no `#!`.
pub fn check_source(path: &Path) -> Vec<Finding> {
    let unreadable =
        |e| Subject::Program.failure(format!("cannot be read: {e}"), chmod_command("+r", path));
    let read = access::check_regular(Subject::Program, path)
        .and_then(|_| read_head(path).map_err(unreadable));
    let fails = read.err().into_iter();
    fails.chain(access::warn_if_writable(path)).collect()
}

/// Explains why the program at `path` did not start, in words that its author can act on. This looks at the file as it is now,
/// which may be a moment too late; then the result is the system's own message.
pub fn diagnose(path: &Path, path_env: &str, error: &StartError) -> String {
    if error.stage == StartStage::Chdir
        && let Some(finding) = path
            .parent()
            .and_then(check_folder_access)
            .filter(|f| f.fails)
    {
        return finding.to_string();
    }
    if error.is_filtered() {
        let call = match error.stage {
            StartStage::Descriptors => "close_range",
            _ => "it",
        };
        return format!(
            "{error}: a filter of system calls refuses {call} to galgo. Allow it in the seccomp profile of the container, or in \
             SystemCallFilter= of the service"
        );
    }
    if error.stage != StartStage::Exec {
        return error.to_string();
    }
    if error.is_busy() {
        return "the program is open for writing: it is being replaced in place \
                (try: write a new file beside it, then rename it over the old one)"
            .into();
    }
    let found = diagnose_executable(Subject::Program, path, path_env, 0);
    if let Some(finding) = found.iter().find(|f| f.fails) {
        return finding.to_string();
    }
    match error.source.raw_os_error() {
        Some(libc::EACCES) => {
            "the kernel refuses to execute the program: its file system is mounted noexec, \
                               or a security module forbids it"
                .into()
        }
        Some(libc::ENOEXEC) => check_module_name(path).map_or_else(
            || "the program has a format the kernel does not know".into(),
            |finding| finding.to_string(),
        ),
        Some(libc::ELOOP) => "too many symbolic links, or scripts that interpret scripts".into(),
        _ => error.to_string(),
    }
}
