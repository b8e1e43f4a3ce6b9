//! The parts of this machine that modules can see.

use std::path::PathBuf;

/// The parts of this machine that a route's WebAssembly programs can see: nothing, unless it is
/// listed here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestAccess {
    /// Folders: their path in the program, their path here, whether they may be written to.
    pub folders: Vec<(String, PathBuf, bool)>,
    /// Other machines, over TCP and UDP.
    pub network: bool,
}
