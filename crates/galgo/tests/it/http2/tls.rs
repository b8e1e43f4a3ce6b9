//! HTTP/2 in TLS, which ALPN agrees upon (RFC 9113, 3.2).

use std::process::Command;

use galgo_testkit::{Done, stream::own};

use super::*;

list![
    alpn_decides,
    http_1_0_is_a_protocol_too,
    large_bodies_both_ways,
    a_client_that_reads_slowly
];

/// Starts the site with a listener for TLS; returns its URL, too.
pub fn serve_tls(site: Site) -> (Server, String) {
    let own = own();
    let server = site
        .config(&format!(
            "listen = [\"127.0.0.2:0\", \"https://127.0.0.1:0\"]\n[tls]\ncertificate = {:?}\nkey = {:?}",
            own.certificate, own.key
        ))
        .start();
    let url = format!("https://localhost:{}", server.listens(1).port());
    (server, url)
}

pub fn curl(url: &str, arguments: &[&str]) -> Vec<u8> {
    let mut curl = Command::new("curl");
    curl.args(["-q", "-sS", "--max-time", "120", "--cacert"]);
    curl.arg(&own().certificate).args(arguments).arg(url);
    let done = curl.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    done.stdout
}

fn alpn_decides() {
    let (server, url) = serve_tls(new_site());
    let watch = Watch::begin(&server);
    let url = url + "/cgi-bin/t?head&env";
    for (asked, version) in [("--http2", "HTTP/2.0"), ("--http1.1", "HTTP/1.1")] {
        let told = String::from_utf8(curl(&url, &[asked])).unwrap();
        for line in [
            &format!("SERVER_PROTOCOL={version}"),
            "HTTPS=on",
            "SSL_PROTOCOL=TLSv1.3",
        ] {
            assert!(told.lines().any(|l| l == line), "{line} in {told}");
        }
    }
    watch.after(&["ok"; 2]);
}

/// Some probes and load balancers name this protocol alone.
fn http_1_0_is_a_protocol_too() {
    let (server, _url) = serve_tls(new_site());
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-alpn", "http/1.0", "-connect"]);
    openssl.arg(server.listens(1).to_string());
    let done = Done::of(&mut openssl, b"");
    done.has_out("ALPN protocol: http/1.0");
}

fn large_bodies_both_ways() {
    let body = pattern(0, 3_000_000);
    let (server, url) = serve_tls(new_site().file("public/large", &body, 0o644));
    let watch = Watch::begin(&server);
    assert!(curl(&format!("{url}/large"), &["--http2"]) == body);
    let file = format!("@{}", server.path("public/large").display());
    let echoed = curl(
        &format!("{url}/cgi-bin/t?head&echo"),
        &["--http2", "--data-binary", &file],
    );
    assert!(echoed == body);
    // Several downloads at once on one connection.
    let all = format!("{url}/large?[1-20]");
    let all = curl(
        &all,
        &[
            "--http2",
            "--parallel",
            "-o",
            "/dev/null",
            "-w",
            "%{size_download} ",
        ],
    );
    assert_eq!(all, b"3000000 ".repeat(20));
    watch.after(&["ok"; 22]);
}

/// The kernel takes a part of the encrypted bytes; the rest waits.
fn a_client_that_reads_slowly() {
    let body = pattern(0, 8_000_000);
    let (server, url) = serve_tls(new_site().file("public/large", &body, 0o644));
    let watch = Watch::begin(&server);
    let url = url + "/large";
    let read = curl(&url, &["--http2", "--limit-rate", "4M"]);
    assert!(read == body);
    watch.after(&["ok"]);
}
