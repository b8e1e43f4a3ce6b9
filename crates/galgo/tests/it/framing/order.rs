//! Requests one after the other: persistence, pipelining, and when a client may still send.

use super::{MARKER, everything, get, site, statuses};
use crate::harness::{child::pattern, list, new_site, watch::Watch};
use galgo_testkit::{End, Server, Site};
use std::io::Write;

list![
    s9_3_persistence,
    s9_3_2_pipelining_in_order,
    s9_3_2_a_half_close_behind_pipelined_requests,
    s9_3_2_a_half_close_seen_before_what_is_unread,
    s9_6_nothing_behind_connection_close,
    s9_3_2_head_is_get_without_its_body,
    s10_1_1_at_most_one_continue,
    s9_3_a_small_unread_body_is_read_over,
    s9_6_a_response_to_a_client_that_still_sends,
];

fn s9_3_persistence() {
    let server = site().start();
    for (version, connection, persists) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: x\r\nConnection: CLOSE\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
        ("1.0", "Connection: x, Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        for target in ["/marker", "/health", "/nothing", "/cgi-bin/t?head&out=a"] {
            let about = format!("HTTP/{version} {connection:?} {target}");
            let mut client = server.connect();
            client.send(format!(
                "GET {target} HTTP/{version}\r\nHost: localhost\r\n{connection}\r\n"
            ));
            let reply = client.reply();
            // Without chunks, only the end of the connection can end the output that a program streams.
            let until_close = reply.end == End::Close;
            assert!(!until_close || version == "1.0", "{about}");
            assert!(reply.field("transfer-encoding").is_none() || version == "1.1");
            assert_eq!(!reply.closes(), persists && !until_close, "{about}");
            if persists && !until_close {
                let says = reply.field("connection");
                assert_eq!(says, (version == "1.0").then_some("keep-alive"), "{about}");
                client.send(MARKER);
                assert_eq!(client.reply().text(), "MARKED", "{about}");
            } else {
                assert!(client.is_over(), "{about}");
            }
        }
    }
}

/// Returns requests for files with a digit each, sometimes for a program, and the expected digits.
fn digits(n: usize) -> (String, String) {
    let mut requests = String::new();
    let mut wanted = String::new();
    for i in 0..n {
        let digit = i * 7 % 10;
        wanted.push_str(&digit.to_string());
        if i % 50 == 3 {
            requests.push_str(&get(&format!("/cgi-bin/t?head&out={digit}"), ""));
        } else {
            requests.push_str(&get(&format!("/{digit}"), ""));
        }
    }
    (requests, wanted)
}

fn site_of_digits() -> Server {
    let digit = |site: Site, d: u8| site.file(&format!("public/{d}"), d.to_string(), 0o644);
    (0..10).fold(new_site(), digit).start()
}

fn s9_3_2_pipelining_in_order() {
    let server = site_of_digits();
    let watch = Watch::begin(&server);
    let (requests, wanted) = digits(1000);
    let mut client = server.connect();
    // The answers are short: they all fit into the buffers of a socket that is not read.
    client.send(requests);
    let got: String = (0..1000).map(|_| client.reply().text()).collect();
    assert_eq!(got, wanted);
    drop(client);
    watch.after(&["ok"; 1000]);
}

fn s9_3_2_a_half_close_behind_pipelined_requests() {
    let server = site_of_digits();
    // More than the server reads ahead while a program runs, so it sees the end before the last request.
    let (requests, wanted) = digits(300);
    let long = format!("\r\nX: {}\r\nHost", "x".repeat(2000));
    let requests = requests.replace("\r\nHost", &long);
    let mut client = server.connect();
    client.send(requests);
    client.half_close();
    let mut got = String::new();
    for _ in 0..300 {
        let reply = client.reply();
        assert_eq!((reply.status, reply.end), (200, End::Whole));
        got.push_str(&reply.text());
    }
    assert_eq!(got, wanted);
    assert!(client.is_over());
}

/// While a request waits for its permit, the server reads nothing but notices the end.
fn s9_3_2_a_half_close_seen_before_what_is_unread() {
    let server = site().config("max_running = 1").start();
    let mut busy = server.connect();
    busy.get("/cgi-bin/t?head&touch=on&await=go");
    server.wait_for("on");
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=first");
    (0..20).for_each(|_| assert_eq!(server.get("/health").status, 200));
    client.send(MARKER);
    client.half_close();
    (0..20).for_each(|_| assert_eq!(server.get("/health").status, 200));
    server.set("go");
    assert_eq!(client.reply().text(), "first");
    assert_eq!(client.reply().text(), "MARKED");
    assert!(client.is_over());
}

fn s9_6_nothing_behind_connection_close() {
    let server = site().start();
    for target in ["/marker", "/cgi-bin/t?head&out=MARKED"] {
        let mut client = server.connect();
        client.send(get(target, "Connection: close\r\n") + MARKER);
        assert_eq!(everything(&mut client).matches("MARKED").count(), 1);
    }
}

