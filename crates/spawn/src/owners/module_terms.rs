//! What a configuration says of modules.

use std::path::PathBuf;

/// What the worker of a route's modules is told, and sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleTerms {
    /// The server's build, which that of the worker's program is to be: its last argument.
    pub build: String,
    /// What it reads at its start, from its descriptor 4.
    pub setup: Vec<u8>,
    /// Folders that modules may read: what a strict sandbox leaves to the worker beside what programs have.
    pub read: Vec<PathBuf>,
    /// Those that they may change, too.
    pub write: Vec<PathBuf>,
}
