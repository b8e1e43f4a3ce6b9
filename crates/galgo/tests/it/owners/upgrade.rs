//! An upgrade of a server whose programs run as other users: the spawner starts the new binary with root's rights.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use galgo_testkit::{
    Client, Repeated, Server, Site, file, free_address,
    process::{self, assert_gone, children, descriptors},
    wait_until,
};
use rustix::process::Signal;

use crate::{
    harness::list,
    secrets::ATTACK,
    upgrade::{manager::Manager, passed::passed},
};

use super::{GAMES, NOBODY, helpers, kill, mode, own, site, spawner, uid_of};

list![
    no_request_fails,
    one_that_ends_before_an_older_one_takes_none_along,
    the_binary_that_is_there_now_serves_as_before,
    requests_of_the_old_one_are_answered,
    what_does_not_get_ready_leaves_the_old_one,
    one_that_hangs_is_the_only_one,
    what_others_may_change_is_not_started,
    who_is_the_main_process_is_told,
    sockets_of_a_service_manager_move,
    without_roots_rights_the_server_starts_it_itself,
];

/// Returns a site whose binary the test may replace.
fn replaceable() -> Site {
    site().copied("bin/galgo")
}

fn asks(server: &Server, path: &str, user: u32, asked: &Arc<AtomicUsize>) -> Repeated {
    let (at, path, asked) = (server.address(), path.to_owned(), asked.clone());
    let mut client = Client::connect(at);
    Repeated::start(move || {
        client.get(&path);
        let reply = client.reply();
        let said = reply.text();
        assert!(
            reply.status == 200 && said.starts_with(&format!("{user}\n")),
            "{said}"
        );
        if reply.closes() {
            client = Client::connect(at);
        }
        asked.fetch_add(1, Ordering::Relaxed);
    })
}

/// Number of upgrades; `GALGO_TEST_UPGRADES` changes it.
const ROUNDS: usize = 4;

fn no_request_fails() {
    let rounds = std::env::var("GALGO_TEST_UPGRADES").ok();
    let rounds = rounds.map_or(ROUNDS, |n| n.parse().unwrap());
    let server = site().start();
    let asked = Arc::new(AtomicUsize::new(0));
    let loads = [
        asks(&server, "/games/who", 5, &asked),
        asks(&server, "/games/who", 5, &asked),
        asks(&server, "/own/nobody", NOBODY, &asked),
        asks(&server, "/cgi-bin/who", NOBODY, &asked),
    ];
    let mut gone = Vec::new();
    let settled = || {
        for path in ["/games/who", "/own/nobody"] {
            assert_eq!(server.get(path).status, 200);
        }
        wait_until("two helpers", || helpers(&server).len() == 2);
        [server.pid(), spawner(&server)].map(descriptors)
    };
    let mut before = None;
    for _ in 0..rounds {
        gone.extend([server.pid(), spawner(&server)]);
        assert!(server.upgrade(), "{}", server.errors());
        assert!(server.reload(), "{}", server.errors());
        before = before.or_else(|| Some(settled()));
    }
    loads.into_iter().for_each(Repeated::end);
    gone.into_iter().for_each(assert_gone);
    let (before, after) = (before.unwrap(), settled());
    let slack = 4; // connections and programs of the load at that moment
    assert!(
        after.iter().zip(before).all(|(a, b)| *a <= b + slack),
        "{before:?} {after:?}"
    );
    assert!(!server.errors().contains("panicked"), "{}", server.errors());
    eprintln!(
        "{rounds} upgrades, {} requests",
        asked.load(Ordering::Relaxed)
    );
}

