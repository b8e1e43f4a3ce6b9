//! Where the logs of `galgo serve` go.

use std::{io::Read, os::unix::net::UnixStream, process::Stdio};

use crate::scene::new_site;

/// Under systemd, /dev/stderr is a socket of the journal, which open(2) cannot open.
#[test]
fn a_log_named_dev_stderr_may_be_a_socket() {
    let site = new_site();
    site.write(
        "galgo.toml",
        "listen = [\"127.0.0.1:0\"]\nuser = \"nobody\"\nerror_log = \"/dev/stderr\"\naccess_log = \"/dev/stdout\"\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n",
    );
    let (mut journal, stderr) = UnixStream::pair().unwrap();
    let mut command = site.command(&["serve"]);
    command.stdout(Stdio::piped());
    command.stderr(Stdio::from(std::os::fd::OwnedFd::from(stderr)));
    let mut server = command.spawn().unwrap();
    drop(command);
    let mut listening = [0; 9];
    let mut stdout = server.stdout.take().unwrap();
    stdout.read_exact(&mut listening).unwrap();
    let pid = rustix::process::Pid::from_child(&server);
    let mut said = String::new();
    let mut until = |words: &str| {
        let mut piece = [0; 4096];
        while !said.contains(words) {
            let n = journal.read(&mut piece).unwrap();
            assert!(n > 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&piece[..n]));
        }
    };
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    until("info reload: reloaded the configuration");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    assert!(!said.contains("reopened"), "{said}");
}
