//! One answer of a program that is compared.

use std::time::Duration;

/// An answer, taken apart.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    /// Status, headers, body, stderr, exit status: named in [`PARTS`].
    pub(super) parts: [Vec<u8>; 5],
    pub(super) took: Duration,
    /// What is wrong with it, in the server's words.
    pub(super) fault: Option<String>,
}

pub(super) const PARTS: [&str; 5] = ["status", "headers", "body", "stderr", "exit status"];
