//! X-Sendfile and X-Accel-Redirect.

use galgo_proto::fcgi::Outcome;

use crate::harness::{
    child::pattern,
    encode, list, new_site,
    upstream::{Application, ended, hear, say, stdout},
    watch::Watch,
};
use galgo_testkit::{End, Reply, Server, Site};

fn site() -> Site {
    new_site()
        .config(
            "[[route]]\npath = \"/cgi-bin/\"\n\
             cgi = \"cgi-bin\"\nsendfile = [\"kept\"]\naccel_redirect = { \"/inside/\" = \"kept\" }\n",
        )
        .file("kept/a.txt", "0123456789", 0o644)
        .file("kept/sub/large.bin", pattern(0, 300_000), 0o644)
        .file("kept/.hidden", "secret", 0o644)
        .file("kept/closed", "secret", 0o000)
        .file("beside.txt", "secret", 0o644)
        .file("public/open.txt", "secret", 0o644)
}

/// Sends a GET to a program that prints `head` and stays.
fn get(server: &Server, head: &str, fields: &str) -> Reply {
    ask(server, "GET", head, fields)
}

fn ask(server: &Server, method: &str, head: &str, fields: &str) -> Reply {
    let head = head.replace("KEPT", &server.path("kept").display().to_string());
    let target = format!("/cgi-bin/t?out={}", encode(head));
    let mut client = server.connect();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"
    ));
    client.reply_to(method)
}

const PLAIN: &str = "Content-Type: text/x-own\nX-Sendfile: KEPT/a.txt\n\n";

fn the_file_is_sent_with_the_programs_fields() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let head = "Content-Type: text/x-own\nSet-Cookie: a=1\nSet-Cookie: b=2\nCache-Control: private\n\
                Content-Disposition: attachment\nContent-Length: 3\nETag: \"own\"\n\
                x-sendfile: KEPT/a.txt\n\nxyz and what else it prints";
    let reply = get(&server, head, "");
    assert_eq!(
        (reply.status, reply.text(), reply.end),
        (200, "0123456789".into(), End::Whole)
    );
    assert_eq!(reply.fields("content-type"), ["text/x-own"]);
    assert_eq!(reply.fields("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(reply.fields("cache-control"), ["private"]);
    assert_eq!(reply.fields("content-disposition"), ["attachment"]);
    assert_eq!(reply.fields("content-length"), ["10"]);
    assert_eq!(reply.fields("accept-ranges"), ["bytes"]);
    assert_eq!(reply.fields("etag").len(), 1);
    assert_ne!(reply.fields("etag"), ["\"own\""]);
    assert!(reply.fields("x-sendfile").is_empty(), "{}", reply.head);
    // If the program sends no type, the file's type is used.
    let reply = get(
        &server,
        "Status: 200\nX-Accel-Redirect: /inside/sub/large%2Ebin\n\n",
        "",
    );
    assert_eq!(reply.fields("content-type"), ["application/octet-stream"]);
    assert!(reply.body == pattern(0, 300_000));
    watch.after(&["ok", "ok"]);
}

fn ranges_and_conditions() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let part = get(&server, PLAIN, "Range: bytes=2-4\r\n");
    assert_eq!((part.status, part.text()), (206, "234".into()));
    assert_eq!(part.fields("content-range"), ["bytes 2-4/10"]);
    assert_eq!(part.fields("content-type"), ["text/x-own"]);
    let parts = get(&server, PLAIN, "Range: bytes=0-0,9-9\r\n");
    assert_eq!(parts.status, 206);
    assert!(parts.fields("content-type")[0].starts_with("multipart/byteranges"));
    assert_eq!(parts.text().matches("Content-Type: text/x-own").count(), 2);
    let none = get(&server, PLAIN, "Range: bytes=10-\r\n");
    assert_eq!(
        (none.status, none.fields("content-range")),
        (416, vec!["bytes */10"])
    );
    let etag = part.fields("etag")[0].to_owned();
    let same = get(&server, PLAIN, &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(
        (same.status, same.body.len(), same.end),
        (304, 0, End::Whole)
    );
    let failed = get(&server, PLAIN, "If-Match: \"other\"\r\n");
    assert_eq!(failed.status, 412);
    let head = ask(&server, "HEAD", PLAIN, "");
    assert_eq!(
        (head.status, head.fields("content-length")),
        (200, vec!["10"])
    );
    watch.after(&["ok", "ok", "ok", "ok", "ok", "ok"]);
}

fn another_method_or_status_gets_the_whole_file() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let reply = ask(
        &server,
        "POST",
        PLAIN,
        "Range: bytes=0-1\r\nIf-None-Match: *\r\nContent-Length: 0\r\n",
    );
    assert_eq!((reply.status, reply.text()), (200, "0123456789".into()));
    let head = "Status: 410 Was here\nX-Sendfile: KEPT/a.txt\n\n";
    let reply = get(&server, head, "Range: bytes=0-1\r\n");
    assert_eq!((reply.status, reply.text()), (410, "0123456789".into()));
    assert!(
        reply.head.starts_with("HTTP/1.1 410 Was here\r\n"),
        "{}",
        reply.head
    );
    watch.after(&["ok", "ok"]);
}

