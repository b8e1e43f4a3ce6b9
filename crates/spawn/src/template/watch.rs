//! Watches the files that templates were made from (inotify(7)).

use std::{
    collections::{BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{dates, reports::LoadedTemplate, unheard::UnheardFiles};
use crate::{
    FileId,
    template_failure::{LoadFailure, NoTemplate},
};
use rustix::{
    fs::{
        inotify::{self, CreateFlags, ReadFlags, WatchFlags},
        stat,
    },
    io::{Errno, ioctl_fionread},
};

/// Contents, permissions, or the name of a file changed. Reading a file causes none of these.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF);

/// A folder on the way to a file, or a link in its place, was replaced.
const MOVES: WatchFlags = WatchFlags::MOVE_SELF
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::DONT_FOLLOW);

/// An entry of a folder was replaced. With [`MASK_ADD`](WatchFlags::MASK_ADD) a folder can be watched for several reasons.
const ENTRIES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF);

/// A watch on files on behalf of programs. Make one instance for a whole process: the system allows a user 128 instances, and
/// many more watches.
#[derive(Debug)]
pub struct FileWatch<P> {
    inotify: OwnedFd,
    /// The watches. No request waits for this lock: its holder asks the system about many files.
    watched: Mutex<Watched<P>>,
    /// Whether a thread has read which files have changed, and is still retiring the programs that were made of them.
    reading: AtomicBool,
    /// Files that may change without an event.
    pub unheard: UnheardFiles<P>,
}

type Watched<P> = HashMap<i32, Vec<Watcher<P>>>;

/// A program that was loaded from a file.
#[derive(Debug)]
struct Watcher<P> {
    program: Weak<P>,
    file: PathBuf,
    version: FileId,
    what: WatchFlags,
    /// The only entry of the folder `file` that counts: it did not exist.
    absent: Option<OsString>,
}

impl<P> FileWatch<P> {
    /// Creates a watch on no files.
    ///
    /// # Errors
    /// The system gives no inotify.
    pub fn new() -> Result<Self, LoadFailure> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        Ok(Self {
            inotify: inotify.map_err(|e| unwatchable(e.into()))?,
            watched: Mutex::default(),
            reading: AtomicBool::new(false),
            unheard: UnheardFiles::new(),
        })
    }

    /// Watches all files that `loaded` was made of, the entries of its folders, and whether absent files appear.
    fn watch_loaded(&self, loaded: &LoadedTemplate, program: &Arc<P>) -> io::Result<()> {
        let watched = self.watched.lock();
        let mut watched = watched.unwrap_or_else(PoisonError::into_inner);
        for file in &loaded.files {
            let what = if file.is_dir() { ENTRIES } else { CHANGES };
            self.watch_file(&mut watched, file, what, None, program)?;
        }
        for way in collect_ways(loaded.files.iter().map(PathBuf::as_path)) {
            self.watch_file(&mut watched, &way, MOVES, None, program)?;
        }
        for file in &loaded.absent {
            if let (Some(folder), Some(name)) = (file.parent(), file.file_name())
                && folder.is_dir()
            {
                self.watch_file(&mut watched, folder, ENTRIES, Some(name), program)?;
            }
        }
        Ok(())
    }

    /// Watches the files that a template of `program` was made of, and checks that none has changed before it was watched:
    /// since the template was started, at `since`. The program's `own` file is not checked. This takes as long as checking all
    /// the files.
    ///
    /// # Errors
    /// A file has changed, or cannot be watched: it is gone, or `fs.inotify.max_user_watches` is reached.
    pub fn watch_template(
        &self,
        loaded: &LoadedTemplate,
        program: &Arc<P>,
        own: &Path,
        since: Duration,
    ) -> Result<(), LoadFailure> {
        self.watch_loaded(loaded, program).map_err(unwatchable)?;
        let ways = collect_ways(loaded.files.iter().map(PathBuf::as_path));
        let ways = ways.iter().map(PathBuf::as_path);
        self.unheard.note_files(loaded, ways, program);
        let come = loaded.absent.iter().find(|file| file.exists());
        let newer = dates::find_newer(&loaded.files, own, since);
        match newer.or(come.map(PathBuf::as_path)) {
            Some(file) => {
                let words = format!("{} changed while it was loaded", file.display());
                Err(LoadFailure::new(NoTemplate::Changed, words))
            }
            None => Ok(()),
        }
    }

    fn watch_file(
        &self,
        watched: &mut Watched<P>,
        file: &Path,
        what: WatchFlags,
        absent: Option<&OsStr>,
        program: &Arc<P>,
    ) -> io::Result<()> {
        let failed = |e: Errno| io::Error::other(format!("{}: {e}", file.display()));
        let wd = inotify::add_watch(&self.inotify, file, what | WatchFlags::MASK_ADD);
        let watchers = watched.entry(wd.map_err(failed)?).or_default();
        let absent = absent.map(OsStr::to_owned);
        let same = |w: &Watcher<P>| w.belongs_to(program) && w.what == what && w.absent == absent;
        watchers.retain(|w| w.program.strong_count() > 0 && !same(w));
        watchers.push(Watcher {
            program: Arc::downgrade(program),
            file: file.to_owned(),
            version: FileId::from_stat(&stat(file).map_err(failed)?).without_change_time(),
            what,
            absent,
        });
        Ok(())
    }

    /// Calls `retire` for each program with a file that has changed since the last call. Returns false if another thread is
    /// doing that: its findings are not known yet.
    pub fn for_each_changed(&self, retire: impl Fn(&P)) -> bool {
        if matches!(ioctl_fionread(&self.inotify), Ok(0)) {
            // The order matters: the thread that empties the queue has set the flag before.
            return !self.reading.load(Ordering::SeqCst);
        }
        let Ok(mut watched) = self.watched.try_lock() else {
            return false;
        };
        self.reading.store(true, Ordering::SeqCst);
        for program in self.read_changed(&mut watched) {
            self.unheard.forget(&program);
            retire(&program);
        }
        self.reading.store(false, Ordering::SeqCst);
        true
    }

    fn read_changed(&self, watched: &mut Watched<P>) -> Vec<Arc<P>> {
        let mut found = Vec::new();
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut space);
        while let Ok(event) = events.next() {
            let what = event.events();
            let all = || watched.values().flatten();
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                found.extend(all().filter_map(Watcher::program));
                continue;
            }
            let watchers = watched.get(&event.wd()).into_iter().flatten();
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            let changed = watchers.filter(|w| w.is_affected(what, name));
            found.extend(changed.filter_map(Watcher::program));
            if what.contains(ReadFlags::IGNORED) {
                watched.remove(&event.wd());
            }
        }
        found
    }
}

