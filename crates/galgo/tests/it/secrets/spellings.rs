//! Paths in other spellings lead to the same route as the clean path.

use std::os::unix::net::UnixStream;

use crate::harness::{
    list, new_site,
    upstream::{Application, document, ended, hear, say, stdout},
};
use galgo_testkit::Server;

list![
    no_spelling_leads_round_an_authorizer,
    every_spelling_is_answered_as_its_clean_path,
    s4_1_5_path_info_keeps_the_slashes_that_came,
    no_redirect_names_another_host,
];

/// An application at `/` that relies on the server to guard its `/admin/` by an authorizer. It looks for the path in each
/// variable that real applications use.
fn application(stream: &mut UnixStream) {
    let Some(heard) = hear(stream) else { return };
    let merged = |path: &str| {
        path.split('/')
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join("/")
    };
    let begins = |path: &str| merged(path).starts_with("admin");
    let secret = ["PATH_INFO", "REQUEST_URI", "SCRIPT_NAME"]
        .into_iter()
        .any(|name| heard.param(name).is_some_and(begins));
    say(
        stream,
        document(if secret {
            "SECRET ADMIN PAGE"
        } else {
            "for everybody"
        }),
    );
}

/// Reports the URI that it was asked about, and denies every request.
fn authorizer(stream: &mut UnixStream) {
    let heard = hear(stream).unwrap_or_default();
    let uri = heard.param("REQUEST_URI").unwrap_or_default();
    let text = format!("Status: 403\nContent-Type: text/plain\n\nasked for {uri}");
    let end = ended(galgo_proto::fcgi::Outcome::COMPLETE);
    say(stream, [stdout(text), stdout(""), end].concat());
}

fn guarded() -> (Server, [Application; 2]) {
    let site = new_site().config(
        "[[route]]\npath = \"/\"\nfastcgi = \"unix:app/app.sock\"\n\
         [[route]]\npath = \"/admin/\"\nfastcgi = \"unix:app/app.sock\"\nauthorizer = \"unix:auth/app.sock\"\n",
    );
    let start = |name: &str, answer: fn(&mut UnixStream)| {
        let folder = site.path(name);
        std::fs::create_dir(&folder).unwrap();
        Application::start(&folder, move |_, stream| answer(stream))
    };
    let running = [start("app", application), start("auth", authorizer)];
    (site.start(), running)
}

/// Spellings of `/admin/x`.
const GUARDED: [&str; 19] = [
    "/admin/x",
    "//admin/x",
    "///admin/x",
    "/admin//x",
    "//admin///x",
    "/./admin/x",
    "/admin/./x",
    "/.//admin/x",
    "/y/../admin/x",
    "/y//../admin/x",
    "/y/..//admin/x",
    "/admin/y/../x",
    "/admin/../admin/x",
    "/%61dmin/x",
    "/%61%64%6D%69%6e/x",
    "/%2e/admin/x",
    "/y/%2e%2e/admin/x",
    "/y/.%2E//%61dmin/x",
    "http://localhost//admin/x",
];

fn no_spelling_leads_round_an_authorizer() {
    let (server, _running) = guarded();
    for target in GUARDED {
        let reply = server.get(target);
        let want = (403, "asked for /admin/x".to_owned());
        assert_eq!((reply.status, reply.text()), want, "{target}");
    }
    for (target, uri) in [
        ("//admin", "/admin"),
        ("/y/../admin/.", "/admin/"),
        ("//admin//?a=/b", "/admin/?a=/b"),
    ] {
        let reply = server.get(target);
        assert_eq!(
            (reply.status, reply.text()),
            (403, format!("asked for {uri}")),
            "{target}"
        );
    }
    // The application does not mistake paths outside of `/admin/` for paths in it.
    for target in [
        "/x",
        "/admin/../x",
        "/admin/%2e%2e/x",
        "//admin//..//x",
        "/admin/y/../../x",
        "/admin/..",
    ] {
        let reply = server.get(target);
        let want = (200, "for everybody".to_owned());
        assert_eq!((reply.status, reply.text()), want, "{target}");
    }
    for target in [
        "/../admin/x",
        "/admin%2Fx",
        "/%2fadmin/x",
        "/y%2F..%2Fadmin/x",
        "/admin%00/x",
    ] {
        assert_eq!(server.get(target).status, 400, "{target}");
    }
}

