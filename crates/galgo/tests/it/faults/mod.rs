//! Faults that the server must survive: one row for each, and after each the eight points of
//! [`Watch::after`](crate::harness::watch::Watch::after).

mod clients;
pub(crate) mod cut;
mod errors;
mod fair;
mod fed;
pub(crate) mod limits;
mod many;
mod scripts;
mod slow;
mod streams;
mod upstreams;

use crate::harness::{Test, both_ways, encode, watch::Watch};
use galgo_testkit::{Client, Server, Site};

/// Returns the tests of this module.
pub fn tests() -> Vec<Test> {
    [
        both_ways(scripts::tests()),
        both_ways(streams::tests()),
        both_ways(fed::tests()),
        limits::tests(),
        clients::tests(),
        cut::tests(),
        errors::tests(),
        fair::tests(),
        slow::tests(),
        many::tests(),
        both_ways(upstreams::tests()),
    ]
    .concat()
}

/// Runs `test` on one connection to a server of its own; `outcomes` are then in the access log.
fn exchange(site: Site, outcomes: &[&str], test: impl FnOnce(&Server, &mut Client)) {
    let server = site.start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    test(&server, &mut client);
    drop(client);
    watch.after(outcomes);
}

/// Returns the target that makes the program print `bytes` and exit.
fn prints(bytes: impl AsRef<[u8]>) -> String {
    format!("/cgi-bin/t?out={}", encode(bytes))
}
