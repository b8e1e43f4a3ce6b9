//! galgo as a service: docs/recipes/service.md.

use std::{path::Path, process::Command};

use galgo_testkit::Done;

use crate::{
    recipe::block,
    site::{GALGO, needed, new_site},
};

#[test]
fn systemd_takes_the_unit() {
    let analyze = "/usr/bin/systemd-analyze";
    needed(analyze);
    let site = new_site();
    let names: [(&str, &dyn AsRef<Path>); 2] = [
        ("/usr/local/bin/galgo", &GALGO),
        ("/srv/www", &site.path("")),
    ];
    let unit = site.write("galgo.service", block("service.md", "ini", &names));
    let mut verify = Command::new(analyze);
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    let done = Done::of(verify.arg(&unit), b"");
    assert_eq!((done.code, done.out + &done.err), (0, String::new()));
}

/// The configuration behind another web server, without the parts that are tested for each web
/// server.
#[test]
fn the_configuration_behind_a_web_server_is_right() {
    let site = new_site();
    let names: [(&str, &dyn AsRef<Path>); 3] = [
        ("/run/galgo/galgo.sock", &site.path("galgo.sock")),
        ("/srv/cgi-bin", &site.path("cgi-bin")),
        ("/srv/git", &site.path("")),
    ];
    site.write("galgo.toml", block("behind.md", "toml", &names));
    let done = site.galgo(&["check"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn the_configuration_for_https_is_right() {
    let site = new_site();
    let names: [(&str, &dyn AsRef<Path>); 2] = [("\"www-data\"", &"\"nobody\""), ("hsts", &"hsts")];
    site.write("galgo.toml", block("https.md", "toml", &names));
    let done = site.galgo(&["check"]);
    assert_eq!(done.code, 0, "{done:?}");
    done.has_out("note  certificate of www.example.org: ");
}

#[test]
fn the_configuration_is_right() {
    let site = new_site();
    site.write("public/index.html", "hello");
    let names: [(&str, &dyn AsRef<Path>); 2] = [
        ("user = \"galgo\"", &"user = \"nobody\""),
        (":80\"", &":0\""),
    ];
    site.write("galgo.toml", block("service.md", "toml", &names));
    let done = site.galgo(&["check"]);
    assert_eq!(done.code, 0, "{done:?}");
}
