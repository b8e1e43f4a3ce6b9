//! The server's side: keeps the worker up, has modules compiled, and starts instances.

mod compiler;
mod fault;
mod keeper;
mod lease;
mod modules;
mod prune;
mod runtime_state;
mod supervisor;

use std::{
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use galgo_spawn::{FileId, lock::lock};
use tokio::time::timeout;

use crate::runtime::runtime_state::CompileJob;
pub use crate::runtime::runtime_state::{Runtime, RuntimeSettings};
use crate::{
    no_code::{ModuleFault, NoCode},
    wire::ModuleDigest,
};
pub use compiler::examine;
pub use fault::StartFault;
pub use keeper::keep;
pub use lease::{KILLED, WorkerLease};

impl Runtime {
    /// Creates a runtime that has started nothing yet.
    pub fn new(settings: RuntimeSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            temporary_cache: OnceLock::new(),
            modules: Mutex::default(),
            jobs: Mutex::default(),
            supervision: Mutex::default(),
        })
    }

    /// Returns the name of a module's code, as the file is now (`id`); waits while the code is
    /// compiled. While a replaced file is compiled, requests still get the previous code.
    ///
    /// # Errors
    /// The module has no code: the reason.
    pub async fn code(self: &Arc<Self>, file: &Path, id: FileId) -> Result<ModuleDigest, NoCode> {
        if let Some(why) = self.settings.beside.explain_missing() {
            return Err(NoCode::new(ModuleFault::Host, why));
        }
        let (found, begins) = {
            let mut modules = lock(&self.modules);
            let (found, begins) = modules.find(file, id);
            (found.ok_or_else(|| modules.wait(file)), begins)
        };
        self.begin(begins, file, id);
        match found {
            Ok(known) => known,
            Err(pending) => {
                compiler::hurry(self, file);
                let given_up = |_| Err(NoCode::server_fault("its compilation was given up"));
                let mut pending = pending;
                loop {
                    match timeout(compiler::SLOW, &mut pending).await {
                        Ok(made) => return made.unwrap_or_else(given_up),
                        // The threads that compile may hang.
                        Err(_) => compiler::hurry(self, file),
                    }
                }
            }
        }
    }

    /// Has a module compiled before the first request for it.
    ///
    /// # Errors
    /// There is no program to compile the module: the reason.
    pub fn prepare(self: &Arc<Self>, file: &Path, id: FileId) -> Result<(), String> {
        if let Some(why) = self.settings.beside.explain_missing() {
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

    /// Whether a module still has this code. If a new worker did not find the code in the cache, no
    /// module has it.
    pub fn has(&self, key: &ModuleDigest) -> bool {
        lock(&self.modules).keys().any(|own| own == *key)
    }

    /// Returns a lease of the worker, for one request for this code.
    ///
    /// # Errors
    /// [`StartFault::Busy`] while there is no worker.
    pub fn lease(self: &Arc<Self>, key: ModuleDigest) -> Result<WorkerLease, StartFault> {
        self.start()?;
        let link = self.link().ok_or(StartFault::Busy)?;
        Ok(WorkerLease::new(self.clone(), link, key))
    }

    /// Whether requests go to the worker with this number.
    pub fn is_up(&self, worker: usize) -> bool {
        let link = &mut lock(&self.supervision).link;
        link.take_if(|link| link.has_ended());
        link.as_ref().is_some_and(|link| link.number == worker)
    }
}
