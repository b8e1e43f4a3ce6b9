//! The state that requests and the compiling threads share.

use std::{
    collections::VecDeque,
    fmt,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

use galgo_spawn::FileId;

use super::modules::Modules;
use crate::{host::Beside, wire::ModuleDigest};

/// The settings of a compiler.
pub struct CompilerSettings {
    /// The folder of the program that compiles and runs modules.
    pub beside: Arc<Beside>,
    /// The folder of compiled code, which is created if it is missing; only this user may write to
    /// it.
    pub cache: PathBuf,
    /// Tells the operator what happens to modules.
    pub say: Box<dyn Fn(&str) + Send + Sync>,
}

/// A change of the code in the cache.
#[derive(Debug, Clone, Copy)]
pub enum CodeChange {
    /// There is new code, in this folder.
    Made(ModuleDigest, Option<FolderId>),
    /// No module has this code any more.
    Unused(ModuleDigest),
}

/// Has WebAssembly programs compiled, each by a separate process, and knows the code of each file. Nothing is started before the
/// first request for a program.
pub struct Compiler {
    pub(super) settings: CompilerSettings,
    /// Tells the worker which code it will need.
    pub(super) tell: OnceLock<Box<dyn Fn(CodeChange) + Send + Sync>>,
    /// Replaces the configured cache, if that cannot be used.
    pub(super) temporary_cache: OnceLock<TemporaryCache>,
    pub(super) modules: Mutex<Modules<ModuleDigest>>,
    pub(super) jobs: Mutex<Jobs>,
}

/// A folder for compiled code that is removed with its compiler.
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

/// Modules that wait to be compiled, and the number of threads that compile.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) waiting: VecDeque<CompileJob>,
    pub(super) threads: usize,
}

/// The identity of a folder, whatever its name is: device and inode. A folder that replaces another under the same name is another
/// folder.
pub type FolderId = (u64, u64);

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = &self.settings.cache;
        f.debug_struct("Compiler")
            .field("cache", cache)
            .finish_non_exhaustive()
    }
}

impl Compiler {
    /// Tells the operator.
    pub fn say(&self, words: &str) {
        (self.settings.say)(words);
    }

    /// Sets what is called when the code in the cache changes.
    pub fn on_change(&self, tell: impl Fn(CodeChange) + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
    }

    pub(super) fn report_change(&self, change: CodeChange) {
        self.tell.get().iter().for_each(|tell| tell(change));
    }

    /// Returns the folder of compiled code.
    pub(super) fn cache(&self) -> PathBuf {
        let own = self.temporary_cache.get();
        own.map_or_else(|| self.settings.cache.clone(), |own| own.0.clone())
    }

    /// Returns the identity of the folder of compiled code; `None`: there is no such folder.
    pub fn cache_folder(&self) -> Option<FolderId> {
        let metadata = self.cache().metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    }
}
