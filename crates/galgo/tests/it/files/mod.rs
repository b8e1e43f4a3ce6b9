//! Static files over sockets.

mod large;
mod requests;
mod routes;

use std::{
    fs::File,
    time::{Duration, SystemTime},
};

use crate::harness::{Test, child::pattern, new_site};
use galgo_testkit::{Reply, Server, Site};

/// Returns the tests of this module and of its submodules.
pub fn tests() -> Vec<Test> {
    [requests::tests(), large::tests(), routes::tests()].concat()
}

const SIZE: usize = 200_000;

/// Returns a site with `public/f`, last changed long ago, so that its validators are strong.
fn site() -> Site {
    let site = new_site().file("public/f", pattern(0, SIZE), 0o644);
    age(&site, "public/f");
    site
}

fn age(site: &Site, path: &str) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let file = File::options().write(true).open(site.path(path));
    file.unwrap().set_modified(then).unwrap();
}

fn with(server: &Server, method: &str, target: &str, fields: &str) -> Reply {
    let mut client = server.connect();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ));
    let reply = client.reply_to(method);
    // Whatever the answer was, the connection is still in step.
    client.get("/health");
    assert_eq!(client.reply().text(), "fine", "{method} {target} {fields}");
    reply
}
