//! Clients that close one direction of their connection, or both.

use super::exchange;
use crate::harness::{encode, list, new_site, watch::Watch};
use galgo_testkit::{Client, End, Server, Site};

/// The way in which a client leaves.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Leave {
    Fin,
    Rst,
}
use Leave::{Fin, Rst};

impl Leave {
    fn now(self, client: Client) {
        match self {
            Fin => drop(client),
            Rst => client.reset(),
        }
    }
}

/// Makes a client leave once `ready` has brought the request to the point at which it is cut off.
fn leaves(how: Leave, site: Site, ready: impl Fn(&Server, &mut Client)) {
    let server = site.start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    ready(&server, &mut client);
    how.now(client);
    watch.after(&["client_gone"]);
}

fn gone_in_the_request_head() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.send("GET /cgi-bin/t?head HTTP/1.1\r\nHos");
    Fin.now(client);
    watch.after(&["client_error"]);
}

/// A client that has half-closed may still read, so it gets an answer. An empty line is no head.
fn a_head_that_is_cut_gets_400() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    for head in ["GET /cgi-bin/t?head HTTP/1.1\r\nHos", "G", "GET /"] {
        let mut client = server.connect();
        client.send(head);
        client.half_close();
        assert_eq!(client.reply().status, 400, "{head}");
        assert!(client.is_over());
    }
    let mut client = server.connect();
    client.send("\r\n");
    client.half_close();
    assert!(client.is_over());
    watch.after(&["client_error"; 3]);
    server.says("400 for 127.0.0.1: the client sent no more within the request head");
}

fn gone_without_a_request() {
    for how in [Fin, Rst] {
        let server = new_site().start();
        let watch = Watch::begin(&server);
        how.now(server.connect());
        watch.after(&[]);
    }
}

fn in_the_request_body(how: Leave) {
    leaves(how, new_site(), |server, client| {
        client.begin_post("/cgi-bin/t?take=5&touch=up&count&head", 100_000);
        client.send([b'x'; 70_000]);
        server.wait_for("up");
    });
}

fn gone_in_the_request_body_fin() {
    in_the_request_body(Fin);
}

fn gone_in_the_request_body_rst() {
    in_the_request_body(Rst);
}

fn while_silent_before_the_head(how: Leave) {
    leaves(how, new_site(), |server, client| {
        client.get("/cgi-bin/t?touch=up&hang");
        server.wait_for("up");
    });
}

fn gone_while_the_script_is_silent_before_the_head_fin() {
    while_silent_before_the_head(Fin);
}

fn gone_while_the_script_is_silent_before_the_head_rst() {
    while_silent_before_the_head(Rst);
}

fn while_silent_in_the_response(how: Leave) {
    leaves(how, new_site(), |_, client| {
        client.get("/cgi-bin/t?head&out=a&hang");
        assert_eq!(client.head().status, 200);
        assert_eq!(client.chunk().unwrap(), b"a");
    });
}

fn gone_while_the_script_is_silent_in_the_response_fin() {
    while_silent_in_the_response(Fin);
}

fn gone_while_the_script_is_silent_in_the_response_rst() {
    while_silent_in_the_response(Rst);
}

fn while_output_flows(how: Leave) {
    leaves(how, new_site(), |_, client| {
        client.get("/cgi-bin/t?head&endless");
        assert_eq!(client.head().status, 200);
        client.take(1_000_000);
    });
}

fn gone_while_output_flows_fin() {
    while_output_flows(Fin);
}

fn gone_while_output_flows_rst() {
    while_output_flows(Rst);
}

fn with_an_unread_body(how: Leave) {
    leaves(how, new_site(), |server, client| {
        client.begin_post("/cgi-bin/t?touch=up&hang", 1_000_000);
        // More than the pipe to the program holds: the rest is still unread when the client leaves.
        client.send([b'x'; 120_000]);
        server.wait_for("up");
    });
}

fn gone_while_the_script_does_not_read_fin() {
    with_an_unread_body(Fin);
}

fn gone_while_the_script_does_not_read_rst() {
    with_an_unread_body(Rst);
}

fn in_the_queue(how: Leave) {
    let server = new_site().config("max_running = 1").start();
    let watch = Watch::begin(&server);
    let mut first = server.connect();
    first.get("/cgi-bin/t?touch=first&await=go&head");
    server.wait_for("first");
    let mut second = server.connect();
    second.get("/cgi-bin/t?touch=second&hang");
    // The server must have read the request before the client leaves, else there is nothing for it to notice.
    second.wait_until_read();
    how.now(second);
    server.set("go");
    assert_eq!(first.reply().status, 200);
    drop(first);
    watch.after(&["ok", "client_gone"]);
}

fn gone_in_the_queue_fin() {
    in_the_queue(Fin);
}

fn gone_in_the_queue_rst() {
    in_the_queue(Rst);
}

/// The whole group gets TERM, and has its grace while the program itself lives.
fn the_group_of_a_client_that_left_gets_term() {
    let server = new_site().defaults("kill_grace = \"1m\"").start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    let child = "bg=last=child%26touch=bg%26hang";
    client.get(&format!(
        "/cgi-bin/t?{child}&await=bg&deaf&touch=up&await=child&touch=parent"
    ));
    server.wait_for("up");
    drop(client);
    server.wait_for("parent");
    watch.after(&["client_gone"]);
}

