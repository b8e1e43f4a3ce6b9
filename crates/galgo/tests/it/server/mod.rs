//! Listeners, start-up and shutdown.

mod end;
mod listeners;
mod room;

use std::{
    fs,
    io::{Read, Write},
    net::Ipv6Addr,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::harness::{Client, Server, Site, Test, eventually, list, skip, watch};

/// The tests of this module and those below it.
pub fn tests() -> Vec<Test> {
    [listeners::tests(), room::tests(), end::tests()].concat()
}

fn signal(server: &Server, signal: Signal) {
    let pid = Pid::from_raw(server.pid() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

fn ended(server: &mut Server) -> ExitStatus {
    eventually("the end of the server", || {
        server.process().try_wait().unwrap()
    })
}

fn no_program_left(server: &Server) {
    eventually("the end of the programs", || {
        watch::processes_of(server.path()).is_empty().then_some(())
    });
}

/// Sends `request` and reads to the end.
fn over(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

const ENV: &str =
    "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

fn value<'s>(said: &'s str, name: &str) -> Option<&'s str> {
    let named = |l: &'s str| l.strip_prefix(name)?.strip_prefix('=');
    said.lines().find_map(named)
}

/// A connection that has been used and waits for its next request.
fn idle(server: &Server) -> Client {
    let mut client = server.connect();
    client.get("/health");
    assert_eq!(client.reply().status, 200);
    client
}
