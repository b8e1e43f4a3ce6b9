use proptest::prelude::*;

use super::*;

mod kinds;

fn read(head: &[u8]) -> Result<Parsed<Reply>, ReplyError> {
    ReplyScan::default().scan_head(head, &ReplyLimits::default())
}

/// Returns the reply of a head that is whole and valid.
fn reply(head: &str) -> Reply {
    match read(head.as_bytes()) {
        Ok(Parsed::Complete(reply, used)) if used == head.len() => reply,
        other => panic!("{head:?}: {other:?}"),
    }
}

fn error(head: impl AsRef<[u8]>) -> ReplyError {
    let head = head.as_ref();
    read(head).expect_err(&head.escape_ascii().to_string())
}

fn fault(head: impl AsRef<[u8]>) -> (usize, LineFault) {
    match error(head) {
        ReplyError::Line { line, fault, .. } => (line, fault),
        other => panic!("{other:?}"),
    }
}

fn ended(output: &str) -> String {
    let mut scan = ReplyScan::default();
    let step = scan.scan_head(output.as_bytes(), &ReplyLimits::default());
    assert_eq!(step, Ok(Parsed::Partial), "{output:?}");
    scan.explain_incomplete(output.as_bytes()).to_string()
}

fn list(fields: &Fields) -> Vec<(String, String)> {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    fields.iter().map(|(n, v)| (text(n), text(v))).collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(n, v)| (n.into(), v.into())).into()
}

#[test]
fn s6_3_names_in_any_letter_case() {
    let reply = reply("CONTENT-type: a/b\nsTATUS: 404 Not Found\ncontent-LENGTH: 5\n\n");
    assert_eq!((reply.status, reply.content_length), (404, Some(5)));
    assert_eq!(list(&reply.fields), pairs([("CONTENT-type", "a/b")]));
}

#[test]
fn s6_3_fields_that_may_be_there_once() {
    for field in [
        "Status: 200",
        "Content-Type: a/b",
        "Location: /a",
        "Content-Length: 1",
    ] {
        let other = field.to_ascii_uppercase();
        assert_eq!(
            fault(format!("{field}\nX: y\n{other}\n\n")),
            (3, LineFault::TWICE)
        );
    }
}

#[test]
fn s6_3_3_a_field_makes_a_head_and_200_is_its_status() {
    for head in [
        "X: y\nContent-Length: 0\n\n",
        "X-CGI-A: b\n\n",
        "Variable-X: a\n\n",
    ] {
        let reply = reply(head);
        assert_eq!(
            (reply.kind, reply.status),
            (ReplyKind::Document, 200),
            "{head:?}"
        );
    }
    assert_eq!(error("\n"), ReplyError::NoFields);
    assert_eq!(error("\r\nContent-Type: a/b\n\n"), ReplyError::NoFields);
    assert_eq!(fault("Location:\n\n"), (1, LineFault::NO_VALUE));
}

#[test]
fn s6_3_1_a_body_has_a_content_type_or_lacks_one() {
    for (head, body) in [
        ("Content-Type: a/b\n\n", ReplyBody::Send),
        ("Status: 200\n\n", ReplyBody::SendUntyped),
        ("X: y\n\n", ReplyBody::SendUntyped),
        ("Status: 404\nX: y\n\n", ReplyBody::SendUntyped),
        ("Status: 201\nLocation: /a\n\n", ReplyBody::SendUntyped),
        ("Status: 204\n\n", ReplyBody::Discard),
        ("Status: 304\nContent-Type: a/b\n\n", ReplyBody::Discard),
        ("Status: 307\nLocation: /a\n\n", ReplyBody::Discard),
        ("Location: /a\n\n", ReplyBody::Discard),
        (
            "Location: http://a/\nContent-Type: a/b\n\n",
            ReplyBody::Send,
        ),
    ] {
        assert_eq!(reply(head).body_handling(), body, "{head:?}");
    }
}

