//! Stored bytes: request bodies in files, and output of programs for clients that read slowly.

mod bodies;
pub(crate) mod output;

use crate::harness::{Test, both_ways};

/// Returns the tests of these modules.
pub fn tests() -> Vec<Test> {
    [bodies::tests(), both_ways(output::tests())].concat()
}
