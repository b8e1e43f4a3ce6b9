//! Requests that have more than one reading.

use super::{MARKER, chunked, everything, get, post, site, statuses};
use crate::harness::list;
use galgo_testkit::Client;

list![refused_and_nothing_behind_it_is_answered,];

/// Values of Content-Length that are refused.
const LENGTHS: [(&str, &str); 13] = [
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
    ("semicolon", "5;"),
    ("NUL", "5\0"),
    ("digits of Unicode", "\u{665}"),
];

/// Values of Transfer-Encoding, and the status of the answer.
const CODINGS: [(&str, &str, u16); 14] = [
    ("other coding", "gzip", 501),
    ("other coding first", "gzip, chunked", 501),
    ("chunked not last", "chunked, gzip", 400),
    ("chunked twice", "chunked, chunked", 400),
    ("chunked with a parameter", "chunked;q=1", 400),
    ("identity", "identity", 501),
    ("no coding", "", 400),
    ("quoted", "\"chunked\"", 400),
    ("empty element first", ", chunked", 400),
    ("empty element last", "chunked,", 400),
    ("chunked before identity", "chunked, identity", 400),
    ("vertical tab behind", "chunked\u{b}", 400),
    ("other name", "xchunked", 501),
    ("vertical tab", "\u{b}chunked", 400),
];

/// Chunked bodies that are refused.
const CHUNKS: [(&str, &str); 31] = [
    ("size empty", "\r\nhello\r\n0\r\n\r\n"),
    ("size signed", "+5\r\nhello\r\n0\r\n\r\n"),
    ("size negative", "-5\r\nhello\r\n0\r\n\r\n"),
    ("size 0x", "0x5\r\nhello\r\n0\r\n\r\n"),
    (
        "size of 17 digits",
        "00000000000000005\r\nhello\r\n0\r\n\r\n",
    ),
    ("size with a space", "5 \r\nhello\r\n0\r\n\r\n"),
    ("size behind a space", " 5\r\nhello\r\n0\r\n\r\n"),
    ("size, LF", "5\nhello\r\n0\r\n\r\n"),
    ("size, CR", "5\rhello\r\n0\r\n\r\n"),
    ("chunk longer than its size", "5\r\nhello!\r\n0\r\n\r\n"),
    ("chunk, LF", "5\r\nhello\n0\r\n\r\n"),
    ("last chunk, LF", "0\n\n"),
    ("size with a sign of digits", "0_5\r\nhello\r\n0\r\n\r\n"),
    ("last chunk signed", "5\r\nhello\r\n-0\r\n\r\n"),
    ("chunk, CR CR LF", "5\r\nhello\r\r\n0\r\n\r\n"),
    ("extension, LF", "5;a=b\nhello\r\n0\r\n\r\n"),
    ("extension, CR", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
    (
        "CRLF in a quoted extension",
        "5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n",
    ),
    ("extension without a name", "5;\r\nhello\r\n0\r\n\r\n"),
    ("extension without a value", "5;a=\r\nhello\r\n0\r\n\r\n"),
    ("extension of two words", "5;a b\r\nhello\r\n0\r\n\r\n"),
    ("extension, space at its end", "5;a \r\nhello\r\n0\r\n\r\n"),
    (
        "extension, quote without an end",
        "5;a=\"b\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "extension, text behind a quote",
        "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n",
    ),
    ("extension with NUL", "5;a\0\r\nhello\r\n0\r\n\r\n"),
    ("trailer without a colon", "0\r\nnonsense\r\n\r\n"),
    ("trailer, obs-fold", "0\r\nX: a\r\n b\r\n\r\n"),
    ("trailer, space before the colon", "0\r\nX : a\r\n\r\n"),
    ("trailer, fold first", "0\r\n X: a\r\n\r\n"),
    ("trailer, NUL", "0\r\nX: a\0\r\n\r\n"),
    ("trailer, LF", "0\r\nX: a\n\r\n"),
];

fn long_chunks() -> Vec<(&'static str, String)> {
    let long = "x".repeat(2000);
    vec![
        (
            "extensions too many",
            format!("{}0\r\n\r\n", "1;aaaaaaaaaaaa\r\nx\r\n".repeat(5000)),
        ),
        (
            "extension too long",
            format!("5;{long}\r\nhello\r\n0\r\n\r\n"),
        ),
        (
            "trailers too many",
            format!("0\r\n{}\r\n", "X: a\r\n".repeat(5000)),
        ),
        (
            "trailers too large",
            format!("0\r\n{}\r\n", format!("X: {long}\r\n").repeat(5)),
        ),
    ]
}

/// Name of the defect, status, and request.
type Head = (&'static str, u16, String);

/// Returns requests whose body has more than one length.
#[rustfmt::skip] // a row is a line
fn bodies_of_two_readings() -> Vec<Head> {
    vec![
        ("both lengths", 400, post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") + "0\r\n\r\n"),
        ("both, the other way", 400, post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n"),
        ("two equal lengths", 400, post("Content-Length: 5\r\nContent-Length: 5\r\n") + "hello"),
        ("two lengths", 400, post("Content-Length: 5\r\nContent-Length: 0\r\n")),
        ("two codings", 400, post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n"),
        ("chunked in 1.0", 400, "POST /cgi-bin/t HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into()),
    ]
}

/// Returns requests with malformed fields.
#[rustfmt::skip] // a row is a line
fn fields() -> Vec<Head> {
    vec![
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
        ("absolute target, two Hosts", 400, "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n".into()),
        ("absolute target, bad Host", 400, "GET http://localhost/ HTTP/1.1\r\nHost: a b\r\n\r\n".into()),
        ("absolute target, no Host", 400, "GET http://localhost/ HTTP/1.1\r\n\r\n".into()),
    ]
}

/// Returns requests with wrong request lines, line ends and sizes.
#[rustfmt::skip] // a row is a line
fn lines() -> Vec<Head> {
    vec![
        ("HTTP/01.1", 400, "GET / HTTP/01.1\r\nHost: localhost\r\n\r\n".into()),
        ("user in the target", 400, "GET http://u@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("another scheme", 400, "GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("authority-form", 400, "GET localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n".into()),
        ("asterisk without OPTIONS", 400, get("*", "")),
        ("HTTP/1.10", 400, "GET / HTTP/1.10\r\nHost: localhost\r\n\r\n".into()),
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
        ("above the root", 400, get("/a/../../marker", "")),
        ("above the root, encoded", 400, get("/%2e%2E/marker", "")),
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
    ]
}

fn refused() -> Vec<(&'static str, u16, Vec<u8>)> {
    let mut all: Vec<(&str, u16, Vec<u8>)> = Vec::new();
    for (name, value) in LENGTHS {
        let request = post(&format!("Content-Length: {value}\r\n")) + "hello";
        all.push((name, 400, request.into()));
    }
    for (name, value, status) in CODINGS {
        let request = post(&format!("Transfer-Encoding: {value}\r\n")) + "0\r\n\r\n";
        all.push((name, status, request.into()));
    }
    for (name, body) in CHUNKS {
        all.push((name, 400, chunked(body).into()));
    }
    for (name, body) in long_chunks() {
        all.push((name, 400, chunked(&body).into()));
    }
    let heads = [bodies_of_two_readings(), fields(), lines()].concat();
    let heads = heads.into_iter();
    all.extend(heads.map(|(name, status, request)| (name, status, request.into_bytes())));
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
        // Byte by byte: the decision must not depend on where a read ends.
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
