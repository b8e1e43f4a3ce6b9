//! Another process takes over.

use std::{
    fs,
    os::unix::{fs::MetadataExt, net::UnixStream},
};

use rustix::process::Signal;

use crate::harness::{list, needs_root, new_site};
use galgo_testkit::{Client, Server, process::assert_gone, wait_until};

list![
    the_binary_that_is_there_now_serves,
    requests_of_the_old_one_are_answered,
    an_idle_connection_has_one_more_request,
    a_socket_file_stays,
    the_pid_file_moves,
    programs_see_nothing_of_it,
    each_event_loop_has_its_queue_again,
    a_reload_meanwhile_is_the_new_ones,
];

fn executes(server: &Server) -> u64 {
    fs::metadata(format!("/proc/{}/exe", server.pid()))
        .unwrap()
        .ino()
}

fn the_binary_that_is_there_now_serves() {
    let site = new_site().copied("bin/galgo");
    let next = site.path("bin/next");
    let server = site.ends_by_term().start();
    let first = server.pid();
    fs::copy(env!("CARGO_BIN_EXE_galgo"), &next).unwrap();
    let inode = fs::metadata(&next).unwrap().ino();
    fs::rename(&next, server.path("bin/galgo")).unwrap();
    server.configure("[[route]]\npath = \"/new\"\nrespond = { body = \"new\" }");
    assert_eq!(server.get("/new").status, 404);
    assert!(server.upgrade());
    assert_gone(first);
    assert_ne!(server.pid(), first);
    assert_eq!(
        (executes(&server), server.get("/new").text().as_str()),
        (inode, "new")
    );
    // A third process can replace the second in the same way.
    assert!(server.upgrade());
    assert_eq!(server.get("/new").status, 200);
}

fn requests_of_the_old_one_are_answered() {
    let server = new_site().start();
    let first = server.pid();
    let mut client = server.connect();
    client.get("/cgi-bin/t?touch=on&await=go&head&out=old");
    server.wait_for("on");
    assert!(server.upgrade());
    assert_eq!(server.get("/cgi-bin/t?head&out=new").text(), "new");
    server.set("go");
    let reply = client.reply();
    assert!(reply.text() == "old" && reply.closes());
    assert!(client.is_over());
    assert_gone(first);
}

/// The next request of an idle connection may be on its way when another process takes over.
fn an_idle_connection_has_one_more_request() {
    let server = new_site().start();
    let first = server.pid();
    let mut clients = [(); 3].map(|()| server.connect());
    // The first connection asks again, and the third asks for the first time.
    clients[0].get("/health");
    assert!(!clients[0].reply().closes());
    clients[1].get("/health");
    assert!(!clients[1].reply().closes());
    server.upgrade();
    assert!(clients.iter().all(|client| !client.has_news()));
    let [mut one, silent, mut new] = clients;
    for client in [&mut one, &mut new] {
        client.get("/health");
        let reply = client.reply();
        assert!(reply.status == 200 && reply.closes());
        assert!(client.is_over());
    }
    // A signal ends the rest of the first process.
    assert!(fs::exists(format!("/proc/{first}")).unwrap());
    rustix::process::kill_process(galgo_testkit::process::pid(first), Signal::TERM).unwrap();
    wait_until("the end of the silent one", || silent.is_closed());
    assert_gone(first);
    assert_eq!(server.get("/health").status, 200);
}

