//! Watches the files and folders that a strict sandbox lists: the helper knows them only as they were at its start.

use crate::{remote::message::ProgramReport, sandbox::ListedFileWatch, start_error::StartStage};
use std::io::{self, ErrorKind};

/// Report for a helper whose listed files were replaced. The server must ask the next helper.
pub(crate) const STALE: ProgramReport = ProgramReport::Failed(StartStage::Helper, libc::ESTALE);

/// The files and folders that a helper's sandbox lists.
#[derive(Default)]
pub(crate) struct ListedFiles {
    watch: Option<ListedFileWatch>,
    replaced: bool,
}

impl ListedFiles {
    /// Watches the list of a strict sandbox. Without a watch, logs the reason.
    pub(crate) fn from_watch(watch: io::Result<ListedFileWatch>) -> Self {
        if let Err(e) = &watch {
            // Root makes each helper, so root's limits apply (inotify(7)).
            let limit = match e.kind() {
                ErrorKind::StorageFull => "max_user_watches",
                _ => "max_user_instances",
            };
            eprintln!(
                "galgo: the files and folders that a strict sandbox lists cannot be watched, so its helper is replaced after a minute: {e} \
                 (try: raise fs.inotify.{limit} with sysctl)"
            );
        }
        Self {
            watch: watch.ok(),
            replaced: false,
        }
    }

    /// Returns the descriptor that becomes readable when it is time to [`check_replaced`](Self::check_replaced).
    pub(crate) fn file_watch(&self) -> Option<&ListedFileWatch> {
        self.watch.as_ref()
    }

    /// Whether a listed file is known to be replaced. If so, this helper starts nothing.
    pub(crate) fn are_replaced(&self) -> bool {
        self.replaced
    }

    /// Checks whether listed files were replaced.
    pub(crate) fn check_replaced(&mut self) {
        self.replaced |= self
            .watch
            .as_ref()
            .is_some_and(ListedFileWatch::has_replaced);
    }

    /// Returns the report for a program that was not started.
    pub(crate) fn refusal(&mut self, why: ProgramReport) -> ProgramReport {
        self.check_replaced();
        if self.replaced { STALE } else { why }
    }
}
