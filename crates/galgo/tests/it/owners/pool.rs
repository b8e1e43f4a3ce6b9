//! The number of helpers of a user: one, and more if all of them are busy.

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

/// Number of programs at which a helper counts as busy and another may be started.
const BUSY: usize = 4;

/// The first requests all wait for the same helper.
fn many_first_requests_make_one_helper() {
    let server = site().start();
    let mut clients: Vec<_> = (0..BUSY).map(|_| server.connect()).collect();
    for round in 0..3 {
        for client in &mut clients {
            client.get("/games/who");
        }
        // No response is read before all requests are sent: a second helper would still be there.
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

/// Starts `count` programs that wait, with marks that begin with `named`. Returns the clients and the pids of the programs.
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

/// The helpers share the work, and helpers without work leave.
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
    // The next request starts another helper, but does not wait for it.
    let others = |pid: &u32| parent(*pid) != Some(first);
    wait_until("a program of the other one", || {
        let name = format!("b{}", clients.len());
        let (more, programs) = many_wait(&server, "/games/waits", &name, 1);
        clients.extend(more);
        programs.iter().any(others)
    });
    // The limit also holds for many requests at once.
    let (more, _) = many_wait(&server, "/games/waits", "c", BUSY * (processors + 2));
    clients.extend(more);
    // A helper that is leaving may still be there.
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

/// If the kernel counts helpers among the user's processes, galgo starts no more of them, because they would take room from
/// programs.
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
