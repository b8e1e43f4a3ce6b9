//! What must be survived: one row for each fault, and after each the eight points of
//! [`Watch::after`](crate::harness::watch::Watch::after).

mod clients;
mod limits;
mod scripts;
mod streams;
mod upstreams;

use crate::harness::{Test, both_ways, encode};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    [
        both_ways(scripts::tests()),
        both_ways(streams::tests()),
        limits::tests(),
        clients::tests(),
        upstreams::tests(),
    ]
    .concat()
}

/// The target that makes the program print `bytes` and exit.
fn prints(bytes: impl AsRef<[u8]>) -> String {
    format!("/cgi-bin/t?out={}", encode(bytes))
}
