//! Finds the file that a path of the configuration leads to, for server, spawner and helpers.
//!
//! The operator names files and folders freely, links included. Another account that owns a component on the way, or can
//! replace it, could put a link to anything there. Therefore no path leads outside of the first such component ([`resolve`]).
//! The walk goes from folder to folder on descriptors, and returns exactly the files that it has checked.
//!
//! Root is trusted, and the user that started galgo. A folder that its group or all others may write to is not trusted: any of
//! them can replace its entries. In a sticky folder (`/tmp`) that holds for files and links. A folder in it counts by its own
//! owner, because no other user can move it there or away.
//!
//! If root must open or make a file itself, no component at all may belong to another account ([`locate_for_root`]): logs, sockets, the
//! cache.

use crate::hanging::look_at;
use rustix::{
    fs::{
        CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat, fstat, fstatfs, lstat,
        open, openat, openat2, readlinkat,
    },
    io::Errno,
    process::geteuid,
};
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Component, Path, PathBuf},
    sync::OnceLock,
};

/// Links that are followed; the kernel follows as many (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The largest file that is read as a whole, bytes.
const MOST: u64 = 16 << 20;

const HELD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Returns the user that started galgo, as of the first call. Call this before the process changes its user.
pub fn starter() -> u32 {
    static STARTER: OnceLock<u32> = OnceLock::new();
    *STARTER.get_or_init(|| geteuid().as_raw())
}

/// The file or folder that a path leads to.
#[derive(Debug)]
pub struct Resolved {
    /// The path without links in it.
    pub path: PathBuf,
    /// The file or folder, opened with O_PATH; never a link.
    pub file: OwnedFd,
    /// The first component on the way that another account owns or can replace; or the folder, if the account can replace all
    /// its entries.
    pub bound: Option<PathBuf>,
    /// The links on the way, and their text.
    pub links: Vec<(PathBuf, PathBuf)>,
}

impl Resolved {
    /// Opens the file to read. In another account's folder it must be a regular file, because opening others may wait.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self) -> io::Result<File> {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        if self.bound.is_some() {
            if file_type(&fstat(&self.file)?) != FileType::RegularFile {
                return Err(io::Error::other("is not a regular file"));
            }
            // The file's owner may hold a lease on it.
            flags |= OFlags::NONBLOCK;
        }
        let name = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(open(name, flags, Mode::empty())?.into())
    }
}

/// Finds the file or folder that a path leads to.
///
/// # Errors
/// The path leads to nothing, or outside of the first component that another account owns or can replace.
pub fn resolve(path: &Path) -> io::Result<Resolved> {
    resolve_noting(path, &mut BTreeSet::new())
}

/// Opens a file of the configuration to read.
///
/// # Errors
/// The same errors as [`resolve`] and [`Resolved::read`].
pub fn read(path: &Path) -> io::Result<File> {
    let found = resolve(path)?;
    look_at(path, || found.read())
}

/// Reads a whole file of the configuration.
///
/// # Errors
/// The same errors as [`read`]; or the file has more than 16 MiB.
pub fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = read(path)?;
    look_at(path, || file.take(MOST + 1).read_to_end(&mut bytes))?;
    if bytes.len() as u64 > MOST {
        Err(io::Error::other("is larger than 16M"))
    } else {
        Ok(bytes)
    }
}

/// Returns the path without links in it, wherever links lead.
///
/// # Errors
/// The path leads to nothing, or its file system hangs.
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    look_at(path, || path.canonicalize())
}

/// Returns the first component of a path that another account owns or can replace, or whose file system hangs, if there is one: then
/// others than the operator decide whether the path leads to anything.
pub fn others_part(path: &Path) -> Option<PathBuf> {
    let mut walk = Walk::from_path(path).ok()?;
    let mut all = || -> io::Result<()> {
        while walk.bound.is_none()
            && let Some(name) = walk.left.pop()
        {
            walk.step_to(&name)?;
        }
        Ok(())
    };
    // The rest of the path does not matter.
    let _ = all();
    walk.bound
}

/// Returns the account that decides where a path leads, if that is not root, the user that started galgo, or `own`.
pub fn others_account(path: &Path, own: u32) -> Option<u32> {
    let others = others_part(path)?;
    let owner = look_at(&others, || Ok(lstat(&others)?)).ok()?.st_uid;
    (![0, starter(), own].contains(&owner)).then_some(owner)
}

