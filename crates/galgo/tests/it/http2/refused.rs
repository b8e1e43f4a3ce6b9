//! Targets and heads, sent byte by byte: each is answered and logged as over HTTP/1.

use std::{
    io::{Read, Write},
    os::fd::OwnedFd,
};

use super::*;

list![
    a_target_is_answered_as_over_http_1,
    a_fragment_gets_400_as_over_http_1,
    malformed_heads_get_400_and_a_line,
    a_small_table_gets_a_reset_alone,
    heads_far_too_large_get_431_and_a_line,
    large_heads_that_wait_are_refused,
    heads_come_in_any_frames,
    frames_that_end_the_connection_have_a_line,
    many_refusals_are_counted,
    curl_asks_for_a_query_of_json_in_tls,
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
        Self::with_settings(socket, b"")
    }

    fn with_settings(socket: &Path, settings: &[u8]) -> Self {
        Self::over(UnixStream::connect(socket).unwrap(), settings)
    }

    fn over(mut client: UnixStream, settings: &[u8]) -> Self {
        client.set_read_timeout(Some(LONG)).unwrap();
        let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        client.write_all(hello).unwrap();
        client.write_all(&frame(4, 0, 0, settings)).unwrap();
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

    fn send(&mut self, frames: &[Vec<u8>]) {
        self.0.write_all(&frames.concat()).unwrap();
    }

    /// Reads up to GOAWAY, and returns its code.
    fn read_goodbye(&mut self) -> Option<u8> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).ok()?;
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; len as usize];
            self.0.read_exact(&mut payload).ok()?;
            if head[3] == 7 {
                return payload.get(7).copied();
            }
        }
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

/// HTTP/2 and HTTP/1 accept the same targets, and programs see the bytes that came.
fn a_target_is_answered_as_over_http_1() {
    let (server, socket) = serve(new_site());
    let mut client = RawClient::connect(&socket);
    for (stream, target) in (1..).step_by(2).zip([
        "/cgi-bin/t?head&env&filter='\\^`{|}[]%",
        "/cgi-bin/t?head&env&filter={\"cardtype\":2}<>",
        "/cgi-bin/t/{a:\"b\"}|\\^[]<>`?head&env",
        "/cgi-bin/t?head&env&\u{e4}",
    ]) {
        let came = client.ask(stream, &get(target));
        let said = String::from_utf8(came.body).unwrap();
        let known = server.get(target).text();
        for name in ["REQUEST_URI=", "QUERY_STRING=", "PATH_INFO="] {
            let line = |all: &str| {
                let line = all.lines().find(|line| line.starts_with(name));
                line.map(str::to_owned)
            };
            assert_eq!(line(&said), line(&known), "{target} {said}");
        }
        if !target.contains('\u{e4}') {
            assert!(
                said.contains(&format!("\nREQUEST_URI={target}\n")),
                "{said}"
            );
        }
    }
    // Bytes that are no UTF-8.
    for (stream, query, known) in [
        (21, &b"head&env&\xe4"[..], "%E4"),
        (23, b"head&env&\xff%22", "%FF%22"),
    ] {
        let target = [b"/cgi-bin/t?", query].concat();
        let asked = [GET, &indexed(1, b"localhost"), &indexed(4, &target)].concat();
        let said = String::from_utf8(client.ask(stream, &asked).body).unwrap();
        assert!(
            said.contains(&format!("\nQUERY_STRING=head&env&{known}\n")),
            "{said}"
        );
    }
}

fn a_fragment_gets_400_as_over_http_1() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut client = RawClient::connect(&socket);
    for (stream, target) in (1..)
        .step_by(2)
        .zip(["/health#a", "/#", "/health?a#b", "/a b"])
    {
        let came = client.ask(stream, &get(target));
        assert_eq!((came.heads[0], came.reset), (STATUS_400, None), "{target}");
        assert_eq!(server.get(target).status, 400, "{target}");
    }
    assert_eq!(client.ask(21, &get("/health")).heads[0], STATUS_200);
    drop(client);
    watch.after(&["client_error"; 8]);
    server.says("400 for unix: ");
}

