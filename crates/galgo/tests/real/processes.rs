//! The processes of a request, found by a variable that only they have.

use galgo_testkit::process::{command_line, waits_for_a_request, with_variable};

/// The variable.
pub(crate) const MARK: &str = "GALGO_TEST_MARK";

/// A value for [`MARK`] that nobody else uses.
pub(crate) fn mark(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// The process ids of all that have the mark.
pub(crate) fn pids_of(mark: &str) -> Vec<u32> {
    with_variable(&format!("{MARK}={mark}"))
}

/// The command lines of the processes with the mark, but for those that wait for a request.
pub(crate) fn marked(mark: &str) -> Vec<String> {
    let pids = pids_of(mark).into_iter();
    let of_requests = pids.filter(|pid| !waits_for_a_request(*pid));
    of_requests.map(command_line).collect()
}