/// Does the same as [`resolve`], and adds all names on the way, including the names of links, to `steps`: each may later stand
/// for another file.
pub(crate) fn resolve_noting(path: &Path, steps: &mut BTreeSet<PathBuf>) -> io::Result<Resolved> {
    let mut walk = Walk::from_path(path)?;
    while let Some(name) = walk.left.pop() {
        steps.insert(walk.current_path().join(&name));
        walk.step_to(&name)?;
    }
    let path = walk.current_path();
    walk.check_inside(&path)?;
    // INVARIANT: the root is never taken away.
    let (_, file) = walk.folders.pop().ok_or(Errno::NOENT)?;
    Ok(Resolved {
        path,
        file,
        bound: walk.bound,
        links: walk.links,
    })
}

/// Does the same as [`resolve`] for a file that may still be missing in its folder.
///
/// # Errors
/// The same errors as [`resolve`].
pub fn locate(path: &Path) -> io::Result<PathEnd> {
    let mut walk = Walk::from_path(path)?;
    while let Some(name) = walk.left.pop() {
        if let Some(missing) = walk.step_or_end(&name)? {
            walk.check_inside(&walk.current_path())?;
            return Ok(missing);
        }
    }
    walk.check_inside(&walk.current_path())?;
    walk.into_end()
}

/// The end of a path.
#[derive(Debug)]
pub struct PathEnd {
    /// The folder.
    pub folder: OwnedFd,
    /// The name in it.
    pub name: OsString,
    /// The file that the name stands for, opened with O_PATH and never a link; `None`: no such file yet.
    pub entry: Option<OwnedFd>,
}

/// Walks `path`, for root. `None`: a user other than root can change where the path leads.
///
/// # Errors
/// A folder is missing, or the system's error.
pub fn locate_for_root(path: &Path) -> io::Result<Option<PathEnd>> {
    let mut walk = Walk::from_path(path)?;
    while let Some(name) = walk.left.pop() {
        if let Some(missing) = walk.step_or_end(&name)? {
            let is_closed = is_closed(&fstat(&missing.folder)?);
            return Ok(is_closed.then_some(missing));
        }
        if walk.is_open {
            return Ok(None);
        }
    }
    walk.into_end().map(Some)
}

/// Returns the folder that holds the last name of `path`. `None`: see [`locate_for_root`], or another user could put or replace that
/// name.
///
/// # Errors
/// The same errors as [`locate_for_root`].
pub fn open_roots_folder(path: &Path) -> io::Result<Option<OwnedFd>> {
    let path = std::path::absolute(path)?;
    let place = match path.parent() {
        Some(above) if above.parent().is_some() => {
            locate_for_root(above)?.and_then(|place| place.entry)
        }
        _ => Some(open_root()?),
    };
    let roots = |folder: &OwnedFd| fstat(folder).is_ok_and(|stat| is_closed(&stat));
    Ok(place.filter(roots))
}

/// Opens a file that root alone can change or replace, with O_PATH; `None`: the file does not exist, or other users can.
///
/// # Errors
/// The same errors as [`locate_for_root`].
pub fn open_roots_file(path: &Path) -> io::Result<Option<OwnedFd>> {
    let file = locate_for_root(path)?.and_then(|place| place.entry);
    let Some(file) = file else { return Ok(None) };
    let stat = fstat(&file)?;
    let is_roots = file_type(&stat) == FileType::RegularFile && is_closed(&stat);
    Ok(is_roots.then_some(file))
}

/// Opens the file at a path without links (O_PATH). If a link has been put there since, it is not followed.
///
/// # Errors
/// The system's error.
pub(crate) fn open_without_links(real: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, real, HELD, Mode::empty(), resolve)
}

/// The state of a walk along a path.
struct Walk {
    /// The root, and each folder below it on the way; the last entry may be a file.
    folders: Vec<(OsString, OwnedFd)>,
    /// The names that are left, in reverse: the next name is last.
    left: Vec<OsString>,
    links: Vec<(PathBuf, PathBuf)>,
    bound: Option<PathBuf>,
    /// Whether another account could have replaced a component.
    is_open: bool,
}

impl Walk {
    fn from_path(path: &Path) -> io::Result<Self> {
        Ok(Self {
            folders: vec![("/".into(), open_root()?)],
            left: reversed_names(&std::path::absolute(path)?),
            links: Vec::new(),
            bound: None,
            is_open: false,
        })
    }

    fn current_path(&self) -> PathBuf {
        self.folders.iter().map(|(name, _)| name).collect()
    }

    /// Walks to a name. If it is a link, the names in the link come before the names that are left.
    fn step_to(&mut self, name: &OsStr) -> io::Result<()> {
        if name == ".." {
            self.folders.truncate((self.folders.len() - 1).max(1));
            return Ok(());
        }
        let path = self.current_path().join(name);
        let stepped = look_at(&path, || self.step_below(name));
        if let Err(e) = &stepped
            && e.kind() == io::ErrorKind::TimedOut
        {
            // Another account or machine decides what is there.
            self.bound.get_or_insert(path);
        }
        stepped
    }

