//! Certificates that the server obtains automatically, from an authority made to test ACME clients.

mod pebble;

use std::{fs, os::unix::fs::MetadataExt, process::Command};

use crate::harness::{list, needs_root, new_site};
use galgo_testkit::{Client, Done, Server, Site, eventually, stream::certificate};
use pebble::{HTTP, Like, Place};

list![
    a_certificate_comes,
    a_host_is_proved_over_http_where_handshakes_do_not_reach,
    the_start_does_not_wait_for_the_authority,
    an_authority_that_fails_is_asked_again,
    a_short_life_is_renewed,
    the_authority_says_when_to_renew,
    while_another_server_orders_nothing_is_ordered,
    programs_cannot_read_what_the_server_stores,
    another_process_goes_on_with_what_is_stored,
    a_server_that_sees_what_it_serves_gets_one,
    a_host_on_the_command_line_is_a_public_site,
];

const HOST: &str = "example.test";

/// Returns a site, and the place of the authority that it is configured for.
fn site(hosts: &[&str]) -> (Site, Place) {
    let site = new_site();
    let place = Place::new(&site);
    (site.config(&place.tls(hosts)), place)
}

/// Waits for the certificate of a host.
#[track_caller]
fn comes(server: &Server, place: &Place, host: &str) {
    server.says(&format!("the certificate of {host} was issued"));
    place.curl(host, "/health").has_out("fine");
}

/// Returns how many certificates have come.
fn came(server: &Server) -> usize {
    server.errors().matches(" was issued: ").count()
}

/// The host is proved in the TLS handshake; the authority is up from the start.
fn a_certificate_comes() {
    let (site, place) = site(&[HOST]);
    let _pebble = place.start(&Like::default());
    let server = site.start();
    comes(&server, &place, HOST);
    assert!(!place.says().contains("w/ HTTP"), "{}", place.says());
    let stored = place.stored(HOST);
    for file in ["example.test.pem", "account.json", "lock"] {
        let mode = stored.with_file_name(file).metadata().unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600, "{file}");
    }
    let checked = server.site.galgo(&["check"]);
    checked.has_out(
        "ok    certificate of example.test: for example.test, by CN=Pebble Intermediate CA",
    );
    checked.has_out(", valid for 89 days");
    // The proof is not given again: after it the server answers no challenge.
    let proof = "/.well-known/acme-challenge/";
    assert_eq!(server.get(proof).status, 404);
}

/// The authority asks for the proof without TLS, while every other request without TLS is redirected.
fn a_host_is_proved_over_http_where_handshakes_do_not_reach() {
    let (site, place) = site(&[HOST]);
    let like = Like {
        ports: (HTTP, 1),
        ..Like::default()
    };
    let server = site.start();
    server.configure("[tls]\nredirect_to_https = true");
    assert!(server.reload());
    // Browsers must not remember this redirect: handshakes are still refused.
    assert_eq!(server.get("/health").status, 307);
    let _pebble = place.start(&like);
    comes(&server, &place, HOST);
    server.says("no certificate for example.test: ");
    assert!(place.says().contains("w/ HTTP"), "{}", place.says());
    assert_eq!(server.get("/health").status, 308);
}

/// Requests do not wait for the authority either, and an obtained certificate is still there after a restart.
fn the_start_does_not_wait_for_the_authority() {
    let (site, place) = site(&[HOST]);
    let server = site.clone().start();
    server.says("no certificate for example.test: ");
    server.says(&format!("; next try at https://{}:14000/dir in ", place.ip));
    assert_eq!(server.get("/health").status, 200);
    let refused = Command::new("openssl")
        .args(["s_client", "-servername", HOST, "-connect"])
        .arg(format!("{}:{}", place.ip, pebble::HTTPS))
        .output();
    let refused = Done::from(refused.unwrap());
    refused.has_err("alert");
    let pebble = place.start(&Like::default());
    comes(&server, &place, HOST);
    let root = place.root();
    drop(pebble);
    assert!(server.reload());
    place.curl_trusting(&root, HOST, "/health").has_out("fine");
    drop(server);
    let server = site.start();
    place.curl_trusting(&root, HOST, "/health").has_out("fine");
    assert_eq!(came(&server), 0);
}

/// The authority always refuses one host; the others get certificates although requests fail again and again.
fn an_authority_that_fails_is_asked_again() {
    let hosts = ["refused.example", "a.example", "b.example"];
    let (site, place) = site(&hosts);
    let like = Like {
        variables: &[
            ("PEBBLE_WFE_NONCEREJECT", "40"),
            ("PEBBLE_AUTHZREUSE", "100"),
        ],
        ..Like::default()
    };
    let _pebble = place.start(&like);
    let server = site.start();
    comes(&server, &place, "a.example");
    comes(&server, &place, "b.example");
    server.says("no certificate for refused.example: API error: ");
    server.says("is forbidden by policy");
}

fn a_short_life_is_renewed() {
    let (site, place) = site(&[HOST]);
    let like = Like {
        valid: 15,
        ..Like::default()
    };
    let _pebble = place.start(&like);
    let server = site.start();
    comes(&server, &place, HOST);
    let first = fs::read(place.stored(HOST)).unwrap();
    eventually("another certificate", || (came(&server) > 1).then_some(()));
    place.curl(HOST, "/health").has_out("fine");
    assert_ne!(fs::read(place.stored(HOST)).unwrap(), first);
}

