//! Whether what a strict sandbox lists still is what its helper knows.

use super::message::ProgramReport;
use crate::{error::StartStage, sandbox::ListedFileWatch};

/// The server is to ask the next helper.
pub(super) const STALE: ProgramReport = ProgramReport::Failed(StartStage::Helper, libc::ESTALE);

/// What the sandbox of a helper lists.
pub(super) struct ListedFiles {
    /// `None`: it lists nothing.
    watch: Option<ListedFileWatch>,
    replaced: bool,
}

impl ListedFiles {
    pub(super) fn new(watch: Option<ListedFileWatch>) -> Self {
        Self {
            watch,
            replaced: false,
        }
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
