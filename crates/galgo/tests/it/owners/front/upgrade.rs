//! An attacker in the server's place, and an upgrade: processes and descriptors that the server may get started and handed over.

use std::{
    fs::{self, File},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
    time::Duration,
};

use super::{GAMES, Spawner, apart, kill, receive, send, signal, uid_of};
use crate::harness::list;
use galgo_testkit::{
    Repeated, eventually,
    process::{self, assert_gone, children, command_line},
    wait_until,
};
use rustix::{
    net::{
        Shutdown, shutdown,
        sockopt::{Timeout, set_socket_timeout},
    },
    process::Signal,
};

list![
    an_upgrade_takes_listeners_of_the_configuration_only,
    an_upgrade_is_of_what_was_started_and_configured,
    of_an_upgrade_nothing_is_the_servers_to_say,
    an_old_server_that_stays_and_speaks_is_not_waited_for_long,
];

/// Orders an upgrade, and returns the socket to the new server.
fn upgrade(spawner: &Spawner) -> Result<OwnedFd, String> {
    let line = spawner.order(4, 0, 0)?.expect("a socket");
    set_socket_timeout(&line, Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
    Ok(line)
}

/// Hands descriptors over, and returns the new server's answer.
fn says(line: &OwnedFd, handed: &[(&str, BorrowedFd<'_>)]) -> String {
    for (words, fd) in handed {
        send(line, words.as_bytes(), &[*fd]);
    }
    send(line, b"end", &[]);
    String::from_utf8(receive(line).0).unwrap()
}

/// Returns the servers that the spawner has started with root's rights.
fn servers(spawner: &Spawner) -> Vec<u32> {
    let mut all = children(spawner.process.id());
    all.retain(|pid| command_line(*pid).contains("serve"));
    all
}

/// Waits for the only new server, which may not have been executed yet.
fn server(spawner: &Spawner) -> u32 {
    eventually("the new server", || servers(spawner).first().copied())
}

/// The listener of the configuration.
const CONFIGURED: &str = "queue 127.0.0.1:0";

fn listener(at: &str) -> TcpListener {
    TcpListener::bind(at).unwrap()
}

/// Returns the paths of a process's open files.
fn open_files(pid: u32) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let all = all.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    all.collect()
}

/// A server under an attacker's control hands over arbitrary descriptors.
fn an_upgrade_takes_listeners_of_the_configuration_only() {
    let spawner = Spawner::start();
    let [ours, other] = ["127.0.0.1:0", "127.0.0.3:0"].map(listener);
    let connected = TcpStream::connect(ours.local_addr().unwrap()).unwrap();
    let (reads, _writes) = std::io::pipe().unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let environ = File::open("/proc/self/environ").unwrap();
    let unix = spawner.site.path("temporary/s");
    let unix = UnixListener::bind(unix).unwrap();
    for (words, fd, why) in [
        (CONFIGURED, reads.as_fd(), "handed over a wrong socket"),
        (CONFIGURED, environ.as_fd(), "handed over a wrong socket"),
        (
            CONFIGURED,
            connected.as_fd(),
            "it is not a listening socket",
        ),
        (CONFIGURED, datagrams.as_fd(), "it is not a stream socket"),
        (CONFIGURED, unix.as_fd(), "it listens on unix:"),
        (CONFIGURED, other.as_fd(), "it listens on 127.0.0.3:"),
        (
            "queue 127.0.0.1:1",
            ours.as_fd(),
            "it listens on 127.0.0.1:",
        ),
        ("queue nowhere", ours.as_fd(), "failed"),
        (
            "passed web",
            ours.as_fd(),
            "no service manager passed that socket",
        ),
    ] {
        let line = upgrade(&spawner).unwrap();
        let said = says(&line, &[(words, fd)]);
        assert!(
            said.starts_with("failed ") && said.contains(why),
            "{words}: {said}"
        );
        assert!(receive(&line).0.is_empty());
        let said = spawner.order(5, 0, 0).unwrap_err();
        assert!(said.contains("before it was ready"), "{said}");
    }
}

/// The new server closes listeners that are not configured. It also closes files and folders offered as root's own.
fn an_upgrade_is_of_what_was_started_and_configured() {
    let spawner = Spawner::start();
    let [ours, other] = ["127.0.0.1:0", "127.0.0.3:0"].map(listener);
    let (reads, _writes) = std::io::pipe().unwrap();
    let environ = File::open("/proc/self/environ").unwrap();
    let line = upgrade(&spawner).unwrap();
    let at = other.local_addr().unwrap().to_string();
    let handed = [
        (CONFIGURED, ours.as_fd()),
        (&*format!("queue {at}"), other.as_fd()),
        ("lock 1 1 /etc/passwd", reads.as_fd()),
        ("store /etc", environ.as_fd()),
        ("more of it", environ.as_fd()),
    ];
    assert_eq!(says(&line, &handed), "ready");
    let pid = server(&spawner);
    // The new process is the configured server with its own arguments, and no longer root.
    let command = command_line(pid);
    assert!(command.ends_with("serve . "), "{command}");
    assert_eq!(uid_of(pid), apart(65534));
    let is =
        |fd: BorrowedFd<'_>| fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    send(&line, b"go", &[]);
    // From here on the old server cannot influence the new one.
    wait_until("the word of the new server", || {
        upgrade(&spawner).is_err_and(|why| why == "another galgo has taken over already")
    });
    let said = spawner.order(5, 0, 0).unwrap_err();
    assert_eq!(said, "another galgo has taken over already");
    let held = open_files(pid);
    assert!(held.contains(&is(ours.as_fd())));
    for closed in [other.as_fd(), reads.as_fd(), environ.as_fd()] {
        assert!(!held.contains(&is(closed)));
    }
    drop(line);
    let (of_spawner, site) = (spawner.process.id(), spawner.site.clone());
    drop(spawner);
    assert_gone(of_spawner);
    assert!(process::pids().any(|other| other == pid));
    kill(pid);
    drop(site);
}

/// The attacker keeps the new server waiting, lets it hang, ends it, or leaves.
fn of_an_upgrade_nothing_is_the_servers_to_say() {
    let spawner = Spawner::start();
    let null = File::open("/dev/null").unwrap();
    // The order carries no path, arguments, variables or descriptors: extra bytes make it invalid, and extra descriptors are
    // ignored.
    let order = 4u32.to_ne_bytes();
    for noise in [
        &b"/bin/sh"[..],
        b"\0\0\0\0/bin/sh\0",
        &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let (said, _) = spawner.ask(&[&order[..], noise].concat(), &[null.as_fd()]);
        assert!(said.starts_with(b"N"), "{said:?}");
    }
    assert!(servers(&spawner).is_empty());
    let line = upgrade(&spawner).unwrap();
    let first = [server(&spawner)];
    for _ in 0..50 {
        let again = upgrade(&spawner).unwrap_err();
        assert_eq!(again, "an upgrade is already running");
    }
    assert_eq!(servers(&spawner), first);
    assert!(spawner.helper(GAMES, 0).is_ok());
    // The attacker sends messages that only the new server may send.
    for words in ["ready", "go", "failed"] {
        send(&line, words.as_bytes(), &[]);
    }
    assert!(upgrade(&spawner).is_err());
    let said = spawner.order(5, 0, 0).unwrap_err();
    assert!(said.contains("was ended"), "{said}");
    assert_gone(first[0]);
    assert!(spawner.order(5, 0, 0).is_err());
    // The attacker never sends "go".
    let line = upgrade(&spawner).unwrap();
    assert_eq!(says(&line, &[]), "ready");
    let second = server(&spawner);
    drop(line);
    assert_gone(second);
    assert!(spawner.order(5, 0, 0).is_err());
    // The attacker's server disappears in the middle of the upgrade.
    let _line = upgrade(&spawner).unwrap();
    let third = server(&spawner);
    let all = [spawner.process.id(), third];
    shutdown(&spawner.socket, Shutdown::Both).unwrap();
    all.into_iter().for_each(assert_gone);
}

/// The new server is told to end and waits for the old one. The old one does not end, and sends more than the new one can read.
fn an_old_server_that_stays_and_speaks_is_not_waited_for_long() {
    let spawner = Spawner::start();
    let line = upgrade(&spawner).unwrap();
    let ours = listener("127.0.0.1:0");
    assert_eq!(says(&line, &[(CONFIGURED, ours.as_fd())]), "ready");
    let pid = server(&spawner);
    send(&line, b"go", &[]);
    assert_eq!(receive(&line).0, b"serves");
    signal(pid, Signal::TERM);
    assert_eq!(receive(&line).0, b"stop");
    let speaks = Repeated::start(move || send(&line, b"stop", &[ours.as_fd()]));
    assert_gone(pid);
    speaks.end();
}