/// An authority asks for early renewal if it has to revoke many certificates (RFC 9773).
fn the_authority_says_when_to_renew() {
    let (site, place) = site(&[HOST]);
    let _pebble = place.start(&Like::default());
    let server = site.clone().start();
    comes(&server, &place, HOST);
    drop(server);
    place.wants_renewed(HOST);
    let server = site.start();
    server.says("the certificate of example.test was issued");
    place.curl(HOST, "/health").has_out("fine");
    // The certificate is not renewed a second time.
    assert!(server.reload());
    assert_eq!(came(&server), 1);
}

/// The server shows the certificate that the other server has stored.
fn while_another_server_orders_nothing_is_ordered() {
    let (site, place) = site(&[HOST]);
    let _pebble = place.start(&Like::default());
    let stored = place.stored(HOST);
    fs::create_dir_all(stored.parent().unwrap()).unwrap();
    let lock = fs::File::create(stored.with_file_name("lock")).unwrap();
    lock.lock().unwrap();
    let server = site.start();
    let (chain, key) = certificate(&[HOST]);
    let new = stored.with_file_name("other");
    fs::write(&new, key + &chain).unwrap();
    fs::rename(new, stored).unwrap();
    server.says("the certificate of example.test was stored by another galgo server");
    assert!(!place.says().contains("/order-plz"), "{}", place.says());
}

/// The server opens the state folder as root, then becomes another user. Programs of that user find no way into the folder.
fn programs_cannot_read_what_the_server_stores() {
    needs_root();
    let (site, place) = site(&[HOST]);
    let stored = place.stored(HOST);
    let script = format!(
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nid -u\ncat {} 2>&1\nls -R {} 2>&1\n",
        stored.display(),
        place.state().display()
    );
    let _pebble = place.start(&Like::default());
    let server = site
        .file("cgi-bin/spy", script, 0o755)
        .config("user = \"nobody\"")
        .start();
    comes(&server, &place, HOST);
    assert!(server.reload());
    place.curl(HOST, "/health").has_out("fine");
    let mut client = Client::connect(server.listens(0));
    client.get("/cgi-bin/spy");
    let text = client.reply().text();
    assert!(text.starts_with("65534\n"), "{text}");
    assert!(text.contains("Permission denied"), "{text}");
    assert!(!text.contains("BEGIN"), "{text}");
    // The stored file belongs to that user nevertheless: the server has no other rights any more.
    assert_eq!(stored.metadata().unwrap().uid(), 65534);
    let all = place.state().join("certificates").metadata().unwrap();
    assert_eq!((all.uid(), all.mode() & 0o777), (0, 0o700));
}

/// The new process cannot open the state folder; root opened the folder for the first process.
fn another_process_goes_on_with_what_is_stored() {
    needs_root();
    let (site, place) = site(&[HOST]);
    let _pebble = place.start(&Like::default());
    let site = site.config("user = \"nobody\"\naccess_log = \"off\"");
    let site = site.file("galgo.toml", "", 0o644);
    galgo_testkit::file::chmod(site.folder(), 0o755);
    let server = site.start();
    comes(&server, &place, HOST);
    for _ in 0..2 {
        assert!(server.upgrade(), "{}", server.errors());
        place.curl(HOST, "/health").has_out("fine");
    }
    assert_eq!(came(&server), 1);
}

/// Helpers start this server's programs, so the server sees only the files that it serves: neither the store nor the
/// CA file of the authority.
fn a_server_that_sees_what_it_serves_gets_one() {
    needs_root();
    let (site, place) = site(&[HOST]);
    let _pebble = place.start(&Like::default());
    let site = site
        .config("user = \"nobody\"\naccess_log = \"off\"")
        .defaults("user = \"games\"")
        .file("galgo.toml", "", 0o644);
    galgo_testkit::file::chmod(site.folder(), 0o755);
    let server = site.start();
    comes(&server, &place, HOST);
    assert!(server.reload(), "{}", server.errors());
    place.curl(HOST, "/health").has_out("fine");
    assert!(server.upgrade(), "{}", server.errors());
    place.curl(HOST, "/health").has_out("fine");
    assert_eq!(came(&server), 1);
}

/// The site listens on the ports that browsers use, in a network of its own.
fn a_host_on_the_command_line_is_a_public_site() {
    needs_root();
    let (site, mut place) = site(&["other.example"]);
    let own_network = "ip link set lo up && exec \"$@\"";
    let public = ["--listen", "https://example.test", "--user", "nobody"];
    let site = site.without_probe().arguments(&public);
    let server = site
        .through(&["unshare", "--net", "sh", "-c", own_network, "sh"])
        .start();
    for line in ["https://0.0.0.0:443", "http://0.0.0.0:80"] {
        let listens = format!("listening on {line}\n");
        assert!(server.table.contains(&listens), "{}", server.table);
    }
    assert!(
        server.table.contains("https://example.test/cgi-bin/t"),
        "{}",
        server.table
    );
    place.within = Some(server.pid());
    let like = Like {
        ports: (80, 443),
        ..Like::default()
    };
    let _pebble = place.start(&like);
    server.says("the certificate of example.test was issued");
    let root = place.root();
    let ask = |url: &str| {
        let mut curl = place.command("curl");
        curl.args(["--silent", "--show-error", "--include", "--cacert"]);
        curl.arg(&root).args(["--connect-to", "::127.0.0.1:", url]);
        Done::of(&mut curl, b"")
    };
    ask("https://example.test/health").has_out("fine");
    let plain = ask("http://example.test/health");
    plain.has_out("308 Permanent Redirect");
    plain.has_out("ocation: https://example.test/health\r\n");
}