fn every_spelling_is_answered_as_its_clean_path() {
    let server = new_site()
        .file("public/sub/page", "the page", 0o644)
        .config("[[route]]\npath = \"/said/\"\nrespond = { body = \"said\" }\n")
        .start();
    for (target, status, text) in [
        ("/sub/page", 200, "the page"),
        ("//sub//page", 200, "the page"),
        ("/./sub/./page", 200, "the page"),
        ("/other/../sub/page", 200, "the page"),
        ("/sub/%2e%2e/sub/page", 200, "the page"),
        ("//said//", 200, "said"),
        ("/x/../said/y", 200, "said"),
        ("//cgi-bin//t?head&out=ran", 200, "ran"),
        ("/sub/../cgi-bin/./t?head&out=ran", 200, "ran"),
        ("/cgi-bin/../sub/page", 200, "the page"),
    ] {
        let reply = server.get(target);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (status, text),
            "{target}"
        );
    }
    for target in [
        "/..",
        "/../sub/page",
        "/sub/../../page",
        "//..//sub/page",
        "/%2e%2E/sub/page",
        "/cgi-bin/t/../../../x",
    ] {
        assert_eq!(server.get(target).status, 400, "{target}");
    }
}

fn s4_1_5_path_info_keeps_the_slashes_that_came() {
    let server = new_site()
        .config("[[route]]\npath = \"/one\"\ncgi = \"cgi-bin/t\"")
        .start();
    for (path, script_name, path_info, uri) in [
        ("/cgi-bin/t/a//b", "/cgi-bin/t", "/a//b", "/cgi-bin/t/a//b"),
        ("/cgi-bin/t//a", "/cgi-bin/t", "//a", "/cgi-bin/t//a"),
        (
            "//cgi-bin///t//a//",
            "/cgi-bin/t",
            "//a//",
            "//cgi-bin///t//a//",
        ),
        (
            "/cgi-bin/t/a/./b//c",
            "/cgi-bin/t",
            "/a/b//c",
            "/cgi-bin/t/a/b//c",
        ),
        ("/cgi-bin/t/a/../b", "/cgi-bin/t", "/b", "/cgi-bin/t/b"),
        (
            "/cgi-bin/x/../t/%c3%a4",
            "/cgi-bin/t",
            "/\u{e4}",
            "/cgi-bin/t/%C3%A4",
        ),
        ("//one//a", "/one", "//a", "//one//a"),
    ] {
        let text = server.get(&format!("{path}?head&env")).text();
        let has = |line: String| assert!(text.lines().any(|l| l == line), "{path}: {line}\n{text}");
        has(format!("SCRIPT_NAME={script_name}"));
        has(format!("PATH_INFO={path_info}"));
        has(format!("REQUEST_URI={uri}?head&env"));
        has(format!(
            "PATH_TRANSLATED={}/public{path_info}",
            server.site.folder().display()
        ));
    }
}

/// A browser takes `//evil.example/` in Location for another host.
fn no_redirect_names_another_host() {
    let server = new_site()
        .file("public/evil.example/a", "a", 0o644)
        .file("php/evil.example/index.php", "", 0o644)
        .config(
            "[[route]]\npath = \"/docs/\"\nfiles = \"public\"\n\
             [[route]]\nhost = \"php\"\npath = \"/\" # of this host\nfastcgi = \"unix:none.sock\"\nroot = \"php\"\n",
        )
        .start();
    for (host, target, location) in [
        ("a", "//evil.example", "/evil.example/"),
        ("a", "///evil.example?x=//y", "/evil.example/?x=//y"),
        ("a", "/.//evil.example", "/evil.example/"),
        ("a", "/x/..//evil.example", "/evil.example/"),
        ("a", "/%2e//evil.example", "/evil.example/"),
        ("a", "http://a//evil.example", "/evil.example/"),
        ("a", "//docs", "/docs/"),
        ("a", "/x/..//docs", "/docs/"),
        ("php", "//evil.example", "/evil.example/"),
        ("php", "/.//evil.example", "/evil.example/"),
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(
            (reply.status, reply.field("location")),
            (301, Some(location)),
            "{target}"
        );
    }
}
