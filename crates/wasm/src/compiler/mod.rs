//! The server's side of compiling: has modules compiled, keeps their code in the cache, and starts the worker that reads the cache;
//! and the keeper of a worker that runs a user's own modules.

mod jobs;
mod keeper;
mod modules;
mod prune;
mod shared;
mod worker;

use std::{
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use galgo_spawn::{FileId, lock::lock};

use crate::{
    no_code::{ModuleFault, NoCode},
    wire::ModuleDigest,
};
pub use jobs::examine;
pub use keeper::keep;
pub use modules::Modules;
use shared::CompileJob;
pub use shared::{CodeChange, Compiler, CompilerSettings, FolderId};

impl Compiler {
    /// Creates a compiler that has started nothing yet.
    pub fn new(settings: CompilerSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            tell: OnceLock::new(),
            temporary_cache: OnceLock::new(),
            modules: Mutex::default(),
            jobs: Mutex::default(),
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
                jobs::hurry(self, file);
                let given_up = |_| Err(NoCode::server_fault("its compilation was given up"));
                pending.await.unwrap_or_else(given_up)
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
            jobs::compile(self, CompileJob { file, id });
        }
    }

    /// Whether a module still has this code. If a new worker did not find the code in the cache, no
    /// module has it.
    pub fn has_code(&self, key: &ModuleDigest) -> bool {
        lock(&self.modules).keys().any(|own| own == *key)
    }

    /// Notes that the worker has no code of this name: it is compiled again for the next request.
    pub fn forget_code(&self, key: &ModuleDigest) {
        lock(&self.modules).forget_code(key);
    }
}