fn s9_3_2_head_is_get_without_its_body() {
    let server = site()
        .file("public/large", pattern(0, 300_000), 0o644)
        .start();
    for target in [
        "/marker",
        "/large",
        "/health",
        "/nothing",
        "/cgi-bin/t?head&out=abc",
    ] {
        let mut client = server.connect();
        client.get(target);
        let got = client.reply();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let head = client.reply_to("HEAD");
        assert_eq!(head.status, got.status, "{target}");
        assert_eq!(head.field("content-type"), got.field("content-type"));
        if !target.starts_with("/cgi-bin/") {
            assert_eq!(head.field("content-length"), got.field("content-length"));
        }
        client.send(MARKER);
        assert_eq!(client.reply().text(), "MARKED", "{target}");
    }
}

fn s10_1_1_at_most_one_continue() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let expect = |target: &str, version: &str, fields: &str| {
        format!(
            "POST {target} HTTP/{version}\r\nHost: localhost\r\nExpect: 100-continue\r\n{fields}\r\n"
        )
    };
    let reads = "/cgi-bin/t?take=5&take=5&head";
    // A client that waits for the 100 gets it, once.
    for twice in ["", "Expect: 100-Continue\r\n"] {
        let mut client = server.connect();
        client.send(expect(
            "/cgi-bin/t?head&count",
            "1.1",
            &format!("Content-Length: 5\r\n{twice}"),
        ));
        assert_eq!(client.head().status, 100);
        client.send("hello");
        let reply = client.reply();
        assert_eq!((reply.interim, reply.body), (vec![], b"5".to_vec()));
    }
    // A body that came along needs no 100, a missing body gets none, and HTTP/1.0 does not know it.
    for (version, fields, body) in [
        ("1.1", "Content-Length: 5\r\n", "hello"),
        ("1.1", "Content-Length: 0\r\n", ""),
        ("1.1", "", ""),
        ("1.0", "Content-Length: 5\r\n", "hello"),
    ] {
        let mut client = server.connect();
        client.send(expect("/cgi-bin/t?head&count", version, fields) + body);
        let reply = client.reply();
        assert_eq!(
            (reply.status, &reply.interim),
            (200, &vec![]),
            "{version} {fields}"
        );
    }
    // A route that does not want the body refuses and closes the connection, because the server
    // cannot know whether the body comes now.
    for target in ["/nothing", "/marker", "/cgi-bin/nothing"] {
        let mut client = server.connect();
        client.send(expect(target, "1.1", "Content-Length: 5\r\n"));
        let reply = client.reply();
        assert!(
            reply.status >= 400 && reply.interim.is_empty() && reply.closes(),
            "{target}"
        );
        client.try_send(MARKER);
        assert!(client.is_over());
    }
    // A body that is too large is refused before it is sent.
    let mut client = server.connect();
    client.send(expect(reads, "1.1", "Content-Length: 99999999999\r\n"));
    let reply = client.reply();
    assert_eq!((reply.status, &reply.interim), (413, &vec![]));
    drop(client);
    let outcomes = [&["ok"; 6][..], &["not_found"], &["client_error"; 3]];
    watch.after(&outcomes.concat());
}

fn s9_3_a_small_unread_body_is_read_over() {
    let server = site().start();
    for target in [
        "/marker",
        "/health",
        "/nothing",
        "/cgi-bin/t?head&close=0",
        "/cgi-bin/t?exit=1",
    ] {
        for size in [1, 5_000, 200_000] {
            let mut client = server.connect();
            client.post(target, &pattern(0, size));
            client.reply();
            client.send(MARKER);
            assert_eq!(client.reply().text(), "MARKED", "{target} {size}");
            // The same in chunks, which end a program's input as well.
            client.send(format!(
                "POST {target} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            ));
            client.send(format!("{size:x}\r\n"));
            client.send(pattern(0, size));
            client.send(format!("\r\n0\r\n\r\n{MARKER}"));
            client.reply();
            assert_eq!(client.reply().text(), "MARKED", "{target} {size} in chunks");
        }
    }
}

fn s9_6_a_response_to_a_client_that_still_sends() {
    let server = site().start();
    for target in ["/marker", "/nothing", "/cgi-bin/nothing"] {
        let mut client = server.connect();
        client.begin_post(target, 50_000_000);
        let mut sending = client.stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            // The write fails at some point, because the server does not read all of it.
            let _ = sending.write_all(&pattern(0, 50_000_000));
            let _ = sending.write_all(MARKER.as_bytes());
        });
        let reply = client.reply();
        assert!(reply.status >= 400, "{target}");
        assert!(reply.closes() && reply.end == End::Whole, "{target}");
        assert!(client.is_over(), "{target}");
        drop(client);
        sender.join().unwrap();
    }
    // The same for a head that is refused: the answer arrives although megabytes follow.
    let mut client = server.connect();
    client.try_send("GET / HTTP/1.1\r\n\r\n");
    client.try_send(pattern(0, 1_000_000));
    assert_eq!(statuses(&everything(&mut client)), [400]);
}
