//! Programs that are fed before it is known whether they can be executed.

use std::fs;

use super::{
    limits::{IN_TIME, Leased, busy_for_a_moment},
    streams::upload,
};
use crate::harness::{child::pattern, list, new_site, watch::Watch};

/// A body that fits into a pipe, and a body larger than any pipe that the server makes.
const SIZES: [usize; 2] = [50_000, 3_000_000];

fn what_cannot_be_executed() {
    let site = new_site().file("cgi-bin/lost", "#!/nonexistent/sh\n", 0o755);
    let server = site.start();
    let watch = Watch::begin(&server);
    for size in SIZES {
        let mut client = server.connect();
        client.begin_post("/cgi-bin/lost", size);
        let sending = upload(&client, size);
        assert_eq!(client.reply().status, 502);
        drop(client);
        sending.join().unwrap();
    }
    let mut client = server.connect();
    let head =
        "POST /cgi-bin/lost HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}5\r\nhello\r\n0\r\n\r\n"));
    client.wait_until_read();
    assert_eq!(client.reply().status, 502);
    drop(client);
    server.says("/nonexistent/sh");
    watch.after(&["script_error"; 3]);
}

/// A program whose file is open for writing cannot be executed (ETXTBSY). If it can be executed in time, it gets
/// the whole body.
fn what_can_be_executed_only_later() {
    let cold = new_site().defaults("start = \"cold\"");
    let server = cold.own_binary("cgi-bin/other").start();
    let watch = Watch::begin(&server);
    let path = server.path("cgi-bin/copy");
    fs::copy(server.path("cgi-bin/other"), &path).unwrap();
    let mut outcomes = Vec::new();
    for size in SIZES {
        busy_for_a_moment(&mut outcomes, || {
            let busy = fs::File::options().write(true).open(&path).unwrap();
            let mut client = server.connect();
            client.begin_post("/cgi-bin/copy?head&echo", size);
            client.send(&pattern(0, size)[..40_000]);
            client.wait_until_read();
            drop(busy);
            let sent = client.try_send(&pattern(0, size)[40_000..]);
            move || {
                let reply = client.reply();
                assert!(reply.status == 502 || sent && reply.body == pattern(0, size));
                reply
            }
        });
    }
    watch.after(&outcomes);
}

/// A slow execve(2) holds up neither other requests of the event loop nor the client that is to send a body.
fn what_takes_long_to_be_executed() {
    let slow = "#!/bin/sh\nprintf 'Content-Type: text/plain\n\n'; cat\n";
    let site = new_site().file("cgi-bin/slow", slow, 0o755);
    let server = site.config("workers = 1").config(IN_TIME).start();
    let watch = Watch::begin(&server);
    let lease = Leased::new(&server.path("cgi-bin/slow"));
    let fine = || assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
    let mut late = server.connect();
    late.post("/in-time/slow", b"late");
    fine();
    assert_eq!(late.reply().status, 504);
    let mut gone = server.connect();
    gone.begin_post("/cgi-bin/slow", 100_000);
    gone.send([b'x'; 70_000]);
    gone.wait_until_read();
    fine();
    gone.reset();
    let mut patient = server.connect();
    patient.send(
        "POST /cgi-bin/slow HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    );
    assert!(patient.until(b" 100 Continue\r\n\r\n").is_some());
    patient.send("hello");
    patient.wait_until_read();
    fine();
    lease.give_up();
    assert_eq!(patient.reply().text(), "hello");
    drop((late, patient));
    watch.after(&["ok", "script_timeout", "ok", "client_gone", "ok", "ok"]);
}

/// If a client leaves a program that has begun, the program has time to end, although the server has not yet looked
/// whether it has begun.
fn what_has_begun_when_its_client_leaves() {
    let server = new_site().defaults("kill_grace = \"1m\"").start();
    let watch = Watch::begin(&server);
    for n in 0..5 {
        let mut client = server.connect();
        let (on, told) = (format!("on{n}"), format!("told{n}"));
        client.begin_post(&format!("/cgi-bin/t?last={told}&touch={on}&hang"), 100_000);
        client.send([b'x'; 70_000]);
        server.wait_for(&on);
        client.reset();
        server.wait_for(&told);
    }
    watch.after(&["client_gone"; 5]);
}

list![
    what_cannot_be_executed,
    what_can_be_executed_only_later,
    what_takes_long_to_be_executed,
    what_has_begun_when_its_client_leaves,
];
