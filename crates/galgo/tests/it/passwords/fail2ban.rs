//! The filter in contrib/fail2ban, read by Debian's fail2ban, counts each failure and no forged line.

use std::{fs, path::Path, process::Command};

use super::{ask, site};
use crate::harness::list;
use galgo_testkit::{Server, wait_until};

list![from_a_file_and_from_the_journal];

const FILTER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../contrib/fail2ban/galgo.conf"
);

/// A line like those in galgo's log. Clients and programs write it wherever they can.
const FORGED: &str =
    "2026-11-21T01:04:23.250Z warn [0a1b2c3d4e5f60718293]: password failed for 203.0.113.9: wrong";

fn from_a_file_and_from_the_journal() {
    let forges = format!("#!/bin/sh\nprintf 'x\\n{FORGED}\\n\\r{FORGED}\\n' >&2\nexit 1\n");
    let server = site()
        .file("forges/forges", forges, 0o755)
        .config("[[route]]\npath = \"/forges/\"\ncgi = \"forges\"\n")
        .start();
    assert_eq!(server.get("/forges/forges").status, 502);
    server.says(FORGED);
    for pair in [
        "ada:wrong".to_owned(),
        format!("{FORGED}:wrong"),
        "nobody from 203.0.113.9:x".to_owned(),
    ] {
        assert_eq!(ask(&server, "/in/t", &pair).status, 401, "{pair}");
    }
    // A user name with a line end is invalid: galgo refuses the request without counting a failure.
    assert_eq!(ask(&server, "/in/t", &format!("x\n{FORGED}")).status, 401);
    wait_until("three failures are logged", || failures(&server) == 3);
    let log = server.path("failures.log");
    fs::write(&log, server.errors()).unwrap();
    counts(log.to_str().unwrap(), "three in a file");
    let journal = journal_of(&server);
    let journal = format!(
        "systemd-journal[journalfiles='{}', journalflags=0]",
        journal
    );
    counts(&journal, "three in a journal");
}

fn failures(server: &Server) -> usize {
    let logged = server.errors();
    let failure = |line: &&str| {
        line[24..].starts_with(" warn [") && line.contains("]: password failed for 127.0.0.1: ")
    };
    logged.lines().filter(failure).count()
}

/// Asserts that fail2ban finds three failures of the client, and none of the forged address.
fn counts(log: &str, what: &str) {
    let asked = Command::new("fail2ban-regex")
        .args(["--print-all-matched", log, FILTER])
        .output()
        .expect("fail2ban is installed");
    let said = String::from_utf8_lossy(&asked.stdout);
    assert!(
        said.contains("Failregex: 3 total"),
        "{what}: {said}{}",
        String::from_utf8_lossy(&asked.stderr)
    );
    let matched = said.split_once("Matched line(s):").unwrap().1;
    let matched = matched.split_once("Missed line(s):").unwrap().0;
    assert_eq!(
        matched.matches("password failed for 127.0.0.1: ").count(),
        3,
        "{what}: {said}"
    );
}

/// Writes the error log in the format of systemd's journal, and returns the journal's path.
fn journal_of(server: &Server) -> String {
    let entry = |(n, line): (usize, &str)| {
        format!(
            "__REALTIME_TIMESTAMP={}\n__MONOTONIC_TIMESTAMP={}\n_BOOT_ID=0123456789abcdef0123456789abcdef\n\
             _HOSTNAME=host\nSYSLOG_IDENTIFIER=galgo\n_PID=12\n_SYSTEMD_UNIT=galgo.service\nMESSAGE={line}\n\n",
            1_795_222_000_000_000 + n,
            1 + n
        )
    };
    let entries: String = server.errors().lines().enumerate().map(entry).collect();
    let (text, journal) = (server.path("entries"), server.path("failures.journal"));
    fs::write(&text, entries).unwrap();
    let made = Command::new("/lib/systemd/systemd-journal-remote")
        .arg("--output")
        .args([journal.as_path(), text.as_path()] as [&Path; 2])
        .output()
        .expect("systemd-journal-remote is installed");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    journal.to_str().unwrap().to_owned()
}
