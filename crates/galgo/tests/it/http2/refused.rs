//! Heads that the crate `h2` refuses itself, sent byte by byte: each is answered and logged, as over HTTP/1.

use std::io::{Read, Write};

use super::*;

list![
    a_target_is_answered_as_over_http_1,
    targets_out_of_reach_get_400_and_a_line,
    malformed_heads_get_400_and_a_line,
    heads_far_too_large_get_431_and_a_line,
    a_head_that_ends_the_connection_has_a_line,
    many_refusals_are_counted,
    curl_is_told_in_tls,
    nobody_is_told_of_a_fragment,
];

const HEADERS: u8 = 1;
const ENDS: u8 = 5;
/// `:method: GET` and `:scheme: http` (RFC 7541, A).
const GET: &[u8] = &[0x82, 0x86];

/// A client that writes and reads frames.
struct RawClient(UnixStream);

/// Data that came over a stream: all heads and bodies, and the code of a reset.
#[derive(Debug, Default)]
struct Came {
    heads: Vec<u8>,
    body: Vec<u8>,
    reset: Option<u8>,
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Returns a field without indexing (RFC 7541, 6.2.2), whose name has this number in the static table.
fn indexed(name: u8, value: &[u8]) -> Vec<u8> {
    [&[name][..], &text(value)].concat()
}

fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0][..], &text(name), &text(value)].concat()
}

/// Returns an encoded string (RFC 7541, 5.2).
fn text(value: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut left = value.len();
    if left < 127 {
        all.push(left as u8);
    } else {
        all.push(127);
        left -= 127;
        while left >= 128 {
            all.push((left % 128) as u8 | 128);
            left /= 128;
        }
        all.push(left as u8);
    }
    [all, value.to_vec()].concat()
}

fn get(path: &str) -> Vec<u8> {
    let path = indexed(4, path.as_bytes());
    [GET, &indexed(1, b"localhost"), &path].concat()
}

impl RawClient {
    fn connect(socket: &Path) -> Self {
        let mut client = UnixStream::connect(socket).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        client.write_all(hello).unwrap();
        client.write_all(&frame(4, 0, 0, b"")).unwrap();
        Self(client)
    }

    /// Sends a head, in frames that are not too large, and reads up to the end of its stream.
    fn ask(&mut self, stream: u8, block: &[u8]) -> Came {
        let mut pieces = block.chunks(16_000).peekable();
        let (mut kind, mut flags) = (HEADERS, 1);
        while let Some(piece) = pieces.next() {
            if pieces.peek().is_none() {
                flags |= 4;
            }
            self.0
                .write_all(&frame(kind, flags, stream, piece))
                .unwrap();
            (kind, flags) = (9, 0);
        }
        self.read(stream)
    }

    /// Reads up to the end of a stream; the end of the connection is a reset, too.
    fn read(&mut self, stream: u8) -> Came {
        let mut came = Came::default();
        loop {
            let mut head = [0; 9];
            if self.0.read_exact(&mut head).is_err() {
                came.reset = Some(0);
                return came;
            }
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; len as usize];
            self.0.read_exact(&mut payload).unwrap();
            if head[8] != stream {
                continue;
            }
            match head[3] {
                0 => came.body.extend(payload),
                HEADERS => came.heads.extend(payload),
                3 => came.reset = payload.last().copied(),
                _ => continue,
            }
            if head[3] == 3 || head[3] < 2 && head[4] & 1 != 0 {
                return came;
            }
        }
    }
}

/// `:status: 200` and `:status: 400`, by their numbers.
const STATUS_200: u8 = 0x88;
const STATUS_400: u8 = 0x8c;
const QUERY: &str = "'\\^`{|}[]%";

/// HTTP/2 and HTTP/1 accept the same targets, except the bytes that docs/configuration.md names.
fn a_target_is_answered_as_over_http_1() {
    let (server, socket) = serve(new_site());
    let mut client = RawClient::connect(&socket);
    for (stream, target) in (1..).step_by(2).zip([
        format!("/cgi-bin/t?head&env&filter={QUERY}"),
        "/cgi-bin/t/{a:\"b\"}|\\^[]?head&env".to_owned(),
        "/cgi-bin/t?head&env&\u{e4}".to_owned(),
    ]) {
        let came = client.ask(stream, &get(&target));
        let said = String::from_utf8(came.body).unwrap();
        let uri = |all: &str| {
            let line = all.lines().find(|l| l.starts_with("REQUEST_URI="));
            line.map(str::to_owned)
        };
        assert_eq!(
            uri(&said),
            uri(&server.get(&target).text()),
            "{target} {said}"
        );
    }
}

