//! Clients that are slow, ask for much, or speak another protocol.

use std::{
    io::{self, Read, Write},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use galgo_testkit::tcp_with_buffer;
use tokio::{
    io::ReadBuf,
    time::{Instant, Sleep, sleep},
};

use super::*;

list![
    a_client_that_does_not_read_loses_its_stream,
    a_client_that_does_not_read_at_all_loses_its_connection,
    a_client_behind_a_slow_link_is_waited_for,
    a_client_that_does_not_send_loses_its_stream,
    bodies_that_nobody_reads_hold_up_no_other,
    more_streams_than_allowed_wait,
    rapid_resets_end_the_connection,
    no_preface,
    another_protocol,
    an_idle_connection_makes_room,
    streams_count_for_the_rate_limit_of_their_address,
    streams_count_for_the_share_of_their_address,
    windows_grow_within_the_share_of_their_address,
];

/// Over two connections an address has as many requests at once as it may have connections: ten on each, twenty in all.
fn streams_count_for_the_share_of_their_address() {
    let site = new_site().config("max_connections_per_client = 20\nmax_running = 64");
    let (server, at) = serve_tcp(site);
    let mut clients = [(); 2].map(|()| Connection::tcp(&at));
    for client in &mut clients {
        assert_eq!(client.get("/health").text(), "fine");
    }
    let begin = |i| {
        clients[0].begin(
            "GET",
            &format!("/cgi-bin/t?head&touch=on{i}&await=go"),
            true,
        )
    };
    let streams: Vec<_> = (0..14).map(begin).collect();
    for i in 0..8 {
        server.wait_for(&format!("on{i}"));
    }
    let other = clients[1].begin("GET", "/cgi-bin/t?head&touch=other&await=go", true);
    server.wait_for("other");
    for i in 10..14 {
        assert!(!server.mark(&format!("on{i}")).exists(), "{i}");
    }
    server.set("go");
    for stream in streams {
        assert_eq!(clients[0].reply(stream).status, 200);
    }
    assert_eq!(clients[1].reply(other).status, 200);
}

/// Memory that bodies of a connection may take before they are read counts for the share that its address has of
/// `spool_memory`, except the first body. If there is no share left, bodies wait for each other, and all get answers.
fn windows_grow_within_the_share_of_their_address() {
    for (memory, expected) in [("64M", 655_360..=655_360), ("256K", 131_000..=131_072)] {
        let site = new_site().config(&format!("spool_memory = {memory:?}"));
        let (_server, at) = serve_tcp(site);
        let mut client = Connection::tcp(&at);
        let mut begin = |_| client.begin("POST", "/cgi-bin/t?head&count", false);
        let mut streams: Vec<_> = (0..10).map(&mut begin).collect();
        // The windows that the server grants arrive before this answer.
        assert_eq!(client.get("/health").text(), "fine");
        for stream in &mut streams {
            stream.body.reserve_capacity(64 << 10);
        }
        let room: usize = streams.iter().map(|s| s.body.capacity()).sum();
        assert!(expected.contains(&room), "{room} with {memory}");
        streams.iter_mut().for_each(|s| s.body.reserve_capacity(0));
        for mut stream in streams {
            assert!(client.write(&mut stream, &pattern(0, 100_000), true));
            assert_eq!(client.reply(stream).text(), "100000");
        }
    }
}

/// The limit holds however many connections and streams an address uses.
fn streams_count_for_the_rate_limit_of_their_address() {
    let site = new_site()
        .file("public/a", "a", 0o644)
        .defaults("rate_limit = { requests = 1, per = \"1h\", burst = 3 }");
    let (server, at) = serve_tcp(site);
    let mut clients = [(); 2].map(|()| Connection::tcp(&at));
    let statuses = [0, 1, 0, 1, 0].map(|n: usize| clients[n].get("/a").status);
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let refused = clients[0].get("/a");
    assert!(refused.field("retry-after").is_some());
    assert_eq!(server.get("/a").status, 429);
}

const HASTY: &str = "rate_grace = \"1s\"";

/// The client's windows stay shut, but it reads everything else.
fn a_client_that_does_not_read_loses_its_stream() {
    let file = pattern(0, 100_000);
    let (server, socket) = serve(new_site().config(HASTY).file("public/large", file, 0o644));
    let watch = Watch::begin(&server);
    let mut small = Builder::new();
    small.initial_window_size(1000);
    let mut client = Connection::of(&socket, &small);
    for target in ["/cgi-bin/t?head&fill=100000&hang", "/large"] {
        let stream = client.begin("GET", target, true);
        let (_, body) = client.head(stream);
        let mut body = body.unwrap();
        // The client releases no capacity of the window.
        let cut = loop {
            match client.runtime.block_on(body.data()) {
                Some(Ok(_)) => {}
                Some(Err(e)) => break e.reason(),
                None => panic!("the whole of {target}"),
            }
        };
        assert!(cut.is_some(), "{target}");
        assert_eq!(client.get("/health").text(), "fine");
    }
    drop(client);
    watch.after(&["client_gone", "cut"]);
}

/// The client's window opens again only once half of it has come over a slow link, which takes longer than `rate_grace`.
fn a_client_behind_a_slow_link_is_waited_for() {
    let file = pattern(0, 300_000);
    let (server, at) = serve_tcp(new_site().config(HASTY).file("public/large", &file, 0o644));
    let watch = Watch::begin(&server);
    let mut builder = Builder::new();
    builder.initial_window_size(192 << 10);
    builder.initial_connection_window_size(192 << 10);
    let link = tcp_with_buffer(4096, at.parse().unwrap());
    link.set_nonblocking(true).unwrap();
    let open = || SlowLink {
        socket: tokio::net::TcpStream::from_std(link).unwrap(),
        pause: Box::pin(sleep(Duration::ZERO)),
    };
    let mut client = Connection::over(&builder, open);
    let reply = client.get("/large");
    assert_eq!((reply.body.len(), reply.cut), (file.len(), None));
    drop(client);
    watch.after(&["ok"]);
}

/// A connection that receives 50 KB a second.
struct SlowLink {
    socket: tokio::net::TcpStream,
    pause: Pin<Box<Sleep>>,
}

impl AsyncRead for SlowLink {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.pause.as_mut().poll(cx));
        let mut few = [0; 2500];
        let most = few.len().min(buf.remaining());
        let mut few = ReadBuf::new(&mut few[..most]);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut few))?;
        buf.put_slice(few.filled());
        let next = Instant::now() + Duration::from_millis(50);
        self.pause.as_mut().reset(next);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SlowLink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// The client has windows without end, and does not read from the connection.
