//! Which code belongs to which file.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use galgo_spawn::FileId;
use tokio::sync::watch;

use super::compiler::Wrong;
use crate::wire::Key;

/// The code of a file.
#[derive(Debug)]
pub enum Found {
    /// There.
    Ready(Key),
    /// Being compiled.
    Pending(Pending),
    /// It is no program: why, in words for the log.
    Bad(String),
}

type Verdict = Result<Key, String>;
pub(super) type Report = Arc<watch::Sender<Option<Verdict>>>;

/// A module that is being compiled.
#[derive(Debug)]
pub struct Pending(watch::Receiver<Option<Verdict>>);

impl Pending {
    /// Waits for the code, or for what is wrong with the module.
    pub async fn wait(mut self) -> Result<Key, String> {
        let done = self.0.wait_for(Option::is_some).await;
        let verdict = done.ok().and_then(|verdict| verdict.clone());
        verdict.unwrap_or_else(|| Err("its compilation was given up".into()))
    }
}

/// Files that were asked for.
#[derive(Debug, Default)]
pub(super) struct Modules(HashMap<PathBuf, Entry>);

#[derive(Debug, Default)]
struct Entry {
    /// Serves: the code, and the file it was made of.
    serves: Option<(FileId, Key)>,
    /// Being compiled.
    pending: Option<(FileId, Report)>,
    /// Is no program.
    bad: Option<(FileId, String)>,
}

/// Files that are remembered: more are no longer asked for, and are forgotten.
const MOST: usize = 10_000;

impl Modules {
    /// What is known, and whether somebody has to compile.
    pub(super) fn find(&mut self, file: &Path, id: FileId) -> (Found, Option<Report>) {
        if !self.0.contains_key(file) {
            if self.0.len() >= MOST {
                self.0.retain(|_, entry| entry.pending.is_some());
            }
            self.0.insert(file.to_owned(), Entry::default());
        }
        // INVARIANT: it is there now.
        let Some(entry) = self.0.get_mut(file) else {
            return (Found::Bad("it is not known".into()), None);
        };
        if let Some((of, key)) = &entry.serves
            && *of == id
        {
            return (Found::Ready(*key), None);
        }
        let old = entry.serves.map(|(_, key)| Found::Ready(key));
        if let Some((of, why)) = &entry.bad
            && *of == id
        {
            return (old.unwrap_or(Found::Bad(why.clone())), None);
        }
        // One compilation of a file at a time: where it changed meanwhile, the next request finds
        // that what came out is not of the file as it is.
        let (report, job) = match &entry.pending {
            Some((_, report)) => (report.clone(), None),
            None => {
                let report: Report = Arc::new(watch::Sender::new(None));
                entry.pending = Some((id, report.clone()));
                (report.clone(), Some(report))
            }
        };
        (
            old.unwrap_or_else(|| Found::Pending(Pending(report.subscribe()))),
            job,
        )
    }

    /// A compilation is over. The code that no file has any more.
    pub(super) fn done(
        &mut self,
        file: &Path,
        id: FileId,
        made: &Result<Key, Wrong>,
    ) -> Option<Key> {
        let entry = self.0.entry(file.to_owned()).or_default();
        entry.pending = None;
        match made {
            Err(wrong) => {
                entry.bad = wrong.lasting().map(|why| (id, why.to_owned()));
                None
            }
            Ok(key) => {
                let before = entry.serves.replace((id, *key)).map(|(_, key)| key);
                before.filter(|old| !self.keys().any(|key| key == *old))
            }
        }
    }

    /// Code that is not in the cache after all.
    pub(super) fn lost(&mut self, key: &Key) {
        for entry in self.0.values_mut() {
            entry.serves.take_if(|(_, own)| own == key);
        }
    }

    /// All code that serves.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.0.values().filter_map(|e| e.serves.map(|(_, key)| key))
    }
}
