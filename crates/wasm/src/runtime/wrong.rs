//! Why a module has no code.

use super::fault::is_shortage;
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

    pub(super) fn module(words: impl Into<String>) -> Self {
        Self::new(ModuleFault::Module, words)
    }

    pub(super) fn ours(words: impl Into<String>) -> Self {
        Self::new(ModuleFault::Ours, words)
    }

    /// An error of the system while we did `what`.
    pub(super) fn io(what: &str, e: &io::Error) -> Self {
        let whose = match is_shortage(e) {
            true => ModuleFault::Shortage,
            false => ModuleFault::Ours,
        };
        Self::new(whose, format!("{what}: {e}"))
    }
}
