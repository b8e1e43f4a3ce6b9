//! Finds the program that a path names: "the first existing file on the path", and the rest of the path.

use std::{
    borrow::Cow,
    ffi::{CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use galgo_proto::target::UrlPath;
use galgo_service::{
    fault::{Fault, is_shortage},
    request::Named,
};
use galgo_spawn::{FileId, inspect, words};
use rustix::{
    fs::{CWD, FileType, ResolveFlags, Stat, fstat},
    io::Errno,
};

use crate::{
    application_settings::Application,
    beneath::{self, NAME},
    blocking::stat_path,
    links,
    modules::is_module,
    program_settings::Cgi,
    root::{CgiRoot, Folder},
};

/// A program, and the parts of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundProgram<'p> {
    /// SCRIPT_NAME: the path up to and including the program, without a slash at its end.
    pub script_name: &'p [u8],
    /// PATH_INFO: the rest of the path as it came (`//` stays). It is empty or begins with `/`.
    pub path_info: &'p [u8],
    /// PATH_TRANSLATED: DOCUMENT_ROOT and PATH_INFO; `None` if there is no PATH_INFO.
    pub path_translated: Option<Vec<u8>>,
    /// SCRIPT_FILENAME, absolute, as configured: links are not resolved.
    pub script_filename: CString,
    /// The folder of the program: its working directory.
    pub dir: CString,
    /// The interpreter of the file: `execve` it with the arguments `[interpreter, script_filename]`.
    ///
    /// php-cgi finds the script by SCRIPT_FILENAME, wants REDIRECT_STATUS, and ignores the argument. But it shows the source of
    /// a file for `-s`, so a query must never become its argument. Perl, Python and the shells take the argument, which begins
    /// with `/` and so is no option.
    pub interpreter: Option<PathBuf>,
    /// The file's name is that of a WebAssembly module, and no interpreter is set for it.
    pub module: bool,
    /// Identity of the file as it is now.
    pub id: FileId,
    /// The user that the file belongs to.
    pub owner: u32,
    /// The file's name begins with `nph-`: its output goes to the client untouched.
    pub nph: bool,
}

impl FoundProgram<'_> {
    /// Returns whether one template serves all files that the interpreter runs on a route, as one user and with the same
    /// variables.
    pub fn shares_template(&self) -> bool {
        self.interpreter.as_deref().is_some_and(inspect::serves_all)
    }

    /// Returns the file that the template is loaded from. If the [template is shared](Self::shares_template), that is the
    /// interpreter, else the program's own file.
    pub fn template_file(&self) -> CString {
        let shared = self.interpreter.as_ref().filter(|_| self.shares_template());
        let interpreter = shared.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        interpreter.unwrap_or_else(|| self.script_filename.clone())
    }
}

/// The fault if the system had no descriptor or no memory for the search.
const BUSY: Fault = Fault::Busy("no descriptor or memory is left to look for a program");

/// Finds the program that `path` names on a route with the path `route_path`.
///
/// # Errors
/// The program does not exist ([`Fault::NotFound`]), may not be run ([`Fault::Refused`]), or cannot be looked for now
/// ([`Fault::Busy`]). A file is never shown instead.
pub fn find_program<'p>(
    cgi: &Cgi,
    route_path: &str,
    path: UrlPath<'p>,
) -> Result<FoundProgram<'p>, Fault> {
    let (file, stat, length) = locate(&cgi.root, route_path, path.clean)?;
    let (name, info) = path.split_at(length).ok_or(Fault::NotFound)?;
    check_program(cgi, file, &stat, name, info)
}

/// The meaning of a path in a folder of files and programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AmongFiles<'p> {
    /// A file, a folder, or nothing: no program.
    File,
    /// A program.
    Program(FoundProgram<'p>),
    /// The decoded path of a program that is the index of a folder.
    Index(Vec<u8>),
}

