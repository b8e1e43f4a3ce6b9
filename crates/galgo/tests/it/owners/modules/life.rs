//! Workers, keepers and helpers of modules: how each ends, and how requests end meanwhile.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use crate::{
    harness::{list, skip},
    wasm::{programs, replace_in},
};
use galgo_testkit::{
    process::{parent, pids},
    wait_until,
};

use super::{
    super::{GAMES, helpers, kill, own},
    fine, reconfigured, site, with, worker, workers,
};

list![
    a_replaced_module_is_the_next_one,
    a_worker_that_dies_is_replaced,
    a_helper_that_dies_takes_its_worker_along,
    workers_leave_when_nobody_asks,
    workers_that_leave_lose_no_request,
    a_reload_changes_their_user_and_loses_no_request,
    a_reload_changes_their_sandbox,
    a_server_that_is_killed_takes_them_along,
];

fn gone(pid: u32) {
    wait_until("the end of a process", || !pids().any(|p| p == pid));
}

/// The previous module serves until the new one is compiled, and also if the new file is no module.
fn a_replaced_module_is_the_next_one() {
    let server = with(site(), "m.wasm", &programs::prints("0")).start();
    let module = |bytes: &[u8]| {
        replace_in(&server, "games", "m.wasm", bytes);
        own(&server.site, "games/m.wasm", GAMES);
    };
    for route in ["games", "strict"] {
        let ask = || server.get(&format!("/{route}/m.wasm")).text();
        module(&programs::prints("0"));
        wait_until("the first", || ask() == "0");
        for n in 1..4 {
            module(&programs::prints(&n.to_string()));
            wait_until("the new one", || ask() == n.to_string());
        }
        module(b"\0asm\x01\0\0\0 broken");
        assert_eq!(ask(), "3");
        server.says("m.wasm: the module cannot be run");
        assert_eq!(ask(), "3");
    }
}

fn a_worker_that_dies_is_replaced() {
    let server = with(site(), "sleeps.wasm", &programs::sleeps("begun\n")).start();
    for (round, of) in ["worker", "keeper"].iter().enumerate() {
        fine(&server, "/games/a.wasm");
        let before = worker(&server);
        let keeper = parent(before).unwrap();
        let mut asleep: Vec<_> = (0..3).map(|_| server.connect()).collect();
        asleep.iter_mut().for_each(|c| c.get("/games/sleeps.wasm"));
        wait_until("all of them running", || {
            server.errors().matches("begun").count() == 3 * (round + 1)
        });
        kill(if *of == "worker" { before } else { keeper });
        for client in &mut asleep {
            assert_eq!(client.reply().status, 502, "{of}");
        }
        [before, keeper].into_iter().for_each(gone);
        // The next request waits for the next worker; it is not refused.
        fine(&server, "/games/a.wasm");
        assert_ne!(worker(&server), before);
    }
    assert_eq!(helpers(&server).len(), 1);
}

fn a_helper_that_dies_takes_its_worker_along() {
    let server = with(site(), "sleeps.wasm", &programs::sleeps("begun\n")).start();
    for (round, route) in ["games", "strict"].iter().enumerate() {
        let target = format!("/{route}/a.wasm");
        fine(&server, &target);
        let before = *workers(&server).last().unwrap();
        let keeper = parent(before).unwrap();
        let mut asleep = server.connect();
        asleep.get(&format!("/{route}/sleeps.wasm"));
        wait_until("its start", || {
            server.errors().matches("begun").count() == round + 1
        });
        let of_route = workers(&server);
        helpers(&server).into_iter().for_each(kill);
        assert_eq!(asleep.reply().status, 502, "{route}");
        of_route.into_iter().chain([keeper]).for_each(gone);
        fine(&server, &target);
    }
}

fn workers_leave_when_nobody_asks() {
    let site = site()
        .env("GALGO_TEST_WORKER_IDLE", "10")
        .env("GALGO_TEST_HELPER_IDLE", "10");
    let server = with(site, "sleeps.wasm", &programs::sleeps("begun\n")).start();
    for route in ["games", "strict"] {
        fine(&server, &format!("/{route}/a.wasm"));
        wait_until("the end of worker and helper", || {
            helpers(&server).is_empty()
        });
    }
    // A worker with a running request stays.
    let mut asleep = server.connect();
    asleep.get("/games/sleeps.wasm");
    server.says("begun");
    let before = worker(&server);
    for _ in 0..20 {
        assert!(server.get("/own/nobody").text().starts_with("65534\n"));
    }
    assert_eq!(workers(&server), [before]);
    drop(asleep);
    wait_until("the end of worker and helper", || {
        helpers(&server).is_empty()
    });
}

fn workers_that_leave_lose_no_request() {
    let site = site()
        .env("GALGO_TEST_WORKER_IDLE", "10")
        .env("GALGO_TEST_HELPER_IDLE", "10");
    let server = site.start();
    thread::scope(|scope| {
        for client in 0..3u64 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..40 {
                    // About as long as a worker waits before it leaves.
                    thread::sleep(Duration::from_millis(8 + (round * 7 + client) % 6));
                    fine(server, "/games/a.wasm");
                }
            });
        }
    });
}

fn a_reload_changes_their_user_and_loses_no_request() {
    let site = site();
    for name in ["games", "games/a.wasm"] {
        own(&site, name, 0);
    }
    let server = site.start();
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    fine(&server, "/games/a.wasm");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for (user, uid) in [("man", "6 6 6 6"), ("games", "5 5 5 5"), ("man", "6 6 6 6")] {
            reconfigured(&server, &format!("user = {user:?}"));
            let seen = served.load(Ordering::Relaxed);
            wait_until("a worker of the new user, and requests for it", || {
                let users = workers(&server).into_iter().filter(|pid| is_of(*pid, uid));
                users.count() > 0 && served.load(Ordering::Relaxed) > seen + 20
            });
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Returns whether a process has these user ids. The process may have ended already.
fn is_of(pid: u32, uid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains(&format!("\nUid:\t{}\n", uid.replace(' ', "\t")))
}

fn a_reload_changes_their_sandbox() {
    if !galgo_spawn::sandbox::kernel().namespaces {
        skip!("this kernel gives no namespaces");
    }
    let server = site().start();
    fine(&server, "/games/a.wasm");
    let before = worker(&server);
    let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
    assert_eq!(space(before), space(server.pid()));
    reconfigured(&server, "user = \"games\"\nsandbox = \"strict\"");
    fine(&server, "/games/a.wasm");
    let others: Vec<_> = workers(&server)
        .into_iter()
        .filter(|pid| *pid != before)
        .collect();
    assert!(
        others.len() == 1 && space(others[0]) != space(server.pid()),
        "{others:?}"
    );
}

fn a_server_that_is_killed_takes_them_along() {
    let mut server = site().start();
    for route in ["games", "strict"] {
        fine(&server, &format!("/{route}/a.wasm"));
    }
    let mut all = workers(&server);
    assert_eq!(all.len(), 2);
    all.extend(all.clone().into_iter().filter_map(parent));
    server.kill();
    all.into_iter().for_each(gone);
}