fn malformed_heads_get_400_and_a_line() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut client = RawClient::connect(&socket);
    let health = get("/health");
    let host = |host: &[u8]| [GET, &indexed(1, host), &indexed(4, b"/health")].concat();
    let with = |name: &[u8], value: &[u8]| [&health[..], &field(name, value)].concat();
    // RFC 9113, 8.1.1, wants a reset for some of them: it comes behind the response.
    let malformed = [
        with(b"connection", b"close"),
        with(b"transfer-encoding", b"chunked"),
        with(b":path", b"/other"),
        with(b":other", b"a"),
        with(b":protocol", b"websocket"),
        with(b"X", b"a"),
        with(b"a b", b"a"),
        // Heads without path, method or scheme.
        [GET, &indexed(1, b"localhost")].concat(),
        health[1..].to_vec(),
        [&[0x82], &health[2..]].concat(),
        // A pseudo-field behind a field.
        [&[0x82], &field(b"a", b"b")[..], &health[1..]].concat(),
    ];
    let refused = [
        host(b"a b"),
        host(b"a/b@"),
        [&[0x82], &indexed(6, b"a\0b")[..], &health[2..]].concat(),
        with(b"content-length", b"x"),
        with(b"content-length", b"7"),
        with(b"x", b"a\0b"),
        with(b"x", b"a\nb"),
        with(b"x", b" a"),
    ];
    let count = malformed.len() + refused.len();
    for (stream, head) in (1..).step_by(2).zip(malformed.iter().chain(&refused)) {
        let came = client.ask(stream, head);
        assert_eq!(came.heads[0], STATUS_400, "{stream}");
    }
    assert_eq!(client.ask(201, &health).heads[0], STATUS_200);
    drop(client);
    watch.after(&vec!["client_error"; count]);
}

/// RFC 7541, 4.2: the first response after a change of the table must begin with its size, which only `h2` writes.
fn a_small_table_gets_a_reset_alone() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    for others in [0, 200] {
        let settings = [vec![0xff; 6 * others], vec![0, 1, 0, 0, 0, 0]].concat();
        let mut client = RawClient::with_settings(&socket, &settings);
        let came = client.ask(1, &get("/health")[1..]);
        assert_eq!((came.heads.len(), came.reset), (0, Some(1)), "{others}");
        let came = client.ask(3, &get("/health"));
        // The new size is 0.
        assert_eq!(came.heads[..2], [0x20, STATUS_200]);
    }
    watch.after(&["client_error"; 2]);
}