/// Anything but a file in a listed folder gives a 502, and its name appears neither in the log nor in the page.
fn anything_else_is_a_502() {
    let server = site().start();
    std::os::unix::fs::symlink("../beside.txt", server.path("kept/out")).unwrap();
    std::os::unix::fs::symlink("a.txt", server.path("kept/in")).unwrap();
    let base = server.site.folder().display().to_string();
    assert_eq!(
        get(&server, "Status: 200\nX-Sendfile: KEPT/in\n\n", "").text(),
        "0123456789"
    );
    let watch = Watch::begin(&server);
    let rows = [
        "X-Sendfile: KEPT/../beside.txt",
        "X-Sendfile: KEPT/sub/../../beside.txt",
        "X-Sendfile: BASE/beside.txt",
        "X-Sendfile: BASE/public/open.txt",
        "X-Sendfile: /etc/passwd",
        "X-Sendfile: a.txt",
        "X-Sendfile: ",
        "X-Sendfile: KEPT",
        "X-Sendfile: KEPT/",
        "X-Sendfile: KEPT/sub",
        "X-Sendfile: KEPT/missing",
        "X-Sendfile: KEPT/.hidden",
        "X-Sendfile: KEPT/out",
        "X-Sendfile: KEPT//a.txt",
        "X-Sendfile: KEPTa.txt",
        "X-Sendfile: KEPT/a%2Etxt",
        "X-Accel-Redirect: /inside/../beside.txt",
        "X-Accel-Redirect: /inside/%2e%2e/beside.txt",
        "X-Accel-Redirect: /open.txt",
        "X-Accel-Redirect: /inside",
        "X-Accel-Redirect: inside/a.txt",
        "X-Accel-Redirect: /inside/out",
        "X-Accel-Redirect: http://a/open.txt",
        "X-Sendfile: KEPT/a.txt\nX-Sendfile: KEPT/a.txt",
        "X-Sendfile: KEPT/a.txt\nX-Accel-Redirect: /inside/a.txt",
    ];
    for row in rows {
        let row = row.replace("BASE", &base);
        let reply = get(
            &server,
            &format!("Content-Type: text/plain\n{row}\n\nbody"),
            "",
        );
        assert_eq!((reply.status, reply.end), (502, End::Whole), "{row}");
        assert!(!reply.text().contains("secret"), "{row}");
    }
    server.says("X-Sendfile, X-Accel-Redirect) is in no folder");
    server.says("X-Sendfile, X-Accel-Redirect) is not a readable file");
    server.says("X-Sendfile, X-Accel-Redirect) is named more than once");
    for line in server
        .errors()
        .lines()
        .filter(|l| l.contains("handed over"))
    {
        assert!(!line.contains("beside") && !line.contains("kept"), "{line}");
    }
    watch.after(&["script_error"; 25]);
}

/// Off by default: the server removes the field, and sends the program's own body.
fn off_by_default() {
    let server = new_site().file("public/open.txt", "secret", 0o644).start();
    let watch = Watch::begin(&server);
    let head = format!(
        "Content-Type: text/plain\nX-Sendfile: {}/public/open.txt\nX-Accel-Redirect: /open.txt\n\nown",
        server.site.folder().display()
    );
    let reply = get(&server, &head, "");
    assert_eq!((reply.status, reply.text()), (200, "own".into()));
    assert!(reply.fields("x-sendfile").is_empty() && reply.fields("x-accel-redirect").is_empty());
    watch.after(&["ok"]);
}

/// The program is ended as after any complete response, and the server does not wait for it.
fn the_program_is_ended() {
    let server = site().defaults("kill_grace = \"100ms\"").start();
    let watch = Watch::begin(&server);
    let head = encode(PLAIN.replace("KEPT", &server.path("kept").display().to_string()));
    for rest in ["hang", "endless", "deaf&hang"] {
        assert_eq!(
            server.get(&format!("/cgi-bin/t?out={head}&{rest}")).text(),
            "0123456789"
        );
    }
    watch.after(&["ok", "ok", "ok"]);
}

/// A file that a FastCGI application hands over is answered like one from a program.
fn an_application_hands_a_file_over() {
    let site = site().config(
        "[[route]]\npath = \"/app\"\nfastcgi = \"unix:app.sock\"\nsendfile = [\"kept\"]\nkeep_connections = 1\n\
         [[route]]\npath = \"/other\"\nfastcgi = \"unix:app.sock\"\n",
    );
    let kept = site.path("kept/a.txt").display().to_string();
    let application = Application::start(site.folder(), move |_, stream| {
        while let Some(heard) = hear(stream) {
            let outside = heard.param("QUERY_STRING") == Some("outside");
            let file = if outside { "/etc/hostname" } else { &kept };
            let head = format!("Content-Type: text/x-own\nX-Sendfile: {file}\n\n");
            let body = if heard.param("SCRIPT_NAME") == Some("/other") {
                "own"
            } else {
                ""
            };
            let all = [stdout(head + body), stdout(""), ended(Outcome::COMPLETE)];
            say(stream, all.concat());
        }
    });
    let server = site.start();
    let watch = Watch::begin(&server).keeps(1);
    for _ in 0..2 {
        let part = server.ask("GET /app HTTP/1.1\r\nHost: a\r\nRange: bytes=2-4\r\n\r\n");
        assert_eq!((part.status, part.text()), (206, "234".into()));
        assert_eq!(part.fields("content-type"), ["text/x-own"]);
        assert_eq!(part.field("x-sendfile"), None);
    }
    // After a complete response the connection can be used again.
    assert_eq!(application.accepted(), 1);
    assert_eq!(server.get("/app?outside").status, 502);
    let other = server.get("/other");
    assert_eq!((other.status, other.text()), (200, "own".into()));
    assert_eq!(other.field("x-sendfile"), None);
    watch.after(&["ok", "ok", "ok", "script_error"]);
}

list![
    an_application_hands_a_file_over,
    the_file_is_sent_with_the_programs_fields,
    ranges_and_conditions,
    another_method_or_status_gets_the_whole_file,
    anything_else_is_a_502,
    off_by_default,
    the_program_is_ended,
];
