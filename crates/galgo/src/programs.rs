//! The programs of a route, and the problems of each.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use galgo_handlers::{
    script::{self, FoundProgram},
    wasm,
};
use galgo_proto::target::UrlPath;
use galgo_service::fault::Fault;
use galgo_spawn::{
    hanging::look_at,
    inspect::{self, Finding},
    owners::Remit,
    words,
};

use crate::config::{Application, Cgi, CgiRoot, Config, Route};

/// Limits of the search below a program folder: depth, and number of entries.
const DEPTH: usize = 16;
const ENTRIES: usize = 100_000;

/// A file of a program folder.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The path of the file.
    pub(crate) path: PathBuf,
    /// The decoded path of the URL that it answers.
    pub(crate) url: Vec<u8>,
    /// The configured interpreter.
    pub(crate) interpreter: Option<PathBuf>,
    /// The result of the check.
    pub(crate) state: FileState,
}

/// The kind of a file in a program folder.
#[derive(Debug)]
pub(crate) enum FileState {
    /// A program; the list is empty if the program is fine.
    Program(Vec<Finding>),
    /// A WebAssembly module. Only [`Seen::examined`] looks inside it.
    Module,
    /// No program: a request for it is refused. The text says how such a file is usually served, if its name tells.
    Other(Option<String>),
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Fine,
    Note,
    Warns,
    Fails,
}

impl Seen {
    pub(crate) fn verdict(&self) -> Severity {
        match &self.state {
            FileState::Other(_) => Severity::Note,
            FileState::Program(found) if found.iter().any(|f| f.fails) => Severity::Fails,
            FileState::Program(found) if !found.is_empty() => Severity::Warns,
            FileState::Program(_) | FileState::Module => Severity::Fine,
        }
    }

    /// Also checks the inside of a module, which takes as long as compiling it.
    pub(super) fn examined(self) -> Self {
        let FileState::Module = self.state else {
            return self;
        };
        let state = match wasm::examine(&self.path) {
            Ok(()) => FileState::Program(Vec::new()),
            Err(says) => failing(says),
        };
        Self { state, ..self }
    }
}

/// Checks the files of a route of programs one after the other, sorted by name.
pub(super) fn examine_all<'c>(
    config: &'c Config,
    route: &'c Route,
    cgi: &'c Cgi,
) -> impl Iterator<Item = Seen> + 'c {
    list_files(&cgi.root)
        .into_iter()
        .filter_map(move |file| examine_file(config, route, cgi, file))
}

/// Returns the files that a route of programs may answer with, sorted.
pub(crate) fn list_files(root: &CgiRoot) -> Vec<PathBuf> {
    let mut found = Vec::new();
    match root {
        CgiRoot::Program { path, .. } => found.push(path.clone()),
        CgiRoot::Folder { path, .. } => {
            let list = || {
                collect_files(path, DEPTH, &mut found);
                Ok(())
            };
            let _ = look_at(path, list);
        }
    }
    found.sort();
    found
}

/// Collects files, and folders that cannot be read. Folders behind links are left out because links may form loops.
pub(super) fn collect_files(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return found.push(folder.to_owned());
    };
    for entry in entries.flatten() {
        if found.len() >= ENTRIES {
            return;
        }
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => collect_files(&path, depth - 1, found),
            Ok(kind) if kind.is_symlink() && path.is_dir() => {}
            Ok(kind) if kind.is_file() || kind.is_symlink() => found.push(path),
            _ => {}
        }
    }
}

/// Returns the decoded path at which a file of a route answers.
pub(crate) fn program_url(route: &Route, cgi: &Cgi, file: &Path) -> Option<Vec<u8>> {
    let mut url = route.path.clone().into_bytes();
    if let CgiRoot::Folder { path: folder, .. } = &cgi.root {
        url.extend_from_slice(file.strip_prefix(folder).ok()?.as_os_str().as_bytes());
    }
    Some(url)
}

/// Checks one file. `None`: no URL reaches it (a dotfile, an editor's backup, a name that the route does not answer).
pub(crate) fn examine_file(
    config: &Config,
    route: &Route,
    cgi: &Cgi,
    path: PathBuf,
) -> Option<Seen> {
    let url = program_url(route, cgi, &path)?;
    let below = url.get(route.path.len()..).unwrap_or_default();
    let named = cgi.names.is_empty() || cgi.is_program(path.file_name()?.as_bytes());
    if !named || !route.answers_name(below) {
        return None;
    }
    let found = script::find_program(cgi, &route.path, UrlPath::from_clean(&url));
    let interpreter = found.as_ref().ok().and_then(|f| f.interpreter.clone());
    let state = match (closed(cgi, &path), found) {
        (Some(finding), _) => FileState::Program(vec![finding]),
        (None, Err(Fault::Refused(_))) if !claims_to_run(&path) => {
            FileState::Other(script::hint_for_file(url.as_slice()))
        }
        (None, Err(Fault::Refused(why))) => FileState::Program(vec![refused(&path, why)]),
        (None, Err(_)) => FileState::Program(vec![dangling(&path)?]),
        (None, Ok(found)) => runnable(config, cgi, &found, &path),
    };
    Some(Seen {
        url,
        path,
        interpreter,
        state,
    })
}