    fn step_below(&mut self, name: &OsStr) -> io::Result<()> {
        // INVARIANT: the root is never taken away.
        let (_, folder) = self.folders.last().ok_or(Errno::NOENT)?;
        let above = fstat(folder)?;
        let mut entry = openat(folder, name, HELD | OFlags::NOFOLLOW, Mode::empty())?;
        let stat = fstat(&entry)?;
        if file_type(&stat) == FileType::Symlink {
            if self.links.len() >= MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            if fstatfs(folder)?.f_type != PROC_SUPER_MAGIC {
                let target = readlinkat(&entry, "", Vec::new())?.into_bytes();
                let target = PathBuf::from(OsString::from_vec(target));
                self.note_others(&above, &stat, name);
                let link = self.current_path().join(name);
                if target.has_root() {
                    self.folders.truncate(1);
                }
                self.left.extend(reversed_names(&target));
                self.links.push((link, target));
                return Ok(());
            }
            // The kernel's own link, like the target of /dev/stdout: its text need not be a path.
            entry = openat(folder, name, HELD, Mode::empty())?;
        }
        self.note_others(&above, &stat, name);
        self.folders.push((name.to_owned(), entry));
        Ok(())
    }

    /// Does the same as [`step_to`](Self::step_to). Returns the end of the path if its last name does not exist.
    fn step_or_end(&mut self, name: &OsStr) -> io::Result<Option<PathEnd>> {
        match self.step_to(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.left.is_empty() => {
                let (_, folder) = self.folders.last().ok_or(Errno::NOENT)?;
                Ok(Some(PathEnd {
                    folder: folder.try_clone()?,
                    name: name.to_owned(),
                    entry: None,
                }))
            }
            stepped => stepped.map(|()| None),
        }
    }

    /// Returns the end of a path that was walked.
    fn into_end(mut self) -> io::Result<PathEnd> {
        match (self.folders.pop(), self.folders.pop()) {
            (Some((name, entry)), Some((_, folder))) => Ok(PathEnd {
                folder,
                name,
                entry: Some(entry),
            }),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    /// Refuses a path outside of the first component that belongs to another account.
    fn check_inside(&self, path: &Path) -> io::Result<()> {
        match self.bound.as_ref().filter(|bound| !path.starts_with(bound)) {
            None => Ok(()),
            Some(bound) => Err(io::Error::other(format!(
                "leads to {}, by a link that a user other than root has put below {}: name the target of the link",
                path.display(),
                bound.display()
            ))),
        }
    }

    /// Checks whether another account owns an entry of the last folder, or can replace it.
    fn note_others(&mut self, above: &Stat, entry: &Stat, name: &OsStr) {
        let is_sticky = is_trusted(above) && above.st_mode & Mode::SVTX.as_raw_mode() != 0;
        // From a folder of their own, other users can move root's files and links into a sticky folder. They cannot move
        // folders: that takes the right to write to the moved folder.
        let stays = is_closed(above)
            || is_sticky && file_type(entry) == FileType::Directory && is_trusted(entry);
        let is_link = file_type(entry) == FileType::Symlink;
        self.is_open |= !stays || is_link && !is_trusted(entry);
        if self.bound.is_none() {
            self.bound = match (stays, is_sticky) {
                (true, _) if is_trusted(entry) => None,
                (false, false) => Some(self.current_path()),
                _ => Some(self.current_path().join(name)),
            };
        }
    }
}

/// Returns the names in a path, in reverse order.
fn reversed_names(path: &Path) -> Vec<OsString> {
    let named = path.components().rev().filter_map(|step| match step {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    named.collect()
}

fn open_root() -> Result<OwnedFd, Errno> {
    open("/", HELD, Mode::empty())
}

/// Returns whether the file belongs to root, or to the user that started galgo.
fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == starter()
}

/// Returns whether only root and the user that started galgo can write to the file.
pub fn is_closed(stat: &Stat) -> bool {
    is_trusted(stat) && stat.st_mode & 0o022 == 0
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, lchown, symlink},
    };

    #[test]
    fn a_path_leads_to_nothing_that_others_have_chosen() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        for (folder, mode) in [
            ("ours/data", 0o755),
            ("theirs/in/deep", 0o755),
            ("theirs", 0o777),
        ] {
            fs::create_dir_all(top.join(folder)).unwrap();
            fs::set_permissions(top.join(folder), Permissions::from_mode(mode)).unwrap();
        }
        for (to, link) in [
            ("data", "ours/link"),
            ("../theirs/near", "ours/there"),
            ("../theirs/far", "ours/and-back"),
            ("loop", "ours/loop"),
            ("in", "theirs/near"),
            ("near/deep/..", "theirs/round"),
            ("../ours/data", "theirs/far"),
            ("/", "theirs/root"),
            ("..", "theirs/in/up"),
            ("../..", "theirs/in/out"),
        ] {
            symlink(to, top.join(link)).unwrap();
        }
        for (path, leads_to) in [
            ("ours/data", Some("ours/data")),
            ("ours/link", Some("ours/data")),
            ("ours/link/../data", Some("ours/data")),
            ("ours/there", Some("theirs/in")),
            ("theirs", Some("theirs")),
            ("theirs/near/deep", Some("theirs/in/deep")),
            ("theirs/round", Some("theirs/in")),
            ("theirs/in/up", Some("theirs")),
            ("theirs/../ours", Some("ours")),
            ("theirs/far", None),
            ("theirs/root", None),
            ("theirs/root/etc", None),
            ("theirs/in/out", None),
            ("ours/and-back", None),
            ("ours/loop", None),
            ("ours/none", None),
        ] {
            let found = resolve(&top.join(path));
            assert_eq!(
                found.as_ref().ok().map(|found| &found.path),
                leads_to.map(|to| top.join(to)).as_ref(),
                "{path}: {found:?}"
            );
            assert_eq!(
                found.is_ok(),
                open_without_links(&top.join(leads_to.unwrap_or("none"))).is_ok()
            );
        }
        assert_eq!(
            open_without_links(&top.join("ours/there")).err(),
            Some(Errno::LOOP)
        );
        assert_eq!(
            open_without_links(&top.join("theirs/near/deep")).err(),
            Some(Errno::LOOP)
        );
    }

