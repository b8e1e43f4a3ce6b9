//! Paths that lead to other paths: `redirect`, `[[rewrite]]`, `try`.

use crate::harness::{check_refuses, list, new_site};
use galgo_testkit::Server;

list![
    routes_that_redirect,
    no_value_leads_elsewhere,
    the_first_rule_that_fits,
    rules_that_are_redirects,
    programs_are_told_what_was_asked,
    a_rewrite_leads_round_no_rule,
    front_controllers,
    nothing_goes_in_circles,
    patterns_are_linear,
    wrong_configurations_are_named,
];

fn location(server: &Server, host: &str, target: &str) -> (u16, String) {
    let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(reply.head.matches("\r\n\r\n").count(), 1, "{}", reply.head);
    (
        reply.status,
        reply.field("location").unwrap_or_default().to_owned(),
    )
}

fn routes_that_redirect() {
    let server = new_site()
        .config(
            r#"
[[route]]
path = "/"
host = "example.org"
redirect = { to = "https://www.example.org{path}", status = 308 }
[[route]]
path = "/old"
redirect = { to = "/new/{rest}" }
[[route]]
path = "/secure/"
files = "public"
redirect = { to = "https://{host}{path}", scheme = "http", status = 301 }
[[route]]
path = "/port"
redirect = { to = "/elsewhere", port = 1 }
[[route]]
path = "/fixed"
redirect = { to = "/there?x=1", status = 303 }
"#,
        )
        .start();
    for (host, target, status, to) in [
        (
            "example.org",
            "/a/b?c=d&e",
            308,
            "https://www.example.org/a/b?c=d&e",
        ),
        (
            "EXAMPLE.org:80",
            "/%C3%A4//x",
            308,
            "https://www.example.org/%C3%A4/x",
        ),
        ("a", "/old", 302, "/new/"),
        ("a", "/old/x/y?z", 302, "/new/x/y?z"),
        ("a", "/older", 404, ""),
        ("b.example", "/secure/x", 301, "https://b.example/secure/x"),
        ("a", "/port", 404, ""),
        ("a", "/fixed?y=2", 303, "/there?x=1"),
    ] {
        assert_eq!(
            location(&server, host, target),
            (status, to.into()),
            "{host} {target}"
        );
    }
    let post = "POST /old/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(server.ask(post).status, 302);
}

/// A value stays in its place: it cannot add another host, field or line.
fn no_value_leads_elsewhere() {
    let server = new_site()
        .config(
            r#"
[[route]]
path = "/go"
redirect = { to = "/{rest}" }
[[route]]
path = "/q"
redirect = { to = "/{query}?" }
[[rewrite]]
pattern = "^/x(?P<tail>.*)$"
to = "/{tail}"
status = 302
[[rewrite]]
pattern = "^/h$"
query = "^to=(?P<to>.*)$"
to = "/{to}"
status = 302
"#,
        )
        .start();
    for target in [
        "/go//evil.example",
        "/go/%5Cevil.example",
        "/go/%09/evil.example",
        "/go/%0d%0aSet-Cookie:%20a=b",
        "/go/%00",
        "/q?//evil.example",
        "/q?\\evil.example",
        "/q?%0d%0aSet-Cookie:a=b",
        "/x//evil.example",
        "/x/evil.example",
        "/x%0d%0aX:y",
        "/h?to=//evil.example",
        "/h?to=/\\evil.example",
        "/h?to=%0d%0aX:y",
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(
            matches!(reply.status, 302 | 400 | 404),
            "{target}: {}",
            reply.status
        );
        assert!(reply.field("set-cookie").is_none() && reply.field("x").is_none());
        let to = reply.field("location").unwrap_or("/");
        // After `?` a backslash is not part of the path.
        let to = to.split('?').next().unwrap_or_default();
        let other = to.starts_with("//") || to.contains('\\') || !to.starts_with('/');
        assert!(!other, "{target}: {to}");
    }
}

const REWRITES: &str = r#"
[[rewrite]]
pattern = "^/article/(?P<id>[0-9]+)$"
to = "/cgi-bin/t?head&env&id={id}&{query}"
[[rewrite]]
pattern = "^/article/"
to = "/cgi-bin/none"
[[rewrite]]
pattern = "^/find$"
query = "(^|&)q=(?P<word>[a-z]+)(&|$)"
to = "/cgi-bin/t/{word}?head&env"
[[rewrite]]
pattern = "^/hosted$"
host = "b.example"
to = "/cgi-bin/t?head&env"
[[rewrite]]
pattern = "^/dots/(?P<a>.*)/(?P<b>.*)$"
to = "/{a}{b}/x"
[[rewrite]]
pattern = "^/p/(?P<rest>.*)$"
to = "/private/{rest}"
[[rewrite]]
pattern = "^/twice/(?P<n>.*)$"
to = "/article/{n}"
[[rewrite]]
pattern = "(?i)^/loud$"
to = "/cgi-bin/t?head&env"
"#;

