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
        net::UnixListener,
    },
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::harness::{Test, list, new_site, skip};
use galgo_testkit::{Client, Server, Site, eventually, process, wait_until};

/// Returns the tests of this module and its submodules.
pub fn tests() -> Vec<Test> {
    [listeners::tests(), room::tests(), end::tests()].concat()
}

fn ended(server: &mut Server) -> ExitStatus {
    eventually("the end of the server", || server.child.try_wait().unwrap())
}

fn no_program_left(server: &Server) {
    wait_until("the end of the programs", || {
        process::of_site(server.site.folder()).is_empty()
    });
}

/// Sends `request` and returns all bytes until the end of the connection.
fn over(path: &Path, request: impl AsRef<[u8]>) -> String {
    let mut client = Client::unix(path);
    client.send(request);
    std::io::read_to_string(client.stream).unwrap()
}

const ENV: &str =
    "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

fn value<'s>(said: &'s str, name: &str) -> Option<&'s str> {
    let named = |l: &'s str| l.strip_prefix(name)?.strip_prefix('=');
    said.lines().find_map(named)
}

/// Returns a connection that has had one request and waits for the next.
fn idle(server: &Server) -> Client {
    let mut client = server.connect();
    client.get("/health");
    assert_eq!(client.reply().status, 200);
    client
}
