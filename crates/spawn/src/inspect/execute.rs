//! Finds what prevents a file from being executed. Its interpreters are checked too, and may be scripts themselves.

use super::{
    access, elf,
    finding::{Finding, Subject, chmod_command},
    format::{has_other_formats, read_head},
    script::{Bad, LINE_MAX, Shebang, is_blank},
};
use crate::words::{self, escape};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The kernel follows this many interpreters that are scripts themselves (fs/exec.c, exec_binprm).
const SCRIPTS_MAX: u32 = 5;

/// Returns the problems that prevent the file at `path`, or an interpreter of it, from being executed.
pub(super) fn diagnose_executable(
    subject: Subject<'_>,
    path: &Path,
    path_env: &str,
    depth: u32,
) -> Vec<Finding> {
    if let Err(finding) = access::check_executable(subject, path) {
        return vec![finding];
    }
    let head = match read_head(path) {
        Ok(head) => head,
        // This is enough for a binary, but a script's interpreter could not read the file.
        Err(e) => {
            return vec![
                subject.warning(format!("cannot be read: {e}"), chmod_command("+r", path)),
            ];
        }
    };
    if head.starts_with(b"#!") {
        if depth >= SCRIPTS_MAX {
            return vec![subject.failure("is one of too many scripts that interpret scripts", "")];
        }
        return check_script(path, &head, path_env, depth);
    }
    if head.starts_with(elf::MAGIC) {
        return elf::check_elf(subject, path, &head).into_iter().collect();
    }
    vec![explain_unknown(subject, path, &head)]
}

/// Returns a finding for a WebAssembly module whose name does not end like a module's; `None`: no module, or a proper name.
pub fn check_module_name(path: &Path) -> Option<Finding> {
    let named = path
        .extension()
        .is_some_and(|ending| ending == "wasm" || ending == "wcgi");
    if named || !read_head(path).is_ok_and(|head| head.starts_with(MODULE)) {
        return None;
    }
    let named = path.with_added_extension("wasm");
    let mend = format!(
        "mv {} {}",
        words::shell_argument(path),
        words::shell_argument(&named)
    );
    let says = "is a WebAssembly module: its name has to end in .wasm";
    Some(Subject::Program.failure(says, mend))
}

/// The first bytes of every WebAssembly module.
const MODULE: &[u8] = b"\0asm";

fn explain_unknown(subject: Subject<'_>, path: &Path, head: &[u8]) -> Finding {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    if head.is_empty() {
        return subject.failure("is an empty file", "");
    }
    if head.starts_with(BOM) && head[BOM.len()..].starts_with(b"#!") {
        let mend = format!(
            "sed -i '1s/^\\xef\\xbb\\xbf//' {}",
            words::shell_argument(path)
        );
        return subject.failure(
            "begins with a byte order mark; `#!` must be its first bytes",
            mend,
        );
    }
    if head.contains(&0) {
        let module = match subject {
            Subject::Program => check_module_name(path),
            Subject::Interpreter(_) => None,
        };
        let finding = module
            .unwrap_or_else(|| subject.failure("is neither a script nor a program for Linux", ""));
        // Java archives, programs for Windows and the like may have been registered with the kernel.
        return Finding {
            fails: !has_other_formats(),
            ..finding
        };
    }
    let mend = "a first line such as #!/bin/sh or #!/usr/bin/env python3";
    subject.failure("has no `#!` line that names its interpreter", mend)
}

/// Returns the problems of the script at `path` that begins with `head`.
fn check_script(path: &Path, head: &[u8], path_env: &str, depth: u32) -> Vec<Finding> {
    let program = Subject::Program;
    let line = match Shebang::parse(head) {
        Ok(line) => line,
        Err(Bad::NoInterpreter) => {
            return vec![program.failure("names no interpreter after `#!`", "")];
        }
        Err(Bad::TooLong) => {
            let says = format!("has a `#!` line longer than the {LINE_MAX} bytes the kernel reads");
            return vec![program.failure(says, "")];
        }
    };
    if let Some(finding) = check_carriage_return(path, &line) {
        return vec![finding];
    }
    let mut found = Vec::new();
    if line.cut {
        let says = format!("has a `#!` line whose arguments are cut off after {LINE_MAX} bytes");
        found.push(program.warning(says, ""));
    }
    let interpreter = resolve_interpreter(path, line.interpreter);
    let subject = Subject::Interpreter(line.interpreter);
    found.extend(diagnose_executable(
        subject,
        &interpreter,
        path_env,
        depth + 1,
    ));
    if interpreter.file_name() == Some(OsStr::new("env")) && !found.iter().any(|f| f.fails) {
        found.extend(check_env_program(&line, path_env, depth));
    }
    found
}

/// Resolves a relative interpreter against the script's folder, because programs start in their own folder.
fn resolve_interpreter(script: &Path, interpreter: &[u8]) -> PathBuf {
    let folder = script.parent().unwrap_or(Path::new("/"));
    folder.join(OsStr::from_bytes(interpreter))
}

fn check_carriage_return(path: &Path, line: &Shebang<'_>) -> Option<Finding> {
    let mend = format!("sed -i 's/\\r$//' {}", words::shell_argument(path));
    let why = "the first line ends in a carriage return";
    let interpreter = Subject::Interpreter(line.interpreter);
    if line.interpreter.ends_with(b"\r") && !resolve_interpreter(path, line.interpreter).exists() {
        return Some(interpreter.failure(format!("does not exist: {why}"), mend));
    }
    let argument = escape(line.argument);
    let gets = || interpreter.failure(format!("is given the argument `{argument}`: {why}"), mend);
    line.argument.ends_with(b"\r").then(gets)
}

/// Checks for `#!/usr/bin/env NAME` that NAME will be found.
fn check_env_program(line: &Shebang<'_>, path_env: &str, depth: u32) -> Vec<Finding> {
    let argument = line.argument;
    let env = Subject::Interpreter(b"env");
    if argument.is_empty() {
        return vec![env.failure("is given no program to run", "#!/usr/bin/env NAME")];
    }
    let split = argument.starts_with(b"-S");
    if !split && argument.first() != Some(&b'-') && argument.iter().any(|&b| is_blank(b)) {
        let argument = escape(argument);
        let says = format!("looks for one program named `{argument}`");
        return vec![env.failure(says, format!("#!/usr/bin/env -S {argument}"))];
    }
    let Some((name, _)) = line.env_program() else {
        return Vec::new();
    };
    match search_path(name, path_env) {
        Some(found) if depth < SCRIPTS_MAX => {
            diagnose_executable(Subject::Interpreter(name), &found, path_env, depth + 1)
        }
        Some(_) => Vec::new(),
        None => {
            let says = format!("is not in the PATH of programs, {path_env}");
            vec![Subject::Interpreter(name).failure(says, "install it, or name its full path")]
        }
    }
}

/// Returns the file that execvp(3) would execute.
fn search_path(name: &[u8], path_env: &str) -> Option<PathBuf> {
    if name.contains(&b'/') {
        return Some(OsStr::from_bytes(name).into());
    }
    let runs = |file: &PathBuf| access::check_executable(Subject::Program, file).is_ok();
    path_env
        .split(':')
        .map(|folder| Path::new(folder).join(OsStr::from_bytes(name)))
        .find(runs)
}
