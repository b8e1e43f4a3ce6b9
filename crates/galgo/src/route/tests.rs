//! Tests of routing.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::*;
use crate::config::{Config, Files, Respond};
use galgo_proto::target::UrlPath;

fn route(host: Option<&str>, path: &str) -> Arc<Route> {
    let handler = match path.strip_prefix("/pixel") {
        None => Handler::Files(Files::open(Path::new("/")).unwrap()),
        Some(_) => Handler::Respond(Respond {
            status: 200,
            content_type: None,
            headers: Vec::new(),
            body: Arc::from(*b""),
        }),
    };
    let hosts = host.map(|hosts| hosts.split(' ').map(str::to_owned).collect());
    let (path, names) = match path.rsplit_once('/') {
        Some((folder, name)) if name.contains('*') => (format!("{folder}/"), Glob::parse(name)),
        _ => (path.to_owned(), None),
    };
    Arc::new(Route {
        host: hosts.and_then(Hosts::new),
        names,
        ..Route::new(path, handler)
    })
}

#[test]
fn the_longest_path_of_the_host_wins() {
    let routes = [
        route(Some("a.b"), "/cgi-bin/"),
        route(None, "/cgi-bin/"),
        route(None, "/pixel2/"),
        route(None, "/docs/"),
        route(None, "/pixel"),
        route(None, "/docs"),
        route(Some("a.b"), "/a/"),
        route(None, "/"),
    ];
    // (host, path, index of the route, rest, whether only the slash is missing)
    let table = [
        ("", "/", 7, "", false),
        ("", "/x/y", 7, "x/y", false),
        ("", "/cgi-bin/p/i", 1, "p/i", false),
        ("c.d", "/cgi-bin/p", 1, "p", false),
        ("a.b", "/cgi-bin/p", 0, "p", false),
        ("A.B:8080", "/cgi-bin/", 0, "", false),
        ("a.b.", "/cgi-bin/", 0, "", false),
        ("x.a.b", "/cgi-bin/", 1, "", false),
        ("a.b", "/a/x", 6, "x", false),
        ("c.d", "/a/x", 7, "a/x", false),
        ("a.b", "/a", 6, "", true),
        ("", "/a", 7, "a", false),
        ("", "/cgi-bin", 1, "", true),
        ("", "/cgi-binx", 7, "cgi-binx", false),
        ("", "/pixel", 4, "", false),
        ("", "/pixel/", 4, "", false),
        ("", "/pixel//a", 4, "/a", false),
        ("", "/pixels", 7, "pixels", false),
        // A path without its slash is not redirected to a constant answer.
        ("", "/pixel2", 7, "pixel2", false),
        ("", "/pixel2/x", 2, "x", false),
        // `/docs` next to `/docs/`.
        ("", "/docs", 5, "", false),
        ("", "/docs/x", 3, "x", false),
    ];
    for (host, path, index, rest, slash) in table {
        let found = find_route(&routes, host, path.as_bytes()).unwrap();
        let at = routes
            .iter()
            .position(|r| Arc::ptr_eq(r, found.route))
            .unwrap();
        let got = (at, str::from_utf8(found.rest).unwrap(), found.slash_missing);
        assert_eq!(got, (index, rest, slash), "{host} {path}");
    }
    assert!(find_route(&routes, "", b"*").is_none());
    assert!(find_route(&routes[..6], "", b"/nothing").is_none());
    assert!(find_route(&routes[..1], "c.d", b"/cgi-bin/").is_none());
}

#[test]
fn hosts_lose_their_port_only() {
    let table = [
        ("a.b", "a.b"),
        ("a.b:80", "a.b"),
        ("a.b:", "a.b"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("::1", "::1"),
        ("a.b.:80", "a.b"),
    ];
    for (host, want) in table {
        assert_eq!(bare_host(host), want, "{host}");
    }
}

#[test]
fn configuration_and_routing_meet() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    let program = dir.path().join("bin/hello");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let source =
        "route = [{ path = \"/app/\", cgi = \"bin/hello\" }, { path = \"/b\", cgi = \"bin\" }]";
    let config = Config::parse(source, &dir.path().join("galgo.toml")).unwrap();
    for (path, script, info) in [
        ("/app", "/app", ""),
        ("/app/x", "/app", "/x"),
        ("/b/hello/x", "/b/hello", "/x"),
    ] {
        let found = find_route(&config.routes, "any", path.as_bytes()).unwrap();
        assert!(!found.slash_missing);
        let Handler::Cgi(cgi) = &found.route.handler else {
            panic!()
        };
        let found =
            script::find_program(cgi, &found.route.path, UrlPath::from_clean(path.as_bytes()))
                .unwrap();
        assert_eq!(
            (found.script_name, found.path_info),
            (script.as_bytes(), info.as_bytes())
        );
    }
    assert!(
        find_route(&config.routes, "any", b"/b")
            .unwrap()
            .slash_missing
    );
}

#[test]
fn the_closest_host_wins() {
    let routes = [
        route(None, "/a/*.cgi"),
        route(Some("x.b"), "/a/"),
        route(Some("w.b.c"), "/"),
        route(Some("*.c z"), "/"),
        route(Some("*.b.c"), "/"),
        route(None, "/"),
    ];
    for (host, path, index) in [
        ("b.c", "/", 3),
        ("a.b.c", "/", 4),
        ("w.b.c", "/", 2),
        ("z", "/", 3),
        ("c", "/", 5),
        ("q", "/", 5),
        ("x.b", "/a/x", 1),
        ("x.b", "/a/x.cgi/y", 0),
        ("x.b", "/a/x.cgi", 0),
        ("x.b", "/a", 1),
        ("q", "/a/d/x.cgi", 5),
        ("q", "/a", 5),
    ] {
        let found = find_route(&routes, host, path.as_bytes()).unwrap();
        let at = routes.iter().position(|r| Arc::ptr_eq(r, found.route));
        assert_eq!(at, Some(index), "{host} {path}");
    }
}