#[test]
fn s6_3_3_status_is_three_digits_and_a_phrase() {
    for (value, status, reason) in [
        ("200", 200, None),
        ("404 Not Found", 404, Some("Not Found")),
        ("599 ", 599, None),
        ("  418  I'm a\tteapot ", 418, Some("I'm a\tteapot")),
        ("299 caf\u{e9}", 299, Some("caf\u{e9}")),
    ] {
        let reply = reply(&format!("Status: {value}\n\n"));
        assert_eq!((reply.status, reply.reason.as_deref()), (status, reason));
    }
    assert!(matches!(
        read(b"Status: 200 \xe9\n\n"),
        Ok(Parsed::Complete(
            Reply {
                status: 200,
                reason: None,
                ..
            },
            _
        ))
    ));
    for value in [
        "",
        "abc",
        "9",
        "99",
        "099",
        "199",
        "100",
        "101 Switching Protocols",
        "600",
        "999",
        "1000",
        "2000",
        "+20",
        "-200",
        "20 0",
        "200OK",
        "200\tOK",
        "200,",
        "0x1",
        "2e2",
        "\u{664}04",
    ] {
        assert_eq!(
            fault(format!("Status: {value}\n\n")),
            (1, LineFault::STATUS),
            "{value}"
        );
    }
}

#[test]
fn s6_3_4_protocol_fields_about_the_connection_are_removed() {
    let head = "Content-Type: a/b\nConnection: close, X\nKeep-Alive: 5\nProxy-Connection: a\n\
                upgrade: h2c\nTrailer: X\nTE: trailers\nX: y\n\n";
    let fields = pairs([("Content-Type", "a/b"), ("X", "y")]);
    assert_eq!(list(&reply(head).fields), fields);
}

#[test]
fn s6_3_4_transfer_encoding_is_refused() {
    for value in ["chunked", "identity", ""] {
        let head = format!("Content-Type: a/b\ntransfer-Encoding: {value}\n\n");
        assert_eq!(fault(head), (2, LineFault::TRANSFER_ENCODING));
    }
}

#[test]
fn s6_3_4_content_length_is_digits() {
    for (value, length) in [("0", 0), ("007", 7), ("18446744073709551615", u64::MAX)] {
        let reply = reply(&format!("Content-Type: a/b\nContent-Length: {value}\n\n"));
        assert_eq!(reply.content_length, Some(length));
        assert!(!reply.fields.has_field("content-length"));
    }
    for value in [
        "",
        "+5",
        "-0",
        "0x5",
        "5 5",
        "5,5",
        "5;",
        "18446744073709551616",
        "\u{665}",
    ] {
        let head = format!("Content-Length: {value}\n\n");
        assert_eq!(fault(head), (1, LineFault::LENGTH), "{value}");
    }
}

#[test]
fn s6_3_5_extension_fields_are_for_the_server() {
    let head = "X-CGI-A: b\nx-cgi-: c\nX-CGI: d\nX-CGIx: e\nContent-Type: a/b\n\n";
    let fields = pairs([("X-CGI", "d"), ("X-CGIx", "e"), ("Content-Type", "a/b")]);
    assert_eq!(list(&reply(head).fields), fields);
}

#[test]
fn lines_that_are_no_fields_are_refused() {
    let long = [b"x".repeat(500), b": y\n".to_vec()].concat();
    assert_eq!(read(&long), Ok(Parsed::Partial));
    for (line, want) in [
        (&b"Hello"[..], LineFault::NO_COLON),
        (b"<p>Hello: you</p>", LineFault::NO_COLON),
        (b"Traceback (most recent call last):", LineFault::NO_COLON),
        (b"HTTP/1.1 200 OK", LineFault::STATUS_LINE),
        (b": y", LineFault::EMPTY_NAME),
        (b":", LineFault::EMPTY_NAME),
        (b"X : y", LineFault::SPACE_BEFORE_COLON),
        (b"X\t: y", LineFault::SPACE_BEFORE_COLON),
        (b" X: y", LineFault::FOLDED),
        (b"\tfolded", LineFault::FOLDED),
        (b" ", LineFault::FOLDED),
        (b"X\xe9: y", LineFault::BAD_NAME),
        (b"X\x01: y", LineFault::BAD_NAME),
        (b"{a}: y", LineFault::BAD_NAME),
        (b"\xef\xbb\xbfX: y", LineFault::BYTE_ORDER_MARK),
        (b"X\0: y", LineFault::NUL),
        (b"X: \0", LineFault::NUL),
        (b"X\0", LineFault::NUL),
        (b"X: a\rb", LineFault::BARE_CR),
        (b"X: a\r\r", LineFault::BARE_CR),
        (b"X\r: a", LineFault::BARE_CR),
        (b"X\rY", LineFault::BARE_CR),
        (b"\r\r", LineFault::BARE_CR),
        (b"X: a\x1b[1m", LineFault::CONTROL),
        (b"X: a\x0b", LineFault::CONTROL),
        (b"X: a\x7f", LineFault::CONTROL),
    ] {
        for end in [&b"\n\n"[..], b"\r\n\r\n"] {
            let head = [b"Status: 200\n", line, end].concat();
            assert_eq!(fault(&head), (2, want), "{}", line.escape_ascii());
        }
    }
}