fn the_first_rule_that_fits() {
    let server = new_site().config(REWRITES).start();
    for (host, target, status, line) in [
        ("a", "/article/7?x=1", 200, "QUERY_STRING=head&env&id=7&x=1"),
        ("a", "/article/x", 404, ""),
        ("a", "/find?q=word", 200, "PATH_INFO=/word"),
        ("a", "/find?q=..%2fx", 404, ""),
        ("a", "/find", 404, ""),
        ("a", "/hosted", 404, ""),
        ("B.example:81", "/hosted", 200, "SCRIPT_NAME=/cgi-bin/t"),
        ("a", "/LOUD", 200, "SCRIPT_NAME=/cgi-bin/t"),
        // A request is rewritten only once.
        ("a", "/twice/7", 404, ""),
        // The result of the rewrite is not a path that a client could request.
        ("a", "/dots/./.", 404, ""),
        ("a", "/dots/%2e/%2e", 404, ""),
        ("a", "/dots/a./.b", 404, ""),
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(reply.status, status, "{target}");
        let text = reply.text();
        assert!(
            line.is_empty() || text.lines().any(|l| l == line),
            "{target}: {line}\n{text}"
        );
    }
}

fn rules_that_are_redirects() {
    let server = new_site()
        .config(
            r#"
[[rewrite]]
pattern = "^/blog/(?P<year>\\d{4})/(?P<slug>[^/]+)$"
to = "https://blog.example.org/{slug}?year={year}"
status = 301
"#,
        )
        .start();
    let to = location(&server, "a", "/blog/2026/a%20b%3Fc");
    assert_eq!(
        to,
        (301, "https://blog.example.org/a%20b%3Fc?year=2026".into())
    );
}

fn programs_are_told_what_was_asked() {
    let server = new_site().config(REWRITES).start();
    let post = "POST /article/7?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    let text = server.ask(post).text();
    for line in [
        "REQUEST_METHOD=POST",
        "REQUEST_URI=/article/7?a=b",
        "REDIRECT_URL=/article/7",
        "SCRIPT_NAME=/cgi-bin/t",
        "CONTENT_LENGTH=4",
        "REDIRECT_STATUS=200",
    ] {
        assert_eq!(
            text.lines().filter(|l| *l == line).count(),
            1,
            "{line}\n{text}"
        );
    }
    // Other requests do not get REDIRECT_URL, not even from a header field.
    let plain = "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nRedirect-Url: /x\r\n\r\n";
    let text = server.ask(plain).text();
    assert!(
        !text.lines().any(|l| l.starts_with("REDIRECT_URL")),
        "{text}"
    );
}

fn a_rewrite_leads_round_no_rule() {
    let server = new_site()
        .file("private/a.txt", "secret", 0o644)
        .config(REWRITES)
        .config(
            r#"
[[route]]
path = "/private/"
files = "private"
access = { deny = ["all"] }
[[route]]
path = "/front/"
files = "public"
try = ["{path}", "/private/a.txt"]
"#,
        )
        .start();
    for target in [
        "/private/a.txt",
        "/p/a.txt",
        "/p//a.txt",
        "/p/%61.txt",
        "/front/x",
        "/p/./a.txt",
    ] {
        let reply = server.get(target);
        assert_eq!(reply.status, 403, "{target}");
        assert!(!reply.text().contains("secret"));
    }
}

fn front_controllers() {
    let server = new_site()
        .file("public/app/style.css", "body{}", 0o644)
        .file("public/app/docs/index.html", "docs", 0o644)
        .file("public/app/page.html", "page", 0o644)
        .file("public/app/empty/x", "x", 0o644)
        .file("public/spa/index.html", "spa", 0o644)
        .config(
            r#"
[[route]]
path = "/app/"
files = "public/app"
try = ["{path}", "{path}/", "{path}.html", "/cgi-bin/t{path}?head&env&{query}"]
[[route]]
path = "/spa/"
files = "public/spa"
try = ["{path}", "/spa/index.html"]
[[route]]
path = "/strict/"
files = "public/app"
try = ["{path}", "=410"]
"#,
        )
        .start();
    for (target, status, body) in [
        ("/app/style.css", 200, "body{}"),
        ("/app/docs/", 200, "docs"),
        ("/app/docs", 301, ""),
        ("/app/page", 200, "page"),
        ("/app/some/thing?x=1", 200, "PATH_INFO=/app/some/thing\n"),
        ("/app/some/thing?x=1", 200, "QUERY_STRING=head&env&x=1\n"),
        (
            "/app/some/thing?x=1",
            200,
            "REQUEST_URI=/app/some/thing?x=1\n",
        ),
        ("/app/", 200, "PATH_INFO=/app/\n"),
        ("/app/empty/", 200, "PATH_INFO=/app/empty/\n"),
        ("/app/.git/config", 200, "PATH_INFO=/app/.git/config\n"),
        ("/app/%2e%2e/%2e%2e/x", 400, ""),
        ("/spa/any/where", 200, "spa"),
        ("/spa/", 200, "spa"),
        ("/strict/style.css", 200, "body{}"),
        ("/strict/none", 410, ""),
    ] {
        let reply = server.get(target);
        assert_eq!(reply.status, status, "{target}");
        assert!(
            reply.text().contains(body),
            "{target}: {body}\n{}",
            reply.text()
        );
    }
    let post = "POST /app/form HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    assert!(server.ask(post).text().contains("REQUEST_METHOD=POST\n"));
}