/// Returns the problems of the program that a request would run, by the same checks as for every program of a route.
pub(super) fn findings(
    config: &Config,
    cgi: &Cgi,
    found: &FoundProgram<'_>,
    path: &Path,
) -> Vec<Finding> {
    let seen = Seen {
        path: path.to_owned(),
        url: Vec::new(),
        interpreter: found.interpreter.clone(),
        state: runnable(config, cgi, found, path),
    };
    match seen.examined().state {
        FileState::Program(found) => found,
        FileState::Module | FileState::Other(_) => Vec::new(),
    }
}

/// Returns the kind of a file that a request would run.
fn runnable(config: &Config, cgi: &Cgi, found: &FoundProgram<'_>, path: &Path) -> FileState {
    if let Some(why) = denied(cgi.remit.as_deref(), found.owner, found.module, path) {
        return failing(why);
    }
    match found.module {
        _ if found.interpreter.is_some() => FileState::Program(inspect::check_source(path)),
        true => wasm::missing().map_or(FileState::Module, failing),
        false => FileState::Program(inspect::check_program(path, &config.path)),
    }
}

/// Describes a program that fails for a reason without a known fix.
fn failing(says: String) -> FileState {
    FileState::Program(vec![Finding {
        says,
        mend: String::new(),
        fails: true,
    }])
}

/// Returns why a program or a worker may not run as its configured user. `owner`: the owner of its file.
pub(super) fn denied(
    remit: Option<&Remit>,
    owner: u32,
    is_module: bool,
    path: &Path,
) -> Option<String> {
    let remit = remit?;
    let uid = remit.user_for_owner(owner);
    let known = remit.resolve_identity(uid).map_err(|e| e.to_string());
    let checked = known.and_then(|_| {
        let checked = if is_module {
            remit.check_module(path, uid)
        } else {
            remit.check_program(path, uid)
        };
        checked.map_err(|e| e.to_string())
    });
    checked.err()
}

/// Returns why the workers of an application cannot start. `run`: their program. If they run as another user, that user must be
/// able to execute the files.
pub(super) fn worker_fault(config: &Config, up: &Application, run: &Path) -> Option<String> {
    let remit = up.remit.as_deref();
    let owner = run.metadata().map_or(0, |meta| meta.uid());
    if remit.is_some() {
        return denied(remit, owner, false, run);
    }
    let found = inspect::check_program(run, &config.path);
    let fault = found.into_iter().find(|finding| finding.fails);
    fault.map(|finding| finding.to_string())
}

/// Returns why the server's user finds no program in a folder, or only programs whose names it knows.
fn closed(cgi: &Cgi, path: &Path) -> Option<Finding> {
    match (&cgi.root, path.metadata()) {
        (CgiRoot::Program { .. }, _) => None,
        (_, Ok(meta)) if !meta.is_dir() => None,
        (_, Err(e)) if e.kind() != io::ErrorKind::PermissionDenied => None,
        _ => inspect::check_folder_access(path),
    }
}

/// Reports a link to nothing. Dotfiles do not count, because editors keep their locks in such links.
fn dangling(path: &Path) -> Option<Finding> {
    let name = path.file_name()?.as_bytes();
    if name.starts_with(b".") || name.ends_with(b"~") || path.exists() {
        return None;
    }
    inspect::check_source(path).into_iter().find(|f| f.fails)
}

/// Explains why the server does not run a file, in the inspection's words if it has any.
fn refused(path: &Path, why: String) -> Finding {
    if let Some(finding) = inspect::check_module_name(path) {
        return finding;
    }
    let of_mode = path
        .metadata()
        .is_ok_and(|m| m.permissions().mode() & 0o111 == 0);
    let (says, mend) = if of_mode {
        (
            "the program is not executable".into(),
            format!("chmod +x {}", words::shell_argument(path)),
        )
    } else {
        (why, String::new())
    };
    Finding {
        says,
        mend,
        fails: true,
    }
}

/// O_NONBLOCK: if the file is a pipe, open(2) does not wait for a writer.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// Whether a file without execute permission looks like a program: it begins like a script, is linked like a program, or cannot
/// be read.
fn claims_to_run(path: &Path) -> bool {
    let library = path
        .file_name()
        .is_some_and(|name| memchr::memmem::find(name.as_bytes(), b".so").is_some());
    match first_bytes(path) {
        Ok(head) => head.starts_with(b"#!") || head == b"\0asm" || (head == b"\x7fELF" && !library),
        Err(_) => true,
    }
}

/// Whether a file begins with these bytes, at most four.
pub(super) fn begins(path: &Path, bytes: &[u8]) -> bool {
    first_bytes(path).is_ok_and(|head| head.starts_with(bytes))
}

fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::options()
        .read(true)
        .custom_flags(NONBLOCK)
        .open(path)?;
    file.take(4).read_to_end(&mut head)?;
    Ok(head)
}

/// Encodes a decoded path for a URL.
pub(crate) fn percent_encode(path: &[u8]) -> String {
    let mut url = String::with_capacity(path.len());
    for &b in path {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                url.push(char::from(b));
            }
            b => url.push_str(&format!("%{b:02X}")),
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use crate::programs::*;

    #[test]
    fn a_url_is_printable_whatever_the_name() {
        let path = b"/cgi-bin/~a_b-c.d \x1b%?\xc3\xa9";
        assert_eq!(percent_encode(path), "/cgi-bin/~a_b-c.d%20%1B%25%3F%C3%A9");
    }
}
