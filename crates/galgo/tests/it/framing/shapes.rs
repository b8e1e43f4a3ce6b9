//! The forms that a request may have.

use super::{MARKER, site};
use crate::harness::list;

list![
    s7_1_2_trailers_reach_nobody,
    s3_2_2_absolute_form,
    s9110_2_5_a_higher_minor_version,
    s8_6_a_length_with_zeros_before_it,
    bytes_above_0x7f_in_the_target,
    an_encoded_slash_is_one_where_the_key_says_so,
    s3_2_4_options_of_the_whole_server,
    s2_2_one_empty_line_is_tolerated,
    s7_1_chunks_of_any_shape,
];

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
        (
            "http://a.example/cgi-bin/t?head&env",
            "b.example:81",
            "a.example",
            "/cgi-bin/t?head&env",
        ),
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let text = reply.text();
        let has = |line: String| text.lines().any(|l| l == line);
        assert!(has(format!("REQUEST_URI={uri}")), "{target}: {text}");
        assert!(has(format!("SERVER_NAME={name}")), "{target}: {text}");
        let authority = target.split('/').nth(2).unwrap();
        assert!(has(format!("HTTP_HOST={authority}")), "{target}: {text}");
    }
    let reply = server.ask("GET http://localhost HTTP/1.0\r\n\r\n");
    assert_eq!(reply.status, server.get("/").status);
}

fn s9110_2_5_a_higher_minor_version() {
    let server = site().start();
    for minor in 2..=9 {
        let mut client = server.connect();
        client.send(format!(
            "GET /cgi-bin/t?head&env HTTP/1.{minor}\r\nHost: a\r\n\r\n{MARKER}"
        ));
        let text = client.reply().text();
        assert!(text.contains("SERVER_PROTOCOL=HTTP/1.1\n"), "{text}");
        assert_eq!(client.reply().text(), "MARKED");
    }
}

fn s8_6_a_length_with_zeros_before_it() {
    let server = site().start();
    for (length, wanted) in [
        ("0".repeat(40), ""),
        (format!("{}5", "0".repeat(40)), "hello"),
    ] {
        let mut client = server.connect();
        client.send(format!(
            "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{wanted}{MARKER}"
        ));
        assert_eq!(client.reply().text(), wanted);
        assert_eq!(client.reply().text(), "MARKED");
    }
}

fn bytes_above_0x7f_in_the_target() {
    let server = site().file("public/\u{e4}", "umlaut", 0o644).start();
    let text = server.get("/cgi-bin/t/\u{e4}?head&env&q=\u{e4}").text();
    for line in [
        "PATH_INFO=/\u{e4}",
        "QUERY_STRING=head&env&q=%C3%A4",
        "REQUEST_URI=/cgi-bin/t/%C3%A4?head&env&q=%C3%A4",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    assert_eq!(server.get("/\u{e4}").text(), "umlaut");
    let reply = server.ask(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(reply.status, 404);
}

fn an_encoded_slash_is_one_where_the_key_says_so() {
    assert_eq!(site().start().get("/cgi-bin%2Ft").status, 400);
    let server = site()
        .config("encoded_slash = \"decode\"")
        .file("public/sub/page", "page", 0o644)
        .config("[[route]]\npath = \"/sub/closed/\"\nrespond = { status = 403 }\n")
        .start();
    let text = server.get("/cgi-bin/t/a%2Fb?head&env&c%2Fd").text();
    for line in [
        "SCRIPT_NAME=/cgi-bin/t",
        "PATH_INFO=/a/b",
        "QUERY_STRING=head&env&c%2Fd",
        "REQUEST_URI=/cgi-bin/t/a%2Fb?head&env&c%2Fd",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    for (target, status) in [
        ("/sub%2fpage", 200),
        ("/sub%2Fclosed%2Fx", 403),
        ("/sub%2F%2fclosed/x", 403),
        ("/x%2F..%2Fsub%2Fclosed%2Fx", 403),
        ("/..%2Fsub", 400),
        ("/sub%2F..%2f..%2fsecret", 400),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
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
