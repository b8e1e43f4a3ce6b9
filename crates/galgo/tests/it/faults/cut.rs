//! Bodies that end early: no program takes the part that has come for the whole body.

use std::fs;

use galgo_testkit::{Client, Server, Site, eventually, process::pids, wait_until};
use rustix::process::Signal;

use crate::harness::{list, new_site};

list![
    a_client_that_leaves,
    a_client_that_resets,
    a_body_that_is_too_large,
    a_body_that_is_too_slow,
    a_request_that_takes_too_long,
    a_server_that_is_told_to_end,
    a_program_that_may_run_to_completion,
    a_body_that_is_whole,
];

/// A program that ignores TERM, reads its input to the end and then makes the mark `done`. With the query `session`, a process
/// that it leaves behind in a session of its own reads instead; with `leaves`, the program itself ends. The mark `up` holds the id of the process that reads.
pub const READS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
static char piece[65536];
static void reads(void) {
    signal(SIGTERM, SIG_IGN);
    ssize_t n = read(0, piece, 1);
    FILE *up = fopen("../marks/up.part", "w");
    fprintf(up, "%d", getpid());
    fclose(up);
    rename("../marks/up.part", "../marks/up");
    while (n > 0) n = read(0, piece, sizeof piece);
    if (n == 0) close(open("../marks/done", O_CREAT | O_WRONLY, 0666));
}
int main(void) {
    const char *query = getenv("QUERY_STRING");
    int leaves = !strcmp(query, "leaves");
    if (leaves || !strcmp(query, "session")) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, 0);
            setsid();
            if (leaves) close(1), close(2);
            reads();
            _exit(0);
        }
        if (leaves) {
            while (access("../marks/up", F_OK) != 0) usleep(1000);
            printf("Content-Type: text/plain\n\nleft\n");
            return 0;
        }
        for (;;) pause();
    }
    reads();
    printf("Content-Type: text/plain\n\nwhole\n");
    return 0;
}
"#;

const QUERIES: [&str; 2] = ["", "session"];
pub const STAYING: [&str; 3] = ["", "session", "leaves"];
/// More than a pipe holds.
const PART: usize = 150_000;

fn site() -> Site {
    new_site()
        .compiled("cgi-bin/reads", READS, &[])
        .defaults("kill_grace = \"100ms\"\nstream_body = true")
}

/// Begins a body that is longer than the part sent, and waits until the program reads.
fn begun(server: &Server, query: &str, framing: &str) -> Client {
    for mark in ["up", "done"] {
        let _ = fs::remove_file(server.mark(mark));
    }
    let mut client = server.connect();
    client.send(format!(
        "POST /cgi-bin/reads?{query} HTTP/1.1\r\nHost: localhost\r\n{framing}"
    ));
    client.try_send([b'x'; PART]);
    client
}

const LENGTH: &str = "Content-Length: 1000000\r\n\r\n";
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\nf4240\r\n";

/// Checks that the reading process has ended without having seen the end of its input. `hidden`: the id that it wrote is that
/// in its PID namespace.
pub fn never_whole(server: &Server, hidden: bool) {
    let reader = fs::read_to_string(server.mark("up")).unwrap();
    let own = |pid: u32| {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find(|l| l.starts_with("NSpid:"));
        let last = numbers.and_then(|l| l.split_ascii_whitespace().last());
        name == b"reads\n" && last == Some(reader.as_str())
    };
    let is_reader = |pid: u32| {
        if hidden {
            own(pid)
        } else {
            pid.to_string() == reader
        }
    };
    wait_until("the end of what reads", || !pids().any(is_reader));
    assert!(!server.mark("done").exists(), "a part passes for the whole");
}

fn each(site: Site, ends: impl Fn(&Server, Client)) {
    let server = site.start();
    for (query, framing) in QUERIES.iter().flat_map(|q| [(q, LENGTH), (q, CHUNKED)]) {
        let client = begun(&server, query, framing);
        server.wait_for("up");
        ends(&server, client);
        never_whole(&server, false);
    }
}

fn a_client_that_leaves() {
    each(site(), |_, client| drop(client));
}

fn a_client_that_resets() {
    each(site(), |_, client| client.reset());
}

fn a_body_that_is_too_large() {
    let server = site().defaults("max_body = 200000").start();
    for query in QUERIES {
        let mut client = begun(
            &server,
            query,
            "Transfer-Encoding: chunked\r\n\r\n249f0\r\n",
        );
        server.wait_for("up");
        client.send("\r\n249f0\r\n");
        assert_eq!(client.reply().status, 413);
        never_whole(&server, false);
    }
}

fn a_body_that_is_too_slow() {
    let site = site().config("min_rate = 1000\nrate_grace = \"1s\"");
    each(site, |_, mut client| assert!(!client.rest().is_empty()));
}

fn a_request_that_takes_too_long() {
    let server = site().defaults("total_timeout = \"1s\"").start();
    for query in QUERIES {
        // Try once more if the machine stood still until the clock had run out.
        eventually("a program that reads", || {
            let mut client = begun(&server, query, LENGTH);
            assert_eq!(client.reply().status, 504);
            server.mark("up").exists().then_some(())
        });
        never_whole(&server, false);
    }
}

fn a_server_that_is_told_to_end() {
    for query in QUERIES {
        let mut server = site().config("shutdown_grace = \"300ms\"").start();
        let _client = begun(&server, query, LENGTH);
        server.wait_for("up");
        server.signal(Signal::TERM);
        server.child.wait().unwrap();
        never_whole(&server, false);
    }
}

/// A program, and what it leaves running, may run to completion only once the program has all of its input.
fn a_program_that_may_run_to_completion() {
    let site = || {
        let site = site().config("shutdown_grace = \"300ms\"");
        site.defaults("run_to_completion = true")
    };
    let server = site().start();
    for (query, framing) in STAYING.iter().flat_map(|q| [(q, LENGTH), (q, CHUNKED)]) {
        let client = begun(&server, query, framing);
        server.wait_for("up");
        client.reset();
        never_whole(&server, false);
    }
    for query in STAYING {
        let mut server = site().start();
        let _client = begun(&server, query, LENGTH);
        server.wait_for("up");
        server.signal(Signal::TERM);
        server.child.wait().unwrap();
        never_whole(&server, false);
    }
}

fn a_body_that_is_whole() {
    let server = site().start();
    let mut client = server.connect();
    client.post("/cgi-bin/reads", b"all");
    assert_eq!(client.reply().text(), "whole\n");
    assert!(server.mark("done").exists());
    // A client that leaves after its body has sent the whole body.
    let server = site().defaults("run_to_completion = true").start();
    let mut client = server.connect();
    client.post("/cgi-bin/reads", &[b'x'; PART]);
    server.wait_for("up");
    client.wait_until_read();
    client.half_close();
    server.wait_for("done");
    // What the program leaves running reads the body.
    for mark in ["up", "done"] {
        fs::remove_file(server.mark(mark)).unwrap();
    }
    let mut client = server.connect();
    client.post("/cgi-bin/reads?leaves", b"all");
    assert_eq!(client.reply().text(), "left\n");
    server.wait_for("done");
}
