//! Helpers and the programs they have started: how each ends, and how requests end meanwhile.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use crate::{
    fairness::{WAITS, run_behind_others},
    faults::limits::busy_for_a_moment,
    harness::list,
    secrets::ATTACK,
};
use galgo_testkit::{
    Server,
    accounts::{Accounts, uid},
    process::{children, descriptors, parent, pids},
    wait_until,
};

use super::{
    GAMES, MAN, NOBODY, SWAPS, WHO, fails, helpers, kill, mode, own, signal, site, spawner, written,
};

list![
    one_that_is_being_written_is_waited_for,
    what_a_program_leaves_running_ends,
    many_that_leave_processes_running_leave_none,
    many_in_a_strict_sandbox_leave_none,
    a_helper_that_dies_is_replaced,
    what_a_dead_helper_has_started_ends,
    what_a_dead_helper_has_started_ends_with_its_children,
    a_server_that_is_killed_takes_all_along,
    a_spawner_that_dies_ends_the_server,
    the_spawner_is_a_process_of_its_own_without_network,
    helpers_that_leave_lose_no_request,
    helpers_that_have_left_take_no_descriptors,
    users_change_with_the_configuration,
    a_reload_loses_no_request,
    a_reload_waits_for_no_helper_and_loses_nothing_that_waits_there,
    who_may_change_the_configuration_is_root_alone,
    folders_that_are_swapped_lead_nowhere,
    programs_of_a_crowd_run_behind_those_of_others,
];

/// The helper lowers the priority, because the server may not.
fn programs_of_a_crowd_run_behind_those_of_others() {
    let site = site().file("games/waits", WAITS, 0o755);
    own(&site, "games/waits", GAMES);
    run_behind_others(site, "/games/waits");
}

/// The request of another user goes on.
fn a_helper_that_dies_is_replaced() {
    let site = site().compiled("own/attack", ATTACK, &[]);
    own(&site, "own/attack", NOBODY);
    let server = site.start();
    let mut other = server.connect();
    other.get("/own/attack?stay");
    assert_eq!(other.head().status, 200, "{}", server.errors());
    let others = helpers(&server)[0];
    let running = String::from_utf8(other.chunk().unwrap()).unwrap();
    let running: u32 = running.trim().parse().unwrap();
    let mut client = server.connect();
    client.get("/games/attack?stay");
    assert_eq!(client.head().status, 200);
    let first = helpers(&server);
    let first = first.into_iter().find(|pid| *pid != others).unwrap();
    kill(first);
    gone(first);
    assert!(
        server.get("/games/who").text().starts_with("5\n"),
        "{}",
        server.errors()
    );
    assert!(helpers(&server).contains(&others));
    assert!(pids().any(|pid| pid == running));
    assert_eq!(parent(running), Some(others));
}

fn a_spawner_that_dies_ends_the_server() {
    let server = site().start();
    assert!(server.get("/games/who").text().starts_with("5\n"));
    let all = helpers(&server);
    kill(spawner(&server));
    server.says(SPAWNER_ENDED);
    wait_until("the end of the server and the helpers", || {
        let gone = |pid: &u32| !pids().any(|p| p == *pid);
        all.iter().all(gone)
            && !fs::read_to_string(format!("/proc/{}/stat", server.pid()))
                .is_ok_and(|s| !s.contains(") Z"))
    });
}

const SPAWNER_ENDED: &str = "the spawner, which starts programs of other users, has ended, so this server ends too: start galgo again";

/// Returns the addresses at which the program and the stack of a process begin.
fn layout(pid: u32) -> [String; 2] {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let begins = |name: &str| {
        let line = maps.lines().find(|line| line.ends_with(name)).unwrap();
        line.split('-').next().unwrap().to_owned()
    };
    [begins("/galgo"), begins("[stack]")]
}

