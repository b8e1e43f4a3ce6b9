use proptest::prelude::*;

use super::*;
use crate::h1::{ALLOW, HeadScan};

mod framing;

/// Handles arriving bytes as a server does: scans, then parses the head.
fn read(head: &[u8]) -> Result<Head, HeadError> {
    let limits = HeadLimits::default();
    let end = HeadScan::default().scan_head(head, &limits)?;
    assert_eq!(end, Some(head.len()), "{}", head.escape_ascii());
    Head::parse(head, &limits)
}

/// Reads a GET in HTTP/1.1 with these lines after its Host.
fn with(lines: &str) -> Result<Head, HeadError> {
    read(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes())
}

#[track_caller]
fn refused(status: u16, heads: &[&str]) {
    for head in heads {
        let got = read(head.as_bytes()).map_err(|e| e.status);
        assert_eq!(got, Err(status), "{head:?}");
    }
}

#[track_caller]
fn refused_with(status: u16, lines: &[&str]) {
    for line in lines {
        assert_eq!(with(line).map_err(|e| e.status), Err(status), "{line:?}");
    }
}

#[test]
fn a_head_is_read_whole() {
    let head = "POST /cgi-bin/a%20b?x=1 HTTP/1.1\r\nHost: Example.ORG:8080\r\n\
                Content-Length: 5\r\nX: \t\r\n\r\n";
    let h = read(head.as_bytes()).unwrap();
    assert_eq!(h.method, Method::Post);
    assert_eq!(h.version, Version::Http11);
    assert_eq!(h.target.raw, "/cgi-bin/a%20b?x=1");
    assert_eq!(h.target.path(), b"/cgi-bin/a b");
    assert_eq!(h.target.query(), "x=1");
    assert_eq!((&*h.host, h.port), ("example.org", Some(8080)));
    assert_eq!(h.body, BodyLen::Length(5));
    assert!(h.keep_alive && !h.expects_continue);
    let fields: Vec<_> = h.fields.iter().collect();
    assert_eq!(
        fields,
        [
            (&b"Host"[..], &b"Example.ORG:8080"[..]),
            (b"Content-Length", b"5"),
            (b"X", b"")
        ]
    );
}