/// HTTP/1 takes these targets; docs/configuration.md names them as exceptions.
fn targets_out_of_reach_get_400_and_a_line() {
    let (server, socket) = serve(new_site().file("public/f", "fine", 0o644));
    let watch = Watch::begin(&server);
    let targets = ["/f?\"", "/f?<", "/f?>", "/<", "/>", "/`"];
    let mut client = RawClient::connect(&socket);
    for (stream, target) in (1..).step_by(2).zip(targets) {
        let came = client.ask(stream, &get(target));
        assert_eq!(
            (came.heads, came.body.len()),
            (vec![STATUS_400], 0),
            "{target}"
        );
        let known = server.get(target).status;
        assert!(matches!(known, 200 | 404), "{target}: {known}");
    }
    // The connection goes on, and a body does not matter.
    let post = [&[0x83, 0x86], &get("/f?\"")[2..]].concat();
    let body = frame(0, 1, 13, &[b'x'; 100]);
    let head = frame(HEADERS, 4, 13, &post);
    client.0.write_all(&[head, body].concat()).unwrap();
    assert_eq!(client.read(13).heads, [STATUS_400]);
    let came = client.ask(15, &get("/f"));
    assert_eq!((came.heads[0], came.body), (STATUS_200, b"fine".to_vec()));
    drop(client);
    let mut outcomes = vec!["client_error"; 7];
    outcomes.extend([
        "ok",
        "ok",
        "ok",
        "not_found",
        "not_found",
        "not_found",
        "ok",
    ]);
    let lines = watch.after(&outcomes);
    let refused = lines.iter().filter(|l| l["status"] == 400).count();
    assert_eq!(refused, 7, "{lines:#?}");
    server.says("400 for unix: a head that HTTP/2 does not allow");
}

fn malformed_heads_get_400_and_a_line() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut client = RawClient::connect(&socket);
    let health = get("/health");
    let host = |host: &[u8]| [GET, &indexed(1, host), &indexed(4, b"/health")].concat();
    let heads = [
        host(b"a b"),
        host(b"a/b@"),
        [&health[..], &field(b"connection", b"close")].concat(),
        [&health[..], &field(b"transfer-encoding", b"chunked")].concat(),
        [&health[..], &field(b"content-length", b"x")].concat(),
        [&health[..], &field(b"content-length", b"7")].concat(),
        [&health[..], &field(b":path", b"/other")].concat(),
        // Heads without path, method or scheme.
        [GET, &indexed(1, b"localhost")].concat(),
        health[1..].to_vec(),
        [&[0x82], &health[2..]].concat(),
    ];
    let count = heads.len();
    for (stream, head) in (1..).step_by(2).zip(heads) {
        let came = client.ask(stream, &head);
        assert_eq!(came.heads, [STATUS_400], "{stream}");
    }
    drop(client);
    watch.after(&vec!["client_error"; count]);
}

fn heads_far_too_large_get_431_and_a_line() {
    let (server, socket) = serve(new_site().config("max_head = \"4K\""));
    let watch = Watch::begin(&server);
    // The second head ends the connection.
    for size in [10_000, 100_000] {
        let mut client = RawClient::connect(&socket);
        let head = [get("/health"), field(b"x", &vec![b'a'; size])].concat();
        client.ask(1, &head);
    }
    let lines = watch.after(&["client_error"; 2]);
    let statuses = lines.iter().map(|l| l["status"].as_u64());
    assert!(statuses.eq([Some(431), Some(400)]), "{lines:#?}");
}

fn a_head_that_ends_the_connection_has_a_line() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    for end in [
        field(b"x", b"a\0b"),
        field(b"x", b"a\nb"),
        field(b"X", b"a"),
        field(b"a b", b"a"),
        indexed(4, b"/\xe4"),
    ] {
        let mut client = RawClient::connect(&socket);
        let came = client.ask(1, &[&get("/health")[..], &end].concat());
        assert_eq!((came.heads.len(), came.reset), (0, Some(0)));
    }
    let lines = watch.after(&["client_error"; 5]);
    assert!(lines.iter().all(|l| l["status"] == 400), "{lines:#?}");
}

/// The error log has the first refusal of a second, and the number of further refusals; the access log has all refusals.
fn many_refusals_are_counted() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut client = RawClient::connect(&socket);
    let heads = (1..=99)
        .step_by(2)
        .map(|stream| frame(HEADERS, ENDS, stream, &get("/<")));
    client
        .0
        .write_all(&heads.collect::<Vec<_>>().concat())
        .unwrap();
    assert_eq!(client.read(99).heads, [STATUS_400]);
    drop(client);
    watch.after(&["client_error"; 50]);
    server.says("more requests were refused within a second");
}

fn curl_is_told_in_tls() {
    let (server, url) = tls::serve_tls(new_site().file("public/f", "fine", 0o644));
    let watch = Watch::begin(&server);
    let url = url + "/f?filter={\"cardtype\":2}";
    let says = [
        "-g",
        "-o",
        "/dev/null",
        "-w",
        "%{http_version} %{http_code}",
    ];
    for (version, expected) in [("--http2", "2 400"), ("--http1.1", "1.1 200")] {
        let said = tls::curl(&url, &[&[version], &says[..]].concat());
        assert_eq!(String::from_utf8(said).unwrap(), expected);
    }
    watch.after(&["client_error", "ok"]);
}

/// `h2` hands over a path without its fragment: rules and programs see the same path.
fn nobody_is_told_of_a_fragment() {
    let (_server, socket) = serve(new_site());
    let mut client = RawClient::connect(&socket);
    let came = client.ask(1, &get("/cgi-bin/t?head&env#secret"));
    let said = String::from_utf8(came.body).unwrap();
    assert!(
        said.contains("\nREQUEST_URI=/cgi-bin/t?head&env\n"),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
}
