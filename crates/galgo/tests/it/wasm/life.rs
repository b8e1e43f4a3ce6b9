//! Modules that are replaced, code that is kept, and a worker that dies.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::{programs, replace, site, worker};
use crate::harness::{eventually, list};

list![
    a_replaced_module_is_picked_up_and_never_missing,
    a_broken_replacement_does_not_take_the_old_one_away,
    a_killed_worker_is_replaced_and_costs_what_it_ran,
    another_configuration_has_another_worker,
    code_is_kept_and_what_was_tampered_with_is_made_again,
];

fn a_replaced_module_is_picked_up_and_never_missing() {
    let server = site(&[("a.wasm", programs::prints("0"))]).start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "0");
    let mut last = 0;
    for n in 1..=100 {
        replace(&server, "a.wasm", &programs::prints(&n.to_string()));
        // Old or new, never older than what was seen, never an error.
        for _ in 0..3 {
            let reply = server.get("/cgi-bin/a.wasm");
            assert_eq!(reply.status, 200);
            let seen = reply.text().parse().unwrap();
            assert!((last..=n).contains(&seen), "{seen} after {last} of {n}");
            last = seen;
        }
    }
    eventually("the last one", || {
        (server.get("/cgi-bin/a.wasm").text() == "100").then_some(())
    });
}

fn a_broken_replacement_does_not_take_the_old_one_away() {
    let server = site(&[("a.wasm", programs::prints("old"))]).start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "old");
    replace(&server, "a.wasm", b"\0asm\x01\0\0\0 broken");
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "old");
    server.says("a.wasm");
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "old");
    replace(&server, "a.wasm", &programs::prints("new"));
    eventually("the new one", || {
        (server.get("/cgi-bin/a.wasm").text() == "new").then_some(())
    });
}

fn a_killed_worker_is_replaced_and_costs_what_it_ran() {
    let modules = [
        ("sleep.wasm", programs::sleeps("awake\n")),
        ("a.wasm", programs::hello()),
    ];
    let server = site(&modules).start();
    assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
    let mut asleep = server.connect();
    asleep.get("/cgi-bin/sleep.wasm");
    let before = worker(&server);
    server.says("awake");
    kill_process(Pid::from_raw(before as i32).unwrap(), Signal::KILL).unwrap();
    assert_eq!(asleep.reply().status, 502);
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    assert_ne!(worker(&server), before);
    server.says("another is started");
}

/// A worker lives on where it would be told the same; otherwise it ends with its last request.
fn another_configuration_has_another_worker() {
    let modules = [
        ("sleep.wasm", programs::sleeps("awake\n")),
        ("a.wasm", programs::hello()),
    ];
    let server = site(&modules).start();
    assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
    let before = worker(&server);
    assert!(server.reload());
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    assert_eq!(worker(&server), before);
    let mut asleep = server.connect();
    asleep.get("/cgi-bin/sleep.wasm");
    server.says("awake");
    server.configure("listen = [", "max_running = 3\nlisten = [");
    assert!(server.reload());
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    let alive = || fs::read(format!("/proc/{before}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(alive());
    drop(asleep);
    eventually("the end of the old one", || (!alive()).then_some(()));
    assert_ne!(worker(&server), before);
}

fn code_is_kept_and_what_was_tampered_with_is_made_again() {
    let entries = |cache: &std::path::Path| {
        let found = fs::read_dir(cache).unwrap().map(|e| e.unwrap().path());
        let mut found: Vec<_> = found.collect();
        found.sort();
        found
    };
    let first = site(&[("a.wasm", programs::hello())]).start();
    assert_eq!(first.get("/cgi-bin/a.wasm").status, 200);
    let [entry] = &entries(&first.path().join("cache"))[..] else {
        panic!("one entry")
    };
    let good = fs::read(entry).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 0xff;
    // Another server with a cache that holds the broken entry.
    let second = site(&[("a.wasm", programs::hello())]);
    let cache = second.path().join("cache");
    fs::create_dir(&cache).unwrap();
    let copy = cache.join(entry.file_name().unwrap());
    fs::write(&copy, bad).unwrap();
    let second = second.start();
    assert_eq!(second.get("/cgi-bin/a.wasm").text(), "yes\n");
    assert_eq!(fs::read(&copy).unwrap().len(), good.len());
    assert_eq!(entries(&cache).len(), 1);
}
