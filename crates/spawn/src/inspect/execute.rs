//! Finds what prevents a file from being executed. Its interpreters are checked too, and may be scripts themselves.

use super::{
    access, elf,
    finding::{Finding, Subject, chmod},
    format::{head, other_formats},
    script::{Bad, LINE_MAX, Shebang, blank},
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
pub(super) fn executable(
    subject: Subject<'_>,
    path: &Path,
    path_env: &str,
    depth: u32,
) -> Vec<Finding> {
    if let Err(finding) = access::executable(subject, path) {
        return vec![finding];
    }
    let head = match head(path) {
        Ok(head) => head,
        // This is enough for a binary, but a script's interpreter could not read the file.
        Err(e) => {
            return vec![subject.warns(format!("cannot be read: {e}"), chmod("+r", path))];
        }
    };
    if head.starts_with(b"#!") {
        if depth >= SCRIPTS_MAX {
            return vec![subject.fails("is one of too many scripts that interpret scripts", "")];
        }
        return script(path, &head, path_env, depth);
    }
    if head.starts_with(elf::MAGIC) {
        return elf::check(subject, path, &head).into_iter().collect();
    }
    vec![unknown(subject, path, &head)]
}

/// Returns a finding for a WebAssembly module whose name does not end like a module's; `None`: no module, or a proper name.
pub fn misnamed(path: &Path) -> Option<Finding> {
    let named = path
        .extension()
        .is_some_and(|ending| ending == "wasm" || ending == "wcgi");
    if named || !head(path).is_ok_and(|head| head.starts_with(MODULE)) {
        return None;
    }
    let named = path.with_added_extension("wasm");
    let mend = format!("mv {} {}", words::argument(path), words::argument(&named));
    let says = "is a WebAssembly module: its name has to end in .wasm";
    Some(Subject::Program.fails(says, mend))
}

/// The first bytes of every WebAssembly module.
const MODULE: &[u8] = b"\0asm";

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
        let module = match subject {
            Subject::Program => misnamed(path),
            Subject::Interpreter(_) => None,
        };
        let finding = module
            .unwrap_or_else(|| subject.fails("is neither a script nor a program for Linux", ""));
        // Java archives, programs for Windows and the like may have been registered with the kernel.
        return Finding {
            fails: !other_formats(),
            ..finding
        };
    }
    let mend = "a first line such as #!/bin/sh or #!/usr/bin/env python3";
    subject.fails("has no `#!` line that names its interpreter", mend)
}

/// Returns the problems of the script at `path` that begins with `head`.
fn script(path: &Path, head: &[u8], path_env: &str, depth: u32) -> Vec<Finding> {
    let program = Subject::Program;
    let line = match Shebang::parse(head) {
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

/// Resolves a relative interpreter against the script's folder, because programs start in their own folder.
fn resolve(script: &Path, interpreter: &[u8]) -> PathBuf {
    let folder = script.parent().unwrap_or(Path::new("/"));
    folder.join(OsStr::from_bytes(interpreter))
}

fn carriage_return(path: &Path, line: &Shebang<'_>) -> Option<Finding> {
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

/// Checks for `#!/usr/bin/env NAME` that NAME will be found.
fn env(line: &Shebang<'_>, path_env: &str, depth: u32) -> Vec<Finding> {
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

/// Returns the file that execvp(3) would execute.
fn search(name: &[u8], path_env: &str) -> Option<PathBuf> {
    if name.contains(&b'/') {
        return Some(OsStr::from_bytes(name).into());
    }
    let runs = |file: &PathBuf| access::executable(Subject::Program, file).is_ok();
    path_env
        .split(':')
        .map(|folder| Path::new(folder).join(OsStr::from_bytes(name)))
        .find(runs)
}
