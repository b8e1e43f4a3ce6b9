//! What a server may still do with files that starts nothing itself: a Landlock domain over files alone, which it enters for good.
//!
//! It keeps the server neither from signals nor from sockets. What is open already stays open.

use super::confinement::{DEVICES, SETTINGS, SYSTEM};
use crate::{
    domain::{self, AccessRights},
    trusted_path::resolve,
};
use rustix::{
    fs::{Stat, fstat, stat},
    thread::set_no_new_privs,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// What may be done with a file, or with what is below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// To read it.
    Read,
    /// To read and to write what is there, and files that have no name (O_TMPFILE, open(2)).
    Change,
    /// To make, to name anew and to remove files, too.
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

/// What this process may still see.
#[derive(Debug)]
pub struct VisibleFiles(Vec<((u64, u64), AccessRights)>);

impl VisibleFiles {
    /// Leaves to the calling thread, and to all that it starts from now on, these files and folders alone, where they are there, and
    /// what the system's libraries read. A path that others have led elsewhere leaves nothing. `None`: the kernel has no Landlock, and
    /// nothing has changed.
    ///
    /// # Errors
    /// The kernel refuses what it has.
    pub fn enter(list: &[(PathBuf, FileAccess)]) -> io::Result<Option<Self>> {
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
            seen.push((is(&fstat(&file).ok()?), rights));
            Some((file, rights))
        });
        let Some(ruleset) = domain::of_files(held)? else {
            return Ok(None);
        };
        set_no_new_privs(true)?;
        domain::enter(&ruleset)?;
        Ok(Some(Self(seen)))
    }

    /// Whether a path leads out of what is visible, or to what may be read alone. One that leads to nothing would be made in the
    /// folder above it. What the user of this process cannot reach is not hidden by the domain.
    pub fn hides(&self, path: &Path, access: FileAccess) -> bool {
        let real = path.ancestors().find_map(|path| match path.canonicalize() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            found => Some(found),
        });
        let Some(Ok(real)) = real else {
            return false;
        };
        !real.ancestors().any(|above| {
            let known = stat(above).map(|stat| is(&stat));
            let allows = |&(file, rights): &(_, AccessRights)| {
                known.as_ref().is_ok_and(|known| file == *known) && rights.holds(access.rights())
            };
            self.0.iter().any(allows)
        })
    }
}

/// A file, whatever its name: the rules hold what they are about, so no other one has its number.
fn is(stat: &Stat) -> (u64, u64) {
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

    /// In a thread of its own, with which the domain ends.
    #[test]
    fn what_is_listed_is_seen_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["read", "change", "make", "hidden"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(at("hidden"), at("read/link")).unwrap();
        // What is listed is in a folder that another user can change, and has put a link there.
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
            let visible = VisibleFiles::enter(&list).unwrap();
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
                    assert_eq!(!visible.hides(&file, access), may, "{name}, {access:?}");
                    let new = at(name).join("not/there");
                    assert_eq!(!visible.hides(&new, access), may, "{name}, {access:?}");
                }
            }
            assert!(fs::read(at("read/link/file")).is_err());
            assert!(visible.hides(&at("read/link"), FileAccess::Read));
            assert!(visible.hides(folder.path(), FileAccess::Read));
            assert!(fs::read("/etc/passwd").is_ok() && fs::read("/etc/hostname").is_err());
            // Another folder of the same name is another one.
            fs::rename(at("make/file"), at("make/other")).unwrap();
        };
        thread::scope(|scope| scope.spawn(inside).join()).unwrap();
        assert!(fs::read(at("hidden/file")).is_ok());
    }
}
