//! Whether a listed file has been replaced by another of its name: Landlock goes by what was there when the rules were made.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::inotify::{self, CreateFlags, WatchFlags},
};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Files, and what there was.
#[derive(Debug)]
pub struct ListedFileWatch {
    inotify: OwnedFd,
    files: Vec<(PathBuf, Option<(u64, u64)>)>,
}

impl ListedFileWatch {
    /// Watches what is no folder.
    ///
    /// # Errors
    /// There is no inotify, or no room in it.
    pub(super) fn of<'p>(paths: impl Iterator<Item = &'p Path>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let files = paths.filter(|path| !path.is_dir());
        let files: Vec<_> = files.map(|path| (path.to_owned(), is(path))).collect();
        let folders: BTreeSet<_> = files.iter().filter_map(|(path, _)| path.parent()).collect();
        for folder in folders {
            let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            match inotify::add_watch(&inotify, folder, flags) {
                // What cannot be watched is noticed when the helper is replaced.
                Err(e) if e.kind() == ErrorKind::StorageFull => return Err(e.into()),
                _ => {}
            }
        }
        Ok(Self { inotify, files })
    }

    /// Whether there are others now. To be asked when its descriptor is readable.
    pub(crate) fn any(&self) -> bool {
        while rustix::io::read(&self.inotify, &mut [0; 4096]).is_ok_and(|n| n > 0) {}
        self.files.iter().any(|(path, was)| is(path) != *was)
    }
}

impl AsFd for ListedFileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn is(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}
