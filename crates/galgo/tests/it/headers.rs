//! Fields that the configuration sets, adds and removes; requests from other origins.

use crate::harness::{check_refuses, list, new_site};
use galgo_testkit::{Reply, Server};

list![
    on_every_route_and_response,
    by_status_and_type,
    lifetimes_by_type,
    fields_of_requests,
    other_origins,
    wrong_configurations_are_named,
];

fn ask(server: &Server, target: &str, fields: &str) -> Reply {
    server.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

fn on_every_route_and_response() {
    let keys =
        "headers = { X-Own = \"1\", Cache-Control = \"max-age=60\" }\nsecurity_headers = true\n";
    let server = new_site()
        .file("public/a.html", "x", 0o644)
        .file("site.htpasswd", "", 0o640)
        .config(&format!(
            "dev_errors = false\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n{keys}\
             [[route]]\npath = \"/\"\nfiles = \"public\"\n{keys}\
             [[route]]\npath = \"/said\"\nrespond = {{ body = \"x\", headers = {{ X-Frame-Options = \"DENY\" }} }}\n{keys}\
             [[route]]\npath = \"/shut\"\nfiles = \"public\"\npasswords = \"site.htpasswd\"\n{keys}\
             [[route]]\npath = \"/gone\"\nredirect = {{ to = \"/\" }}\n{keys}"
        ))
        .start();
    for (target, status, lifetime) in [
        ("/a.html", 200, "max-age=60"),
        ("/none", 404, "no-store"),
        ("/cgi-bin/t?head", 200, "max-age=60"),
        ("/cgi-bin/t?out=nonsense", 502, "no-store"),
        (
            "/cgi-bin/t?out=Content-Type:%20a/b%0ACache-Control:%20private%0A%0A",
            200,
            "max-age=60",
        ),
        (
            "/cgi-bin/t?out=Status:%20404%0AContent-Type:%20a/b%0ACache-Control:%20private%0A%0A",
            404,
            "private",
        ),
        ("/cgi-bin/none", 404, "no-store"),
        ("/said", 200, "max-age=60"),
        ("/shut/", 401, "no-store"),
        ("/shut", 401, "no-store"),
        ("/gone", 302, "max-age=60"),
    ] {
        let reply = ask(&server, target, "");
        assert_eq!(reply.status, status, "{target}");
        assert_eq!(reply.field("x-own"), Some("1"), "{target}");
        assert_eq!(reply.field("cache-control"), Some(lifetime), "{target}");
        assert_eq!(
            reply.field("x-content-type-options"),
            Some("nosniff"),
            "{target}"
        );
        let framed = if target == "/said" {
            "DENY"
        } else {
            "SAMEORIGIN"
        };
        assert_eq!(reply.field("x-frame-options"), Some(framed), "{target}");
    }
    // A 304 has the fields, too, and a file whose response the server keeps does not get a field twice.
    for _ in 0..2 {
        let reply = ask(&server, "/a.html", "If-None-Match: *\r\n");
        assert_eq!(
            (reply.status, reply.field("cache-control")),
            (304, Some("max-age=60"))
        );
        assert_eq!(ask(&server, "/a.html", "").fields("x-own"), ["1"]);
    }
}

fn by_status_and_type() {
    let server = new_site()
        .file("public/a.html", "x", 0o644)
        .file("public/a.png", "x", 0o644)
        .config(
            r#"
[[route]]
path = "/"
files = "public"
header_rules = [
    { set = { X-Any = "1" } },
    { types = ["image/*"], set = { X-Image = "1" } },
    { status = ["404"], add = { X-Missing = "1" } },
    { status = ["2xx"], types = ["text/html"], default = { X-Page = "1" }, remove = ["X-Any"] },
]
[[route]]
path = "/cgi-bin/"
cgi = "cgi-bin"
header_rules = [{ remove = ["X-Powered-By"], add = { Vary = "Cookie" } }]
"#,
        )
        .start();
    for (target, wanted) in [
        ("/a.html", [false, false, false, true]),
        ("/a.png", [true, true, false, false]),
        ("/none", [true, false, true, false]),
    ] {
        let reply = ask(&server, target, "");
        let has = ["x-any", "x-image", "x-missing", "x-page"].map(|n| reply.field(n).is_some());
        assert_eq!(has, wanted, "{target}");
    }
    let target = "/cgi-bin/t?out=Content-Type:%20a/b%0AX-Powered-By:%20x%0Ax-powered-by:%20y%0AVary:%20Accept%0A%0A";
    let reply = ask(&server, target, "");
    assert!(reply.fields("x-powered-by").is_empty());
    assert_eq!(reply.fields("vary"), ["Accept", "Cookie"]);
}

fn lifetimes_by_type() {
    let server = new_site()
        .file("public/a.html", "x", 0o644)
        .file("public/a.png", "x", 0o644)
        .file("public/a.txt", "x", 0o644)
        .config("[[route]]\npath = \"/\"\nfiles = \"public\"\nexpires = { \"*\" = \"1h\", \"image/*\" = \"720h\", \"text/html\" = 0 }")
        .config("[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nexpires = { \"*\" = \"1h\", \"text/html\" = \"1m\" }")
        .start();
    let own = "/cgi-bin/t?out=Content-Type:%20a/b%0ACache-Control:%20private%0A%0A";
    for (target, value) in [
        ("/a.html", "no-cache"),
        ("/a.png", "max-age=2592000"),
        ("/a.txt", "max-age=3600"),
        ("/none", "no-store"),
        (own, "private"),
    ] {
        assert_eq!(
            ask(&server, target, "").field("cache-control"),
            Some(value),
            "{target}"
        );
    }
    not_modified(&server);
}

/// A 304 has the lifetime of the 200 (RFC 9110, 15.4.5), which depends on a type that the 304 does not name.
fn not_modified(server: &Server) {
    let program = "/cgi-bin/t?out=Content-Type:%20text/html%0AETag:%20%22a%22%0A%0A";
    for (target, value) in [
        ("/a.html", "no-cache"),
        ("/a.png", "max-age=2592000"),
        ("/a.txt", "max-age=3600"),
        (program, "max-age=60"),
    ] {
        let tag = ask(server, target, "").field("etag").unwrap().to_owned();
        let reply = ask(server, target, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(
            (reply.status, reply.field("cache-control")),
            (304, Some(value)),
            "{target}"
        );
        assert_eq!(reply.field("content-type"), None, "{target}");
    }
}

fn fields_of_requests() {
    let server = new_site()
        .config(
            r#"
[[route]]
path = "/cgi-bin/"
cgi = "cgi-bin"
request_headers = { set = { X-Site = "ours" }, add = { X-Kept = "2", X-New = "3" }, remove = ["X-Debug", "Accept-Encoding"] }
"#,
        )
        .start();
    let fields =
        "X-Debug: 1\r\nx-site: theirs\r\nX-Site: more\r\nAccept-Encoding: gzip\r\nX-Kept: 1\r\n";
    let text = ask(&server, "/cgi-bin/t?head&env", fields).text();
    for line in ["HTTP_X_SITE=ours", "HTTP_X_KEPT=1, 2", "HTTP_X_NEW=3"] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(
        !text.contains("HTTP_X_DEBUG") && !text.contains("HTTP_ACCEPT_ENCODING"),
        "{text}"
    );
}

fn other_origins() {
    let server = new_site()
        .file("site.htpasswd", "", 0o640)
        .config(
            r#"
[[route]]
path = "/api/"
cgi = "cgi-bin"
cors = { origins = ["https://app.example.org", "http://localhost:3000"], methods = ["GET", "PUT"], headers = ["X-Token"], expose = ["X-Total"], credentials = true, max_age = "10m" }
[[route]]
path = "/open/"
cgi = "cgi-bin"
cors = { origins = ["*"] }
[[route]]
path = "/shut/"
cgi = "cgi-bin"
passwords = "site.htpasswd"
cors = { origins = ["https://app.example.org"] }
"#,
        )
        .start();
    let origin = "Origin: https://app.example.org\r\n";
    let reply = ask(
        &server,
        "/api/t?out=Content-Type:%20a/b%0AAccess-Control-Allow-Origin:%20*%0A%0A",
        origin,
    );
    assert_eq!(
        reply.fields("access-control-allow-origin"),
        ["https://app.example.org"]
    );
    assert_eq!(
        reply.field("access-control-allow-credentials"),
        Some("true")
    );
    assert_eq!(
        reply.field("access-control-expose-headers"),
        Some("X-Total")
    );
    assert_eq!(reply.field("vary"), Some("Origin"));
    for other in [
        "",
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: https://app.example.org.evil\r\n",
    ] {
        let reply = ask(&server, "/api/t?head", other);
        assert_eq!(reply.status, 200, "{other}");
        assert!(
            !reply.head.to_ascii_lowercase().contains("access-control"),
            "{other}: {}",
            reply.head
        );
        assert_eq!(reply.field("vary"), Some("Origin"));
    }
    let preflight = |path: &str, origin: &str| {
        server.ask(format!(
            "OPTIONS {path} HTTP/1.1\r\nHost: a\r\n{origin}Access-Control-Request-Method: PUT\r\n\r\n"
        ))
    };
    let reply = preflight("/api/t", origin);
    assert_eq!(reply.status, 204);
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example.org"),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "X-Token"),
        ("access-control-max-age", "600"),
    ] {
        assert_eq!(reply.fields(name), [value], "{}", reply.head);
    }
    // A preflight has no password, while the request that it announces needs one.
    assert_eq!(preflight("/shut/t", origin).status, 204);
    assert_eq!(ask(&server, "/shut/t", origin).status, 401);
    let denied = preflight("/api/t", "Origin: https://evil.example\r\n");
    assert!(
        !denied.head.to_ascii_lowercase().contains("access-control"),
        "{}",
        denied.head
    );
    let open = ask(&server, "/open/t?head", "Origin: null\r\n");
    assert_eq!(open.field("access-control-allow-origin"), Some("*"));
    // A plain OPTIONS goes to the program.
    let options = server.ask("OPTIONS /api/t?head HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(options.status, 200);
}

fn wrong_configurations_are_named() {
    for (keys, words) in [
        (
            "headers = { Content-Length = \"1\" }",
            "computed for each response",
        ),
        (
            "headers = { X = \"a\\r\\nB: c\" }",
            "a field value holds visible ASCII",
        ),
        (
            "header_rules = [{ set = { Transfer-Encoding = \"x\" } }]",
            "computed for each response",
        ),
        (
            "header_rules = [{ remove = [\"Connection\"] }]",
            "computed for each response",
        ),
        ("header_rules = [{ status = [\"6xx\"] }]", "is no status"),
        (
            "header_rules = [{ types = [\"html\"] }]",
            "is no media type",
        ),
        (
            "request_headers = { set = { Host = \"b\" } }",
            "Host is not to be changed",
        ),
        (
            "request_headers = { add = { te = \"b\" } }",
            "te is not to be changed",
        ),
        (
            "request_headers = { remove = [\"A_B\"] }",
            "A_B is not to be changed",
        ),
        ("expires = { html = 1 }", "is no media type"),
        ("cors = { }", "cors: needs `origins`"),
        (
            "cors = { origins = [\"*\"], credentials = true }",
            "every site could act",
        ),
        ("cors = { origins = [\"app.example.org\"] }", "is no origin"),
        ("cors = { origins = [\"https://a/b\"] }", "is no origin"),
        (
            "cors = { origins = [\"https://a\"], headers = [\"A B\"] }",
            "is no name of a method or field",
        ),
    ] {
        check_refuses(
            &new_site(),
            &format!("[[route]]\npath = \"/\"\nfiles = \"public\"\n{keys}\n"),
            words,
        );
    }
}