/// Finds the program that `path` names in a folder of files and programs. `index` holds the names to try for a folder.
///
/// # Errors
/// The program may not be run. Its source is never shown instead.
pub fn find_program_in_files<'p>(
    cgi: &Cgi,
    index: &[String],
    route_path: &str,
    path: UrlPath<'p>,
) -> Result<AmongFiles<'p>, Fault> {
    if may_name_program(cgi, route_path, path.clean) {
        match find_program(cgi, route_path, path) {
            Err(Fault::NotFound) => {}
            found => return found.map(AmongFiles::Program),
        }
    }
    if !path.clean.ends_with(b"/") || !index.iter().any(|name| cgi.is_program(name.as_bytes())) {
        return Ok(AmongFiles::File);
    }
    for name in index {
        let whole = [path.clean, name.as_bytes()].concat();
        match locate(&cgi.root, route_path, &whole) {
            Ok((.., length)) if length == whole.len() => {
                return Ok(if cgi.is_program(name.as_bytes()) {
                    AmongFiles::Index(whole)
                } else {
                    AmongFiles::File
                });
            }
            Err(busy @ Fault::Busy(_)) => return Err(busy),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(AmongFiles::File)
}

/// Returns whether a name in the path can be that of a program among files. A request for a picture makes no system call here.
fn may_name_program(cgi: &Cgi, route_path: &str, path: &[u8]) -> bool {
    let below = path.strip_prefix(route_path.as_bytes()).unwrap_or_default();
    let mut names = below.split(|&b| b == b'/');
    names.any(|name| !name.is_empty() && cgi.is_program(name))
}

/// Returns how much of the path names a program among files; `None`: the first file on the path is no program.
///
/// # Errors
/// The program cannot be looked for now.
pub fn length_of_program(cgi: &Cgi, route_path: &str, path: &[u8]) -> Result<Option<usize>, Fault> {
    if !may_name_program(cgi, route_path, path) {
        return Ok(None);
    }
    match locate(&cgi.root, route_path, path) {
        Ok((file, _, length)) => {
            let name = file.rsplit(|&b| b == b'/').next().unwrap_or_default();
            Ok(cgi.is_program(name).then_some(length))
        }
        Err(busy @ Fault::Busy(_)) => Err(busy),
        Err(_) => Ok(None),
    }
}

/// The script that an application is to run, and the parts of the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamScript<'p> {
    /// SCRIPT_NAME, without a slash at its end.
    pub script_name: Cow<'p, [u8]>,
    /// PATH_INFO.
    pub path_info: &'p [u8],
    /// PATH_TRANSLATED.
    pub path_translated: Option<Vec<u8>>,
    /// SCRIPT_FILENAME; empty if the path names no file.
    pub script_filename: Vec<u8>,
}

/// The meaning of a path on a route of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamPath<'p> {
    /// A script.
    Script(UpstreamScript<'p>),
    /// A folder with an index, without its last slash: answer 301 to the same path with the slash.
    Folder,
}

/// Finds the script that `path` names on a route of an upstream. If the route has a `root`, the script is an existing file, or
/// the index of a folder. Otherwise the route's own path is the script's name, and the rest is PATH_INFO.
///
/// # Errors
/// The script does not exist, or may not be read.
pub fn find_script<'p>(
    up: &Application,
    route_path: &str,
    path: UrlPath<'p>,
) -> Result<UpstreamPath<'p>, Fault> {
    let (script_filename, length) = match &up.scripts {
        None => {
            let own = route_path.strip_suffix('/').unwrap_or(route_path);
            (Vec::new(), own.len())
        }
        Some(root) => match locate(root, route_path, path.clean) {
            // An uploaded picture is not run just because it exists.
            Ok((file, ..)) if !is_script(up, &file) => return Err(Fault::NotFound),
            Ok((file, stat, length)) => {
                check_runnable(&file, &stat, true)?;
                (file, length)
            }
            Err(Fault::NotFound) => return find_index_script(up, root, route_path, path.clean),
            Err(refusal) => return Err(refusal),
        },
    };
    let (script_name, path_info) = path.split_at(length).ok_or(Fault::NotFound)?;
    let document_root = up.document_root.as_deref();
    Ok(UpstreamPath::Script(UpstreamScript {
        script_name: script_name.into(),
        path_info,
        path_translated: document_root.and_then(|root| translated(root, path_info)),
        script_filename,
    }))
}

/// Returns whether the application may be asked to run a file of its folder.
fn is_script(up: &Application, file: &[u8]) -> bool {
    let ends = |ending: &String| file.ends_with(ending.as_bytes());
    // Without extensions the route has a single script, or none.
    up.endings.is_empty() || up.endings.iter().any(ends)
}