fn a_client_that_does_not_read_at_all_loses_its_connection() {
    let (server, socket) = serve(new_site().config(HASTY));
    let watch = Watch::begin(&server);
    let mut raw = UnixStream::connect(&socket).unwrap();
    raw.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE, and as much for the connection.
    raw.write_all(b"\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff")
        .unwrap();
    raw.write_all(b"\0\0\x04\x08\0\0\0\0\0\x7f\0\0\0").unwrap();
    let path = b"/cgi-bin/t?head&endless";
    // Literal fields without indexing: GET, http, the path, and the authority (RFC 7541, 6 and appendix A).
    let length = u8::try_from(path.len()).unwrap();
    let block = [&[0x82, 0x86, 0x04, length], &path[..], b"\x01\x01a"].concat();
    let length = u8::try_from(block.len()).unwrap();
    let head = [&[0, 0, length, 1, 5, 0, 0, 0, 1], &block[..]].concat();
    raw.write_all(&head).unwrap();
    watch.after(&["client_gone"]);
    drop(raw);
}

fn a_client_that_does_not_send_loses_its_stream() {
    let (server, socket) = serve(new_site().config(HASTY));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let mut stream = client.begin("POST", "/cgi-bin/t?count", false);
    assert!(client.write(&mut stream, b"abc", false));
    assert_eq!(client.reply(stream).status, 408);
    assert_eq!(client.get("/health").text(), "fine");
    drop(client);
    watch.after(&["client_error"]);
}