fn the_spawner_is_a_process_of_its_own_without_network() {
    let server = site().start();
    assert!(server.get("/games/who").text().starts_with("5\n"));
    let pid = spawner(&server);
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    assert_eq!(threads, 1);
    let unix = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap();
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|fd| fs::read_link(fd.unwrap().path()).unwrap())
        .filter_map(|to| {
            Some(
                to.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    assert!(!sockets.is_empty());
    for socket in sockets {
        let line = unix
            .lines()
            .find(|line| line.split_whitespace().nth(6) == Some(&*socket));
        let line = line.unwrap_or_else(|| panic!("{socket} is none of a Unix socket's"));
        // No process can connect to the socket, because it has no name.
        assert_eq!(line.split_whitespace().count(), 7, "{line}");
    }
    let [own, servers] = [layout(pid), layout(server.pid())];
    assert!(
        own.iter().zip(&servers).all(|(own, other)| own != other),
        "{own:?} {servers:?}"
    );
}

fn users_change_with_the_configuration() {
    let server = site().start();
    assert!(server.get("/games/who").text().starts_with("5\n"));
    own(&server.site, "games", 0);
    own(&server.site, "games/who", 0);
    server.reconfigure(|config| {
        config.merge("[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"man\"\n");
    });
    assert!(server.reload());
    assert!(
        server.get("/games/who").text().starts_with("6\n"),
        "{}",
        server.errors()
    );
}

/// Like with a program of the server's own user (ETXTBSY), even if two attempts in a row fail.
fn one_that_is_being_written_is_waited_for() {
    let server = site().start();
    let path = server.path("games/who");
    busy_for_a_moment(&mut Vec::new(), || {
        let busy = fs::File::options().append(true).open(&path).unwrap();
        let mut client = server.connect();
        client.get("/games/who");
        // Long enough for the first attempts to fail.
        thread::sleep(Duration::from_millis(60));
        drop(busy);
        move || client.reply()
    });
}

fn what_a_program_leaves_running_ends() {
    let server = site().start();
    for way in ["session", "twice", "again", "deaf", "lower"] {
        let said = server.get(&format!("/games/stays?{way}&{way}"));
        assert_eq!(said.text(), "left\n", "{}", server.errors());
    }
    for way in ["session", "twice", "again", "deaf", "lower"] {
        let pid: u32 = fs::read_to_string(server.path("marks").join(way))
            .unwrap()
            .parse()
            .unwrap();
        wait_until("the end of what was left running", || {
            !pids().any(|p| p == pid)
        });
    }
}

/// Returns the pid of the process that a request left behind.
fn left(server: &Server, name: &str) -> u32 {
    let mark = server.path("marks").join(name);
    fs::read_to_string(mark).unwrap().parse().unwrap()
}

pub(super) fn gone(pid: u32) {
    wait_until("the end of a process", || !pids().any(|p| p == pid));
}

/// Requests of each of four clients; GALGO_TEST_STAYS changes the number.
fn rounds() -> usize {
    let asked = std::env::var("GALGO_TEST_STAYS").ok();
    asked.map_or(1250, |asked| asked.parse().unwrap())
}

fn many_that_leave_processes_running_leave_none() {
    leave_none("/games/");
}

/// Each program runs in a PID namespace.
fn many_in_a_strict_sandbox_leave_none() {
    leave_none("/strict/");
}

fn leave_none(path: &str) {
    let site = site().config(
        "[[route]]\npath = \"/strict/\"\ncgi = \"games\"\nuser = \"games\"\nsandbox = { write = [\"marks\"] }\n",
    );
    let server = site.start();
    let all = [server.pid(), spawner(&server)];
    assert!(server.get(&format!("{path}who")).text().starts_with("5\n"));
    thread::scope(|scope| {
        for client in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..rounds() {
                    let way = ["session", "twice", "again", "deaf", "lower"][round % 5];
                    let said = server.get(&format!("{path}stays?{way}&{client}-{round}"));
                    if said.status != 200 {
                        wait_until("why not", || !server.errors().is_empty());
                    }
                    assert_eq!(said.text(), "left\n", "{}", server.errors());
                }
            });
        }
    });
    let helpers = helpers(&server);
    wait_until("the end of all that was left running", || {
        let of_games = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            galgo_testkit::process::command_line(*pid)
                .contains(&*server.path("games").to_string_lossy())
                && status.contains("\nUid:\t5\t")
        };
        !pids().any(|pid| !helpers.contains(&pid) && !all.contains(&pid) && of_games(&pid))
    });
}

