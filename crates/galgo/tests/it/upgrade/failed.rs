//! The new process does not become ready: the old one goes on serving, and logs the reason.

use std::{fs, process::Command};

use rustix::{
    io::Errno,
    process::{Signal, kill_process},
};

use crate::harness::{
    inject::{self, Calls},
    list, new_site,
};
use galgo_testkit::{Server, file, process, stream::own, wait_until};

list![
    a_configuration_that_is_wrong,
    an_address_that_is_taken,
    a_binary_that_is_none,
    threads_that_the_kernel_refuses,
    one_at_a_time,
    the_end_of_the_old_one_is_that_of_the_new_one,
    an_old_one_that_ends_before_the_new_one_looks,
];

/// Asserts that the old server serves as before, and that the log has the reason.
fn goes_on(server: &Server, pid: u32, why: &str) {
    assert_eq!(server.pid(), pid);
    let errors = server.errors();
    let line = errors
        .lines()
        .rfind(|line| line.contains("error upgrade: "));
    assert!(line.is_some_and(|line| line.contains(why)), "{errors}");
    assert_eq!(server.get("/health").status, 200);
}

fn a_configuration_that_is_wrong() {
    let server = new_site()
        .config("listen = [\"127.0.0.1:0\", \"unix:s\"]")
        .start();
    let first = server.pid();
    let file = server.path("galgo.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}\nlisen = 1\n")).unwrap();
    assert!(!server.upgrade());
    goes_on(&server, first, "unknown key \"lisen\"");
    assert!(server.path("s").exists() && server.path("s.lock").exists());
    fs::write(&file, good).unwrap();
    assert!(server.upgrade());
    assert_eq!(server.get("/health").status, 200);
}

/// The new process has taken over listeners but is not ready yet.
fn an_address_that_is_taken() {
    let server = new_site()
        .config("listen = [\"127.0.0.1:0\", \"unix:s\"]")
        .start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    server.configure(&format!(
        "listen = [\"127.0.0.1:0\", \"unix:s\", \"{taken}\"]"
    ));
    assert!(!server.upgrade());
    goes_on(&server, server.pid(), "cannot listen on");
    assert!(server.path("s").exists() && server.path("s.lock").exists());
}

fn a_binary_that_is_none() {
    let server = new_site().copied("bin/galgo").start();
    let first = server.pid();
    let binary = server.path("bin/galgo");
    for (text, why) in [
        (
            "#!/bin/sh\nexit 3\n",
            "it ended with status 3 before it was ready",
        ),
        ("#!/bin/sh\nkill -SEGV $$\n", "it ended by signal 11"),
        ("#!/bin/sh\nexec 3<&-\nsleep 1000\n", "it closed its socket"),
        ("#!/nowhere\n", "cannot start"),
    ] {
        fs::remove_file(&binary).unwrap();
        file::script(&server.path("bin"), "galgo", text);
        assert!(!server.upgrade());
        goes_on(&server, first, why);
    }
    fs::remove_file(&binary).unwrap();
    assert!(!server.upgrade());
    goes_on(&server, first, "cannot start");
    // The server reaps leftover processes of such a binary the next time it looks for unknown children.
    wait_until("the end of all that was started", || {
        process::children(first).is_empty()
    });
}

/// Otherwise a new server could take over with fewer event loops than configured, or could end as soon as the old one has.
fn threads_that_the_kernel_refuses() {
    let own = own();
    let site = new_site().config(&format!(
        "workers = 2\nlisten = [\"127.0.0.1:0\", \"https://127.0.0.2:0\"]\n[tls]\ncertificate = {:?}\nkey = {:?}\n",
        own.certificate, own.key
    ));
    let server = Calls::all("+epoll_create1").of(site).start();
    let first = server.pid();
    // The first epoll instance of the new process waits for signals.
    for (skip, what) in [
        (1, "cannot start a thread for certificates"),
        (2, "cannot start the event loops"),
        (3, "cannot start the event loops"),
    ] {
        inject::fail(&server, skip, 1, Errno::NFILE);
        assert!(!server.upgrade());
        goes_on(
            &server,
            first,
            &format!("{what}: Too many open files in system"),
        );
    }
    inject::heal(&server);
    assert!(server.upgrade());
}

/// Installs a binary that never becomes ready. Returns its process id.
fn waits(server: &Server) -> u32 {
    fs::remove_file(server.path("bin/galgo")).unwrap();
    let (text, mark) = ("#!/bin/sh\necho $$ >", server.mark("pid"));
    let text = format!(
        "{text}{0}.new; mv {0}.new {0}\nexec sleep 1000\n",
        mark.display()
    );
    file::script(&server.path("bin"), "galgo", &text);
    server.signal(Signal::USR2);
    server.wait_for("pid");
    fs::read_to_string(mark).unwrap().trim().parse().unwrap()
}

fn one_at_a_time() {
    let server = new_site().copied("bin/galgo").start();
    let first = server.pid();
    let next = waits(&server);
    server.signal(Signal::USR2);
    server.says("warn upgrade: an upgrade is already running");
    assert_eq!(server.get("/health").status, 200);
    kill_process(process::pid(next), Signal::KILL).unwrap();
    server.says("this process keeps serving");
    goes_on(&server, first, "it ended by signal 9");
}

fn the_end_of_the_old_one_is_that_of_the_new_one() {
    let mut server = new_site().start();
    // The old server is stopped before it can report that it is ready.
    server.signal(Signal::STOP);
    server.signal(Signal::USR2);
    server.signal(Signal::TERM);
    server.signal(Signal::CONT);
    let status = server.child.wait().unwrap();
    assert!(status.success(), "{status}");
    let folder = server.site.folder().display().to_string();
    let serves = |pid: u32| process::command_line(pid).contains(&folder);
    wait_until("no other server", || !process::pids().any(serves));
}

/// Starts the command like an upgrade, from a process that ends at once: the command is executed after that process has ended.
const ORPHAN: &str = r#"
import os, signal, socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
old = os.getpid()
alive, end = os.pipe()
if os.fork() == 0:
    os.close(end)
    os.read(alive, 1)
    ours.close()
    os.dup2(theirs.fileno(), 3)
    signal.alarm(300) # what serves on is ended, and has not said why
    os.execve(sys.argv[1], sys.argv[1:], os.environ | {"GALGO_UPGRADE": str(old)})
"#;

fn an_old_one_that_ends_before_the_new_one_looks() {
    let site = new_site().file("galgo.toml", "listen = [\"127.0.0.1:0\"]\n", 0o644);
    let mut command = Command::new("python3");
    command
        .args(["-c", ORPHAN])
        .arg(env!("CARGO_BIN_EXE_galgo"))
        .arg("serve");
    let output = command.arg(site.folder()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("handed over nothing: it has ended"),
        "{errors}"
    );
}
