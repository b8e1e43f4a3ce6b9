//! The conformance tests of h2spec (RFC 9113, RFC 7541), which `scripts/need test` installs.

use std::process::Command;

use super::*;

list![h2spec];

fn h2spec() {
    let file = pattern(0, 1000);
    let (server, at) = serve_tcp(Site::new().file("public/file", file, 0o644));
    let (host, port) = at.rsplit_once(':').unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.build/h2spec-2.6.0");
    for path in ["/cgi-bin/t?head&fill=1000", "/file"] {
        let mut h2spec = Command::new(format!("{folder}/h2spec"));
        h2spec.args(["-h", host, "-p", port, "-o", "20", "-P", path]);
        let done = h2spec.output();
        let said = done.expect("h2spec: scripts/need test").stdout;
        let said = String::from_utf8_lossy(&said);
        let passed = "146 tests, 146 passed, 0 skipped, 0 failed";
        assert!(said.contains(passed), "{said}");
    }
    drop(server);
}
