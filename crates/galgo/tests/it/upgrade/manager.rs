//! Messages to a service manager.

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::Path,
    time::Duration,
};

use rustix::process::Signal;

use crate::harness::{list, new_site};
use galgo_testkit::{LONG, Server, Site};

list![
    ready_reloading_and_stopping,
    an_abstract_socket,
    the_main_process_moves,
    the_watchdog_is_fed,
    a_manager_that_is_not_there,
    a_name_that_is_none,
];

/// The socket of a service manager.
pub struct Manager(UnixDatagram);

impl Manager {
    /// Binds the socket at that path.
    pub fn at(path: &Path) -> Self {
        Self::of(UnixDatagram::bind(path).unwrap())
    }

    fn of(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self(socket)
    }

    /// Returns the next message other than the watchdog's.
    fn told(&self) -> Vec<String> {
        loop {
            let mut buf = [0; 4096];
            let n = self.0.recv(&mut buf).expect("a message");
            let text = String::from_utf8(buf[..n].to_vec()).unwrap();
            if text != "WATCHDOG=1" {
                return text.lines().map(str::to_owned).collect();
            }
        }
    }

    #[track_caller]
    pub fn is_told(&self, line: &str) {
        let told = self.told();
        assert!(told.iter().any(|told| told == line), "{line}: {told:?}");
    }
}

/// Starts a server whose service manager listens at a fixed name in the site's folder.
fn managed(site: Site) -> (Manager, Server) {
    let path = site.path("notify");
    let manager = Manager::at(&path);
    galgo_testkit::file::chmod(&path, 0o666);
    let path: &'static str = Box::leak(path.display().to_string().into_boxed_str());
    (manager, site.env("NOTIFY_SOCKET", path).start())
}

/// Returns the monotonic clock in microseconds.
fn now() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).unwrap().as_micros()
}

fn ready_reloading_and_stopping() {
    let (manager, server) = managed(new_site());
    manager.is_told("READY=1");
    let reloads = |good: bool| {
        let before = now();
        assert_eq!(server.reload(), good);
        let told = manager.told();
        assert!(told.contains(&"RELOADING=1".to_owned()), "{told:?}");
        let at = told
            .iter()
            .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        let at: u128 = at.unwrap().parse().unwrap();
        assert!((before..=now()).contains(&at));
        manager.is_told("READY=1");
    };
    reloads(true);
    server.configure("workers = 9999");
    reloads(false);
    server.signal(Signal::TERM);
    manager.is_told("STOPPING=1");
}

fn an_abstract_socket() {
    let name: &'static str =
        Box::leak(format!("@galgo-test-{}", std::process::id()).into_boxed_str());
    let at = SocketAddr::from_abstract_name(&name[1..]).unwrap();
    let manager = Manager::of(UnixDatagram::bind_addr(&at).unwrap());
    let _server = new_site().env("NOTIFY_SOCKET", name).start();
    manager.is_told("READY=1");
}

fn the_main_process_moves() {
    let (manager, server) = managed(new_site().env("WATCHDOG_USEC", "300000"));
    let first = server.pid();
    manager.is_told("READY=1");
    assert!(server.upgrade());
    manager.is_told("RELOADING=1");
    assert_ne!(server.pid(), first);
    manager.is_told(&format!("MAINPID={}", server.pid()));
    manager.is_told("READY=1");
    // A failed upgrade does not change the main process.
    server.configure("workers = 9999");
    assert!(!server.upgrade());
    manager.is_told("RELOADING=1");
    manager.is_told("READY=1");
    server.signal(Signal::TERM);
    manager.is_told("STOPPING=1");
}

fn the_watchdog_is_fed() {
    let own: &'static str = Box::leak(std::process::id().to_string().into_boxed_str());
    // WATCHDOG_PID names another process, so the server sends no watchdog messages.
    let (manager, other) = managed(
        new_site()
            .env("WATCHDOG_USEC", "3000")
            .env("WATCHDOG_PID", own),
    );
    manager.is_told("READY=1");
    assert!(other.reload() && other.reload());
    for _ in 0..2 {
        manager.is_told("RELOADING=1");
        manager.is_told("READY=1");
    }
    let mut rest = [0; 64];
    manager.0.set_nonblocking(true).unwrap();
    assert!(manager.0.recv(&mut rest).is_err());
    let (manager, server) = managed(new_site().env("WATCHDOG_USEC", "30000"));
    let fed = || {
        let mut buf = [0; 64];
        let mut times = 0;
        while times < 3 {
            let n = manager.0.recv(&mut buf).expect("to be fed");
            times += usize::from(&buf[..n] == b"WATCHDOG=1");
        }
    };
    fed();
    // The new process feeds the watchdog, too.
    assert!(server.upgrade());
    galgo_testkit::process::assert_gone(server.child.id());
    fed();
}

fn a_manager_that_is_not_there() {
    let server = new_site().env("NOTIFY_SOCKET", "/nowhere/notify").start();
    assert!(server.reload());
    assert_eq!(server.get("/health").status, 200);
}

fn a_name_that_is_none() {
    let site = new_site();
    let mut command = site.command(&["serve", "-l", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", "notify");
    let done = galgo_testkit::Done::of(&mut command, b"");
    done.has_err("NOTIFY_SOCKET=\"notify\": it is neither a path nor an abstract name");
}
