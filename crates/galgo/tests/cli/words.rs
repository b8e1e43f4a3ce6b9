//! Help, usage, and sentences for beginners.

use crate::scene::new_site;
use galgo_testkit::is_root;
use std::net::TcpListener;

#[test]
fn help_has_examples_and_fits_80_columns() {
    let site = new_site();
    let pages: [(&[&str], i32); 9] = [
        (&[], 2),
        (&["--help"], 0),
        (&["-h"], 0),
        (&["help"], 0),
        (&["help", "serve"], 0),
        (&["serve", "--help"], 0),
        (&["run", "--help"], 0),
        (&["run", "-h"], 0),
        (&["check", "--help"], 0),
    ];
    for (args, code) in pages {
        let done = site.galgo(args);
        let page = if code == 0 { &done.out } else { &done.err };
        assert_eq!(done.code, code, "{args:?}");
        assert!(
            page.contains("Usage: galgo") && page.contains("\nExamples:\n"),
            "{args:?}: {page}"
        );
        for line in page.lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
    }
}

#[test]
fn the_page_of_a_command_begins_as_the_list_of_commands_says() {
    let site = new_site();
    let page = site.galgo(&["--help"]).out;
    let list = page.split_once("Commands:\n").unwrap().1;
    for line in list.lines().take_while(|l| !l.is_empty()) {
        let (command, says) = line.trim().split_once("  ").unwrap();
        if command != "help" {
            let page = site.galgo(&[command, "--help"]).out;
            assert_eq!(page.lines().next(), Some(says.trim()), "{command}");
        }
    }
}

#[test]
fn the_example_of_the_help_works_as_it_is_printed() {
    let site = new_site();
    let page = site.galgo(&["--help"]).out;
    let lines = page.lines().skip_while(|l| !l.contains("mkdir -p site"));
    let text: Vec<_> = lines.take_while(|l| !l.is_empty()).collect();
    let script = text.join("\n").replace(
        "galgo serve",
        &format!("{} run cgi-bin/hello", crate::scene::GALGO),
    );
    let out = std::process::Command::new("sh")
        .args(["-ec", &script])
        .current_dir(site.path(""))
        .output()
        .unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    assert!(
        out.ends_with("Content-Type: text/plain\n\nhello\n"),
        "{out}: {script}"
    );
}

#[test]
fn version_both_ways() {
    let site = new_site();
    for args in ["version", "-V", "--version"] {
        let done = site.galgo(&[args]);
        assert_eq!(done.out, format!("galgo {}\n", env!("CARGO_PKG_VERSION")));
        assert_eq!(done.code, 0);
    }
}

#[test]
fn a_wrong_command_line_is_2_and_says_the_right_one() {
    let site = new_site();
    site.sh("hello", "");
    let table: [(&[&str], &str); 11] = [
        (&["srve"], "a similar subcommand exists: 'serve'"),
        (&["."], "To serve it: galgo serve ."),
        (&["cgi-bin/hello"], "To run it: galgo run cgi-bin/hello"),
        (
            &["serve", "--lisen", "x"],
            "a similar argument exists: '--listen'",
        ),
        (
            &["serve", "-l", "8080"],
            "write \"127.0.0.1:8080\" for this machine only",
        ),
        (&["serve", "-l", "localhost:8080"], "is a name: write"),
        (&["run"], "<PROGRAM>"),
        (&["run", "cgi-bin/hello", "-H", "nonsense"], "'Name: value'"),
        (&["run", "cgi-bin/hello", "-H", "A: b\nC: d"], "one line"),
        (
            &["run", "cgi-bin/hello", "-q", "a b"],
            "refuse this request with 400",
        ),
        (
            &["run", "cgi-bin/hello", "-X", "TRACE"],
            "refuse this request with 405",
        ),
    ];
    for (args, says) in table {
        let done = site.galgo(args);
        assert_eq!(
            (done.code, done.out.as_str()),
            (2, ""),
            "{args:?}: {}",
            done.err
        );
        assert!(done.err.contains(says), "{args:?}: {}", done.err);
    }
}

/// Commands, and a part of the messages that they print.
const TOLD: [(&[&str], &str); 12] = [
    (&["serve", "none"], "none does not exist: create it"),
    (
        &["serve", "empty"],
        "holds nothing to serve: put programs into",
    ),
    (
        &["serve", "cgi-bin"],
        "cgi-bin is a folder of programs: name the folder above it, .",
    ),
    (&["serve", "cgi-bin/hello"], "galgo run cgi-bin/hello"),
    (
        &["serve", "-c", "bad.toml"],
        "bad.toml:2:1: unknown key \"lisen\"; did you mean \"listen\"?",
    ),
    (&["serve", "-c", "none.toml"], "none.toml does not exist"),
    (&["serve", "-l", "unix:none/x"], "its folder does not exist"),
    (
        &["serve", "--user", "no-such-user"],
        "there is no user `no-such-user`",
    ),
    (
        &["serve", "--user", "nobody:no-such"],
        "there is no group `no-such`",
    ),
    (&["serve", "--user", "root"], "galgo does not serve as root"),
    (
        &["run", "hello"],
        "hello does not exist; did you mean cgi-bin/hello?",
    ),
    (&["run", "cgi-bin"], "cgi-bin is a folder: name a program"),
];

#[test]
fn beginners_are_told_what_to_do() {
    let site = new_site();
    site.sh("hello", "");
    std::fs::create_dir(site.path("empty")).unwrap();
    site.write("bad.toml", "\nlisen = []\n");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let port = ["serve", "-l", &taken];
    let mut table = TOLD.to_vec();
    table.push((&port, "another program listens there already. Stop it"));
    if is_root() {
        table.push((&["serve", "-l", "0.0.0.0:0"], "Name the user to run as"));
    } else {
        table.push((&["serve", "--user", "daemon"], "only root can"));
    }
    for (args, says) in table {
        let done = site.galgo(args);
        assert_eq!(
            (done.code, done.out.as_str()),
            (1, ""),
            "{args:?}: {}",
            done.err
        );
        assert!(
            done.err.starts_with("galgo: ") && done.err.contains(says),
            "{args:?}: {}",
            done.err
        );
        assert!(!done.err.contains("os error"), "{args:?}: {}", done.err);
    }
}
