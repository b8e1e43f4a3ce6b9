//! Decides which of the modules that children name are loaded ahead of requests.
//!
//! A well-formed name may still refer to a file that hostile code has put there. Therefore a module counts only if the program
//! would look for it there. A template reports that search path before any request. Besides, the program's user must be unable
//! to change the module's file. If that user may put files into a folder of the search path anyway, hostile code needs no help
//! to load them. Then a file counts if it has not changed since before the first request. The time of a file's last change
//! (ctime) cannot be set back.
//!
//! 1. `SearchPath`: as reported by a template
//! 2. `files`: the files that a name stands for, as its language finds them
//! 3. `SearchFolder`: which users can change a file, decided on descriptors

use super::names::{module_file, module_name};
use crate::{identity::effective_uid, template_kind::TemplateKind};
use rustix::{
    fs::{
        Access, AtFlags, CWD, FileType, Mode, OFlags, Stat, accessat, fstat, openat, readlinkat,
        statat,
    },
    io::Errno,
};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// Links on the way to a folder (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The places where a program looks for modules, as reported by a template without learned modules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchPath {
    /// Absolute paths, in the order of the search.
    folders: Vec<PathBuf>,
    /// Extensions of a module's file, in the order of the search (Python).
    endings: Vec<Vec<u8>>,
    builtin: BTreeSet<Vec<u8>>,
}

impl SearchPath {
    /// Adds a template's report, one entry a line.
    pub(super) fn add_report(&mut self, text: &[u8]) {
        for line in text.split(|&b| b == b'\n') {
            match line.first() {
                None => {}
                Some(b'/') => self.folders.push(OsStr::from_bytes(line).into()),
                Some(b'.') => self.endings.push(line.to_vec()),
                Some(_) => {
                    self.builtin.insert(line.to_vec());
                }
            }
        }
    }

    /// Returns the `names`, one a line, that may be loaded ahead of requests. A file that changed at `since` or later does not
    /// count. This reads folders: do not call it in an event loop.
    pub fn trusted_names(&self, kind: TemplateKind, names: &[u8], since: Duration) -> Vec<u8> {
        if names.is_empty() {
            return Vec::new();
        }
        let places: Vec<SearchFolder> = self
            .folders
            .iter()
            .filter_map(|f| SearchFolder::open_path(f).ok())
            .collect();
        let trusts =
            |(place, file): &ModuleFile<'_>| place.can_trust(kind, file, since).unwrap_or(false);
        let good = |line: &&[u8]| {
            let (name, said) = (module_name(line), module_file(line));
            if self.builtin.contains(name) {
                return said.is_none();
            }
            // A child may have found another module of that name.
            let is_same = |(place, file): &ModuleFile<'_>| match kind {
                TemplateKind::Python | TemplateKind::Perl => said == Some(&*place.path.join(file)),
                _ => true,
            };
            find_files(kind, self, &places, name)
                .is_some_and(|files| files.last().is_some_and(is_same) && files.iter().all(trusts))
        };
        let names = kind.module_names(names).into_iter().filter(good);
        names.flat_map(|name| [name, b"\n"].concat()).collect()
    }
}

/// A file, as a folder of the search path and the relative path below it.
type ModuleFile<'p> = (&'p SearchFolder, PathBuf);

/// Returns the files that loading `name` runs, found as the language finds them; `None` if they are found otherwise.
fn find_files<'p>(
    kind: TemplateKind,
    search: &SearchPath,
    places: &'p [SearchFolder],
    name: &[u8],
) -> Option<Vec<ModuleFile<'p>>> {
    let path = Path::new(OsStr::from_bytes(name));
    match kind {
        TemplateKind::Elf => None,
        TemplateKind::Python => find_python_files(search, places, name),
        TemplateKind::Perl => {
            let place = places.iter().find(|place| place.has_entry(path, None))?;
            // Perl takes A.pmc for A.pm.
            let other = path.with_extension("pmc");
            (!place.has_entry(&other, None)).then(|| vec![(place, path.to_owned())])
        }
        // Modules of these languages are named by their path.
        TemplateKind::Ruby | TemplateKind::Node | TemplateKind::Php => {
            places.iter().find_map(|place| {
                let rest = path.strip_prefix(&place.path).ok()?;
                Some(vec![(place, rest.to_owned())])
            })
        }
    }
}

