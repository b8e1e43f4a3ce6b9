//! The files that templates were made from (inotify(7)).

use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::{lock, program::Program};

/// Contents, permissions, or the name of a file changed. Reading it is none of these.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF);

/// One instance for the whole server: the system allows a user 128 of them, and many more watches.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: OwnedFd,
    watched: Mutex<Watched>,
}

type Watched = HashMap<i32, Vec<Weak<Program>>>;

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            watched: Mutex::default(),
        })
    }

    /// Watches files on behalf of a program.
    ///
    /// # Errors
    /// One cannot be watched: it is gone, or `fs.inotify.max_user_watches` is reached.
    pub(super) fn add(&self, files: &BTreeSet<PathBuf>, program: &Arc<Program>) -> io::Result<()> {
        let mut watched = lock(&self.watched);
        for file in files {
            let wd = inotify::add_watch(&self.inotify, file, CHANGES)
                .map_err(|e| io::Error::other(format!("{}: {e}", file.display())))?;
            let programs = watched.entry(wd).or_default();
            programs.retain(|p| p.strong_count() > 0);
            if !programs.iter().any(|p| p.as_ptr() == Arc::as_ptr(program)) {
                programs.push(Arc::downgrade(program));
            }
        }
        Ok(())
    }

    /// Programs with a file that has changed since this was last asked.
    pub(super) fn changed(&self) -> Vec<Arc<Program>> {
        let mut found = Vec::new();
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut watched = lock(&self.watched);
        let mut events = inotify::Reader::new(&self.inotify, &mut space);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                found.extend(watched.values().flatten().filter_map(Weak::upgrade));
            }
            let programs = match event.events().contains(ReadFlags::IGNORED) {
                true => watched.remove(&event.wd()).unwrap_or_default(),
                false => watched.get(&event.wd()).cloned().unwrap_or_default(),
            };
            found.extend(programs.iter().filter_map(Weak::upgrade));
        }
        found
    }
}

/// The first of the files that was changed at `since` or later, as the file system's clock has it.
pub(super) fn newer(files: &BTreeSet<PathBuf>, since: Duration) -> Option<&Path> {
    let changed = |file: &&PathBuf| match fs::metadata(file) {
        Ok(m) => at(m.ctime(), m.ctime_nsec()) >= since,
        Err(_) => true,
    };
    files.iter().find(changed).map(PathBuf::as_path)
}

/// The time the kernel would give to a file that is changed now.
pub(super) fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    at(now.tv_sec, now.tv_nsec)
}

fn at(seconds: i64, nanoseconds: i64) -> Duration {
    let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0);
    Duration::new(seconds.max(0).unsigned_abs(), nanoseconds)
}
