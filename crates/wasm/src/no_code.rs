//! The reason why a module has no code.

use galgo_spawn::is_short;
use rustix::io::Errno;
use std::io;

/// The reason why a module has no code.
#[derive(Debug, Clone)]
pub struct NoCode {
    /// Words for the log.
    pub words: String,
    /// The party at fault.
    pub whose: ModuleFault,
}

/// The party that is at fault if a module has no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleFault {
    /// The module itself, as long as its file is the same: it is no program, or cannot be compiled here.
    Module,
    /// The server: the next request may succeed.
    Ours,
    /// The system, which has no thread, process or descriptor left to compile the module: the next request
    /// may find one.
    Shortage,
    /// The installation: there is no program to compile and run the module, or none that fits.
    Host,
}

impl NoCode {
    pub(crate) fn new(whose: ModuleFault, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { words, whose }
    }

    pub(crate) fn module_fault(words: impl Into<String>) -> Self {
        Self::new(ModuleFault::Module, words)
    }

    pub(crate) fn server_fault(words: impl Into<String>) -> Self {
        Self::new(ModuleFault::Ours, words)
    }

    /// Returns the reason for an error of the system during `what`.
    pub(crate) fn from_io_error(what: &str, e: &io::Error) -> Self {
        let whose = if is_shortage(e) {
            ModuleFault::Shortage
        } else {
            ModuleFault::Ours
        };
        Self::new(whose, format!("{what}: {e}"))
    }
}

/// Whether the system lacks a resource at this moment: processes, threads, memory, descriptors.
pub(crate) fn is_shortage(e: &io::Error) -> bool {
    Errno::from_io_error(e).is_some_and(is_short)
}