fn find_index_script<'p>(
    up: &Application,
    root: &CgiRoot,
    route_path: &str,
    path: &[u8],
) -> Result<UpstreamPath<'p>, Fault> {
    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
    for name in &up.index {
        let whole = [path, slash, name.as_bytes()].concat();
        match locate(root, route_path, &whole) {
            // A shorter match is a file on the path, which was already looked for.
            Ok((file, stat, length)) if length == whole.len() => {
                if !slash.is_empty() {
                    return Ok(UpstreamPath::Folder);
                }
                check_runnable(&file, &stat, true)?;
                return Ok(UpstreamPath::Script(UpstreamScript {
                    script_name: whole.into(),
                    script_filename: file,
                    ..UpstreamScript::default()
                }));
            }
            Ok(_) | Err(Fault::NotFound) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Err(Fault::NotFound)
}

fn translated(document_root: &Path, path_info: &[u8]) -> Option<Vec<u8>> {
    let root = document_root.as_os_str().as_bytes();
    let root = root.strip_suffix(b"/").unwrap_or(root);
    (!path_info.is_empty()).then(|| [root, path_info].concat())
}

/// Finds the first existing file on the path: its name, its status, and how much of the path names it.
fn locate(root: &CgiRoot, route_path: &str, path: &[u8]) -> Result<(Vec<u8>, Stat, usize), Fault> {
    let base = route_path.strip_suffix('/').unwrap_or(route_path).len();
    let from = match root {
        CgiRoot::Program { .. } => base,
        CgiRoot::Folder { .. } => base + 1,
    };
    let below = path.get(from..).ok_or(Fault::NotFound)?;
    let (file, stat, length) = locate_below(root, route_path, below)?;
    Ok((file, stat, from + length))
}

/// Finds the first existing file on the way to `below`: its name, its status, and how much of `below` names it.
fn locate_below(
    root: &CgiRoot,
    route_path: &str,
    below: &[u8],
) -> Result<(Vec<u8>, Stat, usize), Fault> {
    match root {
        CgiRoot::Program { path, waits } => {
            let name = path.as_os_str().as_bytes();
            let direct = || {
                let opened = beneath::resolve(CWD, name, NAME, ResolveFlags::NO_MAGICLINKS);
                opened.and_then(fstat)
            };
            let stat = waits
                .as_ref()
                .map_or_else(direct, |folder| stat_path(folder, name));
            let stat = stat.map_err(|errno| lookup_fault(errno, path))?;
            Ok((name.to_owned(), stat, 0))
        }
        CgiRoot::Folder { path, fd } => {
            let found = locate_program(fd, below);
            let (length, stat) = found.map_err(|(errno, length)| {
                let below = OsStr::from_bytes(&below[..length]);
                let file = path.join(below);
                if errno == Errno::XDEV {
                    let asked = Path::new(route_path).join(below);
                    return Fault::Refused(links::leads_out(&file, &asked));
                }
                lookup_fault(errno, &file)
            })?;
            let file = [path.as_os_str().as_bytes(), b"/", &below[..length]].concat();
            Ok((file, stat, length))
        }
    }
}

/// Finds the program at `below` in its folder. The rest of `below` is PATH_INFO. `named` must have the same rest, as its
/// PATH_INFO or at the end of its SCRIPT_NAME.
pub fn find_program_below<'p>(
    cgi: &Cgi,
    route_path: &str,
    below: &[u8],
    named: &'p Named,
) -> Result<FoundProgram<'p>, Fault> {
    let (file, stat, length) = locate_below(&cgi.root, route_path, below)?;
    let rest = &below[length..];
    let (script_name, path_info) = match (rest, &named.path_info[..]) {
        ([], info) => (&named.script_name[..], info),
        (rest, []) if named.script_name.ends_with(rest) => {
            let at = named.script_name.len() - rest.len();
            named.script_name.split_at(at)
        }
        (rest, info) if info == rest => (&named.script_name[..], info),
        _ => {
            let why = "SCRIPT_FILENAME has a path after the program, but neither SCRIPT_NAME nor PATH_INFO ends in that path";
            return Err(Fault::Refused(why.into()));
        }
    };
    check_program(cgi, file, &stat, script_name, path_info)
}

/// Returns the length of the part of `below` that names the program.
///
/// The whole is tried first, because most requests carry no PATH_INFO: one openat2 and one fstat. If a file stands in the way,
/// that file is the program. The walk from the front meets it after at most as many steps as there are real folders, and after
/// at most [`MAX_FOLDERS`].
///
/// # Errors
/// The reason why there is no program, and the length of the part of `below` that it is about.
fn locate_program(folder: &Folder, below: &[u8]) -> Result<(usize, Stat), (Errno, usize)> {
    let whole = plausible(below);
    let nothing = (Errno::NOENT, whole);
    if whole == 0 {
        return Err(nothing);
    }
    match stat_path(folder, &below[..whole]) {
        Ok(stat) if is_folder(&stat) => return Err(nothing),
        Ok(stat) => return Ok((whole, stat)),
        // The path after the program may be longer than any file's.
        Err(Errno::NOTDIR | Errno::NAMETOOLONG) => {}
        Err(errno) => return Err((errno, whole)),
    }
    let slashes = (0..whole).filter(|&at| below[at] == b'/');
    for length in slashes.take(MAX_FOLDERS) {
        let stat = stat_path(folder, &below[..length]).map_err(|errno| (errno, length))?;
        if !is_folder(&stat) {
            return Ok((length, stat));
        }
    }
    Err(nothing)
}

