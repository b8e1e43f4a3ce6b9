//! `--user`: the server and its programs become that user for good.

use crate::scene::{GALGO, new_site};
use galgo_testkit::{Server, is_root};
use std::{fs, process::Command};

/// Returns the ids and capabilities of a process, as /proc shows them.
fn credentials(status: &str) -> Vec<String> {
    let names = [
        "Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapAmb:",
    ];
    let line = |name: &&str| status.lines().find(|l| l.starts_with(*name)).unwrap();
    let words = |l: &str| l.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    names.iter().map(|n| words(line(n))).collect()
}

/// Tries every call that could make it root again.
const REGAIN: &str = r#"#!/usr/bin/env python3
import os
print("Content-Type: text/plain\n")
print(open("/proc/self/status").read())
for name, args in [("setuid", (0,)), ("seteuid", (0,)), ("setresuid", (0, 0, 0)), ("setgid", (0,)),
                   ("setresgid", (0, 0, 0)), ("setgroups", ([0],)), ("setgroups", ([],))]:
    try:
        getattr(os, name)(*args)
        print("REGAINED", name)
    except PermissionError:
        pass
try:
    open("/etc/shadow").read()
    print("REGAINED shadow")
except PermissionError:
    print("done")
"#;

#[test]
fn server_and_programs_are_that_user_and_stay_so() {
    assert!(is_root(), "this test needs root");
    let site = new_site();
    site.program("regain", REGAIN);
    // Groups of root, which must be dropped.
    let mut command = Command::new("setpriv");
    command.args(["--groups", "0,4,24", GALGO, "serve", "-l", "127.0.0.1:0"]);
    command
        .args(["--user", "nobody:daemon"])
        .current_dir(site.path(""));
    let server = Server::start(command, &site);

    let nobody = "65534 65534 65534 65534";
    let none = "0000000000000000";
    let want = [nobody, "1 1 1 1", "1", none, none, none, none];
    let pid = server.child.id();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut seen = 0;
    for thread in threads.flatten() {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
            continue; // the thread has ended meanwhile
        };
        // The real and effective ids are ids that no program has. Only the saved id and the id for files are the
        // user's.
        let own = 0x7000_0000 + 65534;
        let mut of_server = want.map(String::from);
        of_server[0] = format!("{own} {own} 65534 65534");
        assert_eq!(credentials(&status), of_server, "{status}");
        seen += 1;
    }
    assert!(seen > 1, "every thread counts");
    let page = server.page("/cgi-bin/regain");
    assert_eq!(credentials(&page), want, "{page}");
    assert!(
        page.contains("done") && !page.contains("REGAINED"),
        "{page}"
    );
}

/// systemd's AmbientCapabilities= lets a server that is not root bind low ports.
#[test]
fn programs_do_not_inherit_the_capabilities_of_the_server() {
    assert!(is_root(), "this test needs root");
    let site = new_site();
    site.program("regain", REGAIN);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args([
        "--inh-caps",
        "+net_bind_service",
        "--ambient-caps",
        "+net_bind_service",
    ]);
    command.args([GALGO, "serve", "-l", "127.0.0.1:0"]);
    command.current_dir(site.path(""));
    let server = Server::start(command, &site);
    let of = |page: &str| credentials(page)[4..].join(" ");
    let pid = server.child.id();
    let own = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let (bind, none) = ("0000000000000400", "0000000000000000");
    assert_eq!(of(&own), format!("{bind} {bind} {none}"), "{own}");
    let page = server.page("/cgi-bin/regain");
    assert_eq!(of(&page), format!("{none} {none} {none}"), "{page}");
}

#[test]
fn run_and_check_meet_the_permissions_of_the_configured_user() {
    assert!(is_root(), "this test needs root");
    use std::os::unix::fs::PermissionsExt;
    let site = new_site();
    site.sh("who", "printf 'Content-Type: text/plain\n\n'; id -u");
    site.sh("mine", "");
    let mine = site.path("cgi-bin/mine");
    fs::set_permissions(mine, fs::Permissions::from_mode(0o700)).unwrap();
    let route = "[[route]]\npath = '/'\ncgi = 'cgi-bin'\n";
    site.write("galgo.toml", format!("user = 'nobody'\n{route}"));
    assert_eq!(
        site.galgo(&["run", "cgi-bin/who", "-o", "body"]).out,
        "65534\n"
    );
    let done = site.galgo(&["check"]);
    done.has_out("mine: the program is not executable for this user");
    assert_eq!(done.code, 1);
    site.write("galgo.toml", route);
    assert_eq!(site.galgo(&["check"]).code, 0);
}

