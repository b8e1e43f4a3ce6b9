//! The state that requests, the supervisor and the compiling threads share.

use std::{
    collections::VecDeque,
    fmt,
    fs::{self, DirBuilder},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use galgo_spawn::FileId;

use crate::{
    host::Beside,
    runtime::modules::Modules,
    wire::{self, Message, ModuleDigest, Profile, WorkerSetup},
};
use galgo_spawn::lock::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The settings of a runtime.
pub struct RuntimeSettings {
    /// The folder of the program that compiles and runs modules.
    pub beside: Arc<Beside>,
    /// The folder of compiled code, which is created if it is missing; only this user may write to
    /// it.
    pub cache: PathBuf,
    /// Limit of instances at once.
    pub instances: usize,
    /// Profiles of the files and networks that instances may use; a [`wire::Run`] names one by its
    /// index.
    pub profiles: Vec<Profile>,
    /// Tells the operator what happens to the worker.
    pub say: Box<dyn Fn(&str) + Send + Sync>,
}

/// Runs WebAssembly programs in a separate process. Nothing is started before the first request for a
/// program; dropping the runtime ends the worker.
pub struct Runtime {
    pub(super) settings: RuntimeSettings,
    /// Replaces the configured cache, if that cannot be used.
    pub(super) temporary_cache: OnceLock<TemporaryCache>,
    pub(super) modules: Mutex<Modules>,
    pub(super) jobs: Mutex<Jobs>,
    pub(super) supervision: Mutex<Supervision>,
}

/// A folder for compiled code that is removed with its runtime.
#[derive(Debug)]
pub(super) struct TemporaryCache(PathBuf);

impl TemporaryCache {
    /// Creates a folder that no other user may enter.
    ///
    /// # Errors
    /// No folder can be made for temporary files.
    pub(super) fn make() -> io::Result<Self> {
        /// Number of names to try.
        const MOST: u32 = 1000;
        for number in 0..MOST {
            let name = format!("galgo-cache-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for TemporaryCache {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A module that is to be compiled.
pub(super) struct CompileJob {
    pub(super) file: PathBuf,
    pub(super) id: FileId,
}

/// Modules that wait to be compiled, the number of threads that compile, and the file systems that these threads read from, with the
/// time since when.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) waiting: VecDeque<CompileJob>,
    pub(super) threads: usize,
    pub(super) reads: Vec<(i64, Instant)>,
}

/// The worker, and the supervisor that keeps it up.
#[derive(Debug, Default)]
pub(super) struct Supervision {
    /// The connection to the worker, while there is a worker that works.
    pub(super) link: Option<Arc<WorkerHandle>>,
    /// The number of the supervisor; `None`: the next request starts one.
    pub(super) supervisor: Option<usize>,
    /// Numbers of supervisors and workers so far.
    pub(super) supervisors: usize,
    pub(super) workers: usize,
}

#[derive(Debug)]
pub(super) struct WorkerHandle {
    pub(super) socket: OwnedFd,
    /// The process (pidfd_open(2)): only its end shows that the worker has ended.
    pub(super) process: OwnedFd,
    /// Number of earlier workers.
    pub(super) number: usize,
    /// The folder of compiled code that the worker may read. A folder that replaces it under the same
    /// name is another folder.
    pub(super) cache: Option<FolderId>,
}

/// The identity of a folder, whatever its name is: device and inode.
pub(super) type FolderId = (u64, u64);

impl WorkerHandle {
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(n) if n > 0)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = &self.settings.cache;
        f.debug_struct("Runtime")
            .field("cache", cache)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Tells the operator.
    pub fn say(&self, words: &str) {
        (self.settings.say)(words);
    }

    /// Returns the folder of compiled code.
    pub(super) fn cache(&self) -> PathBuf {
        let own = self.temporary_cache.get();
        own.map_or_else(|| self.settings.cache.clone(), |own| own.0.clone())
    }

    pub(super) fn link(&self) -> Option<Arc<WorkerHandle>> {
        lock(&self.supervision).link.clone()
    }

    /// Whether the supervisor with this number keeps the worker up.
    pub(super) fn is_kept_by(&self, supervisor: usize) -> bool {
        lock(&self.supervision).supervisor == Some(supervisor)
    }

    /// Sends the worker a message that is not about a run. If the worker is not up, it learns the
    /// content later, or need not.
    pub(super) fn tell(&self, message: &Message) {
        if let Some(link) = self.link() {
            let _ = wire::send_message(&link.socket, &message.encode(), &[]);
        }
    }

    pub(super) fn setup(&self) -> WorkerSetup {
        WorkerSetup {
            cache: self.cache().as_os_str().as_bytes().to_vec(),
            instances: self.settings.instances as u64,
            profiles: self.settings.profiles.clone(),
        }
    }

    /// Notes that a worker is gone: no more messages go to it, even if its end is not yet visible.
    pub(super) fn died(&self, worker: &WorkerHandle) {
        let link = &mut lock(&self.supervision).link;
        link.take_if(|link| link.number == worker.number);
    }

    /// Notes that the worker has no code of this name: it is compiled again for the next request.
    pub(super) fn lost(&self, key: &ModuleDigest) {
        lock(&self.modules).lost(key);
    }
}

/// Returns the identity of the folder that has this name now.
pub(super) fn folder(cache: &Path) -> Option<FolderId> {
    let metadata = cache.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}
