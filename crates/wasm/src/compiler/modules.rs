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

/// The code `C` of each module's file, or the reason why there is none.
#[derive(Debug)]
pub struct Modules<C>(HashMap<PathBuf, ModuleState<C>>);

#[derive(Debug)]
struct ModuleState<C> {
    /// The code that serves requests, and the version of the file that it was made from.
    serves: Option<(FileId, C)>,
    /// Requests that wait; set while the module is being compiled.
    pending: Option<Vec<oneshot::Sender<Result<C, NoCode>>>>,
    /// The version of the file that is no program, and why.
    bad: Option<Box<(FileId, NoCode)>>,
}

/// Limit of remembered files: beyond it, files that no request asks for are forgotten.
const MOST: usize = 10_000;

impl<C> Default for Modules<C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C> Default for ModuleState<C> {
    fn default() -> Self {
        Self {
            serves: None,
            pending: None,
            bad: None,
        }
    }
}

impl<C: Clone> Modules<C> {
    /// Returns the code or the failure of a file, or `None` while it is being compiled. The flag
    /// tells whether the caller has to start the compilation.
    pub fn find(&mut self, file: &Path, id: FileId) -> (Option<Result<C, NoCode>>, bool) {
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
        if let Some((of, code)) = &entry.serves
            && *of == id
        {
            return (Some(Ok(code.clone())), false);
        }
        let old = entry.serves.as_ref().map(|(_, code)| Ok(code.clone()));
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
    pub fn wait(&mut self, file: &Path) -> oneshot::Receiver<Result<C, NoCode>> {
        let (verdict, pending) = oneshot::channel();
        if let Some(waiting) = self.0.get_mut(file).and_then(|e| e.pending.as_mut()) {
            waiting.push(verdict);
        }
        pending
    }

    /// Ends a compilation, and tells the waiting requests. Returns the code that served before, if other code serves now.
    pub fn done(&mut self, file: &Path, id: FileId, made: &Result<C, NoCode>) -> Option<C> {
        let entry = self.0.entry(file.to_owned()).or_default();
        for one in entry.pending.take().unwrap_or_default() {
            // The request may have gone meanwhile.
            let _ = one.send(made.clone());
        }
        match made {
            Err(wrong) => {
                let lasts = wrong.whose == ModuleFault::Module;
                entry.bad = lasts.then(|| Box::new((id, wrong.clone())));
                None
            }
            Ok(code) => {
                let before = entry.serves.replace((id, code.clone()));
                before.map(|(_, code)| code)
            }
        }
    }
}

impl Modules<ModuleDigest> {
    /// Forgets code that is not in the cache after all.
    pub(super) fn forget_code(&mut self, key: &ModuleDigest) {
        for entry in self.0.values_mut() {
            entry.serves.take_if(|(_, own)| own == key);
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = ModuleDigest> {
        let serves = |e: &ModuleState<_>| e.serves.map(|(_, key)| key);
        self.0.values().filter_map(serves)
    }
}
