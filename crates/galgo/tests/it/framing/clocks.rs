//! Clients that are slow, silent, or gone.

use super::{MARKER, everything, site, statuses};
use crate::harness::{list, watch::Watch};
use galgo_testkit::{LONG, eventually, wait_until};
use std::time::Duration;

list![
    a_slow_head_is_a_408,
    a_slow_body_is_a_408,
    a_reader_that_stops_is_cut_off,
    an_idle_connection_is_closed_without_a_word,
    a_new_connection_may_wait_longer,
    a_connection_without_a_request_is_no_line,
    a_head_that_ends_early,
];

fn a_slow_head_is_a_408() {
    let server = site().config("head_timeout = \"1s\"").start();
    let watch = Watch::begin(&server);
    // Each byte is in time, but the whole head is not.
    let mut client = server.connect();
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    client.send("GET / HTTP/1.1\r\nX: ");
    wait_until("the end of a head without end", || {
        client.try_send("a");
        client.stream.peek(&mut [0]).is_ok()
    });
    client.stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(statuses(&everything(&mut client)), [408]);
    watch.after(&["client_error"]);
}

fn a_slow_body_is_a_408() {
    let server = site()
        .config("min_rate = \"1M\"\nrate_grace = \"1s\"")
        .start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?take=1000&head", 1000);
    client.send("x");
    let reply = client.reply();
    assert_eq!((reply.status, reply.closes()), (408, true));
    assert!(client.is_over());
    drop(client);
    watch.after(&["client_error"]);
}

fn a_reader_that_stops_is_cut_off() {
    let server = site()
        .config("min_rate = \"1M\"\nrate_grace = \"1s\"")
        .start();
    let watch = Watch::begin(&server).memory(8 << 20);
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&endless");
    assert_eq!(client.head().status, 200);
    // The client does not read another byte until the server has given up.
    let lines = eventually("the end of the request", || {
        let lines = server.access();
        let ended = lines
            .into_iter()
            .find(|l| l["target"] == "/cgi-bin/t?head&endless");
        ended.filter(|l| l["outcome"] == "client_gone")
    });
    assert_eq!(lines["status"], 200);
    while client.chunk().is_some_and(|c| !c.is_empty()) {}
    drop(client);
    watch.after(&["client_gone"]);
}

const SHORT: &str = "keep_alive = \"100ms\"\nhead_timeout = ";

fn an_idle_connection_is_closed_without_a_word() {
    let server = site().config(&format!("{SHORT}\"1h\"")).start();
    let mut client = server.connect();
    client.send(MARKER);
    assert_eq!(client.reply().text(), "MARKED");
    assert!(client.is_over());
}

fn a_new_connection_may_wait_longer() {
    let server = site().config(&format!("{SHORT}\"1h\"")).start();
    let mut new = server.connect();
    let mut idle = server.connect();
    idle.send(MARKER);
    assert_eq!(idle.reply().text(), "MARKED");
    assert!(idle.is_over());
    new.send(MARKER);
    assert_eq!(new.reply().text(), "MARKED");
    let server = site().config(&format!("{SHORT}\"1s\"")).start();
    assert!(server.connect().is_over());
}

fn a_connection_without_a_request_is_no_line() {
    let server = site().start();
    let watch = Watch::begin(&server);
    for _ in 0..10 {
        server.connect().half_close();
        server.connect().reset();
    }
    watch.after(&[]);
}

fn a_head_that_ends_early() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.send("GET /marker HTTP/1.1\r\nHost: loc");
    client.half_close();
    assert_eq!(client.reply().status, 400);
    assert!(client.is_over());
    watch.after(&["client_error"]);
}
