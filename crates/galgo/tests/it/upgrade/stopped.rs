//! A server is told to end while its predecessor still answers requests: the server ends after the predecessor, and a service
//! manager kills neither.

use rustix::process::Signal;

use crate::harness::{list, new_site};
use galgo_testkit::{Client, Server, process::assert_gone, wait_until};

list![
    it_ends_after_the_old_one,
    a_second_signal_does_not_wait,
    each_waits_for_the_one_before,
    one_that_has_ended_is_not_waited_for,
];

/// Clocks so long that no connection ends by them.
const NO_LIMIT: &str = "shutdown_grace = \"1h\"\nkeep_alive = \"1h\"";

const WAITS: &str = "the previous galgo process still answers requests";

/// Starts a request that waits for the mark `go`.
fn asked(server: &Server, name: &str) -> Client {
    let mut client = server.connect();
    client.get(&format!("/cgi-bin/t?touch={name}&await=go&head&out={name}"));
    server.wait_for(name);
    client
}

fn it_ends_after_the_old_one() {
    let server = new_site().config(NO_LIMIT).start();
    let first = server.pid();
    let mut idle = server.connect();
    idle.get("/health");
    assert!(!idle.reply().closes());
    let mut busy = asked(&server, "old");
    assert!(server.upgrade());
    server.signal(Signal::TERM);
    server.says(WAITS);
    // The old server learns of the signal: its idle connections are closed.
    wait_until("the end of the idle connection", || idle.is_closed());
    server.set("go");
    assert_eq!(busy.reply().text(), "old");
    assert_gone(first);
    assert_gone(server.pid());
}

fn a_second_signal_does_not_wait() {
    let server = new_site().config(NO_LIMIT).start();
    let first = server.pid();
    let mut busy = asked(&server, "old");
    assert!(server.upgrade());
    server.signal(Signal::TERM);
    server.says(WAITS);
    server.signal(Signal::TERM);
    assert_gone(server.pid());
    server.set("go");
    assert_eq!(busy.reply().text(), "old");
    assert_gone(first);
}

fn each_waits_for_the_one_before() {
    let server = new_site().config(NO_LIMIT).start();
    let first = server.pid();
    let mut one = asked(&server, "one");
    assert!(server.upgrade());
    let second = server.pid();
    let mut two = asked(&server, "two");
    assert!(server.upgrade());
    server.signal(Signal::TERM);
    server.says(WAITS);
    server.set("go");
    assert_eq!(one.reply().text(), "one");
    assert_eq!(two.reply().text(), "two");
    [first, second, server.pid()]
        .into_iter()
        .for_each(assert_gone);
}

fn one_that_has_ended_is_not_waited_for() {
    let server = new_site().config(NO_LIMIT).start();
    let first = server.pid();
    assert!(server.upgrade());
    assert_gone(first);
    server.signal(Signal::TERM);
    assert_gone(server.pid());
    assert!(!server.errors().contains(WAITS));
}
