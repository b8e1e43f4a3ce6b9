//! Effects of a reload on requests, and messages for the administrator.

use std::{
    fs,
    process::{Command, Stdio},
    time::Instant,
};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::{answer, says, site};
use crate::harness::{list, new_site};
use galgo_testkit::{Config, eventually, process, wait_until};

list![
    the_next_request_goes_by_it,
    a_request_that_has_begun_ends_under_the_old,
    an_error_keeps_the_old,
    what_takes_a_restart_is_said_and_stays,
    two_signals_at_once,
    the_end_right_after,
    logs_are_opened_again_and_change_places,
    the_end_of_its_terminal,
    a_folder_that_was_replaced,
    clocks_of_connections_that_wait,
];

/// The reload applies to a new connection and to a kept one.
fn the_next_request_goes_by_it() {
    let server = site().start();
    let mut kept = server.connect();
    kept.get("/c");
    assert_eq!(kept.reply().text(), "one");
    server.configure(&answer("two"));
    assert_eq!(says(&server), "one");
    assert!(server.reload());
    assert_eq!(says(&server), "two");
    kept.get("/c");
    assert_eq!(kept.reply().text(), "two");
    // Every event loop uses the new configuration.
    let mut many: Vec<_> = (0..50).map(|_| server.connect()).collect();
    many.iter_mut().for_each(|client| client.get("/c"));
    assert!(many.iter_mut().all(|client| client.reply().text() == "two"));
}

/// The program answers after the reload, with a redirect to a path that both configurations answer.
fn a_request_that_has_begun_ends_under_the_old() {
    let redirect = "#!/bin/sh\ntouch marks/in\nwhile [ ! -e marks/go ]; do sleep 0.01; done\n\
                    printf 'Location: /c\\n\\n'\n";
    let server = site()
        .file("cgi-bin/late", redirect.replace("marks", "../marks"), 0o755)
        .start();
    let mut old = server.connect();
    old.get("/cgi-bin/late");
    server.wait_for("in");
    server.configure(&answer("two"));
    assert!(server.reload());
    assert_eq!(says(&server), "two");
    server.set("go");
    assert_eq!(old.reply().text(), "one");
    // The next request on that connection uses the new configuration.
    old.get("/cgi-bin/late");
    assert_eq!(old.reply().text(), "two");
}

