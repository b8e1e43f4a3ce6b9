//! How the end of a program's body is marked (RFC 9112, 6.3).

use super::response::printed;
use crate::harness::{list, new_site, watch::Watch};
use galgo_testkit::End;

list![
    framing_content_length_of_the_program,
    framing_content_length_when_the_program_has_ended,
    framing_chunked,
    framing_http_1_0_until_close,
    framing_http_1_0_is_cut_with_a_reset,
];

fn framing_content_length_of_the_program() {
    let reply = printed("Content-Type: text/plain\nContent-Length: 5\n\nhello");
    assert_eq!(reply.field("content-length"), Some("5"));
    assert_eq!(reply.field("transfer-encoding"), None);
}

/// If a program has ended before the server sent anything, the length of its output is known.
fn framing_content_length_when_the_program_has_ended() {
    let server = new_site().start();
    let mut client = server.connect();
    let queries = ["head&out=short", "head"];
    for (query, length) in queries.into_iter().zip(["5", "0"]) {
        // Speed decides whether the program has ended by then; the framing must be right either way.
        client.get(&format!("/cgi-bin/t?{query}"));
        let reply = client.reply();
        assert_eq!(reply.end, End::Whole);
        if let Some(n) = reply.field("content-length") {
            assert_eq!(n, length);
        }
    }
}

fn framing_chunked() {
    let server = new_site().start();
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=a&await=go&out=b");
    let head = client.head();
    assert_eq!(head.field("transfer-encoding"), Some("chunked"));
    assert_eq!(head.field("content-length"), None);
    assert_eq!(client.take(6), b"1\r\na\r\n");
    server.set("go");
    assert_eq!(
        client.until(b"\r\n0\r\n\r\n").unwrap(),
        b"1\r\nb\r\n0\r\n\r\n"
    );
}

fn framing_http_1_0_until_close() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.send(
        "GET /cgi-bin/t?head&out=a&await=go&out=b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    );
    let head = client.head();
    assert_eq!(
        (
            head.field("transfer-encoding"),
            head.field("content-length")
        ),
        (None, None)
    );
    assert!(head.closes());
    server.set("go");
    assert_eq!(client.rest(), b"ab");
    drop(client);
    watch.after(&["ok"]);
}

fn framing_http_1_0_is_cut_with_a_reset() {
    use std::io::Read;
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.send("GET /cgi-bin/t?head&out=a&await=go&die=9 HTTP/1.0\r\n\r\n");
    client.head();
    assert_eq!(client.take(1), b"a");
    server.set("go");
    // An ordinary end of the connection would look like the end of a whole body.
    let error = client.stream.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    drop(client);
    watch.after(&["script_error"]);
}