/// Each process that ends leaves its child to the spawner.
fn what_a_dead_helper_has_started_ends_with_its_children() {
    const CHAIN: &str = "#!/bin/sh
[ ${N:=15} -gt 0 ] || { printf 'Content-Type: text/plain\\n\\nx'; exec sleep 1000; }
export N=$((N - 1))
\"$0\" &
exec >&- sleep 1000
";
    let site = site().file("games/chain", CHAIN, 0o755);
    own(&site, "games/chain", GAMES);
    let server = site.start();
    for _ in 0..10 {
        let mut client = server.connect();
        client.get("/games/chain");
        assert_eq!(client.head().status, 200, "{}", server.errors());
        kill(helpers(&server)[0]);
        wait_until("the end of all processes", || {
            children(spawner(&server)).is_empty()
        });
    }
}

fn what_a_dead_helper_has_started_ends() {
    let site = site().file(
        "games/silent",
        "#!/bin/sh\necho > ../marks/silent\nexec sleep 100\n",
        0o755,
    );
    own(&site, "games/silent", GAMES);
    let server = site.start();
    let mut runs = server.connect();
    runs.get("/games/stays?runs&stays");
    assert_eq!(runs.head().status, 200);
    let mut waits = server.connect();
    waits.get("/games/silent");
    server.wait_for("silent");
    let helper = helpers(&server)[0];
    kill(helper);
    assert_eq!(waits.reply().status, 502);
    // The helper may take orders until the last of its sockets is closed.
    gone(helper);
    let reply = server.get("/games/who");
    assert!(reply.text().starts_with("5\n"), "{}", server.errors());
    // The process is in its own session, and had turned off its parent-death signal.
    gone(left(&server, "stays"));
    assert!(server.get("/games/who").text().starts_with("5\n"));
}

fn a_server_that_is_killed_takes_all_along() {
    let mut server = site().start();
    let mut runs = server.connect();
    runs.get("/games/stays?runs&stays");
    assert_eq!(runs.head().status, 200);
    let mut all = helpers(&server);
    all.extend([spawner(&server), left(&server, "stays")]);
    server.kill();
    all.into_iter().for_each(gone);
}

fn helpers_that_leave_lose_no_request() {
    let server = site().env("GALGO_TEST_HELPER_IDLE", "10").start();
    assert!(server.get("/games/who").text().starts_with("5\n"));
    wait_until("the end of a helper that nobody asks", || {
        helpers(&server).is_empty()
    });
    thread::scope(|scope| {
        for client in 0..3u64 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..60 {
                    // About as long as a helper waits before it leaves.
                    thread::sleep(Duration::from_millis(8 + (round * 7 + client) % 6));
                    let said = server.get("/games/who");
                    assert!(said.text().starts_with("5\n"), "{}", server.errors());
                }
            });
        }
    });
}

fn helpers_that_have_left_take_no_descriptors() {
    let site = site();
    let accounts = Accounts::new("galgo-l", 10, |name| site.path(name));
    for name in accounts.names() {
        let file = format!("own/{name}");
        site.write(&file, WHO);
        mode(&site, &file, 0o755);
        own(&site, &file, uid(name));
    }
    let server = site.env("GALGO_TEST_HELPER_IDLE", "10").start();
    let asks = |name: &String| {
        let said = server.get(&format!("/own/{name}")).text();
        assert!(
            said.starts_with(&format!("{}\n", uid(name))),
            "{}",
            server.errors()
        );
        wait_until("the end of its helper", || helpers(&server).is_empty());
    };
    let [first, others @ ..] = accounts.names() else {
        panic!("no accounts")
    };
    asks(first);
    asks(first);
    let before = descriptors(server.pid());
    others.iter().for_each(asks);
    asks(first);
    // Each helper had a socket for orders, and a connection without a program.
    wait_until("descriptors let go", || {
        descriptors(server.pid()) < before + others.len()
    });
}

