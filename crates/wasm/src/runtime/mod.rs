//! The server's side: keeps the worker up, has modules compiled, and starts instances.

mod cache;
mod compiler;
mod fault;
mod jobs;
mod keeper;
mod lease;
mod modules;
mod prune;
mod shared;
mod supervisor;
mod wrong;

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

pub use crate::wire::{ModuleDigest, Profile};
pub use compiler::examine;
pub use fault::StartFault;
use galgo_spawn::FileId;
use jobs::CompileJob;
pub use keeper::keep;
pub use lease::{KILLED, WorkerLease};
pub use modules::{FoundCode, Pending};
use shared::lock;
pub use shared::{Runtime, RuntimeSettings};
pub use wrong::NoCode;

impl Runtime {
    /// A runtime that has started nothing yet.
    pub fn new(settings: RuntimeSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            modules: Mutex::default(),
            jobs: Mutex::default(),
            supervision: Mutex::default(),
        })
    }

    /// The code of a module, as its file is now (`id`): ready, or being compiled. While a replaced
    /// file is compiled the code of the one before serves.
    pub fn find(self: &Arc<Self>, file: &Path, id: FileId) -> FoundCode {
        if let Some(why) = self.settings.beside.missing() {
            return FoundCode::Refused(why);
        }
        let mut modules = lock(&self.modules);
        let (found, begins) = modules.find(file, id);
        let found = found.unwrap_or_else(|| FoundCode::Pending(modules.wait(file)));
        drop(modules);
        self.begin(begins, file, id);
        if let FoundCode::Pending(_) = found {
            compiler::hurry(self, file);
        }
        found
    }

    /// Has a module compiled before the first request for it.
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

    fn begin(self: &Arc<Self>, begins: bool, file: &Path, id: FileId) {
        if begins {
            let file = file.to_owned();
            compiler::compile(self, CompileJob { file, id });
        }
    }

    /// Whether a module has this code still: where a new worker found it gone from the cache, none has.
    pub fn has(&self, key: &ModuleDigest) -> bool {
        lock(&self.modules).keys().any(|own| own == *key)
    }

    /// A lease of the worker, for one request for this code.
    ///
    /// # Errors
    /// [`StartFault::Busy`] while there is no worker.
    pub fn lease(self: &Arc<Self>, key: ModuleDigest) -> Result<WorkerLease, StartFault> {
        self.start()?;
        let link = self.link().ok_or(StartFault::Busy)?;
        Ok(WorkerLease::new(self.clone(), link, key))
    }

    /// Whether this worker, by its number, is the one that requests go to.
    pub fn is_up(&self, worker: usize) -> bool {
        let link = &mut lock(&self.supervision).link;
        link.take_if(|link| link.has_ended());
        link.as_ref().is_some_and(|link| link.number == worker)
    }
}
