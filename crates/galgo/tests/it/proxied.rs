//! Behind a proxy that speaks HTTP: which peers may name the client. Also socket files.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use crate::harness::{list, new_site, watch::Watch};
use galgo_testkit::{Client, Reply, Server};

fn vars(reply: &Reply) -> impl Fn(&str) -> String + use<> {
    let text = reply.text();
    assert_eq!(reply.status, 200, "{text}");
    move |name| {
        let value = text
            .lines()
            .find_map(|l| l.strip_prefix(&format!("{name}=")));
        value.unwrap_or("(unset)").to_owned()
    }
}

const LIES: &str = "X-Forwarded-For: 198.51.100.1, 203.0.113.7\r\nX-Forwarded-Proto: https\r\n\
                    X-Forwarded-Host: shop.example:8443\r\nX-Forwarded-Port: 444\r\n\
                    Forwarded: for=192.0.2.60;proto=https;host=evil.example\r\n";

fn asked(server: &Server, fields: &str) -> Reply {
    server.ask(format!(
        "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: here.example\r\n{fields}Connection: close\r\n\r\n"
    ))
}

/// Fields have no effect unless the peer is listed.
fn nothing_is_believed_unless_asked_for() {
    for top in [
        "",
        "trusted_proxies = []",
        "trusted_proxies = [\"10.0.0.0/8\", \"unix\", \"::1\"]",
        "trusted_proxies = [\"10.0.0.0/8\"]\nforwarded = [\"Forwarded\"]",
    ] {
        let server = new_site().config(top).start();
        let watch = Watch::begin(&server);
        let var = vars(&asked(&server, LIES));
        let port = server.address().port().to_string();
        let facts = [
            ("REMOTE_ADDR", "127.0.0.1"),
            ("HTTPS", "(unset)"),
            ("REQUEST_SCHEME", "http"),
            ("SERVER_NAME", "here.example"),
            ("SERVER_PORT", &port),
            ("HTTP_HOST", "here.example"),
            ("HTTP_X_FORWARDED_FOR", "198.51.100.1, 203.0.113.7"),
        ];
        for (name, value) in facts {
            assert_eq!(var(name), value, "{top}: {name}");
        }
        assert_ne!(var("REMOTE_PORT"), "(unset)");
        assert_eq!(watch.after(&["ok"])[0]["remote"], "127.0.0.1");
    }
}

fn a_trusted_proxy_is_believed() {
    let server = new_site()
        .config("trusted_proxies = [\"127.0.0.0/8\"]")
        .start();
    let watch = Watch::begin(&server);
    let var = vars(&asked(&server, LIES));
    let facts = [
        ("REMOTE_ADDR", "203.0.113.7"),
        ("REMOTE_HOST", "203.0.113.7"),
        ("REMOTE_PORT", "(unset)"),
        ("HTTPS", "on"),
        ("REQUEST_SCHEME", "https"),
        ("SERVER_PORT", "443"),
        // `forwarded` does not name this field, so the client could have forged it.
        ("SERVER_NAME", "here.example"),
    ];
    for (name, value) in facts {
        assert_eq!(var(name), value, "{name}");
    }
    assert_eq!(watch.after(&["ok"])[0]["remote"], "203.0.113.7");
}

fn the_other_fields_are_read_where_they_are_named() {
    let every = "trusted_proxies = [\"127.0.0.1\"]\nforwarded = [\"X-Forwarded-For\", \
                 \"X-Forwarded-Proto\", \"X-Forwarded-Host\", \"X-Forwarded-Port\"]";
    let server = new_site().config(every).start();
    let var = vars(&asked(&server, LIES));
    assert_eq!(
        (var("SERVER_NAME").as_str(), var("SERVER_PORT").as_str()),
        ("shop.example", "444")
    );
    let forwarded = "trusted_proxies = [\"127.0.0.1\"]\nforwarded = [\"Forwarded\"]";
    let server = new_site().config(forwarded).start();
    let var = vars(&asked(&server, LIES));
    let facts = [
        ("REMOTE_ADDR", "192.0.2.60"),
        ("SERVER_NAME", "evil.example"),
        ("HTTPS", "on"),
    ];
    for (name, value) in facts {
        assert_eq!(var(name), value, "{name}");
    }
}

/// Each request on a connection has its own client. The host in the proxy's fields selects the route.
fn each_request_has_its_own_client() {
    let site = new_site()
        .config("trusted_proxies = [\"127.0.0.1\"]\nforwarded = [\"X-Forwarded-For\", \"X-Forwarded-Host\"]")
        .config("[[route]]\npath = \"/\"\nhost = \"b.example\"\nrespond = { body = \"B\" }\n");
    let server = site.start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    for (fields, remote) in [
        ("X-Forwarded-For: 203.0.113.1\r\n", "203.0.113.1"),
        ("", "127.0.0.1"),
        ("X-Forwarded-For: 2001:db8::5\r\n", "2001:db8::5"),
    ] {
        client.send(format!(
            "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\n{fields}\r\n"
        ));
        assert_eq!(vars(&client.reply())("REMOTE_ADDR"), remote);
    }
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Host: b.example\r\n\r\n");
    assert_eq!(client.reply().text(), "B");
    drop(client);
    watch.after(&["ok", "ok", "ok", "ok"]);
}

fn what_a_trusted_proxy_garbles_is_a_400() {
    let server = new_site()
        .config("trusted_proxies = [\"127.0.0.1\"]")
        .start();
    let watch = Watch::begin(&server);
    let reply = asked(&server, "X-Forwarded-For: not an address\r\n");
    assert_eq!(reply.status, 400);
    server.says("a trusted proxy sent a malformed X-Forwarded-For field");
    watch.after(&["client_error"]);
}

/// A socket file gets the configured mode, its peers are trusted as "unix", and the server removes the file at its end.
fn a_unix_socket() {
    let site = new_site().config("trusted_proxies = [\"unix\"]\nsocket_mode = \"606\"");
    let path = site.path("s");
    // A stale socket file without a listener does not stop the server from binding.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listen = format!("unix:{}", path.display());
    let mut server = site
        .arguments(&["--listen", "127.0.0.1:0", "--listen", &listen])
        .start();
    let meta = path.symlink_metadata().unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o606);
    let mut client = Client::unix(&path);
    client.send(
        "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\
                    X-Forwarded-Proto: https\r\nConnection: close\r\n\r\n",
    );
    let text = std::io::read_to_string(client.stream).unwrap();
    assert!(
        text.contains("\nREMOTE_ADDR=203.0.113.9\n") && text.contains("\nHTTPS=on\n"),
        "{text}"
    );
    // Over TCP no peer is trusted.
    assert_eq!(vars(&asked(&server, LIES))("REMOTE_ADDR"), "127.0.0.1");
    server.signal(rustix::process::Signal::TERM);
    server.child.wait().unwrap();
    assert!(!path.exists());
}

list![
    nothing_is_believed_unless_asked_for,
    a_trusted_proxy_is_believed,
    the_other_fields_are_read_where_they_are_named,
    each_request_has_its_own_client,
    what_a_trusted_proxy_garbles_is_a_400,
    a_unix_socket,
];
