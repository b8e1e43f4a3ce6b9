//! The forms a request may have.

use super::{MARKER, site};
use crate::harness::list;

list![
    s7_1_2_trailers_reach_nobody,
    s3_2_2_absolute_form,
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
