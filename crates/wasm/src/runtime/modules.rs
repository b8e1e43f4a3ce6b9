//! Which code belongs to which file.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use galgo_spawn::FileId;
use tokio::sync::oneshot;

use super::wrong::{NoCode, Wrong};
use crate::wire::ModuleDigest;

/// The code of a file.
#[derive(Debug)]
pub enum FoundCode {
    /// There.
    Ready(ModuleDigest),
    /// Being compiled.
    Pending(Pending),
    /// It is no program: why, in words for the log.
    Bad(String),
    /// Nothing is there to run it: why, in words for the log.
    Refused(String),
}

type CompileResult = Result<ModuleDigest, NoCode>;
/// Requests that wait for a module.
pub(super) type Waiters = Vec<oneshot::Sender<CompileResult>>;

/// A module that is being compiled.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<CompileResult>);

impl Pending {
    /// Waits for the code, or for what is wrong with the module.
    pub async fn wait(self) -> Result<ModuleDigest, NoCode> {
        let given_up = |_| Err(NoCode::Bad("its compilation was given up".into()));
        self.0.await.unwrap_or_else(given_up)
    }
}

#[derive(Debug, Default)]
pub(super) struct Modules(HashMap<PathBuf, ModuleState>);

#[derive(Debug, Default)]
struct ModuleState {
    /// Serves: the code, and the file it was made of.
    serves: Option<(FileId, ModuleDigest)>,
    /// Being compiled; the list may be empty.
    pending: Option<Waiters>,
    /// Is no program.
    bad: Option<Box<(FileId, String)>>,
}

/// Files that are remembered: more are no longer asked for, and are forgotten.
const MOST: usize = 10_000;

impl Modules {
    /// What is known; `None`: it is being compiled. And whether the caller has to have that done.
    pub(super) fn find(&mut self, file: &Path, id: FileId) -> (Option<FoundCode>, bool) {
        if !self.0.contains_key(file) {
            if self.0.len() >= MOST {
                self.0.retain(|_, entry| entry.pending.is_some());
            }
            self.0.insert(file.to_owned(), ModuleState::default());
        }
        // INVARIANT: it is there now.
        let Some(entry) = self.0.get_mut(file) else {
            return (Some(FoundCode::Bad("it is not known".into())), false);
        };
        if let Some((of, key)) = &entry.serves
            && *of == id
        {
            return (Some(FoundCode::Ready(*key)), false);
        }
        let old = entry.serves.map(|(_, key)| FoundCode::Ready(key));
        if let Some((of, why)) = entry.bad.as_deref()
            && *of == id
        {
            return (Some(old.unwrap_or(FoundCode::Bad(why.clone()))), false);
        }
        // One compilation of a file at a time: where it changed meanwhile, the next request finds
        // that what came out is not of the file as it is.
        let begins = entry.pending.is_none();
        entry.pending.get_or_insert_default();
        (old, begins)
    }

    pub(super) fn wait(&mut self, file: &Path) -> Pending {
        let (verdict, pending) = oneshot::channel();
        if let Some(waiting) = self.0.get_mut(file).and_then(|e| e.pending.as_mut()) {
            waiting.push(verdict);
        }
        Pending(pending)
    }

    /// A compilation is over. The code that no file has any more, and the requests that wait.
    pub(super) fn done(
        &mut self,
        file: &Path,
        id: FileId,
        made: &Result<ModuleDigest, Wrong>,
    ) -> (Option<ModuleDigest>, Waiters) {
        let entry = self.0.entry(file.to_owned()).or_default();
        let waiting = entry.pending.take().unwrap_or_default();
        let unused = match made {
            Err(wrong) => {
                entry.bad = wrong.lasting().map(|why| Box::new((id, why.to_owned())));
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
