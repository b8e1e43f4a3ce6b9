//! What a program's keeper is told to do.

use std::time::Duration;

use galgo_spawn::{
    FileId,
    template::{SearchPath, Uses},
};

/// A program as it is on disk, together with what it loads: what was made of another one is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Revision {
    /// Its own file.
    pub(super) version: FileId,
    /// How often any of its files was seen to change.
    pub(super) changes: u64,
}

/// A template to be loaded.
#[derive(Debug)]
pub(super) struct LoadOrder {
    pub(super) revision: Revision,
    pub(super) uses: Uses,
    /// Names of modules that children told, one a line, to be looked for in `search`, as it was before `since`.
    pub(super) learned: Vec<u8>,
    pub(super) search: SearchPath,
    pub(super) since: Duration,
    /// A template of this revision has stopped where it should.
    pub(super) proven: bool,
    /// The first of its kind, of this revision: later ones say nothing new.
    pub(super) first: bool,
}

/// What a program's keeper has to do.
#[derive(Debug)]
pub(super) enum KeeperTask {
    Load(LoadOrder),
    /// Look again then.
    Wait(Duration),
    /// It was not asked for in a long time.
    Over,
}
