//! SIGHUP: the server reads the configuration again while requests go on.

mod leaks;
mod listeners;
mod programs;
mod requests;

use crate::harness::{Test, new_site};
use galgo_testkit::{Server, Site};

/// Returns the tests of these modules.
pub fn tests() -> Vec<Test> {
    [
        requests::tests(),
        listeners::tests(),
        programs::tests(),
        leaks::tests(),
    ]
    .concat()
}

/// Returns a site with a constant answer at `/c`.
fn site() -> Site {
    new_site().config(&answer("one"))
}

/// Returns the configuration of the route `/c`.
fn answer(words: &str) -> String {
    format!("[[route]]\npath = \"/c\"\nrespond = {{ type = \"text/plain\", body = \"{words}\" }}\n")
}

fn says(server: &Server) -> String {
    server.get("/c").text()
}