/// The first server still has a request. When the second server ends, its leftover processes, including the third server,
/// become children of the first server's spawner. That spawner ends leftover processes of its helpers, but must not end the
/// third server.
fn one_that_ends_before_an_older_one_takes_none_along() {
    let site = site().compiled("games/attack", ATTACK, &[]);
    own(&site, "games/attack", GAMES);
    let server = site.start();
    let mut client = server.connect();
    client.get("/games/attack?stay");
    assert_eq!(client.head().status, 200);
    let running = String::from_utf8(client.chunk().unwrap()).unwrap();
    let running: u32 = running.trim().parse().unwrap();
    let oldest = spawner(&server);
    assert!(server.upgrade(), "{}", server.errors());
    let second = [server.pid(), spawner(&server)];
    assert!(server.get("/games/who").text().starts_with("5\n"));
    assert!(server.upgrade(), "{}", server.errors());
    kill(second[0]);
    second.into_iter().for_each(assert_gone);
    // The first server's spawner looks for leftover processes again, because a helper ends.
    let helper = children(oldest)
        .into_iter()
        .find(|pid| children(*pid).contains(&running));
    kill(helper.unwrap());
    assert_gone(running);
    drop(client);
    assert_gone(oldest);
    assert!(
        server.get("/games/who").text().starts_with("5\n"),
        "{}",
        server.errors()
    );
}

fn the_binary_that_is_there_now_serves_as_before() {
    let server = replaceable().ends_by_term().start();
    let next = server.path("bin/next");
    let of = |pid: u32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap();
    let told = |pid: u32| {
        let environ = of(pid, "environ");
        let all = environ.split(|&b| b == 0).map(String::from_utf8_lossy);
        let mut all: Vec<_> = all.map(String::from).collect();
        all.retain(|one| !one.starts_with("GALGO_UPGRADE"));
        all
    };
    let link = |pid: u32, name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    let like = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kept = ["Umask:", "Uid:", "Gid:", "Groups:", "CapBnd:"];
        let status = status
            .lines()
            .filter(|l| kept.iter().any(|k| l.starts_with(k)));
        (
            process::command_line(pid),
            told(pid),
            ["cwd", "fd/0", "fd/1", "fd/2"].map(|name| link(pid, name)),
            status.map(str::to_owned).collect::<Vec<_>>(),
        )
    };
    let first = server.pid();
    let before = like(first);
    for _ in 0..2 {
        let old = [server.pid(), spawner(&server)];
        fs::copy(env!("CARGO_BIN_EXE_galgo"), &next).unwrap();
        let inode = fs::metadata(&next).unwrap().ino();
        fs::rename(&next, server.path("bin/galgo")).unwrap();
        assert!(server.upgrade(), "{}", server.errors());
        old.into_iter().for_each(assert_gone);
        let now = server.pid();
        let executes = fs::metadata(format!("/proc/{now}/exe")).unwrap().ino();
        assert_eq!(executes, inode);
        assert_eq!(like(now), before);
        assert_eq!(of(now, "comm"), b"galgo\n");
        assert_eq!(uid_of(spawner(&server)), "0 0 0 0");
        assert!(server.get("/games/who").text().starts_with("5\n"));
        let open = fs::read_dir(format!("/proc/{now}/fd")).unwrap();
        let mut open = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        assert!(!open.any(|to| to.ends_with("bin/galgo")));
    }
}

fn requests_of_the_old_one_are_answered() {
    let waits = "#!/bin/sh\necho > ../marks/on\nwhile ! [ -e ../marks/go ]; do sleep 0.01; done\n\
        printf 'Content-Type: text/plain\\n\\n'\nid -u\n";
    let site = site().file("games/waits", waits, 0o755);
    own(&site, "games/waits", super::GAMES);
    let server = site.start();
    let old = [server.pid(), spawner(&server)];
    let mut client = server.connect();
    client.get("/games/waits");
    server.wait_for("on");
    assert!(server.upgrade(), "{}", server.errors());
    // The helpers of both servers are there.
    assert!(server.get("/games/who").text().starts_with("5\n"));
    server.set("go");
    let reply = client.reply();
    assert!(reply.text() == "5\n" && reply.closes());
    old.into_iter().for_each(assert_gone);
}

/// Asserts that the server serves as before, and that nothing of the failed upgrade is left.
fn goes_on(server: &Server, [pid, spawner_pid]: [u32; 2], why: &str) {
    let errors = server.errors();
    let line = errors
        .lines()
        .rfind(|line| line.contains("error upgrade: "));
    assert!(
        line.is_some_and(|line| line.contains(why)),
        "{why}: {errors}"
    );
    assert_eq!([server.pid(), spawner(server)], [pid, spawner_pid]);
    assert!(server.get("/games/who").text().starts_with("5\n"));
    wait_until("the end of all but helpers", || {
        children(spawner_pid)
            .iter()
            .all(|pid| uid_of(*pid) != "0 0 0 0")
    });
}

