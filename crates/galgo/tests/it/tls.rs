//! Listeners that speak TLS: certificates, failing handshakes, and cases around them. Other tests check the requests inside
//! TLS: `GALGO_TEST_TLS` makes their servers and clients speak TLS.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
};

use crate::harness::{list, needs_root, new_site};
use galgo_testkit::{
    Client, Done, Server, Site,
    stream::{certificate, own},
};

list![
    each_host_is_shown_its_certificate,
    both_versions_and_no_older_one,
    programs_are_told,
    plain_http_is_told_where_it_is,
    what_is_no_hello_ends_with_its_connection,
    a_handshake_that_stops_holds_up_nobody,
    plain_requests_are_sent_on,
    a_new_certificate_is_shown_after_a_reload,
    files_that_are_replaced_are_shown,
    a_session_goes_on_after_a_reload,
    a_key_that_only_root_may_read_stays_in_use,
    a_key_that_may_not_be_read_is_not_left_out,
    a_listener_that_begins_to_speak_tls_is_redirected_to,
];

/// Returns a site whose first listener speaks TLS and whose second does not.
fn site() -> Site {
    let own = own();
    new_site().config(&format!(
        "listen = [\"https://127.0.0.1:0\", \"127.0.0.2:0\"]\n[tls]\ncertificate = {:?}\nkey = {:?}\n",
        own.certificate, own.key
    ))
}

/// Fetches a URL with curl, which takes the server for `host`.
fn curl(server: &Server, host: &str, path: &str, more: &[&str]) -> Done {
    let at = server.listens(0);
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--include", "--http1.1"]);
    command
        .arg("--resolve")
        .arg(format!("{host}:{}:127.0.0.1", at.port()));
    command
        .args(more)
        .arg(format!("https://{host}:{}{path}", at.port()));
    Done::of(&mut command, b"")
}

fn trusting(file: &std::path::Path) -> [&str; 2] {
    ["--cacert", file.to_str().unwrap()]
}

fn each_host_is_shown_its_certificate() {
    let site = site();
    let (pem, key) = certificate(&["other.test"]);
    let (pem, key) = (site.write("other.pem", pem), site.write("other.key", key));
    let server = site
        .config(&format!(
            "[tls]\ncertificates = [{{ certificate = {pem:?}, key = {key:?} }}]"
        ))
        .start();
    let own = trusting(&own().certificate);
    for (host, trusts) in [
        ("localhost", own),
        ("a.example.test", own),
        ("other.test", trusting(&pem)),
    ] {
        curl(&server, host, "/health", &trusts).has_out("HTTP/1.1 200 OK");
    }
    // Clients that ask for any other host are shown the first certificate.
    let verbose = ["--insecure", "--verbose"];
    curl(&server, "unknown.test", "/health", &verbose).has_err("rcgen self signed cert");
    curl(&server, "other.test", "/health", &own).has_err("certificate");
}

fn both_versions_and_no_older_one() {
    let server = site().start();
    let own = trusting(&own().certificate);
    for (version, protocol) in [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
        let least = format!("--tlsv{version}");
        let only = [own[0], own[1], &least, "--tls-max", version];
        let done = curl(&server, "localhost", "/cgi-bin/t?head&env", &only);
        done.has_out(format!("SSL_PROTOCOL={protocol}\n"));
    }
    let old = [
        own[0],
        own[1],
        "--tlsv1.0",
        "--tls-max",
        "1.1",
        "--ciphers",
        "DEFAULT@SECLEVEL=0",
    ];
    curl(&server, "localhost", "/health", &old).has_err("alert");
}

