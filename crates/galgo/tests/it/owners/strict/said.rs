//! Messages of galgo about strict sandboxes, and `galgo run` in a strict sandbox.

use std::process::Command;

use super::{UNPRIVILEGED, at, site};
use crate::{
    harness::list,
    owners::{fails, needs_a_lasting_place, written},
};

list![
    check_says_what_holds,
    run_confines_too,
    wrong_configurations_are_named,
];

fn check_says_what_holds() {
    let config = "user = \"nobody\"\n[[route]]\npath = \"/strict/\"\ncgi = \"strict\"\nsandbox = \"strict\"\n";
    let site = written(site("\"strict\""), config);
    let galgo = || Command::new(env!("CARGO_BIN_EXE_galgo"));
    let said = galgo().arg("check").arg(site.folder()).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let holds = "files by Landlock, /tmp, /proc and processes of its own, network none, system calls by seccomp";
    assert!(
        said.contains("runs as nobody, the server's own user, sandbox = \"strict\""),
        "{said}"
    );
    assert!(said.contains(holds), "{said}");
    let mut unprivileged = Command::new(UNPRIVILEGED[0]);
    unprivileged.args(&UNPRIVILEGED[1..]);
    unprivileged
        .args([env!("CARGO_BIN_EXE_galgo"), "check"])
        .arg(site.folder());
    let said = String::from_utf8(unprivileged.output().unwrap().stdout).unwrap();
    assert!(
        said.contains("files by Landlock, no /tmp, no /proc, network none"),
        "{said}"
    );
}

fn run_confines_too() {
    needs_a_lasting_place();
    let config = "user = \"nobody\"\n[[route]]\npath = \"/strict/\"\ncgi = \"strict\"\nsandbox = \"strict\"\n";
    let site = written(site("\"strict\""), config);
    let mut galgo = Command::new(env!("CARGO_BIN_EXE_galgo"));
    let query = format!("{}&udp&put=/tmp/x", at(&site, "file", "secret"));
    galgo.args(["run", "-o", "body", "-q", &query]);
    let done = galgo.arg(site.path("strict/p")).output().unwrap();
    let (said, errors) = (done.stdout, done.stderr);
    let said = String::from_utf8(said).unwrap() + &String::from_utf8(errors).unwrap();
    assert!(
        said.starts_with("file EACCES\nudp EACCES\nput written\n"),
        "{said}"
    );
}

fn wrong_configurations_are_named() {
    let site = site("\"strict\"");
    for (route, words) in [
        (
            "cgi = \"strict\"\nsandbox = \"tight\"",
            "is not a sandbox: choose",
        ),
        (
            "cgi = \"strict\"\nsandbox = { network = \"some\" }",
            "is not a network: choose",
        ),
        (
            "cgi = \"strict\"\nsandbox = { write = [\"no-such\"] }",
            "no-such",
        ),
        ("cgi = \"strict\"\nsandbox = { reads = [] }", "reads"),
        (
            "cgi = \"strict\"\nsandbox = \"strict\"\nno_new_privs = false",
            "needs no_new_privs = true",
        ),
    ] {
        site.write(
            "galgo.toml",
            format!("[[route]]\npath = \"/p/\"\n{route}\n"),
        );
        let said = fails(&site, &["check"]);
        assert!(said.contains(words), "{words}: {said}");
    }
}
