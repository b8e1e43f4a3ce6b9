//! Transfers between a program's pipes and its client: copied or spliced, and how much at once.

use std::time::Duration;

/// Time after a process's exit at which its permit is given back while a slow client still receives the rest.
pub(super) const EXIT_GRACE: Duration = Duration::from_millis(250);
/// Time after a process's exit during which leftover processes may hold standard output without printing anything. Output that
/// they print belongs to the response.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// Greatest size of a pipe without privileges (pipe(7)).
pub(super) const PIPE_MOST: usize = 1 << 20;
/// Least output to splice. Less is read and written, because splicing has to ask how much is there, and to frame it separately.
pub(super) const SPLICE_LEAST: usize = 16 << 10;

/// Method of transfer for output, from a pipe or socket to a socket, and for a body of known length to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    /// Splice or copy, whichever costs less.
    Cheapest,
    /// Never splice.
    Copied,
    /// Splice wherever possible.
    Spliced,
}

/// Reads GALGO_TEST_OUTPUT, `copied` or `spliced`, so that tests see both ways, however little they print.
pub(super) fn transfer() -> Transfer {
    static TRANSFER: std::sync::OnceLock<Transfer> = std::sync::OnceLock::new();
    *TRANSFER.get_or_init(
        || match crate::trial::read_switch("GALGO_TEST_OUTPUT").as_deref() {
            Some("copied") => Transfer::Copied,
            Some("spliced") => Transfer::Spliced,
            _ => Transfer::Cheapest,
        },
    )
}
