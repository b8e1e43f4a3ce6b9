//! How bytes go between a program's pipes and its client: copied or spliced, and how much at once.

use std::time::Duration;

/// So long after the process has exited its permit is given back while a slow client is sent what is left.
pub(super) const EXIT_GRACE: Duration = Duration::from_millis(250);
/// After the process has exited, how long those that it has left running may hold standard output and print nothing. What they
/// print belongs to the response.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// The most that a pipe holds without privileges (pipe(7)).
pub(super) const PIPE_MOST: usize = 1 << 20;
/// Less than this is read and written: splicing has to look how much is there, and to frame it apart.
pub(super) const SPLICE_LEAST: usize = 16 << 10;

/// How output goes from a pipe, or a socket, to a socket, and a body of known length to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    /// By whichever costs less.
    Cheapest,
    /// Never spliced.
    Copied,
    /// Spliced wherever that is possible.
    Spliced,
}

/// GALGO_TEST_OUTPUT, `copied` or `spliced`: so that tests see both, however little they print.
pub(super) fn transfer() -> Transfer {
    static TRANSFER: std::sync::OnceLock<Transfer> = std::sync::OnceLock::new();
    *TRANSFER.get_or_init(
        || match crate::trial::asked("GALGO_TEST_OUTPUT").as_deref() {
            Some("copied") => Transfer::Copied,
            Some("spliced") => Transfer::Spliced,
            _ => Transfer::Cheapest,
        },
    )
}
