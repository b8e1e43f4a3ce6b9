//! The code of each module's file.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use galgo_spawn::FileId;
use tokio::sync::oneshot;

use crate::{
    no_code::{ModuleFault, NoCode},
    wire::ModuleDigest,
};

/// Requests that wait for a module.
pub(super) type Waiters = Vec<oneshot::Sender<Result<ModuleDigest, NoCode>>>;

#[derive(Debug, Default)]
pub(super) struct Modules(HashMap<PathBuf, ModuleState>);

#[derive(Debug, Default)]
struct ModuleState {
    /// The code that serves requests, and the version of the file that it was made from.
    serves: Option<(FileId, ModuleDigest)>,
    /// Set while the module is being compiled; the list may be empty.
    pending: Option<Waiters>,
    /// The version of the file that is no program, and why.
    bad: Option<Box<(FileId, NoCode)>>,
}

/// Limit of remembered files: beyond it, files that no request asks for are forgotten.
const MOST: usize = 10_000;

impl Modules {
    /// Returns the code or the failure of a file, or `None` while it is being compiled. The flag
    /// tells whether the caller has to start the compilation.
    pub(super) fn find(
        &mut self,
        file: &Path,
        id: FileId,
    ) -> (Option<Result<ModuleDigest, NoCode>>, bool) {
        if !self.0.contains_key(file) {
            if self.0.len() >= MOST {
                self.0.retain(|_, entry| entry.pending.is_some());
            }
            self.0.insert(file.to_owned(), ModuleState::default());
        }
        // INVARIANT: the entry exists now.
        let Some(entry) = self.0.get_mut(file) else {
            return (Some(Err(NoCode::server_fault("it is not known"))), false);
        };
        if let Some((of, key)) = &entry.serves
            && *of == id
        {
            return (Some(Ok(*key)), false);
        }
        let old = entry.serves.map(|(_, key)| Ok(key));
        if let Some((of, why)) = entry.bad.as_deref()
            && *of == id
        {
            return (old.or_else(|| Some(Err(why.clone()))), false);
        }
        // Only one compilation of a file runs at a time. If the file changed meanwhile, the next
        // request notices that the result belongs to another version.
        let begins = entry.pending.is_none();
        entry.pending.get_or_insert_default();
        (old, begins)
    }

    /// Waits for a module that is being compiled.
    pub(super) fn wait(&mut self, file: &Path) -> oneshot::Receiver<Result<ModuleDigest, NoCode>> {
        let (verdict, pending) = oneshot::channel();
        if let Some(waiting) = self.0.get_mut(file).and_then(|e| e.pending.as_mut()) {
            waiting.push(verdict);
        }
        pending
    }

    /// Ends a compilation. Returns the code that no file uses any more, and the waiting requests.
    pub(super) fn done(
        &mut self,
        file: &Path,
        id: FileId,
        made: &Result<ModuleDigest, NoCode>,
    ) -> (Option<ModuleDigest>, Waiters) {
        let entry = self.0.entry(file.to_owned()).or_default();
        let waiting = entry.pending.take().unwrap_or_default();
        let unused = match made {
            Err(wrong) => {
                let lasts = wrong.whose == ModuleFault::Module;
                entry.bad = lasts.then(|| Box::new((id, wrong.clone())));
                None
            }
            Ok(key) => {
                let before = entry.serves.replace((id, *key)).map(|(_, key)| key);
                before.filter(|old| !self.keys().any(|key| key == *old))
            }
        };
        (unused, waiting)
    }

    /// Forgets code that is not in the cache after all.
    pub(super) fn lost(&mut self, key: &ModuleDigest) {
        for entry in self.0.values_mut() {
            entry.serves.take_if(|(_, own)| own == key);
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = ModuleDigest> {
        self.0.values().filter_map(|e| e.serves.map(|(_, key)| key))
    }
}