/// Programs that do not read their input hold up no other upload of the connection.
fn bodies_that_nobody_reads_hold_up_no_other() {
    let (server, socket) = serve(new_site().config("max_running = 30"));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let body = pattern(0, 64 << 10);
    let mut upload = |target: &str, times: usize| {
        let mut stream = client.begin("POST", target, false);
        let sent = stream.body.send_data(Bytes::from(body.repeat(times)), true);
        sent.unwrap();
        stream
    };
    let held: Vec<_> = (0..16)
        .map(|i| upload(&format!("/cgi-bin/t?touch=on{i}&await=go&head&count"), 2))
        .collect();
    for i in 0..16 {
        server.wait_for(&format!("on{i}"));
    }
    let other = upload("/cgi-bin/t?head&count", 1);
    assert_eq!(client.reply(other).text(), "65536");
    server.set("go");
    for stream in held {
        assert_eq!(client.reply(stream).text(), "131072");
    }
    drop(client);
    watch.after(&["ok"; 17]);
}

fn more_streams_than_allowed_wait() {
    let (server, socket) = serve(new_site().config("max_running = 200"));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    // After this answer the client knows the limit.
    assert_eq!(client.get("/health").text(), "fine");
    let mut begin = |i| {
        let target = format!("/cgi-bin/t?head&touch=on{i}&await=go");
        client.begin("GET", &target, true)
    };
    let mut streams: Vec<_> = (0..100).map(&mut begin).collect();
    for i in 0..100 {
        server.wait_for(&format!("on{i}"));
    }
    streams.push(begin(100));
    assert!(!server.mark("on100").exists());
    server.set("go");
    for stream in streams {
        assert_eq!(client.reply(stream).status, 200);
    }
    drop(client);
    watch.after(&["ok"; 101]);
}

/// Rapid Reset, CVE-2023-44487.
fn rapid_resets_end_the_connection() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut raw = UnixStream::connect(&socket).unwrap();
    raw.set_read_timeout(Some(LONG)).unwrap();
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (1_u32..2000).step_by(2) {
        said.extend(b"\0\0\x06\x01\x05");
        said.extend(stream.to_be_bytes());
        said.extend(b"\x82\x86\x84\x01\x01a");
        said.extend(b"\0\0\x04\x03\0");
        said.extend(stream.to_be_bytes());
        said.extend(8_u32.to_be_bytes());
    }
    let _ = raw.write_all(&said);
    let mut rest = Vec::new();
    let _ = raw.read_to_end(&mut rest);
    // GOAWAY with ENHANCE_YOUR_CALM.
    let calm = rest.windows(4).any(|w| w == 11_u32.to_be_bytes());
    assert!(calm, "{}", rest.escape_ascii());
    watch.over();
}

fn no_preface() {
    let (server, socket) = serve(new_site().config("head_timeout = \"1s\""));
    let watch = Watch::begin(&server);
    for said in ["", "PRI * HTTP/2.0\r\n"] {
        let mut raw = UnixStream::connect(&socket).unwrap();
        raw.write_all(said.as_bytes()).unwrap();
        let mut rest = Vec::new();
        let _ = raw.read_to_end(&mut rest);
    }
    watch.after(&[]);
}

fn another_protocol() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut raw = UnixStream::connect(&socket).unwrap();
    raw.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut rest = Vec::new();
    let _ = raw.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
    watch.after(&[]);
}

fn an_idle_connection_makes_room() {
    let (server, at) = serve_tcp(new_site().config(
        "max_connections = 3\nmax_connections_per_client = 3\nworkers = 1\nkeep_alive = \"1h\"",
    ));
    let mut client = Connection::tcp(&at);
    assert_eq!(client.get("/health").text(), "fine");
    let others: Vec<_> = (0..4)
        .map(|_| {
            let mut one = server.connect();
            one.get("/health");
            assert_eq!(one.reply().text(), "fine");
            one
        })
        .collect();
    let over = || client.driver.is_finished().then_some(());
    eventually("the end of the connection", over);
    assert!(client.driver.join().unwrap().is_ok());
    drop(others);
}