fn nothing_goes_in_circles() {
    let server = new_site()
        .config(
            r#"
[[route]]
path = "/a/"
files = "public"
try = ["{path}", "/b/{rest}"]
[[route]]
path = "/b/"
files = "public"
try = ["{path}", "/a/{rest}"]
[[route]]
path = "/c/"
files = "public"
try = ["{path}", "/c/index.html"]
[[rewrite]]
pattern = "^/d/(?P<x>.*)$"
to = "/d/{x}x"
"#,
        )
        .start();
    assert_eq!(server.get("/a/x").status, 502);
    server.says("more than 10 local redirects");
    assert_eq!(server.get("/c/x").status, 404);
    assert_eq!(server.get("/d/x").status, 404);
    assert_eq!(server.get("/health").status, 200);
}

fn patterns_are_linear() {
    let server = new_site()
        .config("[[rewrite]]\npattern = \"^/(a+)+$\"\nto = \"/health\"\n[[rewrite]]\npattern = \"(x|xx|x*)*y\"\nto = \"/health\"")
        .start();
    let path = "/".to_owned() + &"a".repeat(8000);
    assert_eq!(server.get(&path).text(), "fine");
    assert_eq!(server.get(&format!("{path}!")).status, 404);
    assert_eq!(server.get(&format!("/{}", "x".repeat(8000))).status, 404);
}

fn wrong_configurations_are_named() {
    for (toml, words) in [
        (
            "[[route]]\npath = \"/\"\nredirect = { }",
            "redirect: needs `to`",
        ),
        (
            "[[route]]\npath = \"/\"\nredirect = { to = \"//x\" }",
            "begins with neither",
        ),
        (
            "[[route]]\npath = \"/\"\nredirect = { to = \"https://x{rest}\" }",
            "begins with neither",
        ),
        (
            "[[route]]\npath = \"/\"\nredirect = { to = \"https://{query}/\" }",
            "begins with neither",
        ),
        (
            "[[route]]\npath = \"/\"\nredirect = { to = \"/{pat}\" }",
            "{pat} is unknown; known here: {path}",
        ),
        (
            "[[route]]\npath = \"/\"\nredirect = { to = \"/a b\" }",
            "visible ASCII",
        ),
        (
            "[[route]]\npath = \"/\"\nredirect = { to = \"/a\\r\\nX: y\" }",
            "visible ASCII",
        ),
        (
            "[[route]]\npath = \"/\"\nredirect = { to = \"/a\", status = 200 }",
            "is not the status of a redirect",
        ),
        (
            "[[route]]\npath = \"/\"\nredirect = { to = \"/a\", scheme = \"ftp\" }",
            "neither \"http\" nor \"https\"",
        ),
        (
            "[[rewrite]]\npattern = \"(\"\nto = \"/\"",
            "pattern: is no pattern: unclosed group",
        ),
        (
            "[[rewrite]]\npattern = \"(?:a{1000}){1000}\"\nto = \"/\"",
            "pattern: is no pattern",
        ),
        (
            "[[rewrite]]\npattern = \"x\"",
            "rewrite: needs `pattern` and `to`",
        ),
        (
            "[[rewrite]]\npattern = \"x\"\nto = \"https://x/\"",
            "does not begin with one \"/\"",
        ),
        (
            "[[route]]\npath = \"/\"\nfiles = \"public\"\ntry = []",
            "try: names no path",
        ),
        (
            "[[route]]\npath = \"/\"\nfiles = \"public\"\ntry = [\"=200\"]",
            "is not the status of an error",
        ),
        (
            "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\ntry = [\"/\"]",
            "try: is an option of `files` routes",
        ),
    ] {
        let site = new_site();
        let more = if toml.starts_with("[[rewrite") {
            "\n[[route]]\npath = \"/\"\nfiles = \"public\"\n"
        } else {
            ""
        };
        check_refuses(&site, &format!("{toml}{more}"), words);
    }
}
