//! The server's side: keeps the worker up, has modules compiled, and starts instances.

mod compiler;
mod modules;
mod prune;
mod seat;
mod supervisor;

use std::{
    fmt, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Once, OnceLock, PoisonError},
};

use crate::wire::{self, Message, Setup};
pub use crate::wire::{Key, Profile};
pub use compiler::examine;
use galgo_spawn::FileId;
pub use modules::{Found, Pending};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use seat::{KILLED, Seat};

/// What a runtime is told.
pub struct Settings {
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
    /// Names the engine that code is for, once a process has been asked.
    tag: OnceLock<String>,
    modules: Mutex<modules::Modules>,
    jobs: Mutex<compiler::Jobs>,
    link: Mutex<Option<Arc<Link>>>,
    started: Once,
}

/// The way to a worker.
#[derive(Debug)]
struct Link {
    socket: OwnedFd,
    /// The process (pidfd_open(2)): it alone says whether the worker has ended.
    process: OwnedFd,
    /// Workers before it.
    number: usize,
}

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
    /// The system's error.
    Failed(io::Error),
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
            tag: OnceLock::new(),
            settings,
            modules: Mutex::default(),
            jobs: Mutex::default(),
            link: Mutex::new(None),
            started: Once::new(),
        })
    }

    /// The code of a module, as its file is now (`id`): ready, or being compiled. While a replaced
    /// file is compiled the code of the one before serves.
    pub fn find(self: &Arc<Self>, file: &Path, id: FileId) -> Found {
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
    pub fn prepare(self: &Arc<Self>, file: &Path, id: FileId) {
        let (_, begins) = lock(&self.modules).find(file, id);
        self.begin(begins, file, id);
    }

    fn begin(self: &Arc<Self>, begins: bool, file: &Path, id: FileId) {
        if begins {
            self.start();
            let file = file.to_owned();
            compiler::compile(self, compiler::Job { file, id });
        }
    }

    /// A place at the worker, for one request for this code.
    ///
    /// # Errors
    /// [`StartFault::Busy`] while there is no worker.
    pub fn seat(self: &Arc<Self>, key: Key) -> Result<Seat, StartFault> {
        self.start();
        let link = lock(&self.link).clone().ok_or(StartFault::Busy)?;
        Ok(Seat::new(self.clone(), link, key))
    }

    /// Whether this worker, by its number, is the one that requests go to, as far as anybody can tell.
    pub fn is_up(&self, worker: usize) -> bool {
        let mut link = lock(&self.link);
        link.take_if(|link| link.has_ended());
        link.as_ref().is_some_and(|link| link.number == worker)
    }

    /// Starts the worker, unless that has been done.
    fn start(self: &Arc<Self>) {
        self.started.call_once(|| {
            // It must be there when the worker confines itself to it; what is wrong with it is said
            // to whoever needs it.
            let _ = compiler::folder(&self.settings.cache);
            supervisor::start(self);
        });
    }

    /// Tells the worker something that is no run; where it is not up it learns it later, or need not.
    fn tell(&self, message: &Message) {
        if let Some(link) = lock(&self.link).clone() {
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
        lock(&self.link).take_if(|link| link.number == worker.number);
    }

    /// The worker has no code of this name: it is compiled again for the next request.
    fn lost(&self, key: &Key) {
        lock(&self.modules).lost(key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
