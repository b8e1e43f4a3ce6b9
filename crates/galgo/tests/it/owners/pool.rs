//! How many helpers a user has: one, and more where all have much to do.

use std::{fs, thread};

use galgo_testkit::{Client, Server, eventually, process::parent, wait_until};

use super::{GAMES, helpers, kill, life::gone, own, site};
use crate::{
    fairness::WAITS,
    harness::{list, skip},
};

list![
    many_first_requests_make_one_helper,
    where_helpers_have_much_to_do_there_are_more,
    where_processes_are_counted_there_is_one_helper,
];

/// A helper has so many programs before there is another one.
const BUSY: usize = 4;

/// As many as want it wait for the same one.
fn many_first_requests_make_one_helper() {
    let server = site().start();
    let mut clients: Vec<_> = (0..BUSY).map(|_| server.connect()).collect();
    for round in 0..3 {
        for client in &mut clients {
            client.get("/games/who");
        }
        // None is read before all are there: a second helper would be busy still.
        let made = helpers(&server);
        assert!(made.len() <= 1, "{made:?} in round {round}");
        for client in &mut clients {
            assert_eq!(client.reply().status, 200);
        }
        let made = helpers(&server);
        assert_eq!(made.len(), 1, "{made:?} in round {round}");
        kill(made[0]);
        gone(made[0]);
    }
}

/// Asks for programs until so many run, which wait; `named`: what their marks are called. The clients, and the programs.
fn many_wait(server: &Server, path: &str, named: &str, count: usize) -> (Vec<Client>, Vec<u32>) {
    let asks = |n| {
        let mut client = server.connect();
        client.get(&format!("{path}?{named}{n}"));
        client
    };
    let clients = (0..count).map(asks).collect();
    let pid = |n| {
        let mark = server.mark(&format!("{named}{n}"));
        let read = || fs::read_to_string(&mark).ok()?.trim().parse().ok();
        eventually("a program", read)
    };
    (clients, (0..count).map(pid).collect())
}

/// They share the work, and those without any leave.
fn where_helpers_have_much_to_do_there_are_more() {
    let processors = thread::available_parallelism().unwrap().get();
    if processors < 2 {
        skip!("there is one helper for each processor at most");
    }
    let site = site().file("games/waits", WAITS, 0o755);
    own(&site, "games/waits", GAMES);
    let server = site
        .config("max_running = 1000\n")
        .env("GALGO_TEST_HELPER_IDLE", "3000")
        .start();
    let (mut clients, programs) = many_wait(&server, "/games/waits", "a", BUSY);
    let [first] = helpers(&server)[..] else {
        panic!("{:?}", helpers(&server))
    };
    assert!(programs.iter().all(|pid| parent(*pid) == Some(first)));
    // The next one has another made, and does not wait for it.
    let others = |pid: &u32| parent(*pid) != Some(first);
    wait_until("a program of the other one", || {
        let name = format!("b{}", clients.len());
        let (more, programs) = many_wait(&server, "/games/waits", &name, 1);
        clients.extend(more);
        programs.iter().any(others)
    });
    // However many there are.
    let (more, _) = many_wait(&server, "/games/waits", "c", BUSY * (processors + 2));
    clients.extend(more);
    // One that has left may be there still.
    wait_until("as many as there are processors, or fewer", || {
        (2..=processors).contains(&helpers(&server).len())
    });
    server.set("go");
    for client in &mut clients {
        assert_eq!(client.reply().text(), "ok");
    }
    wait_until("the end of helpers that nobody asks", || {
        helpers(&server).is_empty()
    });
    assert!(server.get("/games/who").text().starts_with("5\n"));
}

/// Where the kernel counts helpers among the user's processes, they take no room of programs.
fn where_processes_are_counted_there_is_one_helper() {
    let site = site().file("games/waits", WAITS, 0o755);
    own(&site, "games/waits", GAMES);
    let server = site
        .config("max_running = 1000\n[[route]]\npath = \"/few/\"\ncgi = \"games\"\nuser = \"games\"\nprocesses = 4000\n")
        .start();
    let (mut clients, _) = many_wait(&server, "/few/waits", "a", BUSY + 1);
    let (more, programs) = many_wait(&server, "/few/waits", "b", 2 * BUSY);
    let one = helpers(&server);
    assert_eq!(one.len(), 1);
    assert!(programs.iter().all(|pid| parent(*pid) == Some(one[0])));
    clients.extend(more);
    server.set("go");
    for client in &mut clients {
        assert_eq!(client.reply().text(), "ok");
    }
}