/// Limit of the folders that are searched for a program with PATH_INFO. Each look begins at the folder of the route.
const MAX_FOLDERS: usize = 64;

/// Returns how far `below` can name a program: up to an empty segment, a dotfile, or an editor's backup.
fn plausible(below: &[u8]) -> usize {
    let mut length = 0;
    for segment in below.split(|&b| b == b'/') {
        if segment.is_empty() || segment.starts_with(b".") || segment.ends_with(b"~") {
            break;
        }
        length += segment.len() + usize::from(length > 0);
    }
    length
}

fn check_program<'p>(
    cgi: &Cgi,
    file: Vec<u8>,
    stat: &Stat,
    script_name: &'p [u8],
    path_info: &'p [u8],
) -> Result<FoundProgram<'p>, Fault> {
    let name_at = file.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let name = &file[name_at..];
    if !cgi.is_program(name) {
        return Err(Fault::NotFound);
    }
    let ours = cgi
        .interpreters
        .iter()
        .find(|(ending, _)| name.ends_with(ending.as_bytes()));
    let interpreter = ours.map(|(_, program)| program.clone());
    let module = interpreter.is_none() && is_module(name);
    check_runnable(&file, stat, interpreter.is_some() || module)?;
    let nph = name.starts_with(b"nph-");
    let dir = CString::new(&file[..name_at.saturating_sub(1).max(1)]);
    // A NUL never gets here, because no Target and no configuration holds a NUL.
    let (Ok(dir), Ok(script_filename)) = (dir, CString::new(file)) else {
        return Err(Fault::NotFound);
    };
    Ok(FoundProgram {
        script_name,
        path_info,
        path_translated: translated(&cgi.document_root, path_info),
        script_filename,
        dir,
        interpreter,
        module,
        id: FileId::from_stat(stat),
        owner: stat.st_uid,
        nph,
    })
}

/// Checks whether the file may be run, by its mode alone. If the mode allows it and this user may not, `execve` answers EACCES,
/// which is a 403 too.
fn check_runnable(name: &[u8], stat: &Stat, interpreted: bool) -> Result<(), Fault> {
    let file = Path::new(OsStr::from_bytes(name));
    let forbidden = |why: String| Err(Fault::Refused(why));
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return forbidden(format!("{file:?} is not a regular file"));
    }
    let argument = || words::shell_argument(file);
    if interpreted && stat.st_mode & 0o444 == 0 {
        return forbidden(format!(
            "{file:?} is not readable: chmod a+r {}",
            argument()
        ));
    }
    if !interpreted && stat.st_mode & 0o111 == 0 {
        let mend = hint_for_file(name).unwrap_or_else(|| format!("chmod +x {}", argument()));
        return forbidden(format!("{file:?} is not executable: {mend}"));
    }
    Ok(())
}

/// Says what to do with a file whose name shows that it is no program by itself; `None`: it may be meant as a program.
pub fn hint_for_file(file: &[u8]) -> Option<String> {
    const PAGES: [&str; 14] = [
        "html", "htm", "xhtml", "css", "js", "json", "txt", "pdf", "png", "jpg", "jpeg", "gif",
        "svg", "ico",
    ];
    let dot = memchr::memrchr(b'.', file)?;
    let ending = std::str::from_utf8(&file[dot + 1..])
        .ok()?
        .to_ascii_lowercase();
    if ending == "php" {
        return Some(
            "name its interpreter: \".php\" = \"/usr/bin/php-cgi\" under [interpreters]".into(),
        );
    }
    let page = PAGES.contains(&ending.as_str());
    page.then(|| "static files belong in a folder of files, such as public/".into())
}

fn lookup_fault(errno: Errno, file: &Path) -> Fault {
    match errno {
        Errno::LOOP => Fault::Refused(format!("{file:?} is a loop of symbolic links")),
        Errno::ACCESS => Fault::Refused(format!(
            "the server's user cannot enter a folder on the way to {file:?}: chmod a+x each closed folder on the way"
        )),
        // INVAL: a NUL in the path.
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Fault::NotFound,
        beneath::WAITS => BUSY,
        short if is_shortage(&short.into()) => BUSY,
        other => Fault::Refused(format!("{file:?}: {other}")),
    }
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests;
