//! Modules that are replaced, compiled code that is kept, and a worker that dies.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{programs, replace, site, worker};
use crate::harness::list;
use galgo_testkit::wait_until;

list![
    modules_are_compiled_before_anybody_asks,
    a_replaced_module_is_picked_up_and_never_missing,
    a_broken_replacement_does_not_take_the_old_one_away,
    a_killed_worker_is_replaced_and_costs_what_it_ran,
    what_a_dying_worker_has_not_read_goes_to_the_next,
    who_comes_after_a_workers_death_waits_for_the_next,
    another_configuration_has_another_worker,
    code_is_kept_and_what_is_not_ours_is_made_again,
    a_cache_that_others_can_write_to_is_not_used,
];

fn modules_are_compiled_before_anybody_asks() {
    let modules = ["a.wasm", "b.wasm"].map(|name| (name, programs::prints(name)));
    let server = site(&modules).start();
    wait_until("the code of both", || {
        let entries = entries(&server.path("cache"));
        let drafts = entries
            .iter()
            .filter(|e| e.to_string_lossy().contains("draft"));
        entries.len() == 2 && drafts.count() == 0
    });
    assert!(server.access().iter().all(|l| l["target"] == "/health"));
    // The threads that compiled the modules have ended.
    wait_until("no thread for it", || {
        let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let names = threads.filter_map(|t| fs::read_to_string(t.ok()?.path().join("comm")).ok());
        !names.into_iter().any(|name| name == "compile\n")
    });
}

/// Four clients ask: every answer comes from a version that existed, and no answer is older than the previous one.
fn a_replaced_module_is_picked_up_and_never_missing() {
    let server = site(&[("a.wasm", programs::prints("0"))]).start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "0");
    let written = AtomicU32::new(0);
    let ask = || {
        let mut client = server.connect();
        let mut last = 0;
        while last < 100 {
            client.get("/cgi-bin/a.wasm");
            let reply = client.reply();
            let newest = written.load(Ordering::SeqCst);
            assert_eq!(reply.status, 200);
            let seen = reply.text().parse().unwrap();
            assert!(
                (last..=newest).contains(&seen),
                "{seen} after {last} of {newest}"
            );
            last = seen;
        }
    };
    thread::scope(|scope| {
        let clients = [(); 4].map(|()| scope.spawn(ask));
        for n in 1..=100 {
            // The number is stored before the file is replaced, because a client may see the new file at once.
            written.store(n, Ordering::SeqCst);
            replace(&server, "a.wasm", &programs::prints(&n.to_string()));
            // The next version waits for some requests, not for a time.
            for _ in 0..3 {
                assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
            }
        }
        for client in clients {
            client.join().unwrap();
        }
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
    wait_until("the new one", || {
        server.get("/cgi-bin/a.wasm").text() == "new"
    });
}

fn a_killed_worker_is_replaced_and_costs_what_it_ran() {
    let modules = [
        ("sleep.wasm", programs::sleeps("awake\n")),
        ("a.wasm", programs::hello()),
    ];
    let server = site(&modules).start();
    assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
    // The second round follows at once, when the server must not start a worker too eagerly.
    for round in 1..=2 {
        let before = worker(&server);
        let mut asleep: Vec<_> = (0..8).map(|_| server.connect()).collect();
        asleep
            .iter_mut()
            .for_each(|client| client.get("/cgi-bin/sleep.wasm"));
        wait_until("all of them running", || {
            server.errors().matches("awake").count() == 8 * round
        });
        kill_process(Pid::from_raw(before as i32).unwrap(), Signal::KILL).unwrap();
        for client in &mut asleep {
            assert_eq!(client.reply().status, 502);
        }
        // The next request waits for the next worker; it is not refused.
        assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
        assert_ne!(worker(&server), before);
    }
    server.says("starts another");
}

fn signal(worker: u32, signal: Signal) {
    kill_process(Pid::from_raw(worker as i32).unwrap(), signal).unwrap();
}

/// Returns the processor time of a process, in ticks (proc(5)).
fn processor(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(11).unwrap().parse().unwrap()
}

/// Returns whether all threads of a process are stopped, so that they read nothing more.
fn stopped(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .all(|task| {
            let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        })
}

fn what_a_dying_worker_has_not_read_goes_to_the_next() {
    let modules = [
        ("a.wasm", programs::hello()),
        ("echo.wasm", programs::echo()),
        (
            "loop.wasm",
            programs::command("(loop $again (br $again))", ""),
        ),
    ];
    let server = site(&modules).start();
    for _ in 0..3 {
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
        let before = worker(&server);
        // The worker runs one request without output, and cannot have read the others.
        let mut running = server.connect();
        running.get("/cgi-bin/loop.wasm");
        let began = processor(before);
        wait_until("its work", || processor(before) > began + 5);
        signal(before, Signal::STOP);
        wait_until("all its threads stopped", || stopped(before));
        let mut unread: Vec<_> = (0..8).map(|_| server.connect()).collect();
        unread.iter_mut().for_each(|c| c.get("/cgi-bin/a.wasm"));
        let mut posted = server.connect();
        posted.post("/cgi-bin/echo.wasm", b"once");
        unread
            .iter()
            .chain([&posted])
            .for_each(|c| c.wait_until_read());
        signal(before, Signal::KILL);
        assert_eq!(running.reply().status, 502, "it may have done something");
        // If the body was already passed on, it cannot be sent again.
        let reply = posted.reply();
        assert!(reply.status == 502 || reply.text() == "once", "{reply:?}");
        for client in &mut unread {
            assert_eq!(client.reply().text(), "yes\n");
        }
        assert_ne!(worker(&server), before);
    }
    // Each request is in the log once.
    let asked = |l: &&serde_json::Value| l["target"] == "/cgi-bin/a.wasm";
    wait_until("all in the log", || {
        server.access().iter().filter(asked).count() >= 27
    });
    assert_eq!(server.access().iter().filter(asked).count(), 27);
}

fn who_comes_after_a_workers_death_waits_for_the_next() {
    let server = site(&[("a.wasm", programs::hello())]).start();
    for _ in 0..10 {
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
        let before = worker(&server);
        signal(before, Signal::KILL);
        let line = || fs::read(format!("/proc/{before}/cmdline")).unwrap_or_default();
        wait_until("its end", || line().is_empty());
        let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|c| c.get("/cgi-bin/a.wasm"));
        for client in &mut clients {
            assert_eq!(client.reply().text(), "yes\n");
        }
    }
}