/// Searches as importlib's FileFinder does: a package precedes a module of its name. A package made of several folders (a
/// namespace package) is left to the children.
fn find_python_files<'p>(
    search: &SearchPath,
    places: &'p [SearchFolder],
    name: &[u8],
) -> Option<Vec<ModuleFile<'p>>> {
    let parts: Vec<&OsStr> = name.split(|&b| b == b'.').map(OsStr::from_bytes).collect();
    let first = Path::new(parts[0]);
    let file = |place: &SearchFolder, stem: &Path| {
        let with = |ending: &Vec<u8>| {
            let name = [stem.as_os_str().as_bytes(), ending].concat();
            PathBuf::from(OsStr::from_bytes(&name))
        };
        let mut all = search.endings.iter().map(with);
        all.find(|path| place.has_entry(path, Some(FileType::RegularFile)))
    };
    let module = |place: &SearchFolder, way: &Path| {
        let package = file(place, &way.join("__init__"));
        package.or_else(|| file(place, way))
    };
    let place = places.iter().find(|place| module(place, first).is_some())?;
    let mut found = Vec::new();
    let mut way = PathBuf::new();
    for part in parts {
        way.push(part);
        found.push((place, module(place, &way)?));
    }
    Some(found)
}

#[derive(Debug)]
struct SearchFolder {
    path: PathBuf,
    folder: OwnedFd,
    /// Whether the program's user can put another file into the folder, or another folder or link on the way to it.
    open: bool,
}

impl SearchFolder {
    fn open_path(path: &Path) -> io::Result<Self> {
        let mut walk = SearchWalk::from_root()?;
        let mut left = reversed_parts(path.as_os_str().as_bytes());
        let mut links = 0;
        while let Some(part) = left.pop() {
            let Some(link) = walk.step_into(&part)? else {
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            if link.starts_with(b"/") {
                walk.folders.truncate(1);
            }
            left.extend(reversed_parts(&link));
        }
        let open = walk.changeable || walk.last_entry().writable;
        let folder = walk.folders.pop().ok_or(io::ErrorKind::NotFound)?.fd;
        Ok(Self {
            path: path.to_owned(),
            folder,
            open,
        })
    }

    /// Returns whether the folder has an entry of that name and kind.
    fn has_entry(&self, path: &Path, kind: Option<FileType>) -> bool {
        let is = |stat: Stat| kind.is_none_or(|kind| FileType::from_raw_mode(stat.st_mode) == kind);
        statat(&self.folder, path, AtFlags::empty()).is_ok_and(is)
    }

    /// Returns whether `file` may be loaded ahead of requests: a regular file below the folder, with no link on the way.
    fn can_trust(&self, kind: TemplateKind, file: &Path, since: Duration) -> io::Result<bool> {
        let mut walk = SearchWalk {
            folders: vec![PathEntry::from_fd(self.folder.try_clone()?)?],
            changeable: self.open,
            newest: Duration::ZERO,
        };
        let mut left = reversed_parts(file.as_os_str().as_bytes());
        while let Some(part) = left.pop() {
            if walk.step_into(&part)?.is_some() {
                return Ok(false);
            }
        }
        let last = walk.last_entry();
        if FileType::from_raw_mode(last.stat.st_mode) != FileType::RegularFile {
            return Ok(false);
        }
        let changeable = walk.changeable || last.writable;
        if kind == TemplateKind::Php {
            // PHP scripts are compiled, not run, and checked again before each use: a change of a folder makes no difference.
            let ours = is_own(last.stat.st_uid) || last.stat.st_uid == 0;
            return Ok(ours && (!(self.open || changeable) || change_time(&last.stat) < since));
        }
        if self.open {
            return Ok(walk.newest < since);
        }
        Ok(!(changeable || kind == TemplateKind::Python && walk.caches_openly()))
    }
}

/// The way to a file, entered name by name.
#[derive(Debug)]
struct SearchWalk {
    /// The entered folders and file; first the root or the search path's folder.
    folders: Vec<PathEntry>,
    /// Whether the program's user can replace something on the way, or gain the right to do so.
    changeable: bool,
    /// The time of the last change on the way.
    newest: Duration,
}

/// A folder or a file on the way.
#[derive(Debug)]
struct PathEntry {
    fd: OwnedFd,
    stat: Stat,
    /// Whether this process may write here. The kernel decides, by the rights that this process shares with its programs: lists
    /// of access (acl(5)) count.
    writable: bool,
}

impl PathEntry {
    fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&fd)?;
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let writable = match accessat(CWD, link, Access::WRITE_OK, AtFlags::EACCESS) {
            Ok(()) => true,
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => false,
            Err(e) => return Err(e.into()),
        };
        Ok(Self { fd, stat, writable })
    }
}

