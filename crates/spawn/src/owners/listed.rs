//! Whether what a strict sandbox lists still is what its helper knows.

use super::message::ProgramReport;
use crate::{error::StartStage, sandbox::ListedFileWatch};
use std::io;

/// The server is to ask the next helper.
pub(super) const STALE: ProgramReport = ProgramReport::Failed(StartStage::Helper, libc::ESTALE);

/// What the sandbox of a helper lists.
#[derive(Default)]
pub(super) struct ListedFiles {
    watch: Option<ListedFileWatch>,
    /// There is something to watch, and no watch.
    unwatched: bool,
    replaced: bool,
}

impl ListedFiles {
    /// Those of a strict sandbox.
    pub(super) fn of(watch: io::Result<ListedFileWatch>) -> Self {
        if let Err(e) = &watch {
            // For the operator. The kernel has one for each helper, of root's (inotify(7)).
            eprintln!(
                "galgo: what a strict sandbox lists cannot be watched, so its helper is replaced after a minute: {e} \
                 (try: sysctl fs.inotify.max_user_instances=1024)"
            );
        }
        Self {
            unwatched: watch.is_err(),
            watch: watch.ok(),
            replaced: false,
        }
    }

    /// Whether nothing tells when they are replaced.
    pub(super) fn are_unwatched(&self) -> bool {
        self.unwatched
    }

    /// What becomes readable when it is to be looked whether something was replaced.
    pub(super) fn watch(&self) -> Option<&ListedFileWatch> {
        self.watch.as_ref()
    }

    /// Whether something else is there, as far as is known: then this helper starts nothing.
    pub(super) fn are_replaced(&self) -> bool {
        self.replaced
    }

    /// Looks whether something else is there.
    pub(super) fn look(&mut self) -> bool {
        self.replaced |= self.watch.as_ref().is_some_and(ListedFileWatch::any);
        self.replaced
    }

    /// What the server is told of a program that was not started.
    pub(super) fn refusal(&mut self, why: ProgramReport) -> ProgramReport {
        match self.look() {
            true => STALE,
            false => why,
        }
    }
}
