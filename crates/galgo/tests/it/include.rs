//! Included files that hold sites, and the logs of these sites.

use std::fs;

use rustix::process::Signal;

use crate::harness::{list, needs_root, new_site};
use galgo_testkit::{Client, Server, Site, eventually, file::whole_lines, wait_until};

list![
    each_site_answers_on_its_host,
    a_reload_reads_the_files_again,
    a_wrong_file_changes_nothing,
    each_site_has_a_log,
    logs_are_opened_again,
    a_log_that_is_a_link,
];

const INCLUDE: &str = "include = \"sites/*.toml\"\n";

/// Adds `sites/NAME.toml` with a host whose pages are in `NAME/`.
fn with(site: Site, name: &str, top: &str) -> Site {
    site.file(&format!("{name}/index.html"), name, 0o644).file(
        &format!("sites/{name}.toml"),
        text(name, top),
        0o644,
    )
}

fn text(name: &str, top: &str) -> String {
    format!("host = \"{name}.example\"\n{top}\n[[route]]\npath = \"/\"\nfiles = \"../{name}\"\n")
}

fn two() -> Site {
    let site = new_site()
        .config(INCLUDE)
        .file("public/index.html", "any", 0o644);
    let site = with(
        site,
        "a",
        "access_log = \"../a.log\"\nlog_format = \"host_combined\"",
    );
    with(
        site,
        "b",
        "access_log = \"../b.log\"\nheaders = { X-Site = \"b\" }",
    )
}

fn ask(server: &Server, host: &str) -> String {
    let reply = server.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    format!("{} {}", reply.status, reply.text())
}

fn each_site_answers_on_its_host() {
    let server = two().start();
    for (host, wanted) in [
        ("a.example", "200 a"),
        ("B.EXAMPLE.:80", "200 b"),
        ("c.example", "200 any"),
    ] {
        assert_eq!(ask(&server, host), wanted, "{host}");
    }
    let reply = server.ask("GET /none HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_eq!((reply.status, reply.field("x-site")), (404, Some("b")));
}

fn a_reload_reads_the_files_again() {
    let server = two().start();
    fs::create_dir(server.path("c")).unwrap();
    fs::write(server.path("c/index.html"), "c").unwrap();
    fs::write(server.path("sites/c.toml"), text("c", "")).unwrap();
    fs::remove_file(server.path("sites/b.toml")).unwrap();
    assert_eq!(ask(&server, "c.example"), "200 any");
    assert!(server.reload());
    assert_eq!(ask(&server, "a.example"), "200 a");
    assert_eq!(ask(&server, "b.example"), "200 any");
    assert_eq!(ask(&server, "c.example"), "200 c");
}

fn a_wrong_file_changes_nothing() {
    let server = two().start();
    fs::write(server.path("sites/b.toml"), "user = \"root\"\n").unwrap();
    fs::write(server.path("sites/c.toml"), "umask = \"000\"\n").unwrap();
    assert!(!server.reload());
    server.says("sites/b.toml:1:1: unknown key \"user\" here; it belongs in a [[route]]");
    server.says("sites/c.toml:1:1: umask applies to the whole server");
    assert_eq!(ask(&server, "b.example"), "200 b");
}

fn lines(server: &Server, log: &str, least: usize) -> Vec<String> {
    eventually("lines of the log", || {
        let text = whole_lines(&server.path(log));
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        (lines.len() >= least).then_some(lines)
    })
}

fn each_site_has_a_log() {
    let quiet = "access_log = \"off\"";
    let server = with(two(), "c", quiet).start();
    for host in [
        "a.example",
        "A.Example:80",
        "b.example",
        "c.example",
        "other",
    ] {
        ask(&server, host);
    }
    // This invalid request names no host, so it is in no host's log.
    server.ask("nonsense\r\n\r\n");
    let a = lines(&server, "a.log", 2);
    assert_eq!(a.len(), 2);
    for line in &a {
        let start = "a.example 127.0.0.1 - - [";
        assert!(
            line.starts_with(start) && line.contains("\"GET / HTTP/1.1\" 200 1 "),
            "{line}"
        );
    }
    let b = lines(&server, "b.log", 1);
    let b: serde_json::Value = serde_json::from_str(&b[0]).unwrap();
    assert_eq!(
        (&b["host"], &b["status"]),
        (&"b.example".into(), &200.into())
    );
    // The server's own log has the remaining requests.
    wait_until(
        "the lines of the last requests, of which each event loop writes its own",
        || {
            let log = server.access();
            let has =
                |key: &str, value: serde_json::Value| log.iter().any(|line| line[key] == value);
            has("status", 400.into()) && has("host", "other".into())
        },
    );
    let hosts = server.access();
    let hosts = hosts.iter().map(|line| line["host"].as_str().unwrap());
    let hosts: Vec<_> = hosts
        .filter(|host| host.contains("example") || *host == "other")
        .collect();
    assert_eq!(hosts, ["other"]);
}

fn logs_are_opened_again() {
    let server = two().start();
    let mut kept = Client::connect(server.address());
    let mut asks = || {
        kept.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(kept.reply().status, 200);
    };
    asks();
    lines(&server, "a.log", 1);
    // The log is rotated.
    fs::rename(server.path("a.log"), server.path("a.log.1")).unwrap();
    server.signal(Signal::USR1);
    wait_until("a new file", || server.path("a.log").exists());
    asks();
    lines(&server, "a.log", 1);
    assert_eq!(lines(&server, "a.log.1", 1).len(), 1);
    // A reload rotates again, and also moves a log: a request on the kept connection goes to the new place.
    fs::rename(server.path("a.log"), server.path("a.log.2")).unwrap();
    fs::write(
        server.path("sites/b.toml"),
        text("b", "access_log = \"../new.log\""),
    )
    .unwrap();
    assert!(server.reload());
    asks();
    lines(&server, "a.log", 1);
    ask(&server, "b.example");
    lines(&server, "new.log", 1);
    // If a log cannot be opened, the old configuration and its logs stay in use.
    fs::write(
        server.path("sites/b.toml"),
        text("b", "access_log = \"../none/x.log\""),
    )
    .unwrap();
    assert!(!server.reload());
    server.says("cannot open a log");
    ask(&server, "b.example");
    lines(&server, "new.log", 2);
}

/// If root runs galgo without a `user`, galgo follows no link of another user to a log, like with the server's own logs.
fn a_log_that_is_a_link() {
    needs_root();
    let site = two();
    let folder = site.path("theirs");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
    std::os::unix::fs::symlink(site.path("victim"), folder.join("a.log")).unwrap();
    let server = site.start();
    fs::write(
        server.path("sites/b.toml"),
        text("b", "access_log = \"../theirs/a.log\""),
    )
    .unwrap();
    // The owner of the log's folder does not keep the server from reading its configuration.
    assert!(server.reload());
    server.says("symbolic link");
    assert!(!server.path("victim").exists());
    assert_eq!(ask(&server, "b.example"), "200 b");
}
