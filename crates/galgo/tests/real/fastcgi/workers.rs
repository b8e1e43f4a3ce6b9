//! Workers that galgo starts, watches and replaces itself.

use super::*;

/// Each worker is a process. While clients ask all the time, it is replaced after `max_requests` requests. All
/// workers end with the server.
#[test]
fn workers_are_replaced_one_by_one() {
    let site = new_site();
    let mark = mark("replaced");
    let config = worker_pool(&site, "/usr/bin/php-cgi", 2, 5, &mark);
    let server = site.config(&config).start();
    curl(&[&server.url(WORKED)]).ok();
    wait_until("two workers", || pids_of(&mark).len() == 2);
    let loads = [(); 3].map(|()| load(server.url(WORKED)));
    let mut seen = std::collections::BTreeSet::new();
    wait_until("the fifth generation", || {
        seen.insert(curl(&[&server.url(WORKED)]).ok().text());
        seen.len() >= 10
    });
    loads.into_iter().for_each(Repeated::end);
    wait_until("two workers again", || pids_of(&mark).len() == 2);
    drop(server);
    wait_until("their end", || marked(&mark).is_empty());
}

/// A killed server can end no worker. The workers end nevertheless.
#[test]
fn workers_do_not_outlive_a_server_that_is_killed() {
    let site = new_site();
    let mark = mark("killed");
    let config = worker_pool(&site, "/usr/bin/php-cgi", 2, 0, &mark);
    let mut server = site.config(&config).start();
    curl(&[&server.url(WORKED)]).ok();
    wait_until("two workers", || pids_of(&mark).len() == 2);
    server.kill();
    wait_until("their end", || pids_of(&mark).is_empty());
}

/// A worker that dies is followed by another, and the log names the cause of its death.
#[test]
fn a_worker_that_dies_is_followed_by_another() {
    let site = new_site();
    let mark = mark("dies");
    let config = worker_pool(&site, "/usr/bin/php-cgi", 1, 0, &mark);
    let server = site.config(&config).start();
    let first = curl(&[&server.url(WORKED)]).ok().text();
    let pid = galgo_testkit::process::pid(first.parse().unwrap());
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    // Until the worker has ended, it may still accept a request, which is then lost with it.
    server.says("ended by signal 9");
    let second = curl(&[&server.url(WORKED)]).ok().text();
    assert_ne!(first, second);
}

/// The program is a script here, which the test replaces as an upgrade would.
#[test]
fn workers_are_replaced_when_their_program_changes() {
    let site = new_site();
    let mark = mark("changes");
    site.program("run", "#!/bin/sh\nGENERATION=1 exec /usr/bin/php-cgi\n");
    let run = site.path("cgi-bin/run");
    let config = worker_pool(&site, &run.display().to_string(), 2, 0, &mark);
    site.write("php/page.php", "<?php echo getenv('GENERATION');");
    let server = site.config(&config).start();
    assert_eq!(curl(&[&server.url(WORKED)]).ok().text(), "1");
    let load = load(server.url(WORKED));
    let new = server.site.path("cgi-bin/new");
    server
        .site
        .program("new", "#!/bin/sh\nGENERATION=22 exec /usr/bin/php-cgi\n");
    std::fs::rename(new, run).unwrap();
    wait_until("the second generation everywhere", || {
        (0..4).all(|_| curl(&[&server.url(WORKED)]).ok().text() == "22")
    });
    load.end();
}

/// If a program cannot run, the log says so, galgo tries again now and then, and requests get 502 at once.
#[test]
fn workers_that_end_at_once() {
    let site = new_site();
    let mark = mark("at-once");
    site.program("run", "#!/bin/sh\necho 'no database' >&2\nexit 3\n");
    let run = site.path("cgi-bin/run");
    let config = worker_pool(&site, &run.display().to_string(), 2, 0, &mark);
    let server = site.config(&config).start();
    server.says("no database");
    server.says("ended with status 3");
    // Requests that already wait get the reason, too. Later requests get it without waiting.
    wait_until("the reason", || {
        curl(&[&server.url(WORKED)]).is(502);
        server
            .errors()
            .contains("the workers of this route end right after their start")
    });
}
