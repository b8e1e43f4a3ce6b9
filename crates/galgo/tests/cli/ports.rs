//! Attacks by other users and programs on the server's port, socket and logs.

use crate::scene::{GALGO, new_site};
use galgo_testkit::{Server, Site, file::whole_lines, is_root};
use std::{
    fs,
    os::unix::fs::lchown,
    process::{Command, Stdio},
};

/// Tries every way to listen at the server's address.
const JOIN: &str = r#"#!/usr/bin/env python3
import os, socket
print("Content-Type: text/plain\n")
own, port = os.environ["QUERY_STRING"].split(":")
for address in [own, "0.0.0.0"]:
    for reuse in [(), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]:
        s = socket.socket()
        for option in reuse:
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            s.bind((address, int(port)))
            s.listen()
            print("JOINED", address, reuse)
        except OSError as e:
            assert e.errno == 98, e
        s.close()
print("done")
"#;

fn cannot_join(server: &Server, address: &str) {
    let page = server.page(&format!("/cgi-bin/join?{address}"));
    assert!(page.contains("done") && !page.contains("JOINED"), "{page}");
}

const NOBODY: [&str; 6] = [
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
    GALGO,
];

/// Runs galgo as a user without privileges. That is the user of the tests; if the tests run as root,
/// it is user 65534.
fn unprivileged(site: &Site, args: &[&str]) -> Command {
    let mut command = if is_root() {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(NOBODY);
        setpriv
    } else {
        Command::new(GALGO)
    };
    command.args(args).current_dir(site.path(""));
    command
}

#[test]
fn a_program_cannot_listen_on_the_port_of_its_server() {
    let site = new_site();
    site.program("join", JOIN);
    let server = Server::start(unprivileged(&site, &["serve", "-l", "127.0.0.1:0"]), &site);
    cannot_join(&server, &server.address().to_string());
    if is_root() {
        let server = site.serve(&["-l", "127.0.0.1:0", "--user", "nobody"]);
        cannot_join(&server, &server.address().to_string());
    }
}

/// The listener is added while the server runs as the user of its programs.
#[test]
fn a_program_cannot_listen_on_a_port_that_was_added() {
    let site = new_site();
    site.program("join", JOIN);
    let config = |listen: &str| {
        let user = if is_root() { "user = 'nobody'" } else { "" };
        let text = format!(
            "listen = ['127.0.0.1:0'{listen}]\n{user}\nerror_log = 'errors'\n[[route]]\npath = '/cgi-bin/'\ncgi = 'cgi-bin'\n"
        );
        site.write("galgo.toml", &text);
    };
    config("");
    let server = site.serve(&[]);
    let free = std::net::TcpListener::bind("127.0.0.9:0").unwrap();
    let added = free.local_addr().unwrap();
    drop(free);
    config(&format!(", '{added}'"));
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    while std::net::TcpStream::connect(added).is_err() {
        std::thread::yield_now();
    }
    cannot_join(&server, &added.to_string());
}

