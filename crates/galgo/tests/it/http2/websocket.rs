//! WebSockets over HTTP/2 (RFC 8441).

use h2::ext::Protocol;

use super::*;
use crate::websocket::{granting, site};

list![
    s5_a_program_has_the_stream,
    s5_it_is_told_what_http_1_would_say,
    an_answer_is_no_websocket,
    s3_only_where_the_server_says_so,
    a_reset_ends_the_program_that_has_the_stream,
    a_program_that_dies_resets_the_stream,
    a_client_that_reads_nothing_loses_its_stream,
    many_small_messages_at_once_all_arrive,
];

/// The messages come faster than the program reads them.
fn many_small_messages_at_once_all_arrive() {
    let (_server, socket) = serve(site());
    let mut client = Connection::connect(&socket);
    let (mut send, mut reply, mut receive) = open(&mut client, "&echo");
    let message = b"\x82\x82\0\0\0\0ok";
    for n in 1..=3000 {
        send.send_data(Bytes::from_static(message), n == 3000)
            .unwrap();
    }
    while client.more(&mut reply, &mut receive) {}
    assert_eq!((reply.body.len(), reply.cut), (3000 * message.len(), None));
    assert_eq!(client.get("/health").text(), "fine");
}

/// Asks for `protocol` on a new stream.
fn ask(client: &mut Connection, target: &str, protocol: &str) -> Stream {
    let protocol = Protocol::from(protocol);
    let asks = request("CONNECT", target)
        .header("sec-websocket-version", "13")
        .extension(protocol);
    // The server's SETTINGS come first: without them the client may not ask.
    eventually("SETTINGS_ENABLE_CONNECT_PROTOCOL", || {
        client
            .send
            .is_extended_connect_protocol_enabled()
            .then_some(())
    });
    client.send(asks, false).unwrap()
}

fn open(client: &mut Connection, more: &str) -> (SendStream<Bytes>, Reply, RecvStream) {
    let Stream { response, body } = ask(client, &granting(more), "websocket");
    let response = client.runtime.block_on(response).unwrap();
    let (head, receive) = response.into_parts();
    let reply = Reply {
        status: head.status.as_u16(),
        fields: head.headers,
        body: Vec::new(),
        cut: None,
    };
    (body, reply, receive)
}

fn s5_a_program_has_the_stream() {
    let (server, socket) = serve(site());
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let (mut send, mut reply, mut receive) = open(&mut client, "&echo");
    assert_eq!(reply.status, 200);
    for name in [
        "upgrade",
        "connection",
        "sec-websocket-accept",
        "content-length",
    ] {
        assert_eq!(reply.field(name), None, "{name}");
    }
    for piece in ["one", "two"] {
        send.send_data(piece.into(), false).unwrap();
        let before = reply.body.len();
        while reply.body.len() < before + 3 {
            assert!(client.more(&mut reply, &mut receive));
        }
    }
    // Meanwhile the connection serves other requests.
    assert_eq!(client.get("/health").text(), "fine");
    send.send_data("three".into(), true).unwrap();
    while client.more(&mut reply, &mut receive) {}
    assert_eq!((reply.text().as_str(), reply.cut), ("onetwothree", None));
    drop((send, receive, client));
    let lines = watch.after(&["ok"]);
    assert_eq!(
        (&lines[0]["status"], &lines[0]["bytes"]),
        (&101.into(), &11.into())
    );
}

fn s5_it_is_told_what_http_1_would_say() {
    let (_server, socket) = serve(site());
    let mut client = Connection::connect(&socket);
    let mut keys = Vec::new();
    for _ in 0..2 {
        let (_send, mut reply, mut receive) = open(&mut client, "&env");
        while client.more(&mut reply, &mut receive) {}
        let told = reply.text();
        for line in [
            "REQUEST_METHOD=GET",
            "HTTP_UPGRADE=websocket",
            "HTTP_CONNECTION=Upgrade",
            "HTTP_SEC_WEBSOCKET_VERSION=13",
        ] {
            assert!(told.lines().any(|l| l == line), "{line} in {told}");
        }
        let key = |line: &str| Some(line.strip_prefix("HTTP_SEC_WEBSOCKET_KEY=")?.to_owned());
        keys.extend(told.lines().find_map(key));
    }
    assert!(
        keys.len() == 2 && keys[0] != keys[1] && keys[0].len() == 24,
        "{keys:?}"
    );
}

/// An answer must not have a 2xx status: any 2xx would say that the WebSocket is open.
fn an_answer_is_no_websocket() {
    let (server, socket) = serve(site());
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let denied = encode("Status: 403 No\n\n");
    for (target, protocol, status) in [
        ("/ws/t?head&out=page", "websocket", 501),
        ("/cgi-bin/t?head&out=page", "websocket", 501),
        (&*format!("/ws/t?out={denied}"), "websocket", 403),
        ("/nothing", "websocket", 404),
        (&granting("&echo"), "connect-udp", 501),
    ] {
        let stream = ask(&mut client, target, protocol);
        let reply = client.reply(stream);
        assert_eq!(reply.status, status, "{target}");
    }
    assert_eq!(client.get("/health").text(), "fine");
    drop(client);
    watch.after(&["ok", "ok", "ok", "not_found", "client_error"]);
}

fn s3_only_where_the_server_says_so() {
    let (_server, socket) = serve(new_site());
    let mut client = Connection::connect(&socket);
    assert_eq!(client.get("/health").text(), "fine");
    assert!(!client.send.is_extended_connect_protocol_enabled());
    // A server with a route for WebSockets says so. An ordinary CONNECT, without a protocol, is not affected.
    let (_server, socket) = serve(site());
    let mut client = Connection::connect(&socket);
    assert_eq!(client.get("/health").text(), "fine");
    assert!(client.send.is_extended_connect_protocol_enabled());
}

fn a_reset_ends_the_program_that_has_the_stream() {
    let (server, socket) = serve(site().defaults("kill_grace = \"100ms\""));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let (mut send, _, receive) = open(&mut client, "&deaf&touch=on&bg=hang&hang");
    server.wait_for("on");
    send.send_reset(Reason::CANCEL);
    assert_eq!(client.get("/health").text(), "fine");
    // Each of these values keeps the connection open.
    drop((send, receive, client));
    watch.after(&["client_gone"]);
}

fn a_program_that_dies_resets_the_stream() {
    let (server, socket) = serve(site());
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let (mut send, mut reply, mut receive) = open(&mut client, "&out=some&take=1&die=9");
    assert!(client.more(&mut reply, &mut receive));
    send.send_data("x".into(), false).unwrap();
    while client.more(&mut reply, &mut receive) {}
    assert_eq!(reply.cut, Some(Reason::INTERNAL_ERROR));
    drop((send, receive, client));
    watch.after(&["script_error"]);
}

fn a_client_that_reads_nothing_loses_its_stream() {
    let site = site()
        .config("rate_grace = \"1s\"")
        .defaults("kill_grace = \"100ms\"");
    let (server, socket) = serve(site);
    let watch = Watch::begin(&server).memory(48 << 20);
    let mut client = Connection::connect(&socket);
    let (send, _, receive) = open(&mut client, "&endless");
    // This request has a connection of its own, because unread data fills the window of the first connection.
    let mut other = Connection::connect(&socket);
    assert_eq!(other.get("/health").text(), "fine");
    // The stream ends by `min_rate`; the client is still there.
    eventually("the end of the stream", || {
        let lines = server.access();
        lines
            .iter()
            .any(|l| l["outcome"] == "client_gone")
            .then_some(())
    });
    drop((send, receive, client, other));
    watch.after(&["client_gone"]);
}