/// A worker stays if the new configuration would tell it the same. Otherwise it ends with its last request.
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
    server.configure("max_running = 17");
    assert!(server.reload());
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    let alive = || fs::read(format!("/proc/{before}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(alive());
    drop(asleep);
    wait_until("the end of the old one", || !alive());
    assert_ne!(worker(&server), before);
}

/// Returns the entries of a cache.
fn entries(cache: &Path) -> Vec<PathBuf> {
    let Ok(folder) = fs::read_dir(cache) else {
        return Vec::new();
    };
    let mut found: Vec<_> = folder.map(|e| e.unwrap().path()).collect();
    found.sort();
    found
}

fn code_is_kept_and_what_is_not_ours_is_made_again() {
    // Returns the cache entry that a server makes of a module.
    let made = |module: Vec<u8>| {
        let server = site(&[("a.wasm", module)]).start();
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
        let [entry] = &entries(&server.path("cache"))[..] else {
            panic!("one entry")
        };
        (
            entry.file_name().unwrap().to_owned(),
            fs::read(entry).unwrap(),
        )
    };
    let (name, good) = made(programs::hello());
    let (_, other) = made(programs::prints("no"));
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 0xff;
    for (what, bytes, mode) in [
        ("one bit is another", &flipped, 0o600),
        ("it is cut", &good[..good.len() / 2].to_vec(), 0o600),
        ("it is of another module", &other, 0o600),
        ("others can write to it", &good, 0o620),
    ] {
        let site = site(&[("a.wasm", programs::hello())]);
        let cache = site.path("cache");
        let site = site.file(&format!("cache/{}", name.display()), bytes, mode);
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).unwrap();
        let before = fs::metadata(cache.join(&name)).unwrap().ino();
        let server = site.start();
        assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n", "{what}");
        let now = fs::metadata(cache.join(&name)).unwrap();
        assert_ne!(now.ino(), before, "{what}");
        assert_eq!(now.mode() & 0o777, 0o600, "{what}");
        assert!(fs::read(cache.join(&name)).unwrap() == good, "{what}");
        assert_eq!(entries(&cache).len(), 1, "{what}");
    }
    // Another server uses galgo's own entry unchanged.
    let site = site(&[("a.wasm", programs::hello())]);
    let site = site.file(&format!("cache/{}", name.display()), &good, 0o600);
    let cache = site.path("cache");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).unwrap();
    let before = fs::metadata(cache.join(&name)).unwrap().ino();
    let server = site.start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    assert_eq!(fs::metadata(cache.join(&name)).unwrap().ino(), before);
}

fn a_cache_that_others_can_write_to_is_not_used() {
    let site = site(&[("a.wasm", programs::hello())]);
    let cache = site.path("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let server = site.start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    server.says("others can write to it");
    assert!(entries(&cache).is_empty());
}
