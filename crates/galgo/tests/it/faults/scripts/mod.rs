//! Programs that do not start, die, or print output that is no response.

mod rows;

use crate::harness::{Test, new_site, watch::Watch};
use galgo_testkit::{Client, End, Server, Site};
use rows::{bodiless, deaths, deaths_behind_a_head, heads, redirects, sizes, starts};

/// The response that the client must see.
#[derive(Clone, Copy)]
enum Want {
    /// An error page of the server with this status, without a byte of the program's output.
    Page(u16),
    /// A whole response with this status and body; the connection goes on.
    Whole(u16, &'static str),
    /// A race: either an error page with this status, or the beginning of a response and then the end.
    Lost(u16),
    /// The beginning of a response, and then the end of the connection.
    Cut(&'static str),
}
use Want::{Cut, Lost, Page, Whole};

#[derive(Clone)]
struct Row {
    name: &'static str,
    method: &'static str,
    target: String,
    want: Want,
    outcome: &'static str,
    /// Words of the error log.
    says: &'static str,
}

fn row(name: &'static str, target: String, want: Want, says: &'static str) -> Row {
    let outcome = match want {
        Page(403) => "refused",
        Page(404) => "not_found",
        Page(504) => "script_timeout",
        Page(_) | Lost(_) | Cut(_) => "script_error",
        Whole(..) => "ok",
    };
    Row {
        name,
        method: "GET",
        target,
        want,
        outcome,
        says,
    }
}

/// Returns the tests of this module.
pub fn tests() -> Vec<Test> {
    let all = [
        starts(),
        deaths(),
        deaths_behind_a_head(),
        heads(),
        sizes(),
        bodiless(),
        redirects(),
    ]
    .concat();
    let test = |row: Row| Test::new(module_path!(), row.name, move || check(&row));
    all.into_iter().map(test).collect()
}

fn check(row: &Row) {
    let server = site().start();
    let watch = Watch::begin(&server).memory(24 << 20);
    let mut client = server.connect();
    client.send(format!(
        "{} {} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        row.method, row.target
    ));
    if row.target.contains("await=go") {
        dies_in_its_body(&server, &mut client)
    } else {
        answers(row, &mut client)
    }
    drop(client);
    if !row.says.is_empty() {
        server.says(row.says);
    }
    watch.after(&[row.outcome]);
}

fn site() -> Site {
    let site = new_site()
        .file("cgi-bin/plain.py", "print('secret')", 0o644)
        .file("cgi-bin/lost", "#!/no/such/interpreter\nsecret", 0o755)
        .file("cgi-bin/dos", "#!/bin/sh\r\necho secret\r\n", 0o755)
        .file("cgi-bin/blank", "", 0o755)
        .file("cgi-bin/text", "secret\n", 0o755)
        .file("cgi-bin/folder/x", "", 0o755)
        .file(
            "cgi-bin/loop",
            "#!/bin/sh\necho Location: /cgi-bin/loop\necho\n",
            0o755,
        )
        .file("public/page.txt", "a page", 0o644);
    std::os::unix::fs::symlink("/bin/true", site.path("cgi-bin/outward")).unwrap();
    site
}

/// The part of the body that was printed arrives; then the program dies.
fn dies_in_its_body(server: &Server, client: &mut Client) {
    server.wait_for("out");
    let head = client.head();
    assert_eq!(head.status, 200);
    if head.field("transfer-encoding").is_some() {
        assert_eq!(client.until(b"12345\r\n").unwrap(), b"5\r\n12345\r\n");
    } else {
        assert_eq!(client.take(5), b"12345");
    }
    server.set("go");
    assert!(client.is_over(), "not cut: more came");
}

fn answers(row: &Row, client: &mut Client) {
    let reply = client.reply_to(row.method);
    let (status, text, end) = (reply.status, reply.text(), reply.end);
    match row.want {
        Page(wanted) => {
            assert_eq!((status, end), (wanted, End::Whole));
            is_our_page(&text);
        }
        Whole(wanted, body) => {
            let wanted = (wanted, body.into(), End::Whole);
            assert_eq!((status, text, end), wanted, "{}", reply.head);
        }
        Lost(wanted) => assert!(status == wanted || end == End::Cut),
        Cut(body) => assert_eq!((text, end), (body.into(), End::Cut), "{}", reply.head),
    }
    if end == End::Whole && !reply.closes() {
        // No byte of this response is taken for the next, or the other way round.
        client.get("/health");
        assert_eq!(client.reply().text(), "fine");
    } else {
        assert!(client.is_over());
    }
}

/// Checks that the page has not a byte of the program's output.
fn is_our_page(text: &str) {
    assert!(text.starts_with("<!DOCTYPE html>"), "{text}");
    let own = ["<body>", "</body>", "body{"];
    let rest = own
        .iter()
        .fold(text.to_owned(), |rest, own| rest.replace(own, ""));
    for leak in ["secret", "body", "cgi-bin", "12345"] {
        assert!(!rest.contains(leak), "{leak} in {text}");
    }
}
