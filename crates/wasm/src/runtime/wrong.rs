//! Why a module has no code: what the compiler thread finds, and what a request is told.

use super::fault::is_shortage;
use std::io;

/// Why a module has no code.
#[derive(Debug, Clone)]
pub enum NoCode {
    /// It is no program, or cannot be compiled here: why, in words for the log.
    Bad(String),
    /// No thread, process or descriptor is left to compile it: the next request may find one.
    Short,
    /// Nothing is there to run it: why, in words for the log.
    Refused(String),
}

#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) words: String,
    pub(super) whose: ModuleFault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModuleFault {
    /// The module's, and will be while the file is the same.
    Module,
    /// Ours: the next request may find that it works.
    Ours,
    /// The system is short of something.
    Shortage,
    /// There is no program to compile and run it, or none that fits.
    Host,
}

impl Wrong {
    pub(super) fn module(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            whose: ModuleFault::Module,
        }
    }

    pub(super) fn ours(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            whose: ModuleFault::Ours,
        }
    }

    /// An error of the system while we did `what`.
    pub(super) fn io(what: &str, e: &io::Error) -> Self {
        Self {
            words: format!("{what}: {e}"),
            whose: match is_shortage(e) {
                true => ModuleFault::Shortage,
                false => ModuleFault::Ours,
            },
        }
    }

    /// What is to be said whenever the same file is asked for.
    pub(super) fn lasting(&self) -> Option<&str> {
        (self.whose == ModuleFault::Module).then_some(&self.words)
    }

    pub(super) fn told(&self) -> NoCode {
        match self.whose {
            ModuleFault::Shortage => NoCode::Short,
            ModuleFault::Host => NoCode::Refused(self.words.clone()),
            ModuleFault::Module | ModuleFault::Ours => NoCode::Bad(self.words.clone()),
        }
    }
}
