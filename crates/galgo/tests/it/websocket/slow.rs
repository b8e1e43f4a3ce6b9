//! Sides that do not read: each waits for the other in bounded memory, and other requests go on.

use std::{io::Write, net::TcpStream};

use super::*;
use crate::harness::{list, watch::Watch};

list![
    a_client_that_never_reads,
    a_program_that_never_reads,
    neither_reads,
];

const ROOM: u64 = 48 << 20;

fn a_client_that_never_reads() {
    let server = site()
        .config("rate_grace = \"1s\"")
        .defaults("kill_grace = \"100ms\"")
        .start();
    let watch = Watch::begin(&server).memory(ROOM);
    let client = opened(&server, "&endless");
    // `min_rate` ends the connection although the client is still there.
    watch.after(&["client_gone"]);
    drop(client);
}

/// Bytes that do not fit into the program's pipe stay with the client.
fn a_program_that_never_reads() {
    let server = site().defaults("kill_grace = \"100ms\"").start();
    let watch = Watch::begin(&server).memory(ROOM);
    let client = opened(&server, "&touch=open&hang");
    server.wait_for("open");
    fill_up(&client.stream);
    client.reset();
    watch.after(&["client_gone"]);
}

/// Both sides are stuck in a write.
fn neither_reads() {
    let server = site()
        .config("rate_grace = \"1s\"")
        .defaults("kill_grace = \"100ms\"")
        .start();
    let watch = Watch::begin(&server).memory(ROOM);
    let client = opened(&server, "&endless");
    fill_up(&client.stream);
    // `min_rate` ends the connection although the client is still there.
    watch.after(&["client_gone"]);
    drop(client);
}

/// Writes until the connection takes nothing more.
fn fill_up(stream: &TcpStream) {
    let mut stream = stream.try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    let block = vec![0; 1 << 20];
    galgo_testkit::wait_until("a full connection", || {
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_millis(300) {
            if stream.write(&block).is_ok() {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        true
    });
    stream.set_nonblocking(false).unwrap();
}