#[test]
fn values_may_hold_tabs_and_8_bit_bytes() {
    let Ok(Parsed::Complete(reply, _)) = read(b"Status: 200\nX: \t a\tb\xe9\x80 \t\n\n") else {
        panic!()
    };
    assert_eq!(reply.fields.first_value("x"), Some(&b"a\tb\xe9\x80"[..]));
}

#[test]
fn limits_are_exact_and_an_endless_line_ends_at_once() {
    let head = b"Status: 200\nX: y\n\n";
    let limits = |bytes, fields| ReplyLimits {
        bytes,
        fields,
        upgrade: false,
        status_line: false,
    };
    let step = |limits| ReplyScan::default().scan_head(head, &limits);
    assert!(matches!(
        step(limits(head.len(), 2)),
        Ok(Parsed::Complete(_, 18))
    ));
    assert_eq!(
        step(limits(head.len() - 1, 2)),
        Err(ReplyError::TooLong(17))
    );
    assert_eq!(
        step(limits(head.len(), 1)),
        Err(ReplyError::TooManyFields(1))
    );

    let endless = vec![b'x'; 4096];
    let mut scan = ReplyScan::default();
    let some = limits(1024, 9);
    assert_eq!(scan.scan_head(&endless[..1023], &some), Ok(Parsed::Partial));
    assert_eq!(
        scan.scan_head(&endless[..1024], &some),
        Err(ReplyError::TooLong(1024))
    );
    assert_eq!(
        ReplyScan::default().scan_head(&endless, &some),
        Err(ReplyError::TooLong(1024))
    );
    let fields = "X: y\n".repeat(10_000);
    assert_eq!(error(fields), ReplyError::TooManyFields(4096));
}

#[test]
fn a_body_does_not_count_against_the_limit() {
    let mut output = b"Status: 200\n\n".to_vec();
    output.resize(1 << 20, b'x');
    assert!(matches!(read(&output), Ok(Parsed::Complete(_, 13))));
}

#[test]
fn no_byte_is_searched_twice() {
    let limits = ReplyLimits::default();
    let mut scan = ReplyScan::default();
    let output = b"Status: 200\nX: yyyyyy";
    for end in 1..output.len() {
        assert_eq!(scan.scan_head(&output[..end], &limits), Ok(Parsed::Partial));
        assert_eq!(scan.seen, end);
    }
}

