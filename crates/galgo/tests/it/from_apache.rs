//! Runs each galgo.toml of docs/migration/apache.md as it stands there.

use crate::harness::{list, new_site};
use galgo_testkit::{Client, Reply, Server};

list![
    s1_files,
    s2_programs,
    s3_redirects,
    s4_passwords,
    s5_addresses,
    s6_errors,
    s7_front_controller,
    s8_paths,
    s9_fields,
    s10_password_or_address,
];

/// Starts a server with the galgo.toml in chapter `n`.
fn serve(n: usize) -> Server {
    let page = include_str!("../../../../docs/migration/apache.md");
    let mut blocks = page.split("```toml\n").skip(n);
    let block = blocks.next().unwrap().split("```").next().unwrap();
    new_site()
        .config("dev_errors = false")
        .config(block)
        .file("public/index.htm", "index", 0o644)
        .file("public/404.html", "nothing here", 0o644)
        .file("public/sub/a.png", "png", 0o644)
        .file("public/sub/a.thing", "thing", 0o644)
        .file("private/a.txt", "secret", 0o644)
        .file(
            "site.htpasswd",
            "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\neve:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n",
            0o640,
        )
        .file(
            "cgi-bin/app",
            "#!/bin/sh\necho Content-Type: text/plain\necho\nenv\n",
            0o755,
        )
        .file(
            "cgi-bin/oops",
            "#!/bin/sh\necho Content-Type: text/plain\necho\necho oops $REDIRECT_STATUS\n",
            0o755,
        )
        .file("cgi-bin/bad", "#!/bin/sh\necho nonsense\n", 0o755)
        .start()
}

fn ask(server: &Server, request: &str, fields: &str) -> Reply {
    server.ask(format!("{request} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

fn has(reply: &Reply, line: &str) {
    let text = reply.text();
    assert!(text.lines().any(|l| l == line), "{line}\n{text}");
}

const ADA: &str = "Authorization: Basic YWRhOnNlY3JldA==\r\n";
const EVE: &str = "Authorization: Basic ZXZlOnNlY3JldA==\r\n";

fn s1_files() {
    let server = serve(1);
    let index = server.get("/");
    assert_eq!(
        (index.text().as_str(), index.field("cache-control")),
        ("index", Some("max-age=3600"))
    );
    assert!(server.get("/sub/").text().contains("a.thing"));
    assert_eq!(
        server.get("/sub/a.png").field("cache-control"),
        Some("max-age=2592000")
    );
    assert_eq!(
        server.get("/sub/a.thing").field("content-type"),
        Some("application/x-thing")
    );
}

fn s2_programs() {
    let server = serve(2);
    let reply = ask(&server, "GET /cgi-bin/app/x", "Authorization: Bearer 1\r\n");
    for line in [
        "SITE_NAME=A small site",
        "HTTP_AUTHORIZATION=Bearer 1",
        "PATH_INFO=/x",
    ] {
        has(&reply, line);
    }
    let large = ask(&server, "POST /cgi-bin/app", "Content-Length: 1048577\r\n");
    assert_eq!(large.status, 413);
}

fn s3_redirects() {
    let server = serve(3);
    let moved = server.ask("GET /a?b HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert_eq!(
        (moved.status, moved.field("location")),
        (301, Some("https://www.example.org/a?b"))
    );
    for (target, status, to) in [
        ("/old/x?y", 302, "/new/x?y"),
        ("/blog/2026/a/b", 301, "/archive/a/b?year=2026"),
    ] {
        let reply = server.ask(format!(
            "GET {target} HTTP/1.1\r\nHost: www.example.org\r\n\r\n"
        ));
        assert_eq!((reply.status, reply.field("location")), (status, Some(to)));
    }
    assert_eq!(server.get("/404.html").status, 200);
}

fn s4_passwords() {
    let server = serve(4);
    let status = |fields: &str| ask(&server, "GET /private/a.txt", fields).status;
    assert_eq!((status(""), status(ADA), status(EVE)), (401, 200, 401));
}

fn s5_addresses() {
    let server = serve(5);
    assert_eq!(server.get("/sub/a.png").text(), "png");
    assert_eq!(
        ask(&server, "POST /sub/a.png", "Content-Length: 0\r\n").status,
        405
    );
}

fn s6_errors() {
    let server = serve(6);
    let missing = server.get("/none");
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "nothing here")
    );
    let failed = server.get("/cgi-bin/bad");
    assert_eq!((failed.status, failed.text().as_str()), (502, "oops 502\n"));
}

fn s7_front_controller() {
    let server = serve(7);
    assert_eq!(server.get("/404.html").text(), "nothing here");
    let reply = server.get("/any/where?x=1");
    for line in [
        "PATH_INFO=/any/where",
        "QUERY_STRING=x=1",
        "REQUEST_URI=/any/where?x=1",
    ] {
        has(&reply, line);
    }
    // Beside PATH_INFO, PHP would run another file.
    assert!(!reply.text().contains("REDIRECT_URL"));
}

fn s8_paths() {
    let server = serve(8);
    has(
        &server.get("/article/7?lang=de"),
        "QUERY_STRING=id=7&lang=de",
    );
    has(&server.get("/list?page=3"), "QUERY_STRING=from=3");
    assert_eq!(server.get("/article/x").status, 404);
}

fn s9_fields() {
    let server = serve(9);
    let reply = ask(
        &server,
        "GET /cgi-bin/app",
        "Accept-Encoding: gzip\r\nOrigin: https://app.example.org\r\n",
    );
    assert!(!reply.text().contains("HTTP_ACCEPT_ENCODING"));
    for (name, value) in [
        ("x-robots-tag", "noindex"),
        ("x-content-type-options", "nosniff"),
        ("access-control-allow-origin", "https://app.example.org"),
    ] {
        assert_eq!(reply.field(name), Some(value));
    }
    assert_eq!(
        server.get("/cgi-bin/none").field("x-robots-tag"),
        Some("noindex")
    );
}

fn s10_password_or_address() {
    let server = serve(10);
    let status = |fields: &str| ask(&server, "GET /intern/a.txt", fields).status;
    assert_eq!((status(""), status(ADA)), (401, 200));
    // An address that needs no password: the server believes the address that this proxy reports.
    server.configure("trusted_proxies = [\"127.0.0.1\"]");
    assert!(server.reload());
    let mut client = Client::connect(server.address());
    client.send("GET /intern/a.txt HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.1.2.3\r\n\r\n");
    assert_eq!(client.reply().status, 200);
}
