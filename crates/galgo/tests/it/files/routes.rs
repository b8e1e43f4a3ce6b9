//! Routes to folders, files and constant answers.

use super::with;
use crate::harness::{list, new_site};
use galgo_testkit::wait_until;

fn folders() {
    let server = new_site()
        .config("[[route]]\npath = \"/list/\"\nfiles = \"list\"\nlisting = true\nheaders = { X-More = \"1\" }")
        .file("list/<b>&.txt", "", 0o644)
        .file("list/sub/a", "", 0o644)
        .file("list/.hidden", "", 0o644)
        .file("public/with/index.html", "index", 0o644)
        .file("public/without/file", "", 0o644)
        .start();
    for (target, to) in [
        ("/list", "/list/"),
        ("/list/sub", "/list/sub/"),
        ("/with", "/with/"),
        ("/with?a=b", "/with/?a=b"),
        ("//with", "/with/"),
    ] {
        let reply = server.get(target);
        if target.starts_with("//") {
            assert_eq!(reply.field("location").unwrap_or(to), to, "{target}");
            continue;
        }
        assert_eq!(
            (reply.status, reply.field("location")),
            (301, Some(to)),
            "{target}"
        );
    }
    assert_eq!(server.get("/with/").text(), "index");
    assert_eq!(server.get("/without/").status, 403);
    let listing = server.get("/list/");
    assert_eq!((listing.status, listing.field("x-more")), (200, Some("1")));
    let html = listing.text();
    assert!(
        html.contains("&lt;b&gt;&amp;.txt") && html.contains("%3Cb%3E%26.txt"),
        "{html}"
    );
    assert!(html.contains("sub/") && !html.contains("hidden"), "{html}");
    assert_eq!(server.get("/list/none").field("x-more"), Some("1"));
}

fn s13_1_a_list_has_no_version() {
    let server = new_site()
        .config("[[route]]\npath = \"/list/\"\nfiles = \"list\"\nlisting = true")
        .file("list/a", "", 0o644)
        .start();
    for (condition, status) in [
        ("If-Match: *", 200),
        ("If-Match: \"a\"", 412),
        ("If-None-Match: *", 304),
        ("If-None-Match: \"a\"", 200),
        ("If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT", 200),
        ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", 200),
    ] {
        let reply = server.ask(format!(
            "GET /list/ HTTP/1.1\r\nHost: a\r\n{condition}\r\n\r\n"
        ));
        assert_eq!(reply.status, status, "{condition}");
    }
}

fn s3_routes_the_longest_path_wins() {
    let respond = |host: &str, path: &str, body: &str| {
        let host = if host.is_empty() {
            String::new()
        } else {
            format!("host = \"{host}\"\n")
        };
        format!(
            "[[route]]\npath = \"{path}\"\n{host}respond = {{ type = \"text/plain\", body = \"{body}\" }}"
        )
    };
    let server = new_site()
        .config(&respond("", "/a/", "folder"))
        .config(&respond("", "/a/b", "longer"))
        .config(&respond("", "/a/b/c/", "longest"))
        .config(&respond("git.example.org", "/a/", "host"))
        .config(&respond("git.example.org", "/cgi-bin/t", "host's"))
        .start();
    for (host, target, wanted) in [
        ("localhost", "/a/", "folder"),
        ("localhost", "/a/x", "folder"),
        ("localhost", "/a/b", "longer"),
        ("localhost", "/a/b/x", "longer"),
        ("localhost", "/a/bc", "folder"),
        ("localhost", "/a/b/c/d", "longest"),
        ("git.example.org", "/a/", "host"),
        ("GIT.example.org:8080", "/a/x", "host"),
        ("git.example.org.", "/a/x", "host"),
        ("git.example.org", "/a/b", "longer"),
        ("git.example.org", "/cgi-bin/t?head&out=program", "host's"),
        (
            "other.example.org",
            "/cgi-bin/t?head&out=program",
            "program",
        ),
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(reply.text(), wanted, "{host} {target}");
    }
}

fn constant_answers() {
    let gif = b"GIF89a\x01\x00\x01\x00\x80\x00\x00";
    let server = new_site()
        .file("pixel.gif", gif, 0o644)
        .config("[[route]]\npath = \"/\"\nrespond = { type = \"image/gif\", file = \"pixel.gif\", headers = { X-Ad = \"no\" } }")
        .config("[[route]]\npath = \"/gone\"\nrespond = { status = 410, body = \"gone\" }")
        .start();
    for (host, target) in [
        ("a", "/"),
        ("b.example", "/any/thing?x"),
        ("[::1]", "/x.php"),
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!((reply.status, &reply.body[..]), (200, &gif[..]), "{target}");
        assert_eq!(reply.field("content-type"), Some("image/gif"));
        assert_eq!(reply.field("x-ad"), Some("no"));
    }
    let reply = server.get("/gone");
    assert_eq!((reply.status, reply.text().as_str()), (410, "gone"));
}

/// The test needs an account that any machine has: `daemon`, whose home has no such folders. The
/// server starts, says so, and serves nothing there.
fn homes() {
    let server = new_site()
        .config("[userdir]\nfiles = \"no-such-public_html\"\ncgi = \"no-such-cgi-bin\"\nusers = [\"daemon\"]")
        .start();
    server.says("~daemon");
    for target in [
        "/~daemon/",
        "/~daemon/cgi-bin/x",
        "/~root/",
        "/~root/.profile",
    ] {
        assert_eq!(server.get(target).status, 404, "{target}");
    }
    wait_until("the warning", || server.errors().contains("warning"));
}

fn headers_are_on_every_response() {
    let route = "[[route]]\npath = \"/s/\"\nfiles = \"public\"\n\
                 headers = { X-A = \"b\", Cache-Control = \"max-age=9\" }\n";
    let server = new_site()
        .file("public/f", "text", 0o644)
        .file("public/empty/sub/f", "", 0o644)
        .config(route)
        .start();
    for (method, target, status) in [
        ("GET", "/s/f", 200),
        ("OPTIONS", "/s/f", 204),
        ("GET", "/s", 301),
        ("GET", "/s/empty", 301),
        ("GET", "/s/none", 404),
        ("GET", "/s/empty/", 403),
        ("POST", "/s/f", 405),
    ] {
        let reply = with(&server, method, target, "");
        assert_eq!(reply.status, status, "{method} {target}");
        assert_eq!(reply.field("x-a"), Some("b"), "{method} {target}");
        // Caches must not keep an error.
        let kept = if status < 400 {
            "max-age=9"
        } else {
            "no-store"
        };
        if method != "OPTIONS" {
            assert_eq!(
                reply.field("cache-control"),
                Some(kept),
                "{method} {target}"
            );
        }
    }
}

fn a_refusal_has_its_cause_in_the_log() {
    let server = new_site()
        .config("dev_errors = true")
        .file("public/folder/f", "", 0o644)
        .file("public/page.wcgi", "", 0o644)
        .start();
    for (path, words) in [
        ("/folder/", "the folder has no index, and is not listed: "),
        ("/page.wcgi", "its name is that of a program's source"),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, 403);
        assert!(
            reply.text().contains(words.split('\'').next().unwrap()),
            "{}",
            reply.text()
        );
        server.says(&format!("] {path}: {words}"));
    }
}

list![
    folders,
    s13_1_a_list_has_no_version,
    s3_routes_the_longest_path_wins,
    constant_answers,
    homes,
    headers_are_on_every_response,
    a_refusal_has_its_cause_in_the_log
];