#[test]
fn errors_say_what_to_do() {
    assert_eq!(
        error("Traceback (most recent call last):\n  File").to_string(),
        "line 1 of the response head is not a header field: \"Traceback (most recent call last):\"; \
         a program prints fields such as \"Content-Type: text/html\", an empty line, and then its document"
    );
    assert_eq!(
        error("Status: abc\n").to_string(),
        "line 1 of the response head is not a status: \"Status: abc\"; \
         print a number from 200 to 599, as in \"Status: 404 Not Found\""
    );
    let escaped = error("a\x1b[2J\"\u{e9}\n").to_string();
    assert!(escaped.contains(r#""a\x1b[2J\"\xc3\xa9""#), "{escaped}");
    let cut = error("x".repeat(1000) + "\n").to_string();
    assert!(cut.contains(&format!("\"{}...\"", "x".repeat(80))), "{cut}");
    assert!(cut.len() < 300);
}

#[test]
fn ended_says_what_was_printed_and_what_not() {
    let start = "the program ended before its response head was complete: it printed ";
    for (output, rest) in [
        ("", "nothing"),
        (
            "Status: 200\n",
            "one field and no empty line after the header",
        ),
        (
            "Status: 200\r\nX: y\r\n\r",
            "2 fields and no empty line after the header",
        ),
    ] {
        assert_eq!(ended(output), format!("{start}{rest}"));
    }
    for (output, what) in [
        (
            "Hello",
            "line 1 of the response head is not a header field: \"Hello\";",
        ),
        (
            "Status: 200\nOops",
            "line 2 of the response head is not a header field: \"Oops\";",
        ),
        (
            "Status: 200\nX: y\r",
            "line 2 of the response head is not complete: the program ended within it: \"X: y\";",
        ),
    ] {
        let words = ended(output);
        assert!(words.starts_with(what), "{words}");
    }
    // Even if the caller had not shown the scan all of it.
    let unseen = ReplyScan::default()
        .explain_incomplete(b"Status: 200\nbad\n")
        .to_string();
    assert!(unseen.starts_with("line 2 of the response head is not a header field"));
}

/// Returns the result for a caller that reads `output` up to each of `cuts` in turn.
fn outcome(
    output: &[u8],
    cuts: &[usize],
    limits: &ReplyLimits,
) -> Result<(Reply, usize), ReplyError> {
    let mut scan = ReplyScan::default();
    for &cut in cuts.iter().chain([&output.len()]) {
        if let Parsed::Complete(reply, used) = scan.scan_head(&output[..cut], limits)? {
            return Ok((reply, used));
        }
    }
    Err(scan.explain_incomplete(output))
}

fn output() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "Content-Type: text/html",
        "Status: 404 Not Found",
        "Location: /a?b",
        "Set-Cookie: a=1",
        "Content-Length: 12",
        "X : y",
        " folded",
        "\0",
        "",
    ]);
    let end = prop::sample::select(vec!["\n", "\n", "\r\n", "\r\n", "\r"]);
    let line = (piece, end).prop_map(|(piece, end)| [piece, end].concat().into_bytes());
    let noise = prop::collection::vec(any::<u8>(), 0..8);
    prop::collection::vec(prop_oneof![9 => line, 1 => noise], 0..8).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn any_split_of_the_output_gives_the_same_reply(
        output in output(),
        cuts in prop::collection::btree_set(0..200usize, 0..9),
        bytes in 1..200usize,
        fields in 0..6usize,
    ) {
        let limits = ReplyLimits { bytes, fields, upgrade: false, status_line: false };
        let cuts: Vec<_> = cuts.into_iter().filter(|&cut| cut < output.len()).collect();
        let each: Vec<_> = (0..output.len()).collect();
        let whole = outcome(&output, &[], &limits);
        prop_assert_eq!(&outcome(&output, &cuts, &limits), &whole);
        prop_assert_eq!(&outcome(&output, &each, &limits), &whole);
    }

    #[test]
    fn what_is_passed_on_can_split_no_response(output in output()) {
        if let Ok((reply, used)) = outcome(&output, &[], &ReplyLimits::default()) {
            prop_assert!(used <= output.len());
            prop_assert!((200..=599).contains(&reply.status));
            for (name, value) in reply.fields.iter() {
                prop_assert!(name.iter().all(|&b| crate::fields::is_token(b)));
                prop_assert!(!value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')));
            }
        }
    }
}

/// RFC 9110, 15.2.2, if the request asks for another protocol. For any other request 101 is no status.
#[test]
fn a_program_that_may_have_the_connection_says_101() {
    let scan = |text: &str, upgrade| {
        let limits = ReplyLimits {
            upgrade,
            ..ReplyLimits::default()
        };
        ReplyScan::default().scan_head(text.as_bytes(), &limits)
    };
    let grants = "Status: 101 Go\nUpgrade: websocket\nContent-Length: 3\n\n";
    let Ok(Parsed::Complete(reply, used)) = scan(grants, true) else {
        panic!("no answer");
    };
    assert_eq!((reply.status, used), (101, grants.len()));
    assert_eq!(reply.fields.first_value("upgrade"), Some(&b"websocket"[..]));
    assert_eq!(
        (reply.content_length, reply.body_handling()),
        (None, ReplyBody::Send)
    );
    assert!(scan(grants, false).is_err());
    assert_eq!(scan("Status: 101\n\n", true), Err(ReplyError::NoUpgrade));
    assert!(scan("Status: 100\nUpgrade: x\n\n", true).is_err());
    let Ok(Parsed::Complete(reply, _)) = scan("Status: 426\nUpgrade: websocket\n\n", true) else {
        panic!("no answer");
    };
    assert_eq!(
        (reply.status, reply.fields.has_field("upgrade")),
        (426, false)
    );
}
