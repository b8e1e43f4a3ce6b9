//! galgo as a service: docs/recipes/service.md.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    recipe::block,
    site::{Site, needed},
};

const GALGO: &str = env!("CARGO_BIN_EXE_galgo");

/// What a command says, and whether it was content.
fn said(command: &mut Command) -> (bool, String) {
    let done = command.stdin(Stdio::null()).output().unwrap();
    let words = [done.stdout, done.stderr].concat();
    (
        done.status.success(),
        String::from_utf8_lossy(&words).into_owned(),
    )
}

#[test]
fn systemd_takes_the_unit() {
    let analyze = "/usr/bin/systemd-analyze";
    needed(analyze);
    let site = Site::new();
    let names: [(&str, &dyn AsRef<Path>); 2] = [
        ("/usr/local/bin/galgo", &GALGO),
        ("/srv/www", &site.path("")),
    ];
    let unit = site.file("galgo.service", block("service.md", "ini", &names));
    let (content, words) = said(
        Command::new(analyze)
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(&unit),
    );
    assert!(content && words.is_empty(), "{words}");
}

/// The configuration behind another web server, but for what the tests of each web server have.
#[test]
fn the_configuration_behind_a_web_server_is_right() {
    let site = Site::new();
    let names: [(&str, &dyn AsRef<Path>); 3] = [
        ("/run/galgo/galgo.sock", &site.path("galgo.sock")),
        ("/srv/cgi-bin", &site.path("cgi-bin")),
        ("/srv/git", &site.path("")),
    ];
    site.file("galgo.toml", block("behind.md", "toml", &names));
    let (content, words) = said(Command::new(GALGO).arg("check").arg(site.path("")));
    assert!(content, "{words}");
}

#[test]
fn the_configuration_is_right() {
    let site = Site::new();
    site.file("public/index.html", "hello");
    let names: [(&str, &dyn AsRef<Path>); 2] = [
        ("user = \"galgo\"", &"user = \"nobody\""),
        (":80\"", &":0\""),
    ];
    site.file("galgo.toml", block("service.md", "toml", &names));
    let (content, words) = said(Command::new(GALGO).arg("check").arg(site.path("")));
    assert!(content, "{words}");
}
