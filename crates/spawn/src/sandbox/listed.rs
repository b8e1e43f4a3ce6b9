//! Where a path of the configuration leads. A helper finds out while it is root, and programs get rights to what is there.
//!
//! The operator names a file or folder as it pleases, links included. But whoever may change a folder on the way may put a link
//! there as well, to what the operator has not listed: to `/`, for one. So a path leads to nothing outside of the first folder on its way
//! that others than the operator can change.

use rustix::{
    fs::{
        CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2, readlinkat,
    },
    io::Errno,
};
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Component, Path, PathBuf},
};

/// Links that are followed; as many as the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

const HELD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens what a path without links leads to (O_PATH). A link that has come since is not followed.
///
/// # Errors
/// The system's error.
pub(crate) fn hold(real: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, real, HELD, Mode::empty(), resolve) {
        // Before Linux 5.6.
        Err(Errno::NOSYS) => open(real, HELD | OFlags::NOFOLLOW, Mode::empty()),
        held => held,
    }
}

/// The path without links in it. All names on the way, those of links included, go to `steps`: something else may come by each
/// of them later.
///
/// # Errors
/// It leads to nothing, or to what others have chosen.
pub(super) fn real(path: &Path, steps: &mut BTreeSet<PathBuf>) -> io::Result<PathBuf> {
    let mut way = ListedPathWalk::begin()?;
    let mut left = names(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(name) = left.pop() {
        steps.insert(way.path().join(&name));
        let Some(target) = way.go(&name)? else {
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        if target.has_root() {
            way.folders.truncate(1);
        }
        left.extend(names(&target));
    }
    let real = way.path();
    match way.bound {
        Some(bound) if !real.starts_with(&bound) => Err(io::Error::other(format!(
            "leads to {}, by a link below {}, which others than root can change: name what it is to lead to",
            real.display(),
            bound.display()
        ))),
        _ => Ok(real),
    }
}

/// The names in a path, the first of them last.
fn names(path: &Path) -> Vec<OsString> {
    let named = path.components().rev().filter_map(|step| match step {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    named.collect()
}

/// How far a path was walked.
struct ListedPathWalk {
    /// The root, and each folder below it on the way; what is last may be a file.
    folders: Vec<(OsString, OwnedFd)>,
    /// The first folder that others than the operator can change.
    bound: Option<PathBuf>,
}

impl ListedPathWalk {
    fn begin() -> io::Result<Self> {
        let root = open("/", HELD, Mode::empty())?;
        Ok(Self {
            folders: vec![("/".into(), root)],
            bound: None,
        })
    }

    fn path(&self) -> PathBuf {
        self.folders.iter().map(|(name, _)| name).collect()
    }

    /// Goes on by a name. What it leads to, if that is a link: there it does not go.
    fn go(&mut self, name: &OsStr) -> io::Result<Option<PathBuf>> {
        if name == ".." {
            self.folders.truncate((self.folders.len() - 1).max(1));
            return Ok(None);
        }
        // INVARIANT: the root is never taken away.
        let Some((_, folder)) = self.folders.last() else {
            return Ok(None);
        };
        let above = fstat(folder)?;
        let entry = openat(folder, name, HELD | OFlags::NOFOLLOW, Mode::empty())?;
        let stat = fstat(&entry)?;
        if self.bound.is_none() && !stays(&above, &stat) {
            self.bound = Some(self.path());
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            let target = readlinkat(&entry, "", Vec::new())?.into_bytes();
            return Ok(Some(OsString::from_vec(target).into()));
        }
        self.folders.push((name.to_owned(), entry));
        Ok(None)
    }
}

/// Whether only the operator can put something else in the place of this entry of a folder.
fn stays(folder: &Stat, entry: &Stat) -> bool {
    // Where it is sticky no other user can move a folder of the operator's.
    let sticky = operators(folder) && folder.st_mode & Mode::SVTX.as_raw_mode() != 0;
    let is_folder = FileType::from_raw_mode(entry.st_mode) == FileType::Directory;
    let closed = operators(folder) && folder.st_mode & 0o022 == 0;
    closed || sticky && is_folder && operators(entry)
}

/// Whether it belongs to root, or to the user who has started galgo.
fn operators(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, symlink},
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
            let found = real(&top.join(path), &mut BTreeSet::new());
            assert_eq!(
                found.as_ref().ok(),
                leads_to.map(|to| top.join(to)).as_ref(),
                "{path}: {found:?}"
            );
        }
        assert!(hold(&top.join("theirs/in")).is_ok());
        assert_eq!(hold(&top.join("ours/there")).err(), Some(Errno::LOOP));
        assert_eq!(hold(&top.join("theirs/near/deep")).err(), Some(Errno::LOOP));
    }
}
