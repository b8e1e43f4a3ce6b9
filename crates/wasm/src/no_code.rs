//! Why a module has no code.

use rustix::io::Errno;
use std::io;

/// Why a module has no code.
#[derive(Debug, Clone)]
pub struct NoCode {
    /// In words for the log.
    pub words: String,
    /// Whose fault it is.
    pub whose: ModuleFault,
}

/// Whose fault it is that a module has no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleFault {
    /// The module's, and will be while the file is the same: it is no program, or cannot be compiled here.
    Module,
    /// Ours: the next request may find that it works.
    Ours,
    /// No thread, process or descriptor is left to compile it: the next request may find one.
    Shortage,
    /// There is no program to compile and run it, or none that fits.
    Host,
}

impl NoCode {
    pub(crate) fn new(whose: ModuleFault, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { words, whose }
    }

    pub(crate) fn module(words: impl Into<String>) -> Self {
        Self::new(ModuleFault::Module, words)
    }

    pub(crate) fn ours(words: impl Into<String>) -> Self {
        Self::new(ModuleFault::Ours, words)
    }

    /// An error of the system while we did `what`.
    pub(crate) fn io(what: &str, e: &io::Error) -> Self {
        let whose = if is_shortage(e) {
            ModuleFault::Shortage
        } else {
            ModuleFault::Ours
        };
        Self::new(whose, format!("{what}: {e}"))
    }
}

/// Whether the system is short of something at this moment: processes, threads, memory, descriptors.
pub(crate) fn is_shortage(e: &io::Error) -> bool {
    let short = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE];
    Errno::from_io_error(e).is_some_and(|e| short.contains(&e))
}