impl<P> AsFd for FileWatch<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl<P> Watcher<P> {
    fn belongs_to(&self, program: &Arc<P>) -> bool {
        self.program.as_ptr() == Arc::as_ptr(program)
    }

    fn program(&self) -> Option<Arc<P>> {
        self.program.upgrade()
    }

    /// Returns whether an event means that the file was replaced; `name` is the entry if the file is a folder.
    fn is_affected(&self, what: ReadFlags, name: Option<&OsStr>) -> bool {
        match name {
            // Both kinds of flags have the same bits. IGNORED: the file is gone.
            None if !what.contains(ReadFlags::IGNORED) && what.bits() & self.what.bits() == 0 => {
                false
            }
            // If only a file's number of links or its mode changed, the file was not replaced.
            None => what != ReadFlags::ATTRIB || self.has_changed(),
            Some(name) => {
                self.what == ENTRIES && self.absent.as_deref().is_none_or(|absent| absent == name)
            }
        }
    }

    fn has_changed(&self) -> bool {
        stat(&self.file).map_or(true, |now| {
            FileId::from_stat(&now).without_change_time() != self.version
        })
    }
}

/// Returns the failure of a template whose files cannot be watched.
fn unwatchable(e: io::Error) -> LoadFailure {
    LoadFailure::not_now(format_args!("it cannot be watched for changes: {e}"))
}

/// Returns folders and links on the way to files, by their names and their real places. A release may be switched by a link, or
/// by renaming a folder.
fn collect_ways<'f>(files: impl Iterator<Item = &'f Path>) -> BTreeSet<PathBuf> {
    let mut ways = BTreeSet::new();
    for file in files {
        let folders = file.ancestors().skip(1);
        let real = file.canonicalize().unwrap_or_default();
        if file.is_symlink() {
            ways.insert(file.to_owned());
        }
        ways.extend(folders.chain(real.ancestors().skip(1)).map(Path::to_owned));
    }
    ways.remove(Path::new(""));
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No thread waits for the thread that looks, and no thread misses a change.
    #[test]
    fn what_has_changed_is_known_or_it_is_said_that_it_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let watch = FileWatch::<()>::new().unwrap();
        inotify::add_watch(&watch.inotify, file.path(), CHANGES).unwrap();
        let look = || watch.for_each_changed(|()| {});
        assert!(look());
        watch.reading.store(true, Ordering::SeqCst);
        assert!(!look());
        watch.reading.store(false, Ordering::SeqCst);
        std::fs::write(file.path(), "changed").unwrap();
        let busy = watch.watched.lock().unwrap();
        assert!(!look());
        drop(busy);
        assert_ne!(ioctl_fionread(&watch.inotify).unwrap(), 0);
        assert!(look());
        assert_eq!(ioctl_fionread(&watch.inotify).unwrap(), 0);
        assert!(look());
    }
}