/// Starts two servers at once: one serves, the other explains why it does not.
fn one_of_two(site: &Site, listen: &str) {
    let start = || {
        let mut command = unprivileged(site, &["serve", "-l", listen]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut two = [start(), start()];
    // Either server may be the loser, which ends by itself.
    let lost = loop {
        let ended = two
            .iter_mut()
            .position(|one| one.try_wait().unwrap().is_some());
        if let Some(lost) = ended {
            break lost;
        }
        std::thread::yield_now();
    };
    let [mut first, mut second] = two;
    if lost == 1 {
        std::mem::swap(&mut first, &mut second);
    }
    let said = first.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(
        words.contains("another program listens there already"),
        "{words}"
    );
    assert!(second.try_wait().unwrap().is_none(), "{words}");
    let pid = rustix::process::Pid::from_child(&second);
    // The signal is sent as soon as the server can handle it.
    let mut line = String::new();
    let mut out = std::io::BufReader::new(second.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(second.wait().unwrap().success());
}

#[test]
fn of_two_starts_at_once_one_fails_with_words() {
    let site = new_site();
    let folder = site.path("run");
    fs::create_dir(&folder).unwrap();
    if is_root() {
        lchown(&folder, Some(65534), Some(65534)).unwrap();
    }
    let socket = format!("unix:{}", folder.join("s").display());
    let free = std::net::TcpListener::bind("127.0.0.11:0").unwrap();
    let port = free.local_addr().unwrap().to_string();
    drop(free);
    for _ in 0..20 {
        one_of_two(&site, &port);
        one_of_two(&site, &socket);
        // Both files are removed with the server that made them.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}

#[test]
fn root_opens_no_log_by_the_link_of_another_user() {
    assert!(is_root(), "this test needs root");
    use std::os::unix::fs::{PermissionsExt, symlink};
    let site = new_site();
    let (logs, secret) = (site.path("logs"), site.path("secret"));
    for folder in [&logs, &secret] {
        fs::create_dir(folder).unwrap();
    }
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    lchown(&logs, Some(65534), Some(65534)).unwrap();
    for (link, to, log) in [
        ("logs/a", "secret/made", "logs/a"),
        ("logs/way", "secret", "logs/way/made"),
    ] {
        symlink(site.path(to), site.path(link)).unwrap();
        lchown(site.path(link), Some(65534), Some(65534)).unwrap();
        for user in ["user = 'nobody'\n", ""] {
            let text = format!(
                "listen = ['127.0.0.1:0']\n{user}access_log = '{log}'\n[[route]]\npath = '/'\ncgi = 'cgi-bin'\n"
            );
            site.write("galgo.toml", &text);
            let done = site.galgo(&["serve"]);
            assert!(
                done.code == 1 && done.err.contains("cannot open a log"),
                "{done:?}"
            );
        }
        assert_eq!(fs::read_dir(&secret).unwrap().count(), 0, "{link}");
    }
}

/// The disk of a log is full in the middle of a line. That line is lost, and no other line with it.
#[test]
fn a_full_disk_mixes_no_lines() {
    assert!(is_root(), "this test needs root, to mount");
    let site = new_site();
    fs::create_dir(site.path("logs")).unwrap();
    site.write(
        "galgo.toml",
        "listen = ['127.0.0.1:0']\naccess_log = 'logs/a'\nlog_format = 'json'\nerror_log = 'errors'\n\
         [[route]]\npath = '/'\nrespond = { body = 'fine' }\n",
    );
    let mut unshare = Command::new("unshare");
    let mount = "mount -t tmpfs -o size=64k none logs && head -c 32768 /dev/zero >logs/ballast && exec \"$0\" serve";
    unshare
        .args(["-m", "sh", "-c", mount, GALGO])
        .current_dir(site.path(""));
    let server = Server::start(unshare, &site);
    let logs = format!(
        "/proc/{}/root{}",
        server.child.id(),
        site.path("logs").display()
    );
    let full = || {
        fs::read_to_string(site.path("errors"))
            .unwrap()
            .contains("No space left")
    };
    while !full() {
        server.page(&format!("/{}", "x".repeat(3001)));
    }
    fs::remove_file(format!("{logs}/ballast")).unwrap();
    let log = || whole_lines(format!("{logs}/a").as_ref());
    while !log().contains("\"/last\"") {
        server.page("/last");
    }
    let text = log();
    let whole = |line: &&str| line.starts_with('{') && line.ends_with('}');
    let cut: Vec<_> = text.lines().filter(|line| !whole(line)).collect();
    // Several lines are cut if the server's write finds room while the ballast is still being removed.
    assert!(!cut.is_empty(), "the disk was never full: {text}");
    for line in text.lines() {
        assert!(line.starts_with('{'), "{line}");
        assert_eq!(line.matches('{').count(), 1, "{line}");
    }
    assert!(!cut.iter().any(|line| line.contains("/last")), "{cut:?}");
}
