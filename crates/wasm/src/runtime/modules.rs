//! Which code belongs to which file.

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
    /// Serves: the code, and the file it was made of.
    serves: Option<(FileId, ModuleDigest)>,
    /// Being compiled; the list may be empty.
    pending: Option<Waiters>,
    /// Is no program.
    bad: Option<Box<(FileId, NoCode)>>,
}

/// Files that are remembered: more are no longer asked for, and are forgotten.
const MOST: usize = 10_000;

impl Modules {
    /// What is known; `None`: it is being compiled. And whether the caller has to have that done.
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
        // INVARIANT: it is there now.
        let Some(entry) = self.0.get_mut(file) else {
            return (Some(Err(NoCode::ours("it is not known"))), false);
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
        // One compilation of a file at a time: where it changed meanwhile, the next request finds
        // that what came out is not of the file as it is.
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

    /// A compilation is over. The code that no file has any more, and the requests that wait.
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

    /// Code that is not in the cache after all.
    pub(super) fn lost(&mut self, key: &ModuleDigest) {
        for entry in self.0.values_mut() {
            entry.serves.take_if(|(_, own)| own == key);
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = ModuleDigest> {
        self.0.values().filter_map(|e| e.serves.map(|(_, key)| key))
    }
}