#[test]
fn s9110_9_1_any_token_is_a_method_and_case_counts() {
    for method in [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "get",
        "M-SEARCH",
        "!#$%&'*+.^_`|~",
    ] {
        let h = read(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(h.method.as_str(), method);
    }
    let longest = "A".repeat(32);
    assert!(read(format!("{longest} / HTTP/1.0\r\n\r\n").as_bytes()).is_ok());
    refused(501, &[&format!("{longest}A / HTTP/1.0\r\n\r\n")]);
    refused(
        400,
        &[
            "G(T / HTTP/1.0\r\n\r\n",
            "GET\t/ HTTP/1.0\r\n\r\n",
            "GET: / HTTP/1.0\r\n\r\n",
            " GET / HTTP/1.0\r\n\r\n",
        ],
    );
}

#[test]
fn trace_and_connect_are_405() {
    refused(
        405,
        &[
            "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        ],
    );
    assert!(!ALLOW.contains("TRACE") && !ALLOW.contains("CONNECT"));
}

#[test]
fn s2_3_other_versions_are_505() {
    refused(
        505,
        &[
            "GET / HTTP/0.9\r\nHost: a\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
        ],
    );
    refused(
        400,
        &[
            "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
            "GET / HTTP/01.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.01\r\nHost: a\r\n\r\n",
            "GET /\r\n\r\n",
            "GET\r\n\r\n",
            "GET / HTTP/\r\n\r\n",
            "GET / HTTP/1\r\n\r\n",
            "GET / HTTP/1.\r\n\r\n",
            "GET / HTTP/.1\r\n\r\n",
            "GET / HTTP/1.x\r\n\r\n",
            "GET / HTTP/+1.1\r\n\r\n",
            "GET / http/1.1\r\n\r\n",
            "GET / HTTP/1.1.1\r\n\r\n",
            "GET / ICY/1.1\r\n\r\n",
        ],
    );
}

#[test]
fn s9110_2_5_a_higher_minor_version_is_the_highest_that_is_known() {
    for minor in 1..=9 {
        let h = read(format!("GET / HTTP/1.{minor}\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        assert_eq!((h.version, h.keep_alive), (Version::Http11, true));
    }
    refused(400, &["GET / HTTP/1.2\r\n\r\n"]);
}

#[test]
fn s3_a_request_line_is_three_words() {
    refused(
        400,
        &[
            "GET  / HTTP/1.0\r\n\r\n",
            "GET /  HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.0 \r\n\r\n",
            "GET /a b HTTP/1.0\r\n\r\n",
            "GET HTTP/1.0\r\n\r\n",
            " / HTTP/1.0\r\n\r\n",
            "GET  HTTP/1.0\r\n\r\n",
        ],
    );
}

#[test]
fn s2_2_one_empty_line_before_the_request_line() {
    let h = read(b"\r\nGET /x HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(h.target.path(), b"/x");
    refused(400, &["\r\n\r\nGET / HTTP/1.0\r\n\r\n"]);
    assert!(Head::parse(b"\r\n\r\nGET / HTTP/1.0\r\n\r\n", &HeadLimits::default()).is_err());
}

#[test]
fn bare_lf_or_cr_anywhere_in_the_head() {
    let good = "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
    let limits = HeadLimits::default();
    for (at, _) in good.match_indices("\r\n") {
        for (gone, kept) in [(at, "LF"), (at + 1, "CR")] {
            let mut bad = good.as_bytes().to_vec();
            bad.remove(gone);
            // A CR at the very end waits for its LF.
            if at + 2 < good.len() || kept == "LF" {
                let got = HeadScan::default().scan_head(&bad, &limits);
                assert_eq!(got.map_err(|e| e.status), Err(400), "{kept} alone at {at}");
            }
            let got = Head::parse(&bad, &limits).map_err(|e| e.status);
            assert_eq!(got, Err(400), "parsed, {kept} alone at {at}");
        }
    }
    for lone in [
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET /\n HTTP/1.1\r\n\r\n",
    ] {
        refused(400, &[lone]);
    }
}

#[test]
fn target_forms_and_their_refusals() {
    refused(
        400,
        &[
            "GET /a#b HTTP/1.0\r\n\r\n",
            "GET /\x01 HTTP/1.0\r\n\r\n",
            "GET /%zz HTTP/1.0\r\n\r\n",
            "GET /%00 HTTP/1.0\r\n\r\n",
            "GET /a/../../b HTTP/1.0\r\n\r\n",
            "GET a HTTP/1.0\r\n\r\n",
            "GET a:80 HTTP/1.0\r\n\r\n",
            "GET * HTTP/1.0\r\n\r\n",
        ],
    );
    let h = read(b"OPTIONS * HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(h.target.path(), b"*");
}

#[test]
fn s3_2_exactly_one_good_host() {
    for (field, host, port) in [
        ("a", "a", None),
        ("A.Example:80", "a.example", Some(80)),
        ("a.example.", "a.example", None),
        ("127.0.0.1:1", "127.0.0.1", Some(1)),
        ("[0:0::1]:8080", "[::1]", Some(8080)),
    ] {
        let h = read(format!("GET / HTTP/1.1\r\nhOST:  {field} \t\r\n\r\n").as_bytes()).unwrap();
        assert_eq!((&*h.host, h.port), (host, port));
    }
    refused(
        400,
        &[
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: http://a\r\n\r\n",
        ],
    );
}

#[test]
fn s3_2_host_is_optional_in_http_1_0() {
    for head in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nHost:\r\n\r\n"] {
        let h = read(head.as_bytes()).unwrap();
        assert_eq!((&*h.host, h.port), ("", None));
    }
    let h = read(b"GET / HTTP/1.0\r\nHost: A:1\r\n\r\n").unwrap();
    assert_eq!((&*h.host, h.port), ("a", Some(1)));
    let h = read(b"GET http://A:1/ HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!((&*h.host, h.port), ("a", Some(1)));
}

#[test]
fn s3_2_2_the_host_of_an_absolute_target_counts() {
    for field in ["A.example:81", "a.EXAMPLE:81", "b", "b:82", "[::1]"] {
        let head = format!("GET http://A.example:81/x HTTP/1.1\r\nHost: {field}\r\n\r\n");
        let h = read(head.as_bytes()).unwrap();
        assert_eq!((&*h.host, h.port), ("a.example", Some(81)));
        assert_eq!(h.target.raw, "/x");
        // Programs see no other host in HTTP_HOST.
        assert_eq!(
            h.fields.all_values("host").collect::<Vec<_>>(),
            [b"A.example:81"],
            "{field}"
        );
    }
    let h = read(b"GET http://a/ HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(h.fields.first_value("host"), Some(&b"a"[..]));
    refused(
        400,
        &[
            "GET http://a/ HTTP/1.1\r\nHost: b\r\nHost: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a, b\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a:x\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n",
            "GET http://a/ HTTP/1.0\r\nHost:\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\n\r\n",
            "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        ],
    );
}

#[test]
fn s5_field_lines() {
    refused_with(
        400,
        &[
            " folded\r\n",
            "X: a\r\n folded\r\n",
            "X: a\r\n\tfolded\r\n",
            "X:\r\n folded\r\n",
            "X : a\r\n",
            "X\t: a\r\n",
            ": a\r\n",
            "X\r\n",
            "X Y: a\r\n",
            "X\u{e9}: a\r\n",
            "X(: a\r\n",
            "X: a\0b\r\n",
            "X: \x01\r\n",
            "X: \x7f\r\n",
            "X: \x0b\r\n",
            "\0: a\r\n",
        ],
    );
    let h = with("X: \u{e9}\tq \r\nY:z\r\n").unwrap();
    assert_eq!(h.fields.first_value("x"), Some("\u{e9}\tq".as_bytes()));
    assert_eq!(h.fields.first_value("y"), Some(&b"z"[..]));
}

#[test]
fn s9_3_persistence() {
    for (version, line, keep) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: te, CLOSE\r\n", false),
        ("1.1", "Connection: te\r\nConnection: close\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Keep-Alive: 5\r\n", false),
    ] {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{line}\r\n");
        let h = read(head.as_bytes()).unwrap();
        assert_eq!(h.keep_alive, keep, "{version} {line:?}");
    }
}

#[test]
fn limits_on_fields_target_and_bytes() {
    for most in [0, 3, 64, 65, 256] {
        let limits = HeadLimits {
            fields: most,
            ..HeadLimits::default()
        };
        let of = |n: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "X: y\r\n".repeat(n));
        let h = Head::parse(of(most).as_bytes(), &limits).unwrap();
        assert_eq!(h.fields.len(), most);
        let e = Head::parse(of(most + 1).as_bytes(), &limits).unwrap_err();
        assert_eq!(e.status, 431);
    }
    let limits = HeadLimits {
        bytes: 40,
        fields: 1,
        target: 4,
        encoded_slash: false,
    };
    let status = |head: &str| Head::parse(head.as_bytes(), &limits).map_err(|e| e.status);
    assert!(status("GET /234 HTTP/1.0\r\n\r\n").is_ok());
    assert_eq!(status("GET /2345 HTTP/1.0\r\n\r\n"), Err(414));
    assert!(status("GET /234 HTTP/1.0\r\nX: 12345678901234\r\n\r\n").is_ok());
    assert_eq!(
        status("GET /234 HTTP/1.0\r\nX: 123456789012345\r\n\r\n"),
        Err(431)
    );
}

#[test]
fn what_is_not_one_whole_head_is_refused() {
    let good = b"GET / HTTP/1.0\r\nX: y\r\n\r\n";
    for n in 0..good.len() {
        let got = Head::parse(&good[..n], &HeadLimits::default());
        assert_eq!(got.map_err(|e| e.status), Err(400), "{n}");
    }
    let more = [&good[..], b"X"].concat();
    assert!(Head::parse(&more, &HeadLimits::default()).is_err());
}

/// Returns pieces that heads are made of, good and bad.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "\r\n",
        "\r\n",
        "\r\n\r\n",
        "\r",
        "\n",
        "GET / HTTP/1.1\r\n",
        "GET ",
        "/a%41/x?q ",
        "http://a/ ",
        "HTTP/1.0\r\n",
        "HTTP/2.0",
        "Host: a\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
        "X: y",
        ": ",
        "\0",
        "%2e",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        " ",
        "\t",
        "\u{e9}",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|p| p.concat().into_bytes())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_head(
        tail in pieces(),
        request_line in any::<bool>(),
        cuts in prop::collection::vec(1usize..40, 1..8),
        bytes in prop::sample::select(vec![20usize, 60, 65536]),
    ) {
        let start: &[u8] = if request_line { b"GET / HTTP/1.1\r\nHost: a\r\n" } else { b"" };
        let buf = [start, &tail].concat();
        let limits = HeadLimits { bytes, fields: 8, target: 16, encoded_slash: false };
        let whole = HeadScan::default().scan_head(&buf, &limits);
        let mut scan = HeadScan::default();
        let mut split = Ok(None);
        let mut have = 0;
        for cut in cuts.iter().cycle() {
            have = buf.len().min(have + cut);
            split = scan.scan_head(&buf[..have], &limits);
            if have == buf.len() || split != Ok(None) {
                break;
            }
        }
        prop_assert_eq!(whole, split);
        let parsed = Head::parse(&buf, &limits);
        if let Ok(head) = &parsed {
            // The parser accepts nothing that the scan would have refused.
            prop_assert_eq!(whole, Ok(Some(buf.len())));
            prop_assert!(!head.target.path().contains(&0));
        }
    }
}

#[test]
fn a_host_that_was_asked_before_hides_no_other() {
    let mut last = LastHost::default();
    for (field, host) in [
        ("Example.org:80", Ok("example.org")),
        ("Example.org:80", Ok("example.org")),
        ("example.org:0", Err(400)),
        ("other.example", Ok("other.example")),
        ("Example.org:80", Ok("example.org")),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: {field}\r\n\r\n");
        let limits = HeadLimits::default();
        let got = Head::parse_next(head.as_bytes(), &limits, &mut last);
        let got = got.as_ref().map(|h| &*h.host).map_err(|e| e.status);
        assert_eq!(got, host, "{field}");
    }
}