fn what_does_not_get_ready_leaves_the_old_one() {
    let server = replaceable()
        .config("listen = [\"127.0.0.1:0\", \"unix:s\"]")
        .start();
    let all = [server.pid(), spawner(&server)];
    let configuration = server.path("galgo.toml");
    let good = fs::read_to_string(&configuration).unwrap();
    let bad = format!("{good}\nlisen = 1\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    // The spawner finds the first error itself; only the new process finds the second.
    let busy = good.replace("\"unix:s\"", &format!("\"unix:s\", \"{at}\""));
    assert_ne!(busy, good);
    for (text, why) in [(&bad, "unknown key \"lisen\""), (&busy, "cannot listen on")] {
        fs::write(&configuration, text).unwrap();
        assert!(!server.upgrade());
        goes_on(&server, all, why);
    }
    chown(&configuration, Some(NOBODY), None).unwrap();
    assert!(!server.upgrade());
    goes_on(&server, all, "users other than root can change");
    chown(&configuration, Some(0), None).unwrap();
    fs::write(&configuration, &good).unwrap();
    let binary = server.path("bin/galgo");
    let whole = fs::read(&binary).unwrap();
    for (text, why) in [
        (
            "#!/bin/sh\nexit 3\n",
            "it ended with status 3 before it was ready",
        ),
        ("#!/bin/sh\nkill -SEGV $$\n", "it ended by signal 11"),
        (
            "#!/bin/sh\nexec 3<&- 4>&-\nsleep 1000\n",
            "it closed its socket",
        ),
        ("#!/bin/sh\nexec 4>&-\nsleep 1000\n", "it closed its socket"),
        ("#!/nowhere\n", "cannot start"),
    ] {
        fs::remove_file(&binary).unwrap();
        file::script(&server.path("bin"), "galgo", text);
        assert!(!server.upgrade());
        goes_on(&server, all, why);
    }
    fs::remove_file(&binary).unwrap();
    assert!(!server.upgrade());
    goes_on(&server, all, "galgo");
    assert!(server.path("s").exists() && server.path("s.lock").exists());
    fs::write(&binary, whole).unwrap();
    mode(&server.site, "bin/galgo", 0o755);
    assert!(server.upgrade(), "{}", server.errors());
    all.into_iter().for_each(assert_gone);
    assert!(server.path("s").exists() && server.path("s.lock").exists());
    assert!(server.get("/games/who").text().starts_with("5\n"));
}

fn one_that_hangs_is_the_only_one() {
    let server = replaceable().start();
    let all = [server.pid(), spawner(&server)];
    fs::remove_file(server.path("bin/galgo")).unwrap();
    let mark = server.mark("pid").display().to_string();
    let text = format!("#!/bin/sh\necho $$ >{mark}.new; mv {mark}.new {mark}\nexec sleep 1000\n");
    file::script(&server.path("bin"), "galgo", &text);
    let hangs = || -> u32 {
        server.signal(Signal::USR2);
        server.wait_for("pid");
        let pid = fs::read_to_string(server.mark("pid")).unwrap();
        pid.trim().parse().unwrap()
    };
    let pid = hangs();
    assert_eq!(process::parent(pid), Some(all[1]));
    server.signal(Signal::USR2);
    server.says("warn upgrade: an upgrade is already running");
    assert!(server.get("/games/who").text().starts_with("5\n"));
    kill(pid);
    server.says("this process keeps serving");
    goes_on(&server, all, "it ended by signal 9");
    // If the old server ends, the new one ends, too.
    fs::remove_file(server.mark("pid")).unwrap();
    let pid = hangs();
    server.signal(Signal::TERM);
    [all[0], all[1], pid].into_iter().for_each(assert_gone);
}

fn what_others_may_change_is_not_started() {
    let server = replaceable().start();
    let all = [server.pid(), spawner(&server)];
    let binary = server.path("bin/galgo");
    // This binary would leave a mark if it ran.
    fs::remove_file(&binary).unwrap();
    let text = format!("#!/bin/sh\necho >{}\n", server.mark("ran").display());
    file::script(&server.path("bin"), "galgo", &text);
    let own = |name: &str, uid: u32| chown(server.path(name), Some(uid), None).unwrap();
    let refused = || {
        assert!(!server.upgrade());
        goes_on(&server, all, "users other than root can change");
        assert!(!server.mark("ran").exists());
    };
    for (name, open, closed) in [
        ("bin/galgo", 0o775, 0o755),
        ("bin/galgo", 0o757, 0o755),
        ("bin", 0o777, 0o755),
    ] {
        mode(&server.site, name, open);
        refused();
        mode(&server.site, name, closed);
    }
    for name in ["bin/galgo", "bin"] {
        own(name, NOBODY);
        refused();
        own(name, 0);
    }
    // Through a link in a folder of another user.
    fs::rename(server.path("bin"), server.path("real")).unwrap();
    std::os::unix::fs::symlink(server.path("marks/bin"), server.path("bin")).unwrap();
    std::os::unix::fs::symlink(server.path("real"), server.path("marks/bin")).unwrap();
    refused();
    fs::remove_file(server.path("bin")).unwrap();
    fs::rename(server.path("real"), server.path("bin")).unwrap();
    assert!(!server.upgrade());
    goes_on(&server, all, "it ended with status 0 before it was ready");
    assert!(server.mark("ran").exists());
}

fn who_is_the_main_process_is_told() {
    let site = site().config("pid_file = \"marks/galgo.pid\"");
    let path = site.path("notify");
    let manager = Manager::at(&path);
    file::chmod(&path, 0o666);
    let path: &'static str = Box::leak(path.display().to_string().into_boxed_str());
    let server = site
        .env("NOTIFY_SOCKET", path)
        .env("WATCHDOG_USEC", "300000")
        .start();
    let holds = |pid: u32| {
        wait_until("the process id", || {
            fs::read_to_string(server.mark("galgo.pid"))
                .is_ok_and(|held| held == format!("{pid}\n"))
        });
    };
    let first = server.pid();
    manager.is_told("READY=1");
    holds(first);
    assert!(server.upgrade(), "{}", server.errors());
    manager.is_told("RELOADING=1");
    assert_ne!(server.pid(), first);
    manager.is_told(&format!("MAINPID={}", server.pid()));
    manager.is_told("READY=1");
    assert_gone(first);
    holds(server.pid());
    // A failed upgrade does not change the main process.
    server.configure("workers = 9999");
    assert!(!server.upgrade());
    manager.is_told("RELOADING=1");
    manager.is_told("READY=1");
    holds(server.pid());
    server.signal(Signal::TERM);
    manager.is_told("STOPPING=1");
}

fn sockets_of_a_service_manager_move() {
    let web = free_address();
    let site = site().config("listen = [\"127.0.0.1:0\", \"fd:web\"]");
    let server = passed(site, &[&format!("web={web}")]).start();
    let ask = || {
        let mut client = Client::connect(web);
        client.get("/games/who");
        assert!(client.reply().text().starts_with("5\n"));
    };
    for _ in 0..2 {
        let before = server.pid();
        ask();
        assert!(server.upgrade(), "{}", server.errors());
        assert_gone(before);
    }
    ask();
}

/// A strict sandbox needs a spawner, which has no more rights here than the server.
fn without_roots_rights_the_server_starts_it_itself() {
    let site = crate::harness::new_site()
        .file("cgi-bin/who", super::WHO, 0o755)
        .config("[[route]]\npath = \"/strict/\"\ncgi = \"cgi-bin\"\nsandbox = \"strict\"\n")
        .config("[defaults]\nstart = \"cold\"\n");
    let site = match rustix::process::geteuid().is_root() {
        true if !site.is_reachable() => return,
        true => site.owned_by(NOBODY),
        false => site,
    };
    let server = site.start();
    for _ in 0..2 {
        let old = [server.pid(), spawner(&server)];
        assert_eq!(server.get("/strict/who").status, 200, "{}", server.errors());
        assert!(server.upgrade(), "{}", server.errors());
        old.into_iter().for_each(assert_gone);
    }
    assert_eq!(server.get("/strict/who").status, 200, "{}", server.errors());
}
