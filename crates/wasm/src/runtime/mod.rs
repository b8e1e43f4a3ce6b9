//! The server's side: keeps the worker up, has modules compiled, and starts instances.

mod compiler;
mod modules;
mod prune;
mod seat;
mod supervisor;

use std::{
    fmt, io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

pub use crate::wire::{Key, Profile};
use crate::{
    host::Beside,
    wire::{self, Message, Setup},
};
pub use compiler::examine;
use galgo_spawn::FileId;
pub use modules::{Found, NoCode, Pending};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
pub use seat::{KILLED, Seat};

/// What a runtime is told.
pub struct Settings {
    /// Where the program is that compiles and runs modules.
    pub beside: Arc<Beside>,
    /// The folder of compiled code, made where it is missing; only this user may write to it.
    pub cache: PathBuf,
    /// Instances at once.
    pub instances: usize,
    /// What instances may see; a [`wire::Run`] names one by its place.
    pub profiles: Vec<Profile>,
    /// Where the operator is told of what happens to the worker.
    pub say: Box<dyn Fn(&str) + Send + Sync>,
}

/// Runs WebAssembly programs in a process of its own. Nothing is started before the first program is
/// asked for; dropping it ends the worker.
pub struct Runtime {
    settings: Settings,
    modules: Mutex<modules::Modules>,
    jobs: Mutex<compiler::Jobs>,
    supervision: Mutex<Supervision>,
}

/// Who keeps a worker up.
#[derive(Debug, Default)]
struct Supervision {
    /// The way to the worker, while there is one that works.
    link: Option<Arc<Link>>,
    /// The supervisor, by its number; `None`: the next request starts one.
    supervisor: Option<usize>,
    /// Supervisors and workers so far.
    supervisors: usize,
    workers: usize,
}

/// The way to a worker.
#[derive(Debug)]
struct Link {
    socket: OwnedFd,
    /// The process (pidfd_open(2)): it alone says whether the worker has ended.
    process: OwnedFd,
    /// Workers before it.
    number: usize,
    /// The folder of compiled code that it may read: one that takes its place is another.
    cache: Option<Folder>,
}

/// A folder, whatever its name is: device and inode.
type Folder = (u64, u64);

impl Link {
    /// Whether the worker has ended.
    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(n) if n > 0)
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum StartFault {
    /// The worker takes no more at this moment, or is being started again: try again soon.
    Busy,
    /// No thread, process or descriptor is left for it.
    Short,
    /// The system's error.
    Failed(io::Error),
}

impl From<io::Error> for StartFault {
    fn from(e: io::Error) -> Self {
        match is_shortage(&e) {
            true => Self::Short,
            false => Self::Failed(e),
        }
    }
}

/// Whether the system is short of something at this moment: processes, threads, memory, descriptors.
fn is_shortage(e: &io::Error) -> bool {
    let short = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE];
    Errno::from_io_error(e).is_some_and(|e| short.contains(&e))
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = &self.settings.cache;
        f.debug_struct("Runtime")
            .field("cache", cache)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = &self.cache;
        f.debug_struct("Settings")
            .field("cache", cache)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// A runtime that has started nothing yet.
    pub fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            modules: Mutex::default(),
            jobs: Mutex::default(),
            supervision: Mutex::default(),
        })
    }

    /// The code of a module, as its file is now (`id`): ready, or being compiled. While a replaced
    /// file is compiled the code of the one before serves.
    pub fn find(self: &Arc<Self>, file: &Path, id: FileId) -> Found {
        if let Some(why) = self.settings.beside.missing() {
            return Found::Refused(why);
        }
        let mut modules = lock(&self.modules);
        let (found, begins) = modules.find(file, id);
        let found = found.unwrap_or_else(|| Found::Pending(modules.wait(file)));
        drop(modules);
        self.begin(begins, file, id);
        if let Found::Pending(_) = found {
            compiler::hurry(self, file);
        }
        found
    }

    /// Has a module compiled that somebody may ask for.
    ///
    /// # Errors
    /// Nothing is there to compile it: why.
    pub fn prepare(self: &Arc<Self>, file: &Path, id: FileId) -> Result<(), String> {
        if let Some(why) = self.settings.beside.missing() {
            return Err(why);
        }
        let (_, begins) = lock(&self.modules).find(file, id);
        self.begin(begins, file, id);
        Ok(())
    }

    /// Tells the operator.
    pub fn say(&self, words: &str) {
        (self.settings.say)(words);
    }

    fn begin(self: &Arc<Self>, begins: bool, file: &Path, id: FileId) {
        if begins {
            let file = file.to_owned();
            compiler::compile(self, compiler::Job { file, id });
        }
    }

    /// Whether a module has this code still: where a new worker found it gone from the cache, none has.
    pub fn has(&self, key: &Key) -> bool {
        lock(&self.modules).keys().any(|own| own == *key)
    }

    /// A place at the worker, for one request for this code.
    ///
    /// # Errors
    /// [`StartFault::Busy`] while there is no worker.
    pub fn seat(self: &Arc<Self>, key: Key) -> Result<Seat, StartFault> {
        self.start()?;
        let link = self.link().ok_or(StartFault::Busy)?;
        Ok(Seat::new(self.clone(), link, key))
    }

    /// Whether this worker, by its number, is the one that requests go to, as far as anybody can tell.
    pub fn is_up(&self, worker: usize) -> bool {
        let link = &mut lock(&self.supervision).link;
        link.take_if(|link| link.has_ended());
        link.as_ref().is_some_and(|link| link.number == worker)
    }

    fn link(&self) -> Option<Arc<Link>> {
        lock(&self.supervision).link.clone()
    }

    /// Sees that somebody keeps a worker up.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut supervision = lock(&self.supervision);
        if supervision.supervisor.is_none() {
            let own = supervision.supervisors;
            supervisor::start(self, own)?;
            supervision.supervisors += 1;
            supervision.supervisor = Some(own);
        }
        Ok(())
    }

    /// Whether the supervisor with this number keeps the worker up.
    fn is_kept_by(&self, supervisor: usize) -> bool {
        lock(&self.supervision).supervisor == Some(supervisor)
    }

    /// A module's code is in the cache: where that is another folder than the worker may read, another worker takes
    /// its place, which ends with its last request.
    fn has_cache(self: &Arc<Self>) {
        let now = folder(&self.settings.cache);
        let mut supervision = lock(&self.supervision);
        if supervision.link.take_if(|link| link.cache != now).is_some() {
            supervision.supervisor = None;
            drop(supervision);
            // Where there is no thread for it, whoever asks for a run is told.
            let _ = self.start();
        }
    }

    /// Tells the worker something that is no run; where it is not up it learns it later, or need not.
    fn tell(&self, message: &Message) {
        if let Some(link) = self.link() {
            let _ = wire::send_message(&link.socket, &message.encode(), &[]);
        }
    }

    fn setup(&self) -> Setup {
        Setup {
            cache: self.settings.cache.as_os_str().as_bytes().to_vec(),
            instances: self.settings.instances as u64,
            profiles: self.settings.profiles.clone(),
        }
    }

    /// A worker is gone: nothing more is sent to it, even before that is known otherwise.
    fn died(&self, worker: &Link) {
        let link = &mut lock(&self.supervision).link;
        link.take_if(|link| link.number == worker.number);
    }

    /// The worker has no code of this name: it is compiled again for the next request.
    fn lost(&self, key: &Key) {
        lock(&self.modules).lost(key);
    }
}

fn folder(cache: &Path) -> Option<Folder> {
    let metadata = cache.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
