//! Orders for a program's keeper.

use std::time::Duration;

use galgo_spawn::{
    FileId,
    template::{SearchPath, Uses},
};

/// A program as it is on disk, together with the files it loads. A template of another revision is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Revision {
    /// Identity of the program's own file.
    pub(super) version: FileId,
    /// Number of changes that were seen in any of the program's files.
    pub(super) changes: u64,
}

/// A template to be loaded.
#[derive(Debug)]
pub(super) struct LoadOrder {
    pub(super) revision: Revision,
    pub(super) uses: Uses,
    /// Module names that children reported, one a line. They are looked up in `search`, as it was before
    /// `since`.
    pub(super) learned: Vec<u8>,
    pub(super) search: SearchPath,
    pub(super) since: Duration,
    /// A template of this revision has stopped at the right point.
    pub(super) proven: bool,
    /// The first template of its kind and revision. Later ones are not logged again.
    pub(super) first: bool,
}

/// The next task of a program's keeper.
#[derive(Debug)]
pub(super) enum KeeperTask {
    Load(LoadOrder),
    /// Wait this long, then look again.
    Wait(Duration),
    /// The program was not requested for a long time, or cannot keep templates: end.
    Over,
}
