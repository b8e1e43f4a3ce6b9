//! Bytes that wait until they are read: request bodies (`body = "file"`), and output of programs whose clients read slowly.
//!
//! No event loop waits for the disk: `threads` open, write, read and close the files. A disk that stalls holds up the requests
//! whose bytes are on it, and no others. Bytes in files and bytes in memory have one limit each, for all requests. Half of each
//! limit is the limit of one address.

mod charge;
mod folder;
mod full;
mod stored;
mod task;
mod threads;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{fault::Fault, peer::Peer};
pub use charge::Charge;
use charge::Used;
pub use full::Full;
pub use stored::Stored;
pub use task::Task;
use threads::SpoolThreads;

/// A body with a larger declared length goes to a file, however much memory is free.
pub const IN_MEMORY: u64 = 1 << 20;
/// The folder for large temporary files (file-hierarchy(7)): /tmp may be memory.
const FOLDER: &str = "/var/tmp";

/// Settings of bytes that wait until they are read: request bodies, and output of programs whose clients read slowly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolSettings {
    /// The folder of files without a name; `None`: the system's folder for large temporary files.
    pub folder: Option<PathBuf>,
    /// Limit of bytes in files, over all requests.
    pub limit: u64,
    /// Limit of bytes in memory, for small request bodies and for output, over all requests.
    pub memory: u64,
}

impl Default for SpoolSettings {
    fn default() -> Self {
        Self {
            folder: None,
            limit: 4 << 30,
            memory: 64 << 20,
        }
    }
}

/// The storage of waiting bytes, with their counts.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    disk: Used,
    memory: Used,
    threads: Arc<SpoolThreads>,
}

/// The spool, for requests of one address.
#[derive(Debug, Clone)]
pub struct SpoolShare {
    spool: Arc<Spool>,
    peer: Peer,
}

impl Spool {
    /// Makes a spool with these settings. Bytes that wait in the spool `before` count.
    pub fn new(config: &SpoolSettings, before: Option<&Self>) -> Self {
        Self {
            folder: resolve_folder(config),
            disk: Used::with_limit(config.limit, before.map(|before| &before.disk)),
            memory: Used::with_limit(config.memory, before.map(|before| &before.memory)),
            threads: before.map_or_else(Arc::default, |before| before.threads.clone()),
        }
    }

    /// Returns the share for requests of `peer`, which gets at most half of each kind of storage.
    pub fn share_of(self: &Arc<Self>, peer: Peer) -> SpoolShare {
        SpoolShare {
            spool: self.clone(),
            peer,
        }
    }
}

impl SpoolShare {
    /// Returns storage for a body: in memory if its declared length is small and there is room, else in a file.
    pub async fn create_for_body(&self, declared: Option<u64>) -> Result<Stored, Full> {
        if let Some(len) = declared.filter(|len| *len <= IN_MEMORY) {
            let charge = self.memory_charge();
            if charge.grow_to(len) {
                return Ok(Stored::create_in_memory(charge)?);
            }
        }
        self.create_file().await
    }

    /// Returns an empty charge for bytes that wait in memory elsewhere.
    pub fn memory_charge(&self) -> Charge {
        self.spool.memory.charge(self.peer)
    }

    /// Returns storage in a file.
    pub async fn create_file(&self) -> Result<Stored, Full> {
        let (spool, charge) = (&*self.spool, self.spool.disk.charge(self.peer));
        Stored::create_on_disk(spool.folder.clone(), charge, &spool.threads).await
    }
}

/// Waits for the disk no longer than `most`.
pub async fn with_disk_timeout<T>(
    most: Duration,
    disk: impl Future<Output = Result<T, Full>>,
) -> Result<T, Fault> {
    let late = |_| Fault::Busy("the disk of the `spool` folder took no bytes within idle_timeout");
    let done = tokio::time::timeout(most, disk).await.map_err(late)?;
    done.map_err(Full::into_fault)
}

/// Returns the folder that `config` means.
pub fn resolve_folder(config: &SpoolSettings) -> PathBuf {
    let named = config.folder.clone();
    named.unwrap_or_else(|| match std::env::var_os("TMPDIR") {
        Some(folder) if Path::new(&folder).is_absolute() => folder.into(),
        _ => FOLDER.into(),
    })
}

/// Whether each file in the folder gets a name for a moment, which decides the access that the server needs there.
pub fn needs_named_files(folder: &Path) -> bool {
    folder::needs_named_files(folder)
}

/// Checks that files can be made in the folder, for `galgo check`.
///
/// # Errors
/// The reason why not.
pub fn probe_folder(config: &SpoolSettings) -> io::Result<()> {
    folder::create_unnamed_file(&resolve_folder(config)).map(drop)
}
