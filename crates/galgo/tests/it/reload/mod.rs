//! SIGHUP: the configuration is read again while requests go on.

mod leaks;
mod listeners;
mod programs;
mod requests;

use crate::harness::{Server, Site, Test};

/// The tests of these modules.
pub fn tests() -> Vec<Test> {
    [
        requests::tests(),
        listeners::tests(),
        programs::tests(),
        leaks::tests(),
    ]
    .concat()
}

/// A site with a constant answer at `/c`.
fn site() -> Site {
    Site::new()
        .table("[[route]]\npath = \"/c\"\nrespond = { type = \"text/plain\", body = \"one\" }\n")
}

fn says(server: &Server) -> String {
    server.get("/c").text()
}