    /// Accounts alice and bob, by numbers, with their own homes and with a sticky folder.
    #[test]
    fn a_component_counts_by_its_owner() {
        if !geteuid().is_root() {
            eprintln!("skipped a_component_counts_by_its_owner: it needs root");
            return;
        }
        const ALICE: Option<u32> = Some(2102);
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        fs::set_permissions(&top, Permissions::from_mode(0o755)).unwrap();
        for (folder, mode, owner) in [
            ("data/www", 0o755, None),
            ("alice/site/releases/5", 0o755, None),
            ("sticky/roots/in", 0o755, None),
            ("sticky/alices/in", 0o755, None),
            ("sticky", 0o1777, None),
            ("sticky/alices", 0o755, ALICE),
            ("alice/site", 0o755, ALICE),
            ("alice", 0o755, ALICE),
            ("bob", 0o755, Some(2103)),
        ] {
            fs::create_dir_all(top.join(folder)).unwrap();
            fs::set_permissions(top.join(folder), Permissions::from_mode(mode)).unwrap();
            lchown(top.join(folder), owner, None).unwrap();
        }
        for (to, link, owner) in [
            ("data/www", "www", None),
            ("data/www", "alices-link", ALICE),
            ("alice", "home", None),
            ("releases/5", "alice/site/current", ALICE),
            ("../bob", "alice/bob", ALICE),
            ("../data", "alice/by-root", None),
            ("../data", "sticky/roots-link", None),
            ("roots", "sticky/alices-link", ALICE),
            ("../../data", "sticky/roots/out", None),
            ("../roots", "sticky/alices/out", ALICE),
        ] {
            symlink(to, top.join(link)).unwrap();
            lchown(top.join(link), owner, None).unwrap();
        }
        for (path, leads_to, bound) in [
            ("www", Some("data/www"), None),
            ("alices-link", None, Some("alices-link")),
            (
                "home/site/current",
                Some("alice/site/releases/5"),
                Some("alice"),
            ),
            ("alice", Some("alice"), Some("alice")),
            ("alice/none", None, Some("alice")),
            ("alice/bob", None, Some("alice")),
            ("alice/by-root", None, Some("alice")),
            ("sticky/roots/in", Some("sticky/roots/in"), None),
            ("sticky/roots/out", Some("data"), None),
            ("sticky/roots-link", None, Some("sticky/roots-link")),
            ("sticky/alices-link", None, Some("sticky/alices-link")),
            (
                "sticky/alices/in",
                Some("sticky/alices/in"),
                Some("sticky/alices"),
            ),
            ("sticky/alices/out", None, Some("sticky/alices")),
        ] {
            let found = resolve(&top.join(path));
            let (leads_to, bound) = [leads_to, bound]
                .map(|path| path.map(|path| top.join(path)))
                .into();
            assert_eq!(
                found.as_ref().ok().map(|found| found.path.clone()),
                leads_to,
                "{path}: {found:?}"
            );
            assert_eq!(others_part(&top.join(path)), bound, "{path}");
            assert_eq!(
                found.map_or(bound.clone(), |found| found.bound),
                bound,
                "{path}"
            );
        }
    }
}
