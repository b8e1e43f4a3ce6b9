//! HTTP/1 framing: what is ambiguous is refused, and nothing behind it is taken for a request.

use std::{io::Write, time::Duration};

use crate::harness::{Client, End, Server, Site, child::pattern, eventually, list};

list![
    refused_and_nothing_behind_it_is_answered,
    s9_3_persistence,
    s9_3_2_pipelining_in_order,
    s9_3_2_a_half_close_behind_pipelined_requests,
    s9_6_nothing_behind_connection_close,
    s9_3_2_head_is_get_without_its_body,
    s10_1_1_at_most_one_continue,
    s9_3_a_small_unread_body_is_read_over,
    s9_6_a_response_to_a_client_that_still_sends,
    s7_1_2_trailers_reach_nobody,
    s3_2_2_absolute_form,
    s3_2_4_options_of_the_whole_server,
    s2_2_one_empty_line_is_tolerated,
    s7_1_chunks_of_any_shape,
    a_slow_head_is_a_408,
    a_slow_body_is_a_408,
    a_reader_that_stops_is_cut_off,
    an_idle_connection_is_closed_without_a_word,
    a_connection_without_a_request_is_no_line,
    a_head_that_ends_early,
];

fn site() -> Site {
    Site::new().file("public/marker", "MARKED", 0o644)
}

const MARKER: &str = "GET /marker HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A request line and fields for a program that reads its input to the end.
fn post(fields: &str) -> String {
    format!("POST /cgi-bin/t?take=5&take=5&head HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n") + body
}

fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// Everything the server sends until it closes the connection.
fn everything(client: &mut Client) -> String {
    String::from_utf8_lossy(&client.rest()).into_owned()
}

fn statuses(said: &str) -> Vec<u16> {
    let heads = said.split("HTTP/1.1 ").skip(1);
    heads.map(|h| h[..3].parse().unwrap()).collect()
}

