//! Requests that get an upgraded connection, and the variables of their programs.

use super::*;
use crate::harness::{child::pattern, list, watch::Watch};
use galgo_testkit::End;

list![
    a_program_has_the_connection,
    what_it_is_told,
    another_answer_is_an_ordinary_one,
    who_has_not_asked_gets_no_connection,
    without_the_key_nothing_is_different,
    a_status_without_a_phrase_has_the_usual_one,
    an_answer_without_a_protocol_is_refused,
    an_nph_program_writes_the_answer_itself,
    a_large_exchange_both_ways,
];

fn a_program_has_the_connection() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    // Bytes that arrive with the head belong to the program, too.
    client.send(asking(&granting("&echo")) + "early, ");
    let head = client.head();
    assert_eq!(head.status, 101, "{}", head.head);
    assert_eq!(head.field("connection"), Some("Upgrade"));
    assert_eq!(head.field("upgrade"), Some("websocket"));
    assert_eq!(head.field("sec-websocket-accept"), Some("s3pP"));
    assert_eq!(head.field("content-length"), None);
    assert_eq!(head.field("transfer-encoding"), None);
    assert_eq!(client.take(7), b"early, ");
    for byte in b"one byte at a time" {
        client.send([*byte]);
        assert_eq!(client.take(1), [*byte]);
    }
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.take(18), b"GET / HTTP/1.1\r\n\r\n");
    // The end of the client's bytes ends the program's input, but not its output.
    client.send("the end");
    client.half_close();
    assert_eq!(client.rest(), b"the end");
    drop(client);
    let lines = watch.after(&["ok"]);
    assert_eq!(lines[0]["status"], 101);
    assert_eq!(lines[0]["bytes"], 7 + 18 + 18 + 7);
}

fn what_it_is_told() {
    let server = site().start();
    let mut client = opened(&server, "&env&out=%0A");
    let told = String::from_utf8(client.until(b"\n\n").unwrap()).unwrap();
    for line in [
        "HTTP_UPGRADE=websocket",
        "HTTP_CONNECTION=keep-alive, Upgrade",
        "HTTP_SEC_WEBSOCKET_VERSION=13",
        "HTTP_SEC_WEBSOCKET_KEY=dGhlIHNhbXBsZSBub25jZQ==",
        "REQUEST_METHOD=GET",
    ] {
        assert!(told.lines().any(|l| l == line), "{line} in {told}");
    }
    assert!(!told.contains("CONTENT_LENGTH"), "{told}");
    assert!(client.is_over());
}

/// The program's input is empty, and the client's bytes after the request are the next request.
fn another_answer_is_an_ordinary_one() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    let next = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    let refused = encode("Status: 403 No\nUpgrade: websocket\nContent-Type: a/b\n\n");
    client.send(asking(&format!("/ws/t?out={refused}&count")) + next);
    let reply = client.reply();
    assert_eq!((reply.status, reply.text().as_str()), (403, "0"));
    assert_eq!(
        (reply.field("upgrade"), reply.field("connection")),
        (None, None)
    );
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    watch.after(&["ok"]);
}

fn who_has_not_asked_gets_no_connection() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let asks =
        |line: &str, fields: &str, body: &str| format!("{line}\r\nHost: a\r\n{fields}\r\n{body}");
    let target = granting("&echo");
    let get = format!("GET {target} HTTP/1.1");
    let words = "line 1 of the response head";
    for request in [
        asks(&get, "", ""),
        asks(&get, "Upgrade: websocket\r\n", ""),
        asks(&get, "Connection: Upgrade\r\n", ""),
        asks(&format!("GET {target} HTTP/1.0"), ASKS, ""),
        asks(
            &get.replace("GET", "POST"),
            &format!("{ASKS}Content-Length: 3\r\n"),
            "abc",
        ),
    ] {
        let reply = server.ask(&request);
        assert_eq!(reply.status, 502, "{request}\n{reply:?}");
    }
    galgo_testkit::wait_until("five errors", || {
        server.errors().matches(words).count() == 5
    });
    watch.after(&["script_error"; 5]);
}

fn without_the_key_nothing_is_different() {
    let server = site().start();
    let mut client = server.connect();
    client.send(asking("/cgi-bin/t?head&env"));
    let reply = client.reply();
    let told = lines(&reply);
    assert!(
        told.contains(&"HTTP_SEC_WEBSOCKET_VERSION=13".to_owned()),
        "{told:?}"
    );
    for name in ["HTTP_UPGRADE=", "HTTP_CONNECTION="] {
        assert!(!told.iter().any(|line| line.starts_with(name)), "{told:?}");
    }
    client.send(asking(&granting("").replace("/ws/", "/cgi-bin/")));
    assert_eq!(client.reply().status, 502);
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
}

fn a_status_without_a_phrase_has_the_usual_one() {
    let server = site().start();
    let mut client = server.connect();
    client.send(asking(&format!(
        "/ws/t?out={}&echo",
        encode("Status: 101\nUpgrade: websocket\n\n")
    )));
    let head = client.head();
    assert!(
        head.head
            .starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
        "{}",
        head.head
    );
}

fn an_answer_without_a_protocol_is_refused() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.send(asking(&format!(
        "/ws/t?out={}&echo",
        encode("Status: 101\n\n")
    )));
    assert_eq!(client.reply().status, 502);
    server.says("says 101 but names no protocol");
    drop(client);
    watch.after(&["script_error"]);
}

fn an_nph_program_writes_the_answer_itself() {
    let site = site();
    let own = site.path("cgi-bin/nph-t");
    std::fs::hard_link(site.path("cgi-bin/t"), own).unwrap();
    let server = site.start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    let head = "HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
    // The program writes its head in pieces.
    let steps: String = [&head[..8], &head[8..11], &head[11..]]
        .map(|piece| format!("out={}&pause=20&", encode(piece)))
        .concat();
    client.send(asking(&format!("/ws/nph-t?{steps}echo")) + "abc");
    assert_eq!(client.take(head.len()), head.as_bytes());
    assert_eq!(client.take(3), b"abc");
    client.half_close();
    assert!(client.is_over());
    // Any other response of an NPH program reaches the client unchanged.
    let mut client = server.connect();
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    client.send(asking(&format!("/ws/nph-t?out={}&count", encode(head))));
    let reply = client.reply();
    assert_eq!((reply.text().as_str(), reply.end), ("0", End::Whole));
    drop(client);
    watch.after(&["ok", "ok"]);
}

fn a_large_exchange_both_ways() {
    let server = site().start();
    let watch = Watch::begin(&server).memory(64 << 20);
    let mut client = opened(&server, "&echo");
    let sent = pattern(0, 20_000_000);
    let mut writer = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn({
        let sent = sent.clone();
        move || {
            std::io::Write::write_all(&mut writer, &sent).unwrap();
            writer
        }
    });
    assert!(client.take(sent.len()) == sent);
    drop(sending.join().unwrap());
    client.half_close();
    assert!(client.is_over());
    drop(client);
    watch.after(&["ok"]);
}
