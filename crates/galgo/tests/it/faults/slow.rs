//! Clients that dawdle, send something other than announced, or send more than is accepted.

use std::{thread, time::Duration};

use super::exchange;
use crate::harness::{list, new_site, watch::Watch};
use galgo_testkit::{Client, End, wait_until};

fn a_head_of_one_byte_at_a_time_meets_a_total_deadline() {
    exchange(
        new_site().config("head_timeout = \"1s\""),
        &["client_error"],
        |_, client| {
            let dripping = drip(client, "GET /".bytes().chain(std::iter::repeat(b'x')));
            let reply = client.reply();
            assert_eq!(reply.status, 408);
            assert!(reply.closes() && client.is_over());
            dripping.join().unwrap();
        },
    );
}

fn a_body_of_one_byte_at_a_time_meets_the_minimum_rate() {
    exchange(
        new_site().config("rate_grace = \"1s\""),
        &["client_error"],
        |server, client| {
            // The server discards the output that the program prints once its input ends.
            client.begin_post("/cgi-bin/t?touch=up&count&head&out=never", 100_000);
            client.send([b'x'; 70_000]);
            server.wait_for("up");
            let dripping = drip(client, std::iter::repeat(b'x'));
            let reply = client.reply();
            assert_eq!((reply.status, reply.end), (408, End::Whole));
            assert!(reply.closes() && client.is_over());
            dripping.join().unwrap();
        },
    );
}

/// Sends a byte every 20 ms from another thread until the server takes no more.
fn drip(
    client: &Client,
    bytes: impl Iterator<Item = u8> + Send + 'static,
) -> thread::JoinHandle<()> {
    use std::io::Write;
    let mut stream = client.stream.try_clone().unwrap();
    thread::spawn(move || {
        for byte in bytes {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    })
}

fn a_bad_chunk_in_the_middle_of_an_exchange() {
    let site = new_site().defaults("stream_body = true");
    exchange(site, &["client_error"], |_, client| {
        client.send(
            "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             10000\r\n",
        );
        // Enough bytes for the program to be started.
        let body = [b'a'; 1 << 16];
        client.send(body);
        client.send("\r\n");
        assert_eq!(client.head().status, 200);
        // The echo comes in any number of pieces.
        let mut echoed = Vec::new();
        while echoed.len() < body.len() {
            echoed.extend(client.chunk().unwrap());
        }
        assert_eq!(echoed, body);
        client.send("0x1\r\nb\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.chunk(), None, "not cut");
    });
}

fn content_length_longer_than_what_is_sent() {
    exchange(
        new_site().config("rate_grace = \"1s\""),
        &["client_error"],
        |_, client| {
            client.begin_post("/cgi-bin/t?count&head&out=never", 100);
            client.send("only this");
            let reply = client.reply();
            assert_eq!((reply.status, reply.end), (408, End::Whole));
            assert!(!reply.text().contains("never"));
            assert!(client.is_over());
        },
    );
}

fn content_length_longer_than_what_is_sent_and_then_closed() {
    exchange(new_site(), &["client_gone"], |_, client| {
        client.begin_post("/cgi-bin/t?count&head&out=never", 100);
        client.send("only this");
        client.half_close();
        assert!(client.is_over());
    });
}

fn a_file_to_a_reader_that_stops_reading() {
    let site = new_site().config("rate_grace = \"1s\"");
    let server = site
        .file("public/large", vec![b'x'; 50_000_000], 0o644)
        .start();
    let watch = Watch::begin(&server).memory(24 << 20);
    let mut client = server.connect();
    client.get("/large");
    assert_eq!(client.head().status, 200);
    wait_until("the cut in the access log", || {
        server.access().iter().any(|l| l["outcome"] == "cut")
    });
    assert!(client.rest().len() < 50_000_000);
    drop(client);
    watch.after(&["cut"]);
}

fn too_large(request: impl AsRef<[u8]>, status: u16) {
    exchange(new_site(), &["client_error"], |_, client| {
        client.try_send(request);
        let reply = client.reply();
        assert_eq!((reply.status, reply.end), (status, End::Whole));
        assert!(reply.closes() && client.is_over());
    });
}

fn a_target_of_100_kb() {
    let target = "/cgi-bin/t?".to_owned() + &"x".repeat(100_000);
    too_large(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
}

fn cookies_of_64_kib() {
    let cookie = "Cookie: a=b; ccccccc=ddddddd\r\n".repeat(2300);
    too_large(
        format!("GET /cgi-bin/t?head HTTP/1.1\r\nHost: a\r\n{cookie}\r\n"),
        431,
    );
}

fn ten_thousand_request_headers() {
    let fields = "X: y\r\n".repeat(10_000);
    too_large(
        format!("GET /cgi-bin/t?head HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
        431,
    );
}

/// A larger `max_head` lets such a field through, but no program can be given it.
fn a_field_longer_than_any_variable() {
    let server = new_site().config("max_head = \"1M\"").start();
    let watch = Watch::begin(&server);
    let cookie = "x".repeat(200_000);
    let request = format!("GET /cgi-bin/t?head HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n");
    assert_eq!(server.ask(request).status, 431);
    watch.after(&["client_error"]);
}

list![
    a_head_of_one_byte_at_a_time_meets_a_total_deadline,
    a_body_of_one_byte_at_a_time_meets_the_minimum_rate,
    a_bad_chunk_in_the_middle_of_an_exchange,
    content_length_longer_than_what_is_sent,
    content_length_longer_than_what_is_sent_and_then_closed,
    a_file_to_a_reader_that_stops_reading,
    a_target_of_100_kb,
    cookies_of_64_kib,
    ten_thousand_request_headers,
    a_field_longer_than_any_variable,
];