fn a_socket_file_stays() {
    let site = new_site()
        .config("listen = [\"127.0.0.1:0\", \"unix:s\"]")
        .ends_by_term();
    let server = site.start();
    let (first, socket) = (server.pid(), server.path("s"));
    let inode = || fs::symlink_metadata(&socket).unwrap().ino();
    let before = inode();
    let ask = || {
        let mut client = Client::over(UnixStream::connect(&socket).unwrap());
        client.get("/health");
        assert_eq!(client.reply().status, 200);
    };
    for _ in 0..2 {
        assert!(server.upgrade());
        assert_gone(first);
        ask();
        assert_eq!(inode(), before);
    }
    // The new process also holds the lock: no other server removes the socket file.
    let other = server.site.galgo(&[
        "serve",
        "-l",
        "127.0.0.1:0",
        "-l",
        &format!("unix:{}", socket.display()),
    ]);
    other.has_err("another program listens there already");
    ask();
    // If the next configuration does not name the socket file, the file is removed together with its lock.
    server.configure("listen = [\"127.0.0.1:0\"]");
    assert!(server.upgrade());
    let lock = server.path("s.lock");
    wait_until("the end of the file", || !socket.exists() && !lock.exists());
}

fn the_pid_file_moves() {
    let server = new_site()
        .config("pid_file = \"pid\"")
        .ends_by_term()
        .start();
    let file = server.path("pid");
    let holds = |pid: u32| {
        wait_until("the process id", || {
            fs::read_to_string(&file).is_ok_and(|held| held == format!("{pid}\n"))
        });
    };
    let first = server.pid();
    holds(first);
    assert!(server.upgrade());
    assert_gone(first);
    holds(server.pid());
    // A reload does not change `pid_file`, and the log says so.
    server.configure("pid_file = \"other\"");
    assert!(server.reload());
    server.says("`pid_file` has changed: restart galgo");
    server.signal(Signal::TERM);
    wait_until("its end", || !file.exists());
    assert!(!server.path("other").exists());
}

fn programs_see_nothing_of_it() {
    let names = [
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "GALGO_UPGRADE",
        "WATCHDOG_USEC",
    ];
    for start in ["cold", "warm"] {
        let site = new_site().defaults(&format!("start = \"{start}\""));
        let site = site
            .env("NOTIFY_SOCKET", "@galgo-nobody")
            .env("LISTEN_FDNAMES", "x")
            .env("WATCHDOG_USEC", "3000000");
        let server = site
            .config("listen = [\"127.0.0.1:0\", \"unix:s\"]")
            .start();
        for _ in 0..2 {
            let env = server.get("/cgi-bin/t?head&env").text();
            assert!(names.iter().all(|name| !env.contains(name)), "{env}");
            let fds = server.get("/cgi-bin/t?head&fds").text();
            assert_eq!(fds.trim(), "0 1 2");
            assert!(server.upgrade());
        }
    }
}

/// If root starts the server and becomes a user, each event loop has its own queue. The new process, not root, takes these over.
fn each_event_loop_has_its_queue_again() {
    needs_root();
    let site = new_site().config("user = \"daemon\"\nworkers = 3\naccess_log = \"off\"");
    let site = site.file("galgo.toml", "", 0o644);
    galgo_testkit::file::chmod(site.folder(), 0o755);
    let server = site.start();
    let listeners = |pid: u32| {
        let port = format!("{:04X}", server.address().port());
        let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
        let listens = |line: &&str| line.contains(&format!(":{port} 00000000:0000 0A"));
        table.lines().filter(listens).count()
    };
    assert_eq!(listeners(server.pid()), 3);
    for workers in [3, 2, 5] {
        let before = server.pid();
        server.configure(&format!("workers = {workers}"));
        assert!(server.upgrade(), "{}", server.errors());
        assert_gone(before);
        assert_eq!(listeners(server.pid()), 3);
        let clients: Vec<_> = (0..30).map(|_| server.connect()).collect();
        for mut client in clients {
            client.get("/health");
            assert_eq!(client.reply().status, 200);
        }
    }
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains("\nUid:\t1\t1\t1\t1\n"), "{status}");
}

/// The old process passes the signal on, because the new one may have read the configuration before it changed.
fn a_reload_meanwhile_is_the_new_ones() {
    let server = new_site().start();
    assert!(server.upgraded_by(|| {
        server.signal(Signal::USR2);
        server.signal(Signal::HUP);
    }));
    server.says("reloaded the configuration");
}
