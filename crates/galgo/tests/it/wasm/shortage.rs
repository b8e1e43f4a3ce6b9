//! A deleted cache, and threads that cannot be created: later requests are answered.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use rustix::process::{Pid, Resource, Signal, geteuid, getrlimit, kill_process};

use super::{programs, replace, site, worker};
use crate::harness::{list, skip};
use galgo_testkit::{Server, Site, eventually, process, wait_until};

list![
    a_cache_that_is_deleted_is_made_again,
    without_threads_the_server_refuses_modules_until_there_are_some,
    without_threads_the_worker_refuses_connections_until_there_are_some,
];

fn a_cache_that_is_deleted_is_made_again() {
    let modules = [
        ("a.wasm", programs::hello()),
        ("sleep.wasm", programs::sleeps("awake\n")),
    ];
    let server = site(&modules)
        .defaults("first_byte_timeout = \"10m\"")
        .start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    let mut asleep = server.connect();
    asleep.get("/cgi-bin/sleep.wasm");
    server.says("awake");
    let cache = server.path("cache");
    for name in ["b", "c"] {
        fs::remove_dir_all(&cache).unwrap();
        // The worker has already loaded this module.
        assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
        // The worker must find this module in a new folder.
        replace(&server, &format!("{name}.wasm"), &programs::prints(name));
        assert_eq!(server.get(&format!("/cgi-bin/{name}.wasm")).text(), name);
        assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
        assert!(!asleep.is_closed(), "what runs goes on");
    }
    drop(asleep);
    // The next worker finds nothing to load either.
    fs::remove_dir_all(&cache).unwrap();
    let last = eventually("one worker", || {
        let workers = process::children(server.pid());
        (workers.len() == 1).then(|| workers[0])
    });
    kill_process(Pid::from_raw(last.cast_signed()).unwrap(), Signal::KILL).unwrap();
    wait_until("its end", || {
        !process::children(server.pid()).contains(&last)
    });
    for (name, text) in [("a", "yes\n"), ("b", "b"), ("c", "c")] {
        assert_eq!(server.get(&format!("/cgi-bin/{name}.wasm")).text(), text);
    }
}

/// Starts a server whose user can be kept from creating threads, which is impossible for root.
fn limited(site: Site) -> Server {
    if !geteuid().is_root() {
        return site.start();
    }
    if !site.is_reachable() {
        skip!("nobody cannot enter the folders above the test's");
    }
    fs::set_permissions(site.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    // If root started the server, uid 65534 could not limit it.
    site.owned_by(65534).start()
}

/// Limits how many threads the user of a process may have when that process creates one. `None`: the usual limit.
fn allow(process: u32, threads: Option<u64>) {
    let usual = getrlimit(Resource::Nproc).current;
    let soft = threads.or(usual);
    let soft = soft.map_or("unlimited".into(), |n| n.to_string());
    let mut command = Command::new("prlimit");
    command.arg(format!("--pid={process}"));
    command.arg(format!("--nproc={soft}:"));
    if geteuid().is_root() {
        // On some machines root may not change limits of other users' processes, but uid 65534 may change its own.
        command.uid(65534).gid(65534);
    }
    assert!(command.status().unwrap().success());
}

/// Waits until the server has its last thread: it reports its listeners before it has all threads.
fn has_its_threads(server: &Server) {
    let tasks = format!("/proc/{}/task", server.pid());
    let loops = std::thread::available_parallelism().unwrap();
    let last = format!("loop-{}\n", loops.get() - 1);
    wait_until("all event loops", || {
        let names = fs::read_dir(&tasks).unwrap().flatten();
        let mut names = names.map(|task| fs::read_to_string(task.path().join("comm")));
        names.any(|name| name.is_ok_and(|n| n == last))
    });
}

fn without_threads_the_server_refuses_modules_until_there_are_some() {
    let server = limited(site(&[]));
    has_its_threads(&server);
    allow(server.pid(), Some(1));
    replace(&server, "a.wasm", &programs::hello());
    for _ in 0..3 {
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 503);
    }
    allow(server.pid(), None);
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    assert!(!server.errors().contains("panicked"));
}

fn without_threads_the_worker_refuses_connections_until_there_are_some() {
    let modules = [
        ("a.wasm", programs::hello()),
        ("sleep.wasm", programs::sleeps("awake\n")),
    ];
    let server = limited(site(&modules).defaults("first_byte_timeout = \"10m\""));
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    let worker = worker(&server);
    // These requests take the kept connection, and need further ones.
    let mut asleep: Vec<_> = (0..3).map(|_| server.connect()).collect();
    asleep
        .iter_mut()
        .for_each(|client| client.get("/cgi-bin/sleep.wasm"));
    wait_until("instances on connections of their own", || {
        server.errors().matches("awake").count() == asleep.len()
    });
    allow(worker, Some(1));
    // If the kept connection came back too late for the three requests, this request takes it; otherwise this request is refused.
    let mut last = server.connect();
    last.get("/cgi-bin/sleep.wasm");
    wait_until("the last connection", || {
        let awake = server.errors().matches("awake").count() > asleep.len();
        let refused = server.access().iter().any(|line| line["status"] == 503);
        awake || refused
    });
    for _ in 0..5 {
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 503);
    }
    allow(worker, None);
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    assert!(asleep.iter().all(|client| !client.is_closed()));
    assert!(!server.errors().contains("panicked"));
}
