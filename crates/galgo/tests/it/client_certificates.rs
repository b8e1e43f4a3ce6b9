//! Clients that show certificates.

use std::{path::PathBuf, process::Command};

use crate::harness::{list, new_site};
use galgo_testkit::{
    Done, Server, Site,
    authority::{Authority, Pair},
    stream::own,
};

list![
    programs_are_told_who_asks,
    a_client_without_is_refused_where_one_is_required,
    a_client_may_go_without_where_it_is_optional,
    nobody_forges_one,
    a_proxy_shows_its_own,
    a_session_ends_with_its_authority,
];

const NOW: (i32, i32) = (2020, 2100);

/// Returns a site that asks for certificates signed by `authority`.
fn site(authority: &Authority, more: &str) -> Site {
    let own = own();
    let site = new_site();
    let ca = site.write("clients.pem", authority.pem());
    site.config(&format!(
        "listen = [\"127.0.0.2:0\", \"https://127.0.0.1:0\"]\n[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {ca:?}\n{more}",
        own.certificate, own.key
    ))
}

/// Returns the answer that curl gets from a program that prints its variables. curl shows the certificate `shows`.
fn curl(server: &Server, shows: Option<&Pair>, more: &[&str]) -> Done {
    let at = server.listens(1);
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--http1.1", "--cacert"]);
    command.arg(&own().certificate).args(more);
    command.args(["--resolve", &format!("localhost:{}:127.0.0.1", at.port())]);
    if let Some((pem, key)) = shows {
        command
            .arg("--cert")
            .arg(server.site.write("client.pem", pem));
        command
            .arg("--key")
            .arg(server.site.write("client.key", key));
    }
    let url = format!("https://localhost:{}/cgi-bin/t?head&env", at.port());
    Done::of(command.arg(url), b"")
}

#[track_caller]
fn has_lines(done: &Done, lines: &[&str]) {
    for line in lines {
        let has = done.out.lines().any(|l| l == *line);
        assert!(has, "{line}: {}{}", done.out, done.err);
    }
}

fn programs_are_told_who_asks() {
    let authority = Authority::new("authority");
    let server = site(&authority, "client_user = \"common_name\"").start();
    let ada = authority.client("ada", NOW);
    let told = [
        "SSL_CLIENT_VERIFY=SUCCESS",
        "SSL_CLIENT_S_DN=O=Test\\, Inc.,CN=ada",
        "SSL_CLIENT_S_DN_CN=ada",
        "SSL_CLIENT_I_DN=CN=authority",
        "SSL_CLIENT_M_SERIAL=ABCD",
        "SSL_CLIENT_V_START=Jan  1 00:00:00 2020 GMT",
        "SSL_CLIENT_V_END=Jan  1 00:00:00 2100 GMT",
        "REMOTE_USER=ada",
        "AUTH_TYPE=CLIENT-CERT",
    ];
    has_lines(&curl(&server, Some(&ada), &[]), &told);
    has_lines(&curl(&server, Some(&ada), &["--tls-max", "1.2"]), &told);
    server.configure("[tls]\nclient_user = \"subject\"");
    assert!(server.reload());
    let whole = ["REMOTE_USER=O=Test\\, Inc.,CN=ada"];
    has_lines(&curl(&server, Some(&ada), &[]), &whole);
    // A name with a line break must not become a second line; the server escapes it.
    let odd = authority.client("a\nb\u{0}", NOW);
    has_lines(
        &curl(&server, Some(&odd), &[]),
        &["SSL_CLIENT_S_DN_CN=a\\0Ab\\00"],
    );
}

fn a_client_without_is_refused_where_one_is_required() {
    let authority = Authority::new("authority");
    let server = site(&authority, "").start();
    let another = Authority::new("authority").client("ada", NOW);
    let expired = authority.client("ada", (2020, 2021));
    let host = authority.host("ada");
    for (shows, why) in [
        (None, "the client sent no certificate"),
        (Some(&another), "the client's certificate is not accepted: "),
        (
            Some(&expired),
            "the client's certificate is not accepted: certificate expired",
        ),
    ] {
        let before = server.errors().matches(why).count();
        let done = curl(&server, shows, &[]);
        assert!(done.code != 0 && done.out.is_empty(), "{}", done.out);
        let again = || {
            // The log gets at most one line a second for each address.
            curl(&server, shows, &[]);
            server.errors().matches(why).count() > before
        };
        galgo_testkit::wait_until(why, again);
    }
    // A certificate of a host is accepted, too: it says nothing about a client, but it names its holder.
    has_lines(
        &curl(&server, Some(&host), &[]),
        &["SSL_CLIENT_S_DN=CN=ada"],
    );
    server.says("the TLS handshake failed: the client sent no certificate");
    let ada = authority.client("ada", NOW);
    let done = curl(&server, Some(&ada), &[]);
    has_lines(&done, &["SSL_CLIENT_VERIFY=SUCCESS"]);
    assert!(!done.out.contains("REMOTE_USER"), "{}", done.out);
}

