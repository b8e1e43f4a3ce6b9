//! What modules see of this machine.

use std::path::PathBuf;

/// What WebAssembly programs of a route see of this machine: nothing, unless it is named here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestAccess {
    /// Folders: their path in the program, their path here, whether they may be written to.
    pub folders: Vec<(String, PathBuf, bool)>,
    /// Other machines, over TCP and UDP.
    pub network: bool,
}
