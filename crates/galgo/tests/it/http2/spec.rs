//! The conformance tests of h2spec (RFC 9113, RFC 7541), which `scripts/need test` installs.

use std::{net::SocketAddr, process::Command};

use super::*;

list![h2spec, h2spec_in_tls];

/// A program that waits for the end of the body. h2spec sends some errors after a request that it leaves open. If the
/// response were whole by then, it would have ended the stream without an error.
const READ: &str = "#!/bin/sh\ncat > /dev/null\nprintf 'Content-Type: text/plain\\n\\n%01000d' 0\n";

fn site() -> Site {
    new_site().file("cgi-bin/read", READ, 0o755)
}

/// Checks that all tests of h2spec pass at that address.
fn passes(at: SocketAddr, more: &[&str]) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.build/h2spec-2.6.0");
    let mut h2spec = Command::new(format!("{folder}/h2spec"));
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    h2spec.args(["-h", &host, "-p", &port, "-o", "20", "-P", "/cgi-bin/read"]);
    let done = h2spec.args(more).output();
    let said = done.expect("h2spec: scripts/need test").stdout;
    let said = String::from_utf8_lossy(&said);
    let passed = "146 tests, 146 passed, 0 skipped, 0 failed";
    assert!(said.contains(passed), "{said}");
}

fn h2spec() {
    let (_server, at) = serve_tcp(site());
    passes(at.parse().unwrap(), &[]);
}

fn h2spec_in_tls() {
    let (server, _) = tls::serve_tls(site());
    passes(server.listens(1), &["-t", "-k"]);
}
