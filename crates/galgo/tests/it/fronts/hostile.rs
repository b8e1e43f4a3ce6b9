//! Requests of a hostile front, and of a client that is not permitted to be a front.

use super::*;

list![what_a_hostile_front_sends, a_stranger_is_no_front,];

/// Name, bytes that are sent, and status of the answer (0: the connection is closed).
type Row = (&'static str, Vec<u8>, u16);

fn post(more: &[(&str, &str)]) -> Vec<u8> {
    params("POST", "/cgi-bin/t?take=9&head", more)
}

/// Returns variables that promise a body of five bytes.
fn five() -> Vec<u8> {
    post(&[("CONTENT_LENGTH", "5")])
}

/// Returns a request that has begun.
fn begun(rest: &[Vec<u8>]) -> Vec<u8> {
    [begin(1, true), rest.concat()].concat()
}

/// Returns the records of all variables.
fn head(params: &[u8]) -> Vec<u8> {
    [record(PARAMS, 1, params, 0), record(PARAMS, 1, b"", 0)].concat()
}

/// Returns rows with records that are malformed or come at the wrong time.
fn frames() -> Vec<Row> {
    vec![
        ("garbage", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 0),
        ("version 2", [&[2], &begin(1, true)[1..]].concat(), 0),
        ("stdin first", begun(&[record(STDIN, 1, b"a", 0)]), 400),
        ("begin twice", begun(&[begin(1, true)]), 400),
        ("begin too short", record(BEGIN, 1, &[0, 1], 0), 0),
        ("unknown type", begun(&[record(77, 1, b"a", 0)]), 400),
        (
            "stdout from the front",
            begun(&[record(STDOUT, 1, b"a", 0)]),
            400,
        ),
        ("values that are cut", record(9, 0, &[200, 1], 0), 0),
    ]
}

/// Returns rows with wrong variables.
fn variables() -> Vec<Row> {
    let five = five();
    let large = vec![b'x'; 60_000];
    let ok = params("GET", "/cgi-bin/t?head", &[]);
    vec![
        ("variables that are cut", begun(&[head(&[5, 5, b'a'])]), 400),
        (
            "a length of 2^31",
            begun(&[head(&[0xff, 0xff, 0xff, 0xff, 1])]),
            400,
        ),
        ("no variables", begun(&[head(b"")]), 400),
        (
            "too many",
            begun(&[record(PARAMS, 1, &large, 0), record(PARAMS, 1, &large, 0)]),
            431,
        ),
        (
            "NUL in a field",
            begun(&[head(&params("GET", "/", &[("HTTP_A", "\0")]))]),
            400,
        ),
        (
            "a length twice",
            begun(&[head(
                &[five.clone(), pairs(&[("CONTENT_LENGTH", "5")])].concat(),
            )]),
            400,
        ),
        (
            "half the variables",
            begun(&[record(PARAMS, 1, &ok[..9], 0)]),
            408,
        ),
        ("half a header", begin(1, true)[..5].to_vec(), 0),
    ]
}

/// Returns rows with wrong bodies.
fn bodies() -> Vec<Row> {
    let five = five();
    vec![
        (
            "half of stdin",
            begun(&[head(&five), record(STDIN, 1, b"abc", 0)]),
            408,
        ),
        (
            "less stdin",
            begun(&[
                head(&five),
                record(STDIN, 1, b"abc", 0),
                record(STDIN, 1, b"", 0),
            ]),
            400,
        ),
        (
            "more stdin",
            begun(&[head(&five), record(STDIN, 1, b"abcdef", 0)]),
            400,
        ),
        (
            "a bad type in stdin",
            begun(&[head(&five), record(66, 1, b"abc", 0)]),
            400,
        ),
        (
            "too large a body",
            begun(&[head(&post(&[("CONTENT_LENGTH", "99999999999")]))]),
            413,
        ),
    ]
}

fn what_a_hostile_front_sends() {
    let clocks = new_site().config("head_timeout = \"1s\"\nrate_grace = \"1s\"");
    // Only the tests of these clocks set them; other rows must not meet them on a slow machine.
    let (late, plain) = (serve(clocks), serve(new_site()));
    let rows = [frames(), variables(), bodies()].concat();
    for (name, bytes, status) in rows {
        let half = name.starts_with("half ");
        let (server, fcgi, _) = if half { &late } else { &plain };
        let watch = Watch::begin(server);
        let mut front = Front::connect(fcgi);
        front.send(bytes);
        match status {
            0 => front.closed(),
            _ => {
                let reply = front.reply(1);
                let wanted = format!("Status: {status} ");
                assert!(reply.head.starts_with(&wanted), "{name}: {reply:?}");
                assert_eq!(reply.end, DONE, "{name}");
            }
        }
        drop(front);
        watch.after(&["client_error"]);
    }
    // Records with the id of no request get no answer and do no harm.
    let (server, fcgi, _) = plain;
    let watch = Watch::begin(&server);
    let mut front = Front::connect(&fcgi);
    for kind in [ABORT, PARAMS, STDIN] {
        front.send(record(kind, 4242, b"x", 9));
    }
    front.send(request(
        0xffff,
        false,
        &params("GET", "/cgi-bin/t?head&out=a", &[]),
        b"",
    ));
    assert_eq!(front.reply(0xffff).text(), "a");
    watch.after(&["ok"]);
    // A connection without any record does no harm either.
    let watch = Watch::begin(&server);
    drop(Front::connect(&fcgi));
    watch.after(&[]);
}

/// Returns an address of this machine beyond loopback. No packet is sent to find it.
fn address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// Returns the answer to `/health` over FastCGI on TCP.
fn over_tcp(server: &Server) -> Vec<u8> {
    let mut client = Client::connect(server.listens(1));
    // A connection that is refused may be reset before the whole request is written.
    client.try_send(request(1, false, &params("GET", "/health", &[]), b""));
    client.rest()
}

/// A front tells the server which clients ask. Over TCP, only loopback and `trusted_proxies` may be fronts.
fn a_stranger_is_no_front() {
    let fine = |all: &[u8]| all.windows(4).any(|w| w == b"fine");
    let site = new_site().arguments(&["-l", "127.0.0.1:0", "-l", "fastcgi+127.0.0.1:0"]);
    assert!(fine(&over_tcp(&site.start())));
    let Some(own) = address() else {
        skip!("this machine has no address beyond loopback");
    };
    let listen = format!("fastcgi+{own}:0");
    for (trusted, known) in [(String::new(), false), (format!("\"{own}\""), true)] {
        let mut site = new_site()
            .config(&format!("trusted_proxies = [{trusted}]"))
            .arguments(&["-l", "127.0.0.1:0", "-l", &listen]);
        if rustix::process::geteuid().is_root() {
            // If it runs as root, galgo serves this machine only.
            site = site.config("user = \"nobody\"");
        }
        let server = site.start();
        let all = over_tcp(&server);
        assert_eq!(fine(&all), known, "{:?}", String::from_utf8_lossy(&all));
        if !known {
            assert_eq!(all, b"");
            server.says("the connection was closed: this address is not in trusted_proxies (add it if it is your front server)");
        }
    }
}
