//! The processes of a request, found by a variable that only they have.

use galgo_testkit::process::{command_line, waits_for_a_request, with_variable};

/// Name of the variable.
pub(crate) const MARK: &str = "GALGO_TEST_MARK";

/// Returns a value for [`MARK`] that no other test uses.
pub(crate) fn mark(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// Returns the ids of all processes that have the mark.
pub(crate) fn pids_of(mark: &str) -> Vec<u32> {
    with_variable(&format!("{MARK}={mark}"))
}

/// Returns the command lines of the processes with the mark, except processes that wait for a
/// request.
pub(crate) fn marked(mark: &str) -> Vec<String> {
    let pids = pids_of(mark).into_iter();
    let of_requests = pids.filter(|pid| !waits_for_a_request(*pid));
    of_requests.map(command_line).collect()
}
