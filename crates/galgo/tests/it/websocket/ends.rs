//! Ends of upgraded connections.

use super::*;
use crate::harness::{list, watch::Watch};
use galgo_testkit::process;
use rustix::process::Signal;

list![
    a_client_that_is_gone_ends_the_program,
    a_program_that_ends_closes_the_connection,
    a_program_that_dies_resets_the_connection,
    a_silent_connection_ends_by_idle_timeout,
    total_timeout_is_over,
    the_grace_ends_connections,
    a_reload_leaves_them,
    it_holds_a_permit,
];

const KILLED: &str = "kill_grace = \"100ms\"";

fn a_client_that_is_gone_ends_the_program() {
    for run_to_completion in [false, true] {
        let site = site().defaults(KILLED);
        let server = site
            .defaults(&format!("run_to_completion = {run_to_completion}"))
            .start();
        let watch = Watch::begin(&server);
        // The client leaves before the answer, and after it.
        let mut client = server.connect();
        if !run_to_completion {
            client.send(asking("/ws/t?deaf&touch=on&bg=hang&hang"));
            server.wait_for("on");
            client.reset();
        } else {
            drop(client);
        }
        let client = opened(&server, "&deaf&touch=open&bg=hang&hang");
        server.wait_for("open");
        client.reset();
        watch.after(&["client_gone"; 2][usize::from(run_to_completion)..]);
    }
}

fn a_program_that_ends_closes_the_connection() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let mut client = opened(&server, "&out=bye");
    assert_eq!(client.rest(), b"bye");
    // The connection takes no further request.
    client.try_send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.is_over());
    drop(client);
    watch.after(&["ok"]);
}

fn a_program_that_dies_resets_the_connection() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let mut client = opened(&server, "&out=some&take=1&die=9");
    assert_eq!(client.take(4), b"some");
    client.send("x");
    let read = std::io::Read::read(&mut client.stream, &mut [0; 9]);
    assert_eq!(
        read.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset
    );
    drop(client);
    watch.after(&["script_error"]);
}

fn a_silent_connection_ends_by_idle_timeout() {
    let server = site().defaults("idle_timeout = \"300ms\"").start();
    let watch = Watch::begin(&server);
    let mut client = opened(&server, "&echo");
    client.send("x");
    assert_eq!(client.take(1), b"x");
    assert!(client.is_over());
    server.says("no byte moved in either direction within 300ms (idle_timeout)");
    drop(client);
    watch.after(&["script_timeout"]);
}

/// The request has been answered: from then on the connection may last as long as both sides like.
fn total_timeout_is_over() {
    let server = site()
        .config("min_rate = 1000\nrate_grace = \"1s\"")
        .defaults("total_timeout = \"300ms\"\nfirst_byte_timeout = \"300ms\"")
        .start();
    let watch = Watch::begin(&server);
    let mut client = opened(&server, "&echo");
    // Both sides stay silent for longer than either clock.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    client.send("still there");
    assert_eq!(client.take(11), b"still there");
    client.half_close();
    assert!(client.is_over());
    drop(client);
    watch.after(&["ok"]);
}

fn the_grace_ends_connections() {
    let mut server = site().config("shutdown_grace = \"300ms\"").start();
    let mut client = opened(&server, "&deaf&touch=open&bg=hang&hang");
    server.wait_for("open");
    server.signal(Signal::TERM);
    assert!(client.is_over());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    galgo_testkit::wait_until("the end of its programs", || {
        process::of_site(server.site.folder()).is_empty()
    });
    let line = server.access().into_iter().find(|l| l["status"] == 101);
    assert_eq!(line.unwrap()["outcome"], "shutdown");
}

fn a_reload_leaves_them() {
    let server = site().start();
    let mut client = opened(&server, "&echo");
    server.configure("[[route]]\npath = \"/ws/\"\nrespond = { body = \"no more\" }");
    assert!(server.reload());
    client.send("still there");
    assert_eq!(client.take(11), b"still there");
    assert_eq!(server.get("/ws/t").text(), "no more");
    client.half_close();
    assert!(client.is_over());
}

/// Like any request, the connection holds a permit for as long as the program runs.
fn it_holds_a_permit() {
    let server = site().config("max_running = 1\nqueue = 0").start();
    let mut client = opened(&server, "&echo");
    assert_eq!(server.get("/cgi-bin/t?head").status, 503);
    client.half_close();
    assert!(client.is_over());
    galgo_testkit::wait_until("the permit", || server.get("/cgi-bin/t?head").status == 200);
}
