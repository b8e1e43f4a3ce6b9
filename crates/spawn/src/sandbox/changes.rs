//! Notices that a listed file or folder was replaced. Landlock rules and mounts refer to the files that existed when they were
//! made.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ffi::{OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

/// A watch on the names of listed files, and of all folders and links on the way to them.
#[derive(Debug)]
pub struct ListedFileWatch {
    inotify: OwnedFd,
    /// Watched names, by the watch of their folder.
    names: HashMap<i32, HashSet<OsString>>,
}

impl ListedFileWatch {
    /// Watches steps on the way, each in a folder whose path has no links. Make this before this process mounts anything: a
    /// mount may put another folder in the place of a step.
    ///
    /// # Errors
    /// There is no inotify, or no room in it.
    pub(super) fn for_steps(steps: &BTreeSet<PathBuf>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let entries = steps.iter();
        let entries = entries.filter_map(|step| Some((step.parent()?, step.file_name()?)));
        let mut names: HashMap<_, HashSet<_>> = HashMap::new();
        for (folder, name) in entries {
            let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            match inotify::add_watch(&inotify, folder, flags) {
                Ok(watch) => drop(names.entry(watch).or_default().insert(name.to_owned())),
                Err(Errno::NOSPC) => return Err(Errno::NOSPC.into()),
                // A folder that cannot be watched is checked when the helper is replaced.
                Err(_) => {}
            }
        }
        Ok(Self { inotify, names })
    }

    /// Returns whether a listed file was replaced. Ask when the descriptor is readable.
    pub(crate) fn has_replaced(&self) -> bool {
        let mut any = false;
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut space);
        while let Ok(event) = events.next() {
            let names = self.names.get(&event.wd());
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            any |= name.is_some_and(|name| names.is_some_and(|names| names.contains(name)))
                || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
        }
        any
    }
}

impl AsFd for ListedFileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::trusted_path::resolve_noting;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn what_comes_by_a_listed_name_is_noticed() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        let make = |name: &str| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "").unwrap();
        };
        make("app/listed");
        make("app/other");
        symlink("app", at("link")).unwrap();
        let noticed = |change: &dyn Fn()| {
            let mut steps = BTreeSet::new();
            resolve_noting(&at("link/listed"), &mut steps).unwrap();
            assert!(resolve_noting(&at("link/later"), &mut steps).is_err());
            let watch = ListedFileWatch::for_steps(&steps).unwrap();
            change();
            watch.has_replaced()
        };
        assert!(!noticed(&|| ()));
        assert!(!noticed(&|| fs::write(at("app/listed"), "changed").unwrap()));
        assert!(!noticed(&|| {
            make("app/new");
            fs::rename(at("app/new"), at("app/other")).unwrap();
        }));
        assert!(noticed(
            &|| fs::rename(at("app/other"), at("app/listed")).unwrap()
        ));
        assert!(noticed(&|| {
            fs::remove_file(at("app/listed")).unwrap();
            make("app/listed");
        }));
        // A replacement is noticed however many other files came before it.
        assert!(noticed(&|| {
            (0..200).for_each(|n| make(&format!("app/{n}")));
            make("app/listed-not");
            fs::rename(at("app/0"), at("app/listed")).unwrap();
        }));
        assert!(noticed(&|| make("app/later")));
        make("new/listed");
        fs::remove_file(at("app/later")).unwrap();
        assert!(noticed(&|| {
            fs::rename(at("app"), at("old")).unwrap();
            fs::rename(at("new"), at("app")).unwrap();
        }));
        assert!(noticed(&|| {
            symlink("old", at("new")).unwrap();
            fs::rename(at("new"), at("link")).unwrap();
        }));
    }
}