impl SearchWalk {
    fn from_root() -> io::Result<Self> {
        let root = PathEntry::from_fd(open_entry(CWD, b"/")?)?;
        Ok(Self {
            changeable: is_own(root.stat.st_uid),
            folders: vec![root],
            newest: Duration::ZERO,
        })
    }

    fn last_entry(&self) -> &PathEntry {
        // INVARIANT: the first entry is never left.
        self.folders.last().unwrap_or_else(|| unreachable!())
    }

    /// Enters `name`. If that is a link, returns its target.
    fn step_into(&mut self, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if name == b".." {
            if self.folders.len() > 1 {
                self.folders.pop();
            }
            return Ok(None);
        }
        let here = self.last_entry();
        let fd = open_entry(&here.fd, name)?;
        let stat = fstat(&fd)?;
        let owned = is_own(stat.st_uid);
        let sticky = here.stat.st_mode & 0o1000 != 0;
        let replaceable = here.writable && (!sticky || owned || is_own(here.stat.st_uid));
        self.changeable |= owned || replaceable;
        self.newest = self.newest.max(change_time(&stat));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Ok(Some(readlinkat(&fd, "", Vec::new())?.into_bytes()));
        }
        self.folders.push(PathEntry::from_fd(fd)?);
        Ok(None)
    }

    /// Returns whether the program's user may write to the folder of compiled code. Python looks there before it reads a
    /// module's source.
    fn caches_openly(&self) -> bool {
        let [.., folder, _] = &self.folders[..] else {
            return true;
        };
        match open_entry(&folder.fd, b"__pycache__").and_then(PathEntry::from_fd) {
            Ok(cache) => cache.writable || is_own(cache.stat.st_uid),
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// Opens an entry of a folder, or a link itself, only to examine it.
fn open_entry(folder: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Returns whether this user may change the rights to a file of `owner`, and thereby its contents.
fn is_own(owner: u32) -> bool {
    [0, owner].contains(&effective_uid())
}

#[allow(clippy::unnecessary_cast)] // types differ between machines
fn change_time(stat: &Stat) -> Duration {
    let nanoseconds = u32::try_from(stat.st_ctime_nsec).unwrap_or(0);
    Duration::new((stat.st_ctime as i64).max(0).unsigned_abs(), nanoseconds)
}

/// Returns the names in a path, the last one first.
fn reversed_parts(path: &[u8]) -> Vec<Vec<u8>> {
    let named = |part: &&[u8]| !matches!(*part, b"" | b".");
    let parts = path.split(|&b| b == b'/').filter(named);
    parts.rev().map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use std::{fs, os::unix::fs::symlink};

    const LATER: Duration = Duration::from_secs(1 << 40);

    /// A folder that this user may change, with files in it.
    struct Site(tempfile::TempDir, SearchPath);

    impl Site {
        fn new(folders: &[&str], files: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut search = SearchPath::default();
            for folder in folders {
                fs::create_dir_all(dir.path().join(folder)).unwrap();
                search.add_report(dir.path().join(folder).as_os_str().as_bytes());
            }
            for file in files {
                let file = dir.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "").unwrap();
            }
            search.add_report(b".cpython-x.so\n.py\n.pyc\nsys\n");
            Self(dir, search)
        }

        fn trusts(&self, kind: TemplateKind, name: &str) -> bool {
            self.at(kind, name, LATER)
        }

        fn at(&self, kind: TemplateKind, name: &str, since: Duration) -> bool {
            let name = name.replace("SITE", &self.0.path().display().to_string());
            let name = match self.file(kind, &name) {
                Some(file) => format!("{name}\t{}", file.display()),
                None => name,
            };
            let found = self.1.trusted_names(kind, name.as_bytes(), since);
            assert!(found.is_empty() || found == format!("{name}\n").as_bytes());
            !found.is_empty()
        }

        /// Returns the file that a name stands for, if reports of this kind name the file, too.
        fn file(&self, kind: TemplateKind, name: &str) -> Option<PathBuf> {
            let places = self.1.folders.iter();
            let places: Vec<_> = places
                .filter_map(|f| SearchFolder::open_path(f).ok())
                .collect();
            let is_said = matches!(kind, TemplateKind::Python | TemplateKind::Perl);
            let found = find_files(kind, &self.1, &places, name.as_bytes()).filter(|_| is_said)?;
            let (place, file) = found.last()?;
            Some(place.path.join(file))
        }
    }

    #[test]
    fn python_modules_are_found_as_python_finds_them() {
        let site = Site::new(
            &["a", "b"],
            &[
                "b/plain.py",
                "b/fast.cpython-x.so",
                "b/pack/__init__.py",
                "b/pack/in.py",
                "b/pack/deep/x.py",
                "a/spaces/x.py",
                "b/data.txt",
                "a/shadow/x.py",
                "b/shadow.py",
                "outside.py",
            ],
        );
        let rows = [
            ("sys", true),
            ("plain", true),
            ("fast", true),
            ("pack", true),
            ("pack.in", true),
            ("pack.deep", false),
            ("pack.deep.x", false),
            ("spaces.x", false),
            ("data", false),
            ("shadow", true),
            ("outside", false),
            ("none", false),
        ];
        for (name, trusted) in rows {
            assert_eq!(site.trusts(TemplateKind::Python, name), trusted, "{name}");
        }
    }

    #[test]
    fn perl_modules_are_found_in_the_first_folder_that_has_one() {
        let files = [
            "b/A/B.pm",
            "b/Both.pm",
            "a/Both.pm/x",
            "b/Old.pm",
            "b/Old.pmc",
            "C.pm",
        ];
        let site = Site::new(&["a", "b"], &files);
        let rows = [
            ("A/B.pm", true),
            ("Both.pm", false),
            ("Old.pm", false),
            ("C.pm", false),
        ];
        for (name, trusted) in rows {
            assert_eq!(site.trusts(TemplateKind::Perl, name), trusted, "{name}");
        }
    }

    /// A program may find another module of the same name, by its own search path.
    #[test]
    fn a_name_of_another_file_does_not_count() {
        let site = Site::new(
            &["a", "b"],
            &["b/m.py", "b/M.pm", "c/m.py", "c/M.pm", "sys.py"],
        );
        let root = site.0.path().display();
        let rows = [
            (TemplateKind::Python, format!("m\t{root}/b/m.py"), true),
            (TemplateKind::Python, format!("m\t{root}/c/m.py"), false),
            (
                TemplateKind::Python,
                format!("m\t{root}/a/../b/m.py"),
                false,
            ),
            (TemplateKind::Python, "m".into(), false),
            (TemplateKind::Python, "sys".into(), true),
            (TemplateKind::Python, format!("sys\t{root}/sys.py"), false),
            (TemplateKind::Perl, format!("M.pm\t{root}/b/M.pm"), true),
            (TemplateKind::Perl, format!("M.pm\t{root}/c/M.pm"), false),
            (TemplateKind::Perl, "M.pm".into(), false),
        ];
        for (kind, line, trusted) in rows {
            let found = site.1.trusted_names(kind, line.as_bytes(), LATER);
            assert_eq!(!found.is_empty(), trusted, "{line:?}");
        }
    }

    #[test]
    fn a_script_of_php_counts_by_its_file() {
        let site = Site::new(&["a"], &["a/x.php", "a/sub/y.php", "z.php"]);
        symlink("x.php", site.0.path().join("a/link.php")).unwrap();
        let trusts = |name: &str| site.trusts(TemplateKind::Php, name);
        assert!(trusts("SITE/a/x.php") && trusts("SITE/a/sub/y.php"));
        for name in ["SITE/z.php", "SITE/a/link.php", "SITE/a/sub", "SITE/a/none"] {
            assert!(!trusts(name), "{name}");
        }
        let file = |name: &str| {
            change_time(&statat(CWD, site.0.path().join(name), AtFlags::empty()).unwrap())
        };
        let at = |since| site.at(TemplateKind::Php, "SITE/a/sub/y.php", since);
        let since = file("a/sub/y.php");
        assert!(at(since + Duration::from_nanos(1)) && !at(since));
    }

    #[test]
    fn paths_count_beneath_the_search_path_only() {
        let files = ["lib/a.rb", "lib/sub/b.rb", "c.rb", "libx/d.rb"];
        let site = Site::new(&["lib"], &files);
        symlink(
            site.0.path().join("c.rb"),
            site.0.path().join("lib/link.rb"),
        )
        .unwrap();
        symlink(site.0.path().join("libx"), site.0.path().join("lib/folder")).unwrap();
        fs::create_dir(site.0.path().join("lib/dir.rb")).unwrap();
        let rows = [
            ("a.rb", true),
            ("sub/b.rb", true),
            ("link.rb", false),
            ("folder/d.rb", false),
            ("dir.rb", false),
            ("none.rb", false),
            ("../c.rb", false),
        ];
        for (name, trusted) in rows {
            assert_eq!(
                site.trusts(TemplateKind::Ruby, &format!("SITE/lib/{name}")),
                trusted,
                "{name}"
            );
        }
        assert!(!site.trusts(TemplateKind::Ruby, "SITE/c.rb"));
        assert!(!site.trusts(TemplateKind::Ruby, "SITE/libx/d.rb"));
    }

    /// The folder of the search path itself may change: programs keep their data beside their modules.
    #[test]
    fn what_changed_since_does_not_count() {
        let site = Site::new(
            &["lib"],
            &["lib/old.rb", "lib/sub/old.rb", "lib/other/old.rb"],
        );
        let root = site.0.path();
        let of = |path: &str| change_time(&rustix::fs::stat(root.join(path)).unwrap());
        let mut since = of("lib/other") + Duration::from_nanos(1);
        while of("lib") < since {
            fs::write(root.join("lib/new.rb"), since.as_nanos().to_string()).unwrap();
            fs::remove_file(root.join("lib/new.rb")).unwrap();
        }
        fs::write(root.join("lib/new.rb"), "").unwrap();
        fs::write(root.join("lib/sub/new.rb"), "").unwrap();
        // An older file that is moved there has a new name, and therefore counts as changed.
        fs::rename(root.join("lib/other"), root.join("lib/moved")).unwrap();
        for (name, trusted) in [
            ("old.rb", true),
            ("new.rb", false),
            ("sub/old.rb", false),
            ("sub/new.rb", false),
            ("moved/old.rb", false),
        ] {
            let name = format!("SITE/lib/{name}");
            assert_eq!(site.at(TemplateKind::Ruby, &name, since), trusted, "{name}");
        }
        since = Duration::ZERO;
        assert!(!site.at(TemplateKind::Ruby, "SITE/lib/old.rb", since));
    }

    /// Runs `ask` as another user: that user may not write to any file of root's.
    fn as_nobody<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
        let asks = move || {
            // SAFETY: no memory is involved; the bare call changes this thread alone, and the thread ends with the answer.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
            assert_eq!(changed, 0);
            ask()
        };
        std::thread::spawn(asks).join().unwrap()
    }

    const NOBODY: u32 = 65534;

    /// A file of any age counts if the program's user can change nothing on the way to it.
    #[test]
    fn what_the_programs_user_cannot_change_counts() {
        if !geteuid().is_root() {
            eprintln!("skipped what_the_programs_user_cannot_change_counts: it needs root");
            return;
        }
        let rows: [(&str, u32, u32, bool); 9] = [
            ("fixed", 0, 0o755, true),
            ("fixed/m.py", 0, 0o644, true),
            ("fixed", 0, 0o777, false),
            ("fixed", NOBODY, 0o755, false),
            ("fixed/m.py", NOBODY, 0o444, false),
            ("fixed/m.py", 0, 0o666, false),
            ("fixed", 0, 0o1777, true),
            ("lib", 0, 0o777, false),
            ("fixed/__pycache__", NOBODY, 0o755, false),
        ];
        for (at, owner, mode, trusted) in rows {
            let site = Site::new(
                &["lib"],
                &[
                    "lib/fixed/__init__.py",
                    "lib/fixed/m.py",
                    "lib/fixed/__pycache__/m.pyc",
                ],
            );
            rustix::fs::chmod(site.0.path(), Mode::from_raw_mode(0o755)).unwrap();
            let path = site.0.path().join("lib").join(at.trim_start_matches("lib"));
            std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).unwrap();
            let found = as_nobody(move || {
                let found = site.at(TemplateKind::Python, "fixed.m", Duration::ZERO);
                (site, found)
            });
            assert_eq!(found.1, trusted, "{at} {owner} {mode:o}");
        }
    }

    /// A file that was uploaded into such a folder long ago does not become a module.
    #[test]
    fn an_open_folder_in_one_that_is_not_open_does_not_count() {
        if !geteuid().is_root() {
            eprintln!(
                "skipped an_open_folder_in_one_that_is_not_open_does_not_count: it needs root"
            );
            return;
        }
        let site = Site::new(&["lib"], &["lib/uploads/__init__.py"]);
        rustix::fs::chmod(site.0.path(), Mode::from_raw_mode(0o755)).unwrap();
        std::os::unix::fs::chown(site.0.path().join("lib/uploads"), Some(NOBODY), None).unwrap();
        let (_site, found) = as_nobody(move || {
            let found = site.at(TemplateKind::Python, "uploads", LATER);
            (site, found)
        });
        assert!(!found);
    }

    #[test]
    fn a_search_path_may_lead_over_links() {
        let site = Site::new(&["real/lib"], &["real/lib/a.rb"]);
        symlink("real", site.0.path().join("current")).unwrap();
        symlink("loop", site.0.path().join("loop")).unwrap();
        let mut search = SearchPath::default();
        for folder in ["current/lib", "loop/lib", "none"] {
            search.add_report(site.0.path().join(folder).as_os_str().as_bytes());
        }
        let name = format!("{}/current/lib/a.rb\n", site.0.path().display());
        assert_eq!(
            search.trusted_names(TemplateKind::Ruby, name.as_bytes(), LATER),
            name.as_bytes()
        );
    }
}