fn programs_are_told() {
    let server = site().start();
    let port = server.listens(0).port().to_string();
    let text = server.get("/cgi-bin/t?head&env").text();
    for line in [
        "HTTPS=on",
        "REQUEST_SCHEME=https",
        "SSL_PROTOCOL=TLSv1.3",
        "SSL_CIPHER=TLS_AES_256_GCM_SHA384",
        "SSL_SERVER_NAME=localhost",
        &format!("SERVER_PORT={port}"),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    let mut plain = Client::connect(server.listens(1));
    plain.get("/cgi-bin/t?head&env");
    let plain = plain.reply().text();
    assert!(
        !plain.contains("SSL_") && !plain.contains("HTTPS="),
        "{plain}"
    );
}

fn plain_http_is_told_where_it_is() {
    let server = site().start();
    let mut tcp = TcpStream::connect(server.listens(0)).unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut all = String::new();
    let _ = tcp.read_to_string(&mut all);
    assert!(
        all.starts_with("HTTP/1.1 400 ")
            && all.ends_with("HTTPS is spoken on this port: ask https://...\n"),
        "{all}"
    );
}

fn what_is_no_hello_ends_with_its_connection() {
    let server = site().start();
    // The server sends back a close_notify, or a more specific alert.
    let hello = [&b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"[..], &[0; 64]].concat();
    for bytes in [
        &b"\x16\x03\x01\xff\xff"[..],
        &[0; 100],
        &hello,
        &[0x80, 0x2e, 1, 0, 2],
        b"\x16",
    ] {
        let mut tcp = TcpStream::connect(server.listens(0)).unwrap();
        tcp.write_all(bytes).unwrap();
        tcp.shutdown(std::net::Shutdown::Write).unwrap();
        let mut all = Vec::new();
        let _ = tcp.read_to_end(&mut all);
        assert_eq!(all.first(), Some(&21), "{bytes:?}: {all:?}");
    }
    assert_eq!(server.get("/health").status, 200);
}

fn a_handshake_that_stops_holds_up_nobody() {
    let server = site().config("head_timeout = \"1s\"").start();
    let mut slow: Vec<_> = (0..50)
        .map(|_| {
            let mut tcp = TcpStream::connect(server.listens(0)).unwrap();
            tcp.write_all(b"\x16\x03\x01\x02\x00\x01\x00").unwrap();
            tcp
        })
        .collect();
    assert_eq!(server.get("/health").status, 200);
    // Each connection ends when its time is over.
    for tcp in &mut slow {
        let mut all = Vec::new();
        let _ = tcp.read_to_end(&mut all);
    }
}

fn plain_requests_are_sent_on() {
    let server = site()
        .config("[tls]\nredirect_to_https = true\nhsts = \"48h\"")
        .start();
    let port = server.listens(0).port();
    let mut client = Client::connect(server.listens(1));
    client
        .send("POST /a%20b?c=d HTTP/1.1\r\nHost: www.example.test:81\r\nContent-Length: 0\r\n\r\n");
    let reply = client.reply();
    let to = format!("https://www.example.test:{port}/a%20b?c=d");
    assert_eq!((reply.status, reply.field("location")), (308, Some(&*to)));
    assert_eq!(reply.field("strict-transport-security"), None);
    for (target, status) in [("/health", 200), ("/cgi-bin/none", 404)] {
        let reply = server.get(target);
        assert_eq!(reply.status, status);
        let hsts = reply.field("strict-transport-security");
        assert_eq!(hsts, Some("max-age=172800"));
    }
    let refused = server.ask("GET / HTTP/1.1\r\nHost: a b\r\n\r\n");
    let hsts = refused.field("strict-transport-security");
    assert_eq!((refused.status, hsts), (400, Some("max-age=172800")));
}

fn a_new_certificate_is_shown_after_a_reload() {
    let site = site();
    let copy = |name: &str, file| site.write(name, std::fs::read(file).unwrap());
    let first = own().certificate.as_path();
    let (pem, key) = (copy("a.pem", first), copy("a.key", own().key.as_path()));
    let names = format!("[tls]\ncertificate = {pem:?}\nkey = {key:?}");
    let server = site.config(&names).start();
    curl(&server, "localhost", "/health", &trusting(first)).has_out("200 OK");
    // A broken certificate file changes nothing.
    std::fs::write(&pem, "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert!(!server.reload());
    server.says("the certificate is not PEM");
    curl(&server, "localhost", "/health", &trusting(first)).has_out("200 OK");
    let other = certificate(&["localhost"]);
    std::fs::write(&pem, &other.0).unwrap();
    assert!(!server.reload());
    server.says("the key belongs to another certificate");
    std::fs::write(&key, &other.1).unwrap();
    assert!(server.reload());
    curl(&server, "localhost", "/health", &trusting(&pem)).has_out("200 OK");
    curl(&server, "localhost", "/health", &trusting(first)).has_err("certificate");
}

/// No signal is needed. A broken file is not used, and the log says so once.
fn files_that_are_replaced_are_shown() {
    let site = site();
    let first = own().certificate.as_path();
    let copy = |name: &str, file| site.write(name, std::fs::read(file).unwrap());
    let (pem, key) = (copy("a.pem", first), copy("a.key", own().key.as_path()));
    let names = format!("[tls]\ncertificate = {pem:?}\nkey = {key:?}");
    let server = site.config(&names).start();
    let fine = |trusts| curl(&server, "localhost", "/health", &trusting(trusts)).has_out("200 OK");
    fine(first);
    let (chain, secret) = certificate(&["localhost"]);
    // The certificate is written in place, like an editor does; the key is replaced by a rename, like certbot does.
    std::fs::write(&pem, &chain).unwrap();
    server.says("still using the previous certificate: the key belongs to another certificate");
    fine(first);
    let new = site_file(&server, "new.key", &secret);
    std::fs::rename(new, &key).unwrap();
    server.says("a.pem: the certificate is valid until");
    fine(&pem);
    let before = std::fs::read(&pem).unwrap();
    let trusted = site_file(&server, "trusted.pem", &before);
    std::fs::remove_file(&pem).unwrap();
    server.says("a.pem: No such file");
    fine(&trusted);
    std::fs::write(&pem, before).unwrap();
    let again = || {
        server
            .errors()
            .matches("a.pem: the certificate is valid until")
            .count()
            > 1
    };
    galgo_testkit::wait_until("it is back", again);
    fine(&pem);
    assert_eq!(
        server
            .errors()
            .matches("still using the previous certificate")
            .count(),
        2
    );
}

fn site_file(server: &Server, name: &str, bytes: impl AsRef<[u8]>) -> std::path::PathBuf {
    let file = server.path(name);
    std::fs::write(&file, bytes).unwrap();
    file
}

/// The keys of session tickets stay: openssl resumes its session after the certificates were read again.
fn a_session_goes_on_after_a_reload() {
    let server = site().start();
    let at = server.listens(0).to_string();
    let session = server.path("session");
    let openssl = |way: &str| {
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-connect", &at, "-ign_eof", way])
            .arg(&session);
        let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        Done::of(&mut command, request)
    };
    openssl("-sess_out").has_out("New, TLSv1.3");
    openssl("-sess_in").has_out("Reused, TLSv1.3");
    assert!(server.reload());
    openssl("-sess_in").has_out("Reused, TLSv1.3");
}

/// Creates a certificate and a key that only root may read.
fn roots_own(site: &Site) -> (PathBuf, PathBuf) {
    let copy = |name: &str, file| site.write(name, fs::read(file).unwrap());
    let pem = copy("roots.pem", own().certificate.as_path());
    let key = copy("roots.key", own().key.as_path());
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    (pem, key)
}

/// The server reads the key before it becomes another user, and keeps using it.
fn a_key_that_only_root_may_read_stays_in_use() {
    needs_root();
    let site = new_site().probe("/health");
    let (pem, key) = roots_own(&site);
    let server = site
        .config(&format!(
            "listen = [\"https://127.0.0.1:0\"]\nuser = \"nobody\"\n[tls]\ncertificate = {pem:?}\nkey = {key:?}\n"
        ))
        .start();
    let trusts = trusting(&pem);
    curl(&server, "localhost", "/health", &trusts).has_out("200 OK");
    assert!(server.reload());
    server.says("roots.key");
    server.says("The certificates that were read before stay in use until a restart");
    curl(&server, "localhost", "/health", &trusts).has_out("200 OK");
}

/// If galgo left the key out, clients of its hosts would be shown another certificate.
fn a_key_that_may_not_be_read_is_not_left_out() {
    needs_root();
    let (site, own) = (new_site(), own());
    let (pem, key) = roots_own(&site);
    site.write("galgo.toml", format!(
        "listen = [\"https://127.0.0.1:0\"]\n[tls]\ncertificate = {:?}\nkey = {:?}\ncertificates = [{{ certificate = {pem:?}, key = {key:?} }}]\n",
        own.certificate, own.key
    ));
    let nobody = |command: &str| {
        let mut as_nobody = Command::new("setpriv");
        as_nobody.args(["--reuid=nobody", "--clear-groups"]);
        let galgo = site.command(&[command]);
        as_nobody
            .arg(galgo.get_program())
            .arg(command)
            .arg(site.folder());
        Done::of(&mut as_nobody, b"")
    };
    nobody("check").has_out("roots.key");
    nobody("serve").has_err("roots.key");
}

fn a_listener_that_begins_to_speak_tls_is_redirected_to() {
    let own = own();
    let server = new_site()
        .config(&format!(
            "listen = [\"127.0.0.1:0\", \"127.0.0.2:0\"]\n[tls]\ncertificate = {:?}\nkey = {:?}\nredirect_to_https = true\n",
            own.certificate, own.key
        ))
        .start();
    let plain = server.listens(1);
    let location = || {
        let mut client = Client::connect(plain);
        client.get("/health");
        client.reply().field("location").map(str::to_owned)
    };
    assert_eq!(location(), None);
    server.configure("listen = [\"https://127.0.0.1:0\", \"127.0.0.2:0\"]");
    assert!(server.reload());
    let port = server.listens(0).port();
    assert_eq!(location(), Some(format!("https://localhost:{port}/health")));
    curl(&server, "localhost", "/health", &trusting(&own.certificate)).has_out("200 OK");
}
