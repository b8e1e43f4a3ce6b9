//! Modules that wait to be compiled.

use std::{collections::VecDeque, path::PathBuf};

use galgo_spawn::FileId;

pub(super) struct CompileJob {
    pub(super) file: PathBuf,
    pub(super) id: FileId,
}

/// Modules that wait to be compiled, and the threads that have that done.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) waiting: VecDeque<CompileJob>,
    pub(super) threads: usize,
}