fn heads_far_too_large_get_431_and_a_line() {
    let (server, socket) = serve(new_site().config("max_head = \"4K\""));
    let watch = Watch::begin(&server);
    // The last head ends the connection.
    for size in [5000, 10_000, 100_000] {
        let mut client = RawClient::connect(&socket);
        let head = [get("/health"), field(b"x", &vec![b'a'; size])].concat();
        client.ask(1, &head);
    }
    // A small block can stand for a large head. The large field may come first.
    let mut client = RawClient::connect(&socket);
    let head = [get("/health"), inserted_field(), vec![0xbe; 10_000]].concat();
    assert!(client.ask(1, &head).reset.is_none());
    let head = [field(b"x", &[b'a'; 5000]), get("/health")].concat();
    assert!(client.ask(3, &head).reset.is_none());
    assert_eq!(client.ask(5, &get("/health")).heads[0], STATUS_200);
    drop(client);
    let lines = watch.after(&["client_error"; 5]);
    let statuses: Vec<_> = lines
        .iter()
        .map(|l| l["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [431, 431, 400, 431, 431], "{lines:#?}");
}

/// Returns a field of 4,000 bytes that the byte 0xbe repeats.
fn inserted_field() -> Vec<u8> {
    [&[0x40][..], &text(b"x"), &text(&[b'a'; 4000])].concat()
}

/// While eight requests are answered, the others wait, with as many heads as a connection may hold.
fn large_heads_that_wait_are_refused() {
    let (server, at) = serve_tcp(new_site().config("max_connections_per_client = 8"));
    let link = std::net::TcpStream::connect(at).unwrap();
    let mut client = RawClient::over(OwnedFd::from(link).into(), b"");
    let begin = |i: u8| {
        let path = format!("/cgi-bin/t?head&touch=on{i}&await=go");
        frame(HEADERS, ENDS, 2 * i + 1, &get(&path))
    };
    client.send(&(0..8).map(begin).collect::<Vec<_>>());
    for i in 0..8 {
        server.wait_for(&format!("on{i}"));
    }
    let large = |stream, first: &[u8], fields| {
        let block = [&get("/health"), first, &vec![0xbe; fields]].concat();
        frame(HEADERS, ENDS, stream, &block)
    };
    let mut frames = vec![large(17, &inserted_field(), 30)];
    frames.extend((19..200).step_by(2).map(|stream| large(stream, b"", 10)));
    frames.push(frame(6, 0, 0, &[0; 8]));
    client.send(&frames);
    // The answer to PING.
    let mut head = [0; 9];
    while head[3..5] != [6, 1] {
        client.0.read_exact(&mut head).unwrap();
        let len = u64::from(u16::from_be_bytes([head[1], head[2]]));
        std::io::copy(&mut (&client.0).take(len), &mut std::io::sink()).unwrap();
    }
    server.set("go");
    let mut ends = std::collections::BTreeMap::new();
    while ends.len() < 92 {
        client.0.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u16::from_be_bytes([head[1], head[2]]).into()];
        client.0.read_exact(&mut payload).unwrap();
        if matches!(head[3], 1 | 3) && head[8] >= 17 {
            ends.insert(head[8], (head[3], payload));
        }
    }
    // The first is too large, the next ones fit, and the client may ask for the others again.
    let kept = ends.values().skip(1).take(5);
    assert_eq!(ends[&17].0, HEADERS);
    assert!(kept.into_iter().all(|(_, head)| head[0] == STATUS_200));
    let refused = (3, vec![0, 0, 0, 7]);
    assert!(ends.values().skip(6).all(|end| *end == refused), "{ends:?}");
}

/// Padding, priorities and any split into frames and packets leave a head as it is.
fn heads_come_in_any_frames() {
    let (server, socket) = serve(new_site());
    let mut client = RawClient::connect(&socket);
    let head = get("/health");
    let (one, other) = head.split_at(7);
    let padded = [&[3, 0, 0, 0, 0, 1][..], &head, &[0; 3]].concat();
    let begun = [&[2][..], one, &[0; 2]].concat();
    let all = [
        frame(HEADERS, ENDS | 0x28, 1, &padded),
        [
            frame(HEADERS, 1 | 8, 3, &begun),
            frame(9, 0, 3, b""),
            frame(9, 4, 3, other),
        ]
        .concat(),
        [frame(HEADERS, 1, 5, b""), frame(9, 4, 5, &head)].concat(),
    ];
    for (stream, frames) in (1..).step_by(2).zip(all) {
        for byte in frames {
            client.0.write_all(&[byte]).unwrap();
        }
        let came = client.read(stream);
        assert_eq!((came.heads[0], came.body), (STATUS_200, b"fine".to_vec()));
    }
    // Trailers are ignored.
    let post = [&[0x83], &get("/cgi-bin/t?head&count")[1..]].concat();
    let frames = [
        frame(HEADERS, 4, 7, &post),
        frame(0, 0, 7, b"abc"),
        frame(HEADERS, ENDS, 7, &field(b"x", b"y")),
    ];
    client.0.write_all(&frames.concat()).unwrap();
    assert_eq!(client.read(7).heads[0], STATUS_200);
    drop(server);
}

fn frames_that_end_the_connection_have_a_line() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let head = get("/health");
    let begun = frame(HEADERS, 1, 1, &head);
    let endless = vec![frame(9, 0, 1, b""); 20].concat();
    for (frames, code) in [
        (frame(HEADERS, ENDS, 1, &[0xbe]), 9),
        (frame(HEADERS, ENDS, 0, &head), 1),
        (frame(HEADERS, ENDS, 2, &head), 1),
        (frame(5, 4, 1, &[&[0, 0, 0, 2], &head[..]].concat()), 1),
        (frame(HEADERS, ENDS | 8, 1, &[9, 0x82]), 1),
        (frame(9, 4, 1, &head), 1),
        ([begun.clone(), frame(6, 0, 0, &[0; 8])].concat(), 1),
        ([begun.clone(), frame(9, 4, 3, b"")].concat(), 1),
        ([begun, endless].concat(), 11),
        (frame(HEADERS, ENDS, 1, &[0; 17_000]), 6),
    ] {
        let mut client = RawClient::connect(&socket);
        client.0.write_all(&frames).unwrap();
        assert_eq!(client.read_goodbye(), Some(code));
    }
    let lines = watch.after(&["client_error"; 10]);
    assert!(lines.iter().all(|l| l["status"] == 400), "{lines:#?}");
}

/// The error log has the first refusal of a second, and the number of further refusals; the access log has all refusals.
fn many_refusals_are_counted() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut client = RawClient::connect(&socket);
    let heads = (1..=99)
        .step_by(2)
        .map(|stream| frame(HEADERS, ENDS, stream, &get("/")[1..]));
    client
        .0
        .write_all(&heads.collect::<Vec<_>>().concat())
        .unwrap();
    assert_eq!(client.read(99).heads, [STATUS_400]);
    drop(client);
    watch.after(&["client_error"; 50]);
    server.says("more requests were refused within a second");
}

fn curl_asks_for_a_query_of_json_in_tls() {
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
    for (version, expected) in [("--http2", "2 200"), ("--http1.1", "1.1 200")] {
        let said = tls::curl(&url, &[&[version], &says[..]].concat());
        assert_eq!(String::from_utf8(said).unwrap(), expected);
    }
    watch.after(&["ok", "ok"]);
}