/// The log names the mistake and its place, like `galgo check`.
fn an_error_keeps_the_old() {
    let server = site().start();
    let file = server.path("galgo.toml");
    let good = fs::read_to_string(&file).unwrap();
    let changed = |toml: &str| {
        let mut config = Config::read(&file);
        config.merge(&answer("new"));
        config.merge(toml);
        config.text()
    };
    let none = "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"none\"";
    for (text, words) in [
        (changed("") + "respond = { type = 7, type =", "galgo.toml:"),
        (
            changed(&format!("{}colour = 1", answer("new"))),
            "unknown key \"colour\"",
        ),
        (changed(none), "none does not exist"),
        (
            changed("max_connections = 1000000"),
            "descriptors are too few",
        ),
        (
            changed("access_log = \"none/access.log\""),
            "cannot open a log",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        assert!(!server.reload(), "{text}");
        assert!(server.errors().contains(words), "{words}");
        assert_eq!(says(&server), "one");
        assert_eq!(server.get("/cgi-bin/t?head").status, 200);
    }
    fs::write(&file, good).unwrap();
    fs::rename(&file, server.path("away")).unwrap();
    // The defaults for a folder without a configuration file do not take effect either.
    assert!(!server.reload());
    assert!(server.errors().contains("galgo.toml does not exist"));
    assert_eq!(says(&server), "one");
    fs::rename(server.path("away"), &file).unwrap();
    assert!(server.reload());
    assert_eq!(says(&server), "one");
}

fn what_takes_a_restart_is_said_and_stays() {
    let server = site().start();
    server.configure("workers = 19");
    if geteuid().is_root() {
        server.configure("user = \"nobody\"");
    }
    server.configure(&answer("two"));
    assert!(server.reload());
    assert_eq!(says(&server), "two");
    assert!(
        server
            .errors()
            .contains("`workers` has changed: restart galgo")
    );
    if geteuid().is_root() {
        assert!(
            server
                .errors()
                .contains("`user` has changed: restart galgo")
        );
    }
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    let names: Vec<_> = tasks.flatten().filter_map(name).collect();
    assert!(names.iter().any(|n| n == "loop-0\n"), "{names:?}");
    assert!(names.iter().all(|n| n != "loop-18\n"), "{names:?}");
}

/// The server ends up with the last state of the file, regardless of earlier reads.
fn two_signals_at_once() {
    let server = site().start();
    for words in ["two", "three"] {
        server.configure(&answer(words));
        server.signal(Signal::HUP);
    }
    server.signal(Signal::HUP);
    wait_until("the last one", || says(&server) == "three");
}

fn the_end_right_after() {
    let mut server = site().start();
    server.signal(Signal::HUP);
    server.signal(Signal::HUP);
    server.signal(Signal::TERM);
    let status = eventually("the end of the server", || server.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

fn logs_are_opened_again_and_change_places() {
    let server = site().start();
    let path = |name: &str| server.path(name);
    let wait_for = |file: &str, target: &str| {
        wait_until(&format!("{target} in {file}"), || {
            let text = fs::read_to_string(path(file)).unwrap_or_default();
            text.contains(target)
        });
    };
    fs::rename(path("access.log"), path("access.old")).unwrap();
    assert!(server.reload());
    server.get("/opened-again");
    wait_for("access.log", "/opened-again");
    server.configure(
        "access_log = \"other.log\"\nerror_log = \"error.log\"\nlog_format = \"combined\"",
    );
    server.signal(Signal::HUP);
    wait_for("error.log", "reloaded the configuration");
    server.get("/elsewhere");
    wait_for("other.log", "\"GET /elsewhere HTTP/1.1\" 404");
    server.configure("access_log = \"off\"\nerror_log = \"stderr\"");
    assert!(server.reload());
    server.get("/unseen");
    server.configure("access_log = \"other.log\"");
    assert!(server.reload());
    server.get("/seen");
    wait_for("other.log", "/seen");
    for file in ["access.old", "access.log", "other.log"] {
        assert!(
            !fs::read_to_string(path(file)).unwrap().contains("/unseen"),
            "{file}"
        );
    }
}

/// Runs galgo under script(1), which gives it a terminal. Without that terminal Ctrl-C could no longer stop galgo.
fn the_end_of_its_terminal() {
    let site = site();
    let config = "listen = [\"127.0.0.1:0\"]\nerror_log = \"error.log\"\n\
                  [[route]]\npath = \"/\"\nfiles = \"public\"\n";
    let site = site.file("galgo.toml", config, 0o644);
    // The tests themselves may run under nohup(1).
    for (before, ends) in [
        ("exec env --default-signal=HUP", true),
        ("exec nohup", false),
    ] {
        let log = site.path("error.log");
        let _ = fs::remove_file(&log);
        let command = format!("{before} {} serve .", env!("CARGO_BIN_EXE_galgo"));
        let mut script = Command::new("script")
            .args(["-q", "-c", &command, "/dev/null"])
            .current_dir(site.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_ours = |pid: &u32| {
            let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            process::parent(*pid) == Some(script.id()) && exe.ends_with("galgo")
        };
        let pid = eventually("the server", || process::pids().find(is_ours));
        let pid = Pid::from_raw(pid as i32).unwrap();
        let lines = |words: &str| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.matches(words).count()
        };
        // galgo handles signals only after it has begun to listen.
        eventually("it to read its configuration", || {
            let ready = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap();
            let caught = ready
                .lines()
                .find_map(|l| l.strip_prefix("SigCgt:"))
                .unwrap();
            let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
            (caught & 1 == 1).then(|| kill_process(pid, Signal::HUP).unwrap())?;
            wait_until("it", || lines("reloaded the configuration") > 0);
            Some(())
        });
        script.kill().unwrap();
        script.wait().unwrap();
        let number = pid.as_raw_pid().cast_unsigned();
        if ends {
            process::assert_gone(number);
            continue;
        }
        let before = lines("reloaded the configuration");
        kill_process(pid, Signal::HUP).unwrap();
        wait_until("the configuration", || {
            lines("reloaded the configuration") > before
        });
        kill_process(pid, Signal::TERM).unwrap();
        process::assert_gone(number);
    }
}

/// The path stays the same but names another folder, for example if a rename switches to a new release.
fn a_folder_that_was_replaced() {
    let server = new_site().file("public/a.txt", "old", 0o644).start();
    assert_eq!(server.get("/a.txt").text(), "old");
    let path = |name: &str| server.path(name);
    fs::rename(path("public"), path("before")).unwrap();
    fs::create_dir(path("public")).unwrap();
    fs::write(path("public/a.txt"), "new").unwrap();
    assert_eq!(server.get("/a.txt").text(), "old");
    assert!(server.reload());
    assert_eq!(server.get("/a.txt").text(), "new");
}

/// A new `keep_alive` also applies to connections that are already idle.
fn clocks_of_connections_that_wait() {
    let server = site().config("keep_alive = \"1h\"").start();
    let mut waits = server.connect();
    waits.get("/c");
    assert_eq!(waits.reply().text(), "one");
    server.configure("keep_alive = \"10ms\"");
    let began = Instant::now();
    assert!(server.reload());
    assert!(waits.is_over());
    assert!(began.elapsed().as_secs() < 3000);
    // Makes `keep_alive` long enough for a request again.
    server.configure("keep_alive = \"1h\"");
    server.configure("max_target = \"1K\"");
    assert!(server.reload());
    assert_eq!(server.get(&format!("/c?{}", "x".repeat(2000))).status, 414);
}
