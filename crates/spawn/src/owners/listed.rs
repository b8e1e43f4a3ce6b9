//! Whether what a strict sandbox lists still is what its helper knows.

use crate::{error::StartStage, remote::message::ProgramReport, sandbox::ListedFileWatch};
use std::io::{self, ErrorKind};

/// The server is to ask the next helper.
pub(super) const STALE: ProgramReport = ProgramReport::Failed(StartStage::Helper, libc::ESTALE);

/// What the sandbox of a helper lists.
#[derive(Default)]
pub(super) struct ListedFiles {
    watch: Option<ListedFileWatch>,
    replaced: bool,
}

impl ListedFiles {
    /// Those of a strict sandbox.
    pub(super) fn of(watch: io::Result<ListedFileWatch>) -> Self {
        if let Err(e) = &watch {
            // Root makes each helper, so the limits are those of root (inotify(7)).
            let limit = match e.kind() {
                ErrorKind::StorageFull => "max_user_watches",
                _ => "max_user_instances",
            };
            eprintln!(
                "galgo: what a strict sandbox lists cannot be watched, so its helper is replaced after a minute: {e} \
                 (try: raise fs.inotify.{limit} with sysctl)"
            );
        }
        Self {
            watch: watch.ok(),
            replaced: false,
        }
    }

    /// What becomes readable when it is time to [`look`](Self::look).
    pub(super) fn watch(&self) -> Option<&ListedFileWatch> {
        self.watch.as_ref()
    }

    /// Whether something else is there, as far as is known: then this helper starts nothing.
    pub(super) fn are_replaced(&self) -> bool {
        self.replaced
    }

    /// Looks whether something else is there.
    pub(super) fn look(&mut self) {
        self.replaced |= self.watch.as_ref().is_some_and(ListedFileWatch::any);
    }

    /// What the server is told of a program that was not started.
    pub(super) fn refusal(&mut self, why: ProgramReport) -> ProgramReport {
        self.look();
        if self.replaced { STALE } else { why }
    }
}
