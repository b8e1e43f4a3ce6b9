//! Limits the files that a server may use if it starts no programs itself, by a Landlock domain over files alone, entered for
//! good.
//!
//! The domain restricts neither signals nor sockets of the server. Files that are open already stay open.

use super::confinement::{DEVICES, SETTINGS, SYSTEM};
use crate::{
    domain::{self, AccessRights},
    trusted_path::{canonicalize, resolve},
};
use rustix::{
    fs::{Stat, fstat, stat},
    thread::set_no_new_privs,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// The rights to a file, or to all below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Read files.
    Read,
    /// Read and write existing files, and files that have no name (O_TMPFILE, open(2)).
    Change,
    /// Make, rename and remove files, too.
    Make,
}

impl FileAccess {
    fn rights(self) -> AccessRights {
        match self {
            Self::Read => AccessRights::READ,
            Self::Change => AccessRights::CHANGE,
            Self::Make => AccessRights::WRITE,
        }
    }
}

/// The files that this process may still see.
#[derive(Debug)]
pub struct VisibleFiles(Vec<((u64, u64), AccessRights)>);

impl VisibleFiles {
    /// Leaves to the calling thread, and to all that it starts from now on, only these files and folders, if they exist, and
    /// the files that the system's libraries read. A path that other users have redirected leaves nothing. `None`: the kernel
    /// has no Landlock, and nothing has changed.
    ///
    /// # Errors
    /// The kernel has Landlock but refuses the domain.
    pub fn restrict_to(list: &[(PathBuf, FileAccess)]) -> io::Result<Option<Self>> {
        let own = list.iter().map(|(path, access)| (&**path, access.rights()));
        let system = [
            (SYSTEM, AccessRights::READ),
            (SETTINGS, AccessRights::READ),
            (DEVICES, AccessRights::DEVICE),
        ];
        let system = system
            .into_iter()
            .flat_map(|(paths, rights)| paths.iter().map(move |path| (Path::new(path), rights)));
        let mut seen = Vec::new();
        let held = own.chain(system).filter_map(|(path, rights)| {
            let file = resolve(path).ok()?.file;
            seen.push((file_identity(&fstat(&file).ok()?), rights));
            Some((file, rights))
        });
        let Some(ruleset) = domain::make_files_ruleset(held)? else {
            return Ok(None);
        };
        set_no_new_privs(true)?;
        domain::enter_domain(&ruleset)?;
        Ok(Some(Self(seen)))
    }

    /// Returns whether the domain denies this access to a path. If the path does not exist, the nearest existing folder above
    /// it counts, because a file would be made there. The domain does not hide files that the user of this process cannot reach
    /// anyway.
    pub fn denies_access(&self, path: &Path, access: FileAccess) -> bool {
        let real = path.ancestors().find_map(|path| match canonicalize(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            found => Some(found),
        });
        let Some(Ok(real)) = real else {
            return false;
        };
        !real.ancestors().any(|above| {
            let known = stat(above).map(|stat| file_identity(&stat));
            let allows = |&(file, rights): &(_, AccessRights)| {
                known.as_ref().is_ok_and(|known| file == *known) && rights.includes(access.rights())
            };
            self.0.iter().any(allows)
        })
    }
}

/// Identifies a file regardless of its name. The rules hold their files open, so no other file gets the same number.
fn file_identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
        thread,
    };

    /// Runs in its own thread, because the domain ends with the thread.
    #[test]
    fn what_is_listed_is_seen_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["read", "change", "make", "hidden"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(at("hidden"), at("read/link")).unwrap();
        // The listed path is in a folder that another user can change, and that user has put a link there.
        fs::create_dir(at("theirs")).unwrap();
        std::os::unix::fs::symlink(at("hidden"), at("theirs/listed")).unwrap();
        fs::set_permissions(at("theirs"), Permissions::from_mode(0o777)).unwrap();
        let list = [
            (at("theirs/listed"), FileAccess::Make),
            (at("read"), FileAccess::Read),
            (at("change"), FileAccess::Change),
            (at("make"), FileAccess::Make),
            (at("none"), FileAccess::Make),
        ];
        let inside = || {
            let visible = VisibleFiles::restrict_to(&list).unwrap();
            let visible = visible.expect("a kernel with Landlock");
            let may = [
                ("read", [true, false, false]),
                ("change", [true, true, false]),
                ("make", [true, true, true]),
                ("hidden", [false, false, false]),
            ];
            for (name, [read, change, make]) in may {
                let file = at(name).join("file");
                assert_eq!(fs::read(&file).is_ok(), read, "{name}");
                let opened = fs::File::options().write(true).open(&file);
                assert_eq!(opened.is_ok(), change, "{name}");
                assert_eq!(fs::write(at(name).join("new"), "").is_ok(), make, "{name}");
                for (access, may) in [
                    (FileAccess::Read, read && name != "change"),
                    (FileAccess::Change, change),
                    (FileAccess::Make, make),
                ] {
                    assert_eq!(
                        !visible.denies_access(&file, access),
                        may,
                        "{name}, {access:?}"
                    );
                    let new = at(name).join("not/there");
                    assert_eq!(
                        !visible.denies_access(&new, access),
                        may,
                        "{name}, {access:?}"
                    );
                }
            }
            assert!(fs::read(at("read/link/file")).is_err());
            assert!(visible.denies_access(&at("read/link"), FileAccess::Read));
            assert!(visible.denies_access(folder.path(), FileAccess::Read));
            assert!(fs::read("/etc/passwd").is_ok() && fs::read("/etc/hostname").is_err());
            // Another folder of the same name is a different folder.
            fs::rename(at("make/file"), at("make/other")).unwrap();
        };
        thread::scope(|scope| scope.spawn(inside).join()).unwrap();
        assert!(fs::read(at("hidden/file")).is_ok());
    }
}