/// After the grace the group gets KILL.
fn the_group_of_a_client_that_left_gets_kill() {
    let site = new_site().defaults("kill_grace = \"100ms\"");
    leaves(Fin, site, |server, client| {
        client.get("/cgi-bin/t?bg=deaf%26touch=bg%26hang&await=bg&deaf&touch=up&hang");
        server.wait_for("up");
    });
}

fn half_closed_before_the_head_is_not_gone() {
    exchange(new_site(), &["ok"], |server, client| {
        client.get("/cgi-bin/t?touch=up&await=go&head&out=all");
        server.wait_for("up");
        client.half_close();
        // An interim response shows that the server has noticed.
        assert_eq!(client.head().status, 102);
        server.set("go");
        let reply = client.reply();
        assert_eq!((reply.text(), reply.end), ("all".into(), End::Whole));
        assert!(client.is_over());
    });
}

fn half_closed_between_chunks_is_not_gone() {
    exchange(new_site(), &["ok"], |server, client| {
        client.get("/cgi-bin/t?head&out=a&await=go&out=b&await=on&out=c");
        assert_eq!(client.head().status, 200);
        assert_eq!(client.chunk().unwrap(), b"a");
        client.half_close();
        // The leading zero of the next chunk's size shows that the server has noticed.
        assert_eq!(client.take(1), b"0");
        server.set("go");
        assert_eq!(client.chunk().unwrap(), b"b");
        server.set("on");
        assert_eq!(client.chunk().unwrap(), b"c");
        assert_eq!(client.chunk().unwrap(), b"");
        assert!(client.is_over());
    });
}

/// The zero that the server sends as a probe stands before the last chunk.
fn half_closed_before_the_last_chunk_is_not_gone() {
    exchange(new_site(), &["ok"], |server, client| {
        client.get("/cgi-bin/t?head&out=a&await=go");
        assert_eq!(client.head().status, 200);
        assert_eq!(client.chunk().unwrap(), b"a");
        client.half_close();
        assert_eq!(client.take(1), b"0");
        server.set("go");
        assert_eq!(client.rest(), b"0\r\n\r\n");
    });
}

/// The server can send no probe within such a body, so it knows only that the client has half-closed.
fn half_closed_in_a_body_of_known_length_is_not_gone() {
    exchange(new_site(), &["ok"], |server, client| {
        let head = encode("Content-Type: text/plain\nContent-Length: 2\n\na");
        client.get(&format!("/cgi-bin/t?out={head}&touch=up&await=go&out=b"));
        assert_eq!(client.head().status, 200);
        assert_eq!(client.take(1), b"a");
        client.half_close();
        // This answer on another connection shows that the half-close has arrived.
        assert_eq!(server.get("/health").status, 200);
        server.set("go");
        assert_eq!(client.rest(), b"b");
    });
}

fn half_closed_with_the_request_is_not_gone() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    for request in [
        "GET /cgi-bin/t?head&out=a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /cgi-bin/t?head&out=a HTTP/1.0\r\n\r\n",
        "POST /cgi-bin/t?take=3&head&out=a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    ] {
        let mut client = server.connect();
        client.send(request);
        client.half_close();
        let reply = client.reply();
        // A quick answer comes before the server checks whether the client is still there.
        assert_eq!((reply.text().as_str(), reply.interim), ("a", vec![]));
        assert!(client.is_over());
    }
    watch.after(&["ok", "ok", "ok"]);
}

fn half_closed_behind_pipelined_requests_is_not_gone() {
    exchange(new_site(), &["ok"; 3], |server, client| {
        for n in 0..3 {
            client.get(&format!("/cgi-bin/t?await=go&head&out={n}"));
        }
        client.half_close();
        assert_eq!(client.head().status, 102);
        server.set("go");
        for n in 0..3 {
            assert_eq!(client.reply().text(), n.to_string());
        }
        assert!(client.is_over());
    });
}

list![
    gone_without_a_request,
    gone_in_the_request_head,
    a_head_that_is_cut_gets_400,
    gone_in_the_request_body_fin,
    gone_in_the_request_body_rst,
    gone_while_the_script_is_silent_before_the_head_fin,
    gone_while_the_script_is_silent_before_the_head_rst,
    gone_while_the_script_is_silent_in_the_response_fin,
    gone_while_the_script_is_silent_in_the_response_rst,
    gone_while_output_flows_fin,
    gone_while_output_flows_rst,
    gone_while_the_script_does_not_read_fin,
    gone_while_the_script_does_not_read_rst,
    gone_in_the_queue_fin,
    gone_in_the_queue_rst,
    the_group_of_a_client_that_left_gets_term,
    the_group_of_a_client_that_left_gets_kill,
    half_closed_before_the_head_is_not_gone,
    half_closed_between_chunks_is_not_gone,
    half_closed_before_the_last_chunk_is_not_gone,
    half_closed_in_a_body_of_known_length_is_not_gone,
    half_closed_with_the_request_is_not_gone,
    half_closed_behind_pipelined_requests_is_not_gone,
];