fn a_reload_waits_for_no_helper_and_loses_nothing_that_waits_there() {
    let site = site();
    for name in ["games", "games/who"] {
        own(&site, name, 0);
    }
    let server = site.start();
    assert!(server.get("/games/who").text().starts_with("5\n"));
    let stopped = helpers(&server)[0];
    signal(stopped, rustix::process::Signal::STOP);
    let mut waiting: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.get("/games/who");
        client.wait_until_read();
    }
    server.reconfigure(|config| {
        config.merge("[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"man\"\n");
    });
    assert!(server.reload());
    let said = server.get("/games/who").text();
    assert!(said.starts_with("6\n"), "{said}{}", server.errors());
    signal(stopped, rustix::process::Signal::CONT);
    for client in &mut waiting {
        let said = client.reply().text();
        assert!(said.starts_with("5\n"), "{said}{}", server.errors());
    }
}

fn a_reload_loses_no_request() {
    let site = site();
    for name in ["games", "games/who"] {
        own(&site, name, 0);
    }
    let server = site.start();
    let (over, users) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 2]);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let said = server.get("/games/who").text();
                    let user = ["5\n", "6\n"]
                        .iter()
                        .position(|user| said.starts_with(user));
                    let user = user.unwrap_or_else(|| panic!("{said}{}", server.errors()));
                    users[user].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for user in ["man", "games", "man", "games"] {
            server.reconfigure(|config| {
                config.merge(&format!(
                    "[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"{user}\"\n"
                ));
            });
            let told = server.reload();
            let seen = users.each_ref().map(|n| n.load(Ordering::Relaxed));
            let at = usize::from(user == "man");
            wait_until("requests as the new user", || {
                users[at].load(Ordering::Relaxed) > seen[at] + 5
            });
            assert!(told);
        }
        over.store(true, Ordering::Relaxed);
    });
}

fn who_may_change_the_configuration_is_root_alone() {
    let config = "listen = [\"127.0.0.1:0\"]\nuser = \"nobody\"\n\
        [[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\n";
    let own_site = written(site(), config);
    let refused = |site: &galgo_testkit::Site| {
        let said = fails(site, &["serve"]);
        assert!(said.contains("users other than root can change"), "{said}");
    };
    own(&own_site, "galgo.toml", MAN);
    refused(&own_site);
    own(&own_site, "galgo.toml", 0);
    mode(&own_site, "galgo.toml", 0o664);
    refused(&own_site);
    mode(&own_site, "galgo.toml", 0o644);
    mode(&own_site, ".", 0o777);
    refused(&own_site);
    mode(&own_site, ".", 0o755);
    // An included file names users, too: the server ignores that file and still serves the rest.
    for (owner, folder) in [(MAN, 0o755), (0, 0o777)] {
        let site = site().config("include = \"sites/*.toml\"\n");
        site.write(
            "sites/a.toml",
            "[[route]]\npath = \"/a\"\nrespond = { body = \"a\" }\n",
        );
        own(&site, "sites/a.toml", owner);
        mode(&site, "sites", folder);
        let server = site.start();
        assert_eq!(server.get("/a").status, 404);
        assert!(server.get("/games/who").text().starts_with("5\n"));
        server.says("users other than root can change it");
    }
}

fn folders_that_are_swapped_lead_nowhere() {
    let site = site().compiled("swap", SWAPS, &[]);
    for (folder, user) in [("d", GAMES), ("mine", MAN)] {
        let program = format!("games/open/{folder}/p");
        site.write(&program, "#!/bin/sh\necho > ../../../marks/ran\n");
        mode(&site, &program, 0o755);
        own(&site, &program, user);
        own(&site, &format!("games/open/{folder}"), user);
    }
    own(&site, "games/open", GAMES);
    // If another user may rename files here, no check can guarantee which program runs as games.
    mode(&site, "games/open", 0o757);
    let server = site.start();
    let mut swaps = std::process::Command::new("setpriv");
    swaps.args(["--reuid=6", "--regid=12", "--clear-groups"]);
    swaps
        .arg(server.path("swap"))
        .current_dir(server.path("games/open"));
    let mut swaps = swaps.spawn().unwrap();
    let status = loop {
        let status = server.get("/games/open/d/p").status;
        assert!(
            [403, 404].contains(&status),
            "{status}: {}",
            server.errors()
        );
        if let Some(status) = swaps.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success());
    assert!(!server.path("marks/ran").exists());
}
