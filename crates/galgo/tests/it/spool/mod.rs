//! Bytes that wait: request bodies in files, and output of programs whose clients read slowly.

mod bodies;
pub(crate) mod output;

use crate::harness::{Test, both_ways};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    [bodies::tests(), both_ways(output::tests())].concat()
}
