//! Programs while they run, and their end.

use crate::scene::new_site;
use galgo_testkit::{
    Done,
    process::{assert_gone, figure},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

#[test]
fn output_is_printed_as_it_comes() {
    let site = new_site();
    let fifo = site.fifo("go");
    site.sh(
        "events",
        &format!(
            "printf 'Content-Type: text/event-stream\n\ndata: 1\n\n'; read x <'{}'; printf 'data: 2\n\n'",
            fifo.display()
        ),
    );
    let mut child = site
        .command(&["run", "cgi-bin/events", "-o", "body"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "data: 1\n");
    fs::write(&fifo, "\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "\ndata: 2\n\n");
    assert!(child.wait().unwrap().success());
}

/// On a route with warm starts the program is loaded first. After the answer nothing of the template is
/// left.
#[test]
fn a_warm_route_is_warm_and_ends_with_its_program() {
    let site = new_site();
    site.write(
        "galgo.toml",
        "[[route]]\npath = '/'\ncgi = 'cgi-bin'\nstart = 'warm'\n",
    );
    let how =
        "open(my $f, '<', '/proc/self/environ'); my $how = <$f> =~ /GALGO_T/ ? 'warm' : 'cold';";
    let head = "print \"Content-Type: text/plain\\n\\n\";";
    site.program(
        "how.pl",
        &format!("#!/usr/bin/perl\n{how} {head} print \"$how $$\\n\";\n"),
    );
    site.sh("cold.sh", "printf 'Content-Type: text/plain\n\ncold\n'");
    for (name, says) in [("how.pl", "warm "), ("cold.sh", "cold\n")] {
        let args = ["run", &format!("cgi-bin/{name}"), "-o", "body", "--time"];
        let Done { code, out, err } = site.galgo(&args);
        assert!(code == 0 && out.starts_with(says), "{out}{err}");
        assert_eq!(
            err.contains("\nwarm: loaded in "),
            name == "how.pl",
            "{err}"
        );
    }
    // Signals reach a program that started warm.
    let waits = format!("#!/usr/bin/perl\n$| = 1; {head} print \"$$\\n\"; sleep 1000;\n");
    site.program("waits.pl", &waits);
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = site
            .command(&["run", "cgi-bin/waits.pl", "-o", "body"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_gone(line.trim().parse().unwrap());
    }
}

#[test]
fn a_large_body_is_not_held_in_memory() {
    const SIZE: u64 = 1 << 28;
    let site = new_site();
    site.sh(
        "zeros",
        &format!("printf 'Content-Type: text/plain\n\n'; head -c {SIZE} /dev/zero"),
    );
    let mut child = site
        .command(&["run", "cgi-bin/zeros", "-o", "body"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut piece = vec![0; 1 << 16];
    let mut all = 0;
    while all < SIZE {
        let n = out.read(&mut piece).unwrap();
        assert!(n > 0, "{all}");
        all += n as u64;
        if all > SIZE / 2 && all - (n as u64) <= SIZE / 2 {
            let peak = figure(child.id(), "VmHWM:");
            assert!(peak < 64 << 10, "{peak} KiB");
        }
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn ctrl_c_ends_the_whole_group() {
    let site = new_site();
    // First before the head is printed, then after it.
    for head in ["", "printf 'Content-Type: text/plain\n\n';"] {
        site.sh(
            "wait",
            &format!("{head} sleep 1000 & echo $! $$ >&2; {head} wait"),
        );
        let mut child = site
            .command(&["run", "cgi-bin/wait"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        err.read_line(&mut line).unwrap();
        let pids: Vec<u32> = line
            .rsplit(": ")
            .next()
            .unwrap()
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(pids.len(), 2);
        pids.into_iter().for_each(assert_gone);
    }
}

#[test]
fn a_reader_that_leaves_ends_it() {
    let site = new_site();
    site.sh(
        "yes",
        "printf 'Content-Type: text/plain\n\n'; echo $$ >&2; exec yes",
    );
    let mut child = site
        .command(&["run", "cgi-bin/yes", "-o", "body"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut few = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut few).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let err = String::from_utf8(done.stderr).unwrap();
    assert!(!err.contains("galgo:"), "{err}");
    let line = err.lines().find(|l| l.contains(" stderr [")).unwrap();
    assert_gone(line.rsplit(": ").next().unwrap().parse().unwrap());
}