fn refused() -> Vec<(&'static str, u16, Vec<u8>)> {
    let mut all: Vec<(&str, u16, Vec<u8>)> = Vec::new();
    let lengths = [
        ("plus", "+5"),
        ("minus zero", "-0"),
        ("hexadecimal", "0x5"),
        ("space within", "5 5"),
        ("empty", ""),
        ("a list", "5, 5"),
        ("letters", "5a"),
        ("2^63", "9223372036854775808"),
        ("2^64", "18446744073709551616"),
        ("fraction", "5.0"),
    ];
    for (name, value) in lengths {
        let request = post(&format!("Content-Length: {value}\r\n")) + "hello";
        all.push((name, 400, request.into()));
    }
    let codings = [
        ("other coding", "gzip", 501),
        ("other coding first", "gzip, chunked", 501),
        ("chunked not last", "chunked, gzip", 400),
        ("chunked twice", "chunked, chunked", 400),
        ("chunked with a parameter", "chunked;q=1", 400),
        ("identity", "identity", 501),
        ("no coding", "", 400),
        ("quoted", "\"chunked\"", 400),
        ("vertical tab", "\u{b}chunked", 400),
    ];
    for (name, value, status) in codings {
        let request = post(&format!("Transfer-Encoding: {value}\r\n")) + "0\r\n\r\n";
        all.push((name, status, request.into()));
    }
    let long = "x".repeat(2000);
    let bodies = [
        ("size empty", "\r\nhello\r\n0\r\n\r\n".to_owned()),
        ("size signed", "+5\r\nhello\r\n0\r\n\r\n".into()),
        ("size negative", "-5\r\nhello\r\n0\r\n\r\n".into()),
        ("size 0x", "0x5\r\nhello\r\n0\r\n\r\n".into()),
        (
            "size of 17 digits",
            "00000000000000005\r\nhello\r\n0\r\n\r\n".into(),
        ),
        ("size with a space", "5 \r\nhello\r\n0\r\n\r\n".into()),
        ("size behind a space", " 5\r\nhello\r\n0\r\n\r\n".into()),
        ("size, LF", "5\nhello\r\n0\r\n\r\n".into()),
        ("size, CR", "5\rhello\r\n0\r\n\r\n".into()),
        (
            "chunk longer than its size",
            "5\r\nhello!\r\n0\r\n\r\n".into(),
        ),
        ("chunk, LF", "5\r\nhello\n0\r\n\r\n".into()),
        ("last chunk, LF", "0\n\n".into()),
        ("extension, LF", "5;a=b\nhello\r\n0\r\n\r\n".into()),
        ("extension with NUL", "5;a\0\r\nhello\r\n0\r\n\r\n".into()),
        (
            "extension too long",
            format!("5;{long}\r\nhello\r\n0\r\n\r\n"),
        ),
        ("trailer without a colon", "0\r\nnonsense\r\n\r\n".into()),
        ("trailer, obs-fold", "0\r\nX: a\r\n b\r\n\r\n".into()),
        ("trailer, LF", "0\r\nX: a\n\r\n".into()),
        (
            "trailers too large",
            format!("0\r\n{}\r\n", format!("X: {long}\r\n").repeat(5)),
        ),
    ];
    for (name, body) in bodies {
        all.push((name, 400, chunked(&body).into()));
    }
    let heads = [
        ("both lengths", 400, post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") + "0\r\n\r\n"),
        ("both, the other way", 400, post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n"),
        ("two equal lengths", 400, post("Content-Length: 5\r\nContent-Length: 5\r\n") + "hello"),
        ("two lengths", 400, post("Content-Length: 5\r\nContent-Length: 0\r\n")),
        ("two codings", 400, post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n"),
        ("chunked in 1.0", 400, "POST /cgi-bin/t HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into()),
        ("obs-fold", 400, get("/", "X: a\r\n b\r\n")),
        ("obs-fold with a tab", 400, get("/", "X: a\r\n\tb\r\n")),
        ("fold before the first field", 400, "GET / HTTP/1.1\r\n X: a\r\nHost: localhost\r\n\r\n".into()),
        ("space before the colon", 400, post("Content-Length : 5\r\n") + "hello"),
        ("tab before the colon", 400, post("Transfer-Encoding\t: chunked\r\n") + "0\r\n\r\n"),
        ("field without a name", 400, get("/", ": a\r\n")),
        ("field without a colon", 400, get("/", "Nonsense\r\n")),
        ("name with a control byte", 400, get("/", "X\u{1}: a\r\n")),
        ("name with a quote", 400, get("/", "X\": a\r\n")),
        ("NUL in a value", 400, get("/", "X: a\0b\r\n")),
        ("DEL in a value", 400, get("/", "X: a\u{7f}b\r\n")),
        ("escape in a value", 400, get("/", "X: \u{1b}[31m\r\n")),
        ("no Host", 400, "GET / HTTP/1.1\r\n\r\n".into()),
        ("two Hosts", 400, get("/", "Host: localhost\r\n")),
        ("empty Host", 400, "GET / HTTP/1.1\r\nHost:\r\n\r\n".into()),
        ("Host with a space", 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into()),
        ("Host with a path", 400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into()),
        ("Host with a user", 400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into()),
        ("Host with two ports", 400, "GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n".into()),
        ("Host with a bad port", 400, "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n".into()),
        ("list of Hosts", 400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n".into()),
        ("target and Host differ", 400, "GET http://other/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("ports of target and Host differ", 400, "GET http://localhost:1/ HTTP/1.1\r\nHost: localhost:2\r\n\r\n".into()),
        ("user in the target", 400, "GET http://u@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("another scheme", 400, "GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("authority-form", 400, "GET localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("asterisk without OPTIONS", 400, get("*", "")),
        ("HTTP/1.10", 505, "GET / HTTP/1.10\r\nHost: localhost\r\n\r\n".into()),
        ("HTTP/1.2", 505, "GET / HTTP/1.2\r\nHost: localhost\r\n\r\n".into()),
        ("HTTP/2.0", 505, "GET / HTTP/2.0\r\nHost: localhost\r\n\r\n".into()),
        ("preface of HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        ("HTTP/0.9", 400, "GET /marker\r\n".into()),
        ("version in lower case", 400, "GET / http/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("version without a dot", 400, "GET / HTTP/11\r\nHost: localhost\r\n\r\n".into()),
        ("two spaces", 400, "GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("tab for a space", 400, "GET\t/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("space at the end", 400, "GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n".into()),
        ("space in the target", 400, get("/a b", "")),
        ("fragment", 400, get("/a#b", "")),
        ("control byte in the target", 400, get("/a\u{1}b", "")),
        ("NUL in the target", 400, get("/a\0b", "")),
        ("encoded NUL", 400, get("/a%00b", "")),
        ("encoded slash", 400, get("/a%2fb", "")),
        ("half a percent", 400, get("/a%2", "")),
        ("dot segments", 400, get("/a/../b", "")),
        ("encoded dot segments", 400, get("/a/%2e%2E/b", "")),
        ("LF for CRLF", 400, "GET / HTTP/1.1\nHost: localhost\n\n".into()),
        ("LF behind a field", 400, get("/", "X: a\nY: b\r\n")),
        ("LF before the end", 400, "GET / HTTP/1.1\r\nHost: localhost\r\n\n".into()),
        ("CR in a value", 400, get("/", "X: a\rY: b\r\n")),
        ("CR CR LF", 400, "GET / HTTP/1.1\r\r\nHost: localhost\r\n\r\n".into()),
        ("two empty lines", 400, "\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("method is no token", 400, "G(T / HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("TRACE", 405, "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("CONNECT", 405, "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n".into()),
        ("another expectation", 417, post("Expect: 200-ok\r\nContent-Length: 5\r\n") + "hello"),
        ("method too long", 501, format!("{} / HTTP/1.1\r\nHost: localhost\r\n\r\n", "M".repeat(33))),
        ("target too long", 414, get(&format!("/{}", "a".repeat(16 << 10)), "")),
        ("target of 100 KB", 414, get(&format!("/{}", "a".repeat(100_000)), "")),
        ("cookies of 64 KiB", 431, get("/", &format!("Cookie: {}\r\n", "a".repeat(64 << 10)))),
        ("10,000 fields", 431, get("/", &"A: b\r\n".repeat(10_000))),
        ("257 fields", 431, get("/", &"A: b\r\n".repeat(256))),
    ];
    all.extend(heads.map(|(name, status, request)| (name, status, request.into_bytes())));
    all.push((
        "8-bit target",
        400,
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
    ));
    all.push((
        "8-bit name",
        400,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX\xff: a\r\n\r\n".to_vec(),
    ));
    all.push((
        "TLS",
        400,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
    ));
    all
}

fn refused_and_nothing_behind_it_is_answered() {
    let server = site().start();
    for (name, status, mut request) in refused() {
        request.extend_from_slice(MARKER.as_bytes());
        let mut whole = server.connect();
        whole.try_send(&request);
        check_refused(name, status, &mut whole);
        // Byte by byte: what decides may not depend on where a read ends.
        if request.len() < 1000 {
            let mut bytes = server.connect();
            for byte in request.chunks(1) {
                if !bytes.try_send(byte) {
                    break;
                }
            }
            check_refused(name, status, &mut bytes);
        }
    }
    assert!(!server.errors().contains("panicked"), "{}", server.errors());
}

fn check_refused(name: &str, status: u16, client: &mut Client) {
    let said = everything(client);
    assert_eq!(statuses(&said), [status], "{name}: {said}");
    assert!(!said.contains("MARKED"), "{name}: {said}");
    assert!(said.contains("\r\nConnection: close\r\n"), "{name}: {said}");
    let allowed = said.contains("\r\nAllow: GET, HEAD, POST");
    assert_eq!(allowed, status == 405, "{name}: {said}");
}

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
            // Without chunks only the end of the connection can end what a program streams.
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

/// Files with a digit each, and now and then a program.
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
    (0..10).fold(Site::new(), digit).start()
}

fn s9_3_2_pipelining_in_order() {
    let server = site_of_digits();
    let watch = server.watch();
    let (requests, wanted) = digits(1000);
    let mut client = server.connect();
    let mut sending = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || sending.write_all(requests.as_bytes()).unwrap());
    let got: String = (0..1000).map(|_| client.reply().text()).collect();
    sender.join().unwrap();
    assert_eq!(got, wanted);
    drop(client);
    watch.after(&["ok"; 1000]);
}

fn s9_3_2_a_half_close_behind_pipelined_requests() {
    let server = site_of_digits();
    let (requests, wanted) = digits(300);
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
    let watch = server.watch();
    let expect = |target: &str, version: &str, fields: &str| {
        format!(
            "POST {target} HTTP/{version}\r\nHost: localhost\r\nExpect: 100-continue\r\n{fields}\r\n"
        )
    };
    let reads = "/cgi-bin/t?take=5&take=5&head";
    // A client that waits for it gets it, once.
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
    // A body that came along needs none; nor does one that is not there; nor does HTTP/1.0 know it.
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
    // Who does not want the body says so, and closes: whether it comes now is not known.
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
    // Too much is refused before it is sent.
    let mut client = server.connect();
    client.send(expect(reads, "1.1", "Content-Length: 99999999999\r\n"));
    let reply = client.reply();
    assert_eq!((reply.status, &reply.interim), (413, &vec![]));
    drop(client);
    watch.after(&[
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "not_found",
        "client_error",
        "client_error",
        "client_error",
    ]);
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
            // The same in chunks; a program's input ends it as well.
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
            // Refused at some point, for nobody reads all of it.
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
    // The same where the head is refused: the words arrive although megabytes follow.
    let mut client = server.connect();
    client.try_send("GET / HTTP/1.1\r\n\r\n");
    client.try_send(pattern(0, 1_000_000));
    assert_eq!(statuses(&everything(&mut client)), [400]);
}

fn s7_1_2_trailers_reach_nobody() {
    let server = site().start();
    let mut client = server.connect();
    client.send(format!(
        "POST /cgi-bin/t?head&count&env HTTP/1.1\r\nHost: localhost\r\n\
         Transfer-Encoding: chunked\r\nTrailer: Proxy, X-Evil\r\n\r\n\
         5\r\nhello\r\n0\r\nProxy: evil\r\nX-Evil: evil\r\nContent-Length: 7\r\n\
         Transfer-Encoding: gzip\r\nHost: evil\r\nAuthorization: evil\r\n\r\n{MARKER}"
    ));
    let reply = client.reply().text();
    assert!(reply.starts_with('5'), "{reply}");
    assert!(!reply.contains("evil"), "{reply}");
    assert_eq!(client.reply().text(), "MARKED");
}

fn s3_2_2_absolute_form() {
    let server = site().start();
    for (target, host, name, uri) in [
        (
            "http://localhost/cgi-bin/t/a?head&env",
            "localhost",
            "localhost",
            "/cgi-bin/t/a?head&env",
        ),
        (
            "HTTP://LocalHost:80/cgi-bin/t?head&env",
            "localhost:80",
            "localhost",
            "/cgi-bin/t?head&env",
        ),
        (
            "https://a.example./cgi-bin/t?head&env",
            "A.example",
            "a.example",
            "/cgi-bin/t?head&env",
        ),
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let text = reply.text();
        let has = |line: String| text.lines().any(|l| l == line);
        assert!(has(format!("REQUEST_URI={uri}")), "{target}: {text}");
        assert!(has(format!("SERVER_NAME={name}")), "{target}: {text}");
    }
    let reply = server.ask("GET http://localhost HTTP/1.0\r\n\r\n");
    assert_eq!(reply.status, server.get("/").status);
}

fn s3_2_4_options_of_the_whole_server() {
    let server = site().start();
    let mut client = server.connect();
    client.send(format!(
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n{MARKER}"
    ));
    let reply = client.reply();
    assert_eq!(reply.status, 204);
    assert!(reply.field("allow").unwrap().contains("OPTIONS"));
    assert_eq!(client.reply().text(), "MARKED");
}

fn s2_2_one_empty_line_is_tolerated() {
    let server = site().start();
    let mut client = server.connect();
    client.send(format!("\r\n{MARKER}\r\n{MARKER}"));
    assert_eq!(client.reply().text(), "MARKED");
    assert_eq!(client.reply().text(), "MARKED");
}

fn s7_1_chunks_of_any_shape() {
    let server = site().start();
    for (body, wanted) in [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("0000000000000005\r\nhello\r\n0000\r\n\r\n", "hello"),
        ("1\r\nh\r\n4\r\nello\r\n0\r\n\r\n", "hello"),
        (
            "a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n",
            "01234567890123456789a",
        ),
        ("5;a;b=c;d=\"e;\"\r\nhello\r\n0;x\r\n\r\n", "hello"),
        ("5 ; a=b\r\nhello\r\n0\r\n\r\n", "hello"),
        ("7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n", "\r\n0\r\n\r\n"),
    ] {
        let request = format!(
            "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n{body}{MARKER}"
        );
        let mut whole = server.connect();
        whole.send(&request);
        let mut bytes = server.connect();
        for byte in request.as_bytes().chunks(1) {
            bytes.send(byte);
        }
        for mut client in [whole, bytes] {
            assert_eq!(client.reply().text(), wanted, "{body:?}");
            assert_eq!(client.reply().text(), "MARKED", "{body:?}");
        }
    }
}

fn a_slow_head_is_a_408() {
    let server = site().top("head_timeout = \"1s\"").start();
    let watch = server.watch();
    // Each byte is in time; all of them are not.
    let mut client = server.connect();
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    client.send("GET / HTTP/1.1\r\nX: ");
    eventually("the end of a head without end", || {
        client.try_send("a");
        client.stream.peek(&mut [0]).is_ok().then_some(())
    });
    client
        .stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    assert_eq!(statuses(&everything(&mut client)), [408]);
    watch.after(&["client_error"]);
}

fn a_slow_body_is_a_408() {
    let server = site().top("min_rate = \"1M\"\nrate_grace = \"1s\"").start();
    let watch = server.watch();
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?take=1000&head", 1000);
    client.send("x");
    let reply = client.reply();
    assert_eq!((reply.status, reply.closes()), (408, true));
    assert!(client.is_over());
    drop(client);
    watch.after(&["client_error"]);
}

fn a_reader_that_stops_is_cut_off() {
    let server = site().top("min_rate = \"1M\"\nrate_grace = \"1s\"").start();
    let watch = server.watch().memory(8 << 20);
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&endless");
    assert_eq!(client.head().status, 200);
    // Not a byte more is read until the server has given up.
    let lines = eventually("the end of the request", || {
        let lines = server.access();
        let ended = lines
            .into_iter()
            .find(|l| l["target"] == "/cgi-bin/t?head&endless");
        ended.filter(|l| l["outcome"] == "client_gone")
    });
    assert_eq!(lines["status"], 200);
    while client.chunk().is_some_and(|c| !c.is_empty()) {}
    drop(client);
    watch.after(&["client_gone"]);
}

fn an_idle_connection_is_closed_without_a_word() {
    let server = site().top("keep_alive = \"100ms\"").start();
    assert!(server.connect().is_over());
    let mut client = server.connect();
    client.send(MARKER);
    assert_eq!(client.reply().text(), "MARKED");
    assert!(client.is_over());
}

fn a_connection_without_a_request_is_no_line() {
    let server = site().start();
    let watch = server.watch();
    for _ in 0..10 {
        server.connect().half_close();
        server.connect().reset();
    }
    watch.after(&[]);
}

fn a_head_that_ends_early() {
    let server = site().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.send("GET /marker HTTP/1.1\r\nHost: loc");
    client.half_close();
    assert!(client.is_over());
    watch.after(&["client_gone"]);
}
