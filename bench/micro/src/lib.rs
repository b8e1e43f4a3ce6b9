//! What is measured, and the steps of a request around it.

use galgo_proto::{
    Parsed,
    cgi::{Reply, ReplyLimits, ReplyScan},
    h1::{Chunk, Chunked, Head, HeadLimits, HeadScan},
    vars::{self, ConnectionVars, Script, ServerVars, Sink},
};
use galgo_spawn::EnvBlock;

/// What curl sends.
pub const CURL: &str = "GET /cgi-bin/line HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
    User-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";

/// What a browser sends: 15 fields, a query and a cookie.
pub const BROWSER: &str = "GET /cgi-bin/guestbook.py/list?page=2&order=newest HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: max-age=0\r\n\
    sec-ch-ua: \"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/142.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Referer: https://www.example.org/cgi-bin/guestbook.py\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=3f1c5a9e7b2d4c60; theme=dark; seen=1763692800\r\n\r\n";

/// A response head as most programs print it.
pub const REPLY: &str = "Content-Type: text/plain\n\n";

/// Targets: as plain as they come, one with a query, one with escapes.
pub const TARGETS: [(&str, &str); 3] = [
    ("plain", "/cgi-bin/line"),
    ("query", "/cgi-bin/guestbook.py/list?page=2&order=newest"),
    (
        "escaped",
        "/cgi-bin/debug/extra%20path/%C3%A4%C3%B6%C3%BC?foo+bar+--me%202",
    ),
];

/// A request of 64 fields.
pub fn fields64() -> String {
    let mut text = String::from("GET /cgi-bin/line HTTP/1.1\r\nHost: www.example.org\r\n");
    for n in 1..64 {
        text.push_str(&format!("X-Field-{n}: the value of field number {n}\r\n"));
    }
    text + "\r\n"
}

/// A response head of 20 fields.
pub fn reply20() -> String {
    let mut text = String::from("Status: 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n");
    for n in 2..20 {
        text.push_str(&format!("X-Field-{n}: the value of field number {n}\r\n"));
    }
    text + "\r\n"
}

/// `bytes` of body in chunks of `each`, and the last chunk.
pub fn chunks(bytes: usize, each: usize) -> Vec<u8> {
    let body = vec![b'x'; bytes];
    let mut text = Vec::new();
    for piece in body.chunks(each) {
        text.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        text.extend_from_slice(piece);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}

/// A sink that keeps nothing: what is left is the cost of working the variables out.
pub struct Null(pub usize);

impl Sink for Null {
    fn put_variable(&mut self, name: &[u8], value: &[u8]) {
        self.0 += std::hint::black_box(name).len() + std::hint::black_box(value).len();
    }
}

/// The environment of a process as a sink, as in the server.
pub struct Env(pub EnvBlock);

impl Sink for Env {
    fn put_variable(&mut self, name: &[u8], value: &[u8]) {
        self.0.set_variable(name, value);
    }
}

/// Finds the end of a request head, and parses it.
pub fn head(text: &[u8]) -> Head {
    let limits = HeadLimits::default();
    let end = HeadScan::default().scan_head(text, &limits).expect("valid");
    Head::parse(&text[..end.expect("whole")], &limits).expect("valid")
}

/// The variables of a request, all three stages.
pub fn variables(head: &Head, sink: &mut impl Sink) {
    const CONNECTION: ConnectionVars<'_> = ConnectionVars {
        remote_addr: "127.0.0.1",
        remote_port: Some(50_000),
        server_addr: "127.0.0.1",
        server_port: 8080,
        https: false,
        tls: None,
    };
    let server = ServerVars {
        redirect_status: b"200",
        software: "galgo/0.1.0",
        path: "/usr/local/bin:/usr/bin:/bin",
    };
    let script = Script {
        script_name: b"/cgi-bin/line",
        path_info: b"/list",
        path_translated: Some(b"/srv/www/public/list"),
        script_filename: b"/srv/www/cgi-bin/line",
        document_root: b"/srv/www/public",
        unique_id: "0123456789abcdef",
        content_length: None,
        user: None,
        pass_authorization: false,
        drop_shellshock: true,
        upgrade: false,
    };
    vars::put_server(&server, sink);
    vars::put_connection(&CONNECTION, sink);
    vars::put_request(head, &CONNECTION, &script, sink).expect("one reading");
}

/// Parses a response head.
pub fn reply(text: &[u8]) -> Reply {
    match ReplyScan::default().scan_head(text, &ReplyLimits::default()) {
        Ok(Parsed::Complete(reply, _)) => reply,
        other => panic!("no response head: {other:?}"),
    }
}

/// Takes a chunked body apart: its length.
pub fn decode(mut text: &[u8]) -> usize {
    let (mut chunked, mut length) = (Chunked::default(), 0);
    loop {
        match chunked.next_chunk(text).expect("valid") {
            Parsed::Complete(Chunk::Data(n), used) => {
                length += n;
                text = &text[used + n..];
            }
            Parsed::Complete(Chunk::End, _) => return length,
            Parsed::Partial => panic!("the body ends early"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_what_their_names_say() {
        assert_eq!(head(CURL.as_bytes()).fields.len(), 3);
        assert_eq!(head(BROWSER.as_bytes()).fields.len(), 15);
        assert_eq!(head(fields64().as_bytes()).fields.len(), 64);
        assert_eq!(reply(REPLY.as_bytes()).status, 200);
        // All but Status, which is not passed on.
        assert_eq!(reply(reply20().as_bytes()).fields.len(), 19);
        assert_eq!(decode(&chunks(10_000, 999)), 10_000);
    }

    #[test]
    fn the_environment_holds_a_variable_of_each_stage() {
        let mut env = Env(EnvBlock::default());
        variables(&head(BROWSER.as_bytes()), &mut env);
        let value = |name: &str| env.0.get_value(name.as_bytes()).map(<[u8]>::to_vec);
        assert_eq!(value("GATEWAY_INTERFACE"), Some(b"CGI/1.1".to_vec()));
        assert_eq!(value("REMOTE_PORT"), Some(b"50000".to_vec()));
        assert_eq!(value("HTTP_SEC_CH_UA_MOBILE"), Some(b"?0".to_vec()));
    }
}