/// If the configured user may not enter, list, or reach a folder of programs, galgo says so in advance and at the
/// request.
#[test]
fn folders_that_are_closed_to_the_user_are_named_with_the_mend() {
    use std::os::unix::fs::PermissionsExt;
    assert!(is_root(), "this test needs root");
    let site = new_site();
    site.sh("hello", "");
    site.sh("sub/hello", "");
    site.write(
        "galgo.toml",
        "user = 'nobody'\n[[route]]\npath = '/'\ncgi = 'cgi-bin'\n",
    );
    let mode = |name: &str, mode| {
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let table = [
        ("cgi-bin", 0o700, "FAIL", "enter", "a+x"),
        ("cgi-bin", 0o711, "warn", "list", "a+r"),
        ("cgi-bin/sub", 0o700, "FAIL", "enter", "a+x"),
        ("", 0o700, "FAIL", "enter", "a+x"),
    ];
    for (name, bits, verdict, what, mend) in table {
        mode(name, bits);
        // Root reads the configuration before galgo becomes that user.
        let done = site.galgo(&["check"]);
        let folder = site.path(name);
        let folder = folder.to_str().unwrap().trim_end_matches('/');
        let want =
            format!("user nobody cannot {what} the folder {folder} (try: chmod {mend} {folder})");
        let fits = |l: &str| l.starts_with(verdict) && l.ends_with(&want);
        assert!(done.out.lines().any(fits), "{want}\n{}", done.out);
        assert_eq!(done.code, i32::from(verdict == "FAIL"), "{}", done.out);
        if name.is_empty() {
            let server = site.serve(&["-l", "127.0.0.1:0"]);
            assert!(server.page("/hello").contains("502"));
        }
        mode(name, 0o755);
    }
}

/// If the user cannot look into a folder, galgo does not call the folder empty.
#[test]
fn a_site_in_a_closed_folder_is_not_called_empty() {
    use std::os::unix::fs::PermissionsExt;
    assert!(is_root(), "this test needs root");
    let site = new_site();
    site.sh("hello", "");
    let folder = site.path("");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let done = command
        .args([GALGO, "check"])
        .arg(&folder)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&done.stdout);
    let folder = site.folder().display();
    let words = format!("user nobody cannot enter {folder}: chmod a+x {folder}");
    assert!(out.contains(&words), "{out}");
    assert_eq!(done.status.code(), Some(1));
}

/// The server first reads the file as root. It checks the file later as its `user`.
#[test]
fn passwords_that_the_user_cannot_read_are_named() {
    assert!(is_root(), "this test needs root");
    let site = new_site();
    let toml = "user = \"nobody\"\nlisten = [\"127.0.0.1:0\"]\n[[route]]\npath = \"/\"\nfiles = \"public\"\n\
                passwords = \"site.htpasswd\"\n";
    site.write("galgo.toml", toml);
    site.write("public/a.txt", "hello");
    let passwd = |args: &[&str]| {
        let mut command = site.command(args);
        let done = galgo_testkit::Done::of(&mut command, b"secret\n");
        assert!(done.code == 0, "{done:?}");
        done.err
    };
    let words = |file: &str| format!("user nobody cannot read {file}: chgrp nogroup {file}");
    let said = passwd(&["passwd", "site.htpasswd", "ada"]);
    assert!(said.contains(&words("site.htpasswd")), "{said}");

    let file = site.path("site.htpasswd");
    let words = words(file.to_str().unwrap());
    let check = site.galgo(&["check"]);
    assert!(check.code == 1 && check.out.contains(&words), "{check:?}");
    let server = site.clone().start();
    server.says(&words);
    assert!(!server.reload());
    server.says(&format!("passwords: {words}"));
    passwd(&["passwd", "site.htpasswd", "bob"]);
    let ask = "GET /a.txt HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YmFkYTpzZWNyZXQ=\r\n\r\n";
    assert_eq!(server.ask(ask).status, 500);
    server.says(&format!("/a.txt: {words}"));

    std::os::unix::fs::chown(&file, None, Some(65534)).unwrap();
    let said = passwd(&["passwd", "site.htpasswd", "ada"]);
    assert!(!said.contains("warning"), "{said}");
    assert_eq!(site.galgo(&["check"]).code, 0);
}

/// If root is to start programs as the configuration says, and other users can change it, the server does not start.
#[test]
fn check_refuses_what_the_spawner_refuses() {
    assert!(is_root(), "this test needs root");
    let site = new_site();
    site.sh("who", "");
    site.write(
        "galgo.toml",
        "user = 'nobody'\n[[route]]\npath = '/'\ncgi = 'cgi-bin'\nuser = 'games'\n",
    );
    assert_eq!(site.galgo(&["check"]).code, 0);
    let config = site.path("galgo.toml");
    std::os::unix::fs::chown(&config, Some(65534), None).unwrap();
    let says =
        "users other than root can change ./galgo.toml, and root starts programs as this file says";
    for args in [
        &["check"][..],
        &["check", "--warm"],
        &["serve", "-l", "127.0.0.1:0"],
    ] {
        let done = site.galgo(args);
        assert!(
            format!("{}{}", done.out, done.err).contains(says),
            "{done:?}"
        );
        assert_eq!(done.code, 1, "{done:?}");
    }
    // An operator may check, without root's rights, what a service starts as root.
    std::os::unix::fs::chown(&config, Some(0), None).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args([GALGO, "check"]).current_dir(site.path(""));
    let done: galgo_testkit::Done = command.output().unwrap().into();
    done.has_out("warn  configuration: /: `user` needs root: ");
    assert_eq!(done.code, 0, "{done:?}");
}