fn a_client_may_go_without_where_it_is_optional() {
    let authority = Authority::new("authority");
    let server = site(&authority, "client_certificate = \"optional\"").start();
    let done = curl(&server, None, &[]);
    has_lines(&done, &["SSL_CLIENT_VERIFY=NONE"]);
    assert!(!done.out.contains("SSL_CLIENT_S_DN"), "{}", done.out);
    let ada = authority.client("ada", NOW);
    has_lines(
        &curl(&server, Some(&ada), &[]),
        &["SSL_CLIENT_VERIFY=SUCCESS"],
    );
    // The server does not silently ignore a certificate that it does not accept.
    let another = Authority::new("authority").client("ada", NOW);
    assert!(curl(&server, Some(&another), &[]).out.is_empty());
}

fn nobody_forges_one() {
    let authority = Authority::new("authority");
    let optional = "client_certificate = \"optional\"\nclient_user = \"common_name\"";
    let server = site(&authority, optional).start();
    let forged = [
        "-HSSL_CLIENT_VERIFY: SUCCESS",
        "-HSSL-Client-S-DN: CN=root",
        "-HRemote-User: root",
    ];
    let done = curl(&server, None, &forged);
    has_lines(
        &done,
        &["SSL_CLIENT_VERIFY=NONE", "HTTP_SSL_CLIENT_S_DN=CN=root"],
    );
    let own = |line: &str| line.starts_with("SSL_CLIENT_S") || line.starts_with("REMOTE_USER");
    assert!(!done.out.lines().any(own), "{}", done.out);
}

/// The certificate of a proxy does not name the clients that the proxy speaks for.
fn a_proxy_shows_its_own() {
    let authority = Authority::new("authority");
    let site = site(&authority, "client_user = \"common_name\"");
    let server = site.config("trusted_proxies = [\"127.0.0.1\"]").start();
    let proxy = authority.client("proxy", NOW);
    let done = curl(&server, Some(&proxy), &["-HX-Forwarded-For: 192.0.2.7"]);
    has_lines(&done, &["REMOTE_ADDR=192.0.2.7"]);
    let told = ["REMOTE_USER", "AUTH_TYPE", "SSL_"];
    let told = told.iter().any(|name| done.out.contains(name));
    assert!(!told, "{}", done.out);
}

/// A client that resumes a session is not asked for a certificate again.
fn a_session_ends_with_its_authority() {
    let authority = Authority::new("authority");
    let server = site(&authority, "").start();
    let (pem, key) = authority.client("ada", NOW);
    let (pem, key) = (
        server.site.write("ada.pem", pem),
        server.site.write("ada.key", key),
    );
    let (at, session) = (server.listens(1).to_string(), server.path("session"));
    let openssl = |way: &str, shows: &[&PathBuf]| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &at, "-ign_eof", way]);
        command.arg(&session);
        if let [pem, key] = shows {
            command.arg("-cert").arg(pem).arg("-key").arg(key);
        }
        let ask =
            b"GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        Done::of(&mut command, ask)
    };
    openssl("-sess_out", &[&pem, &key]).has_out("SSL_CLIENT_S_DN_CN=ada");
    let again = openssl("-sess_in", &[]);
    again.has_out("Reused, TLSv1.3");
    again.has_out("SSL_CLIENT_S_DN_CN=ada");
    assert!(server.reload());
    openssl("-sess_in", &[]).has_out("Reused, TLSv1.3");
    server
        .site
        .write("clients.pem", Authority::new("other").pem());
    assert!(server.reload());
    let after = openssl("-sess_in", &[]);
    assert!(!after.out.contains("SSL_CLIENT_S_DN_CN"), "{}", after.out);
    after.has_err("alert");
}
