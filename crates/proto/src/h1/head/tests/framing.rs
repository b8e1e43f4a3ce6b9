//! Tests the length of bodies, and whether a body is waited for.

use super::*;

#[test]
fn s6_1_both_transfer_encoding_and_content_length() {
    refused_with(
        400,
        &[
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 0\r\nTransfer-Encoding: gzip\r\n",
            "content-LENGTH: x\r\ntransfer-ENCODING: chunked\r\nTransfer-Encoding: chunked\r\n",
        ],
    );
}

#[test]
fn s6_3_two_content_length_also_equal_ones() {
    refused_with(
        400,
        &[
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\ncontent-length: 6\r\n",
            "Content-Length: 5, 5\r\n",
        ],
    );
}

#[test]
fn s8_6_a_content_length_that_is_no_length() {
    for value in [
        "+5",
        "-0",
        "-5",
        "0x5",
        "5 5",
        "",
        " ",
        "5;",
        "5,",
        "5.0",
        "five",
        "\u{bd}",
        "1e3",
        "9223372036854775808",
        "9223372036854775809",
        "18446744073709551616",
        "99999999999999999999",
        "000000000000000000000x",
    ] {
        refused_with(400, &[&format!("Content-Length: {value}\r\n")]);
    }
    for (value, n) in [
        ("0", 0),
        ("007", 7),
        ("00000000000000000000000000000000000", 0),
        ("000000000000000000000000000000000005", 5),
        ("00009223372036854775807", (1 << 63) - 1),
        ("42 \t", 42),
        ("9223372036854775807", (1 << 63) - 1),
    ] {
        let h = with(&format!("Content-Length: {value}\r\n")).unwrap();
        assert_eq!(h.body, BodyLen::Length(n), "{value}");
    }
    assert_eq!(with("").unwrap().body, BodyLen::None);
}

#[test]
fn s6_1_transfer_encoding_is_one_chunked() {
    for value in ["chunked", "Chunked", "CHUNKED \t"] {
        let h = with(&format!("Transfer-Encoding: {value}\r\n")).unwrap();
        assert_eq!(h.body, BodyLen::Chunked);
    }
    for value in [
        "",
        ",",
        "chunked,",
        ",chunked",
        "chunked, chunked",
        "chunked, gzip",
        "chunked;q=1",
        "\"chunked\"",
        "chunked chunked",
        "chun ked",
        "gzip;x, chunked",
        "gzip,, chunked",
    ] {
        refused_with(400, &[&format!("Transfer-Encoding: {value}\r\n")]);
    }
    refused_with(
        400,
        &["Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"],
    );
    for value in ["gzip", "gzip, chunked", "identity", "xchunked", "chunked-"] {
        refused_with(501, &[&format!("Transfer-Encoding: {value}\r\n")]);
    }
}

#[test]
fn s6_1_transfer_encoding_in_http_1_0() {
    refused(
        400,
        &[
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n",
        ],
    );
}

#[test]
fn s9110_10_1_1_expect() {
    for (lines, expects) in [
        ("Expect: 100-continue\r\nContent-Length: 1\r\n", true),
        (
            "Expect: 100-Continue,\r\nTransfer-Encoding: chunked\r\n",
            true,
        ),
        ("Expect: 100-continue\r\nContent-Length: 0\r\n", false),
        ("Expect: 100-continue\r\n", false),
        ("Expect:\r\nContent-Length: 1\r\n", false),
    ] {
        assert_eq!(with(lines).unwrap().expects_continue, expects, "{lines}");
    }
    refused_with(
        417,
        &[
            "Expect: 101-continue\r\n",
            "Expect: 100-continue, x\r\nContent-Length: 1\r\n",
            "Expect: 100-continue\r\nExpect: x=y\r\nContent-Length: 1\r\n",
        ],
    );
    for value in ["100-continue", "else"] {
        let head = format!("PUT / HTTP/1.0\r\nExpect: {value}\r\nContent-Length: 1\r\n\r\n");
        assert!(!read(head.as_bytes()).unwrap().expects_continue);
    }
}
