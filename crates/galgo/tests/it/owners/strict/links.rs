//! The owner of a folder in a strict sandbox may replace a listed file by a link: the sandbox opens nothing by that link.

use std::{fs, os::unix::fs::symlink};

use super::{TRIES, at, files, says};
use crate::{
    harness::list,
    owners::{GAMES, helpers, mode, needs_a_lasting_place, own},
};
use galgo_testkit::{Server, Site, process, wait_until};
use rustix::process::{Signal, kill_process};

list![
    a_link_to_everything_opens_nothing,
    a_link_within_its_folder_is_followed,
];

/// Returns a site where `home/` belongs to `games`, with programs and data.
fn site(folder: &str) -> Site {
    needs_a_lasting_place();
    let site = files()
        .file("home/cgi/p", TRIES, 0o755)
        .file("home/data/note", "a note", 0o644)
        .config(&format!(
            "user = \"nobody\"\n[[route]]\npath = \"/p/\"\ncgi = \"{folder}/cgi\"\nuser = \"games\"\nstart = \"cold\"\n\
             sandbox = {{ read = [\"secret-not.txt\"], write = [\"{folder}/data\"] }}\n"
        ))
        .file("secret-not.txt", "", 0o644);
    for name in [
        "home",
        "home/cgi",
        "home/cgi/p",
        "home/data",
        "home/data/note",
    ] {
        own(&site, name, GAMES);
    }
    mode(&site, "home", 0o755);
    site
}

/// Asserts that the program can read the listed files, and nothing else.
fn is_closed(server: &Server) {
    let tries = ["secret", "home/data/note"].map(|name| at(&server.site, "file", name));
    let said = says(server, "/p/p", &tries);
    assert_eq!(said, ["EACCES", "open"], "{}", server.errors());
}

fn a_link_to_everything_opens_nothing() {
    for swapped in ["home/data", "home/cgi"] {
        let server = site("home").start();
        let [place, was] = [swapped, "home/was"].map(|name| server.path(name));
        for _ in 0..2 {
            fs::rename(&place, &was).unwrap();
            symlink("/", &place).unwrap();
            let said = server.get(&format!("/p/p?{}", at(&server.site, "file", "secret")));
            assert_eq!(said.status, 403, "{swapped}: {}", said.text());
            assert!(!said.text().contains("open"));
            server.says("by a link that a user other than root has put below");
            fs::remove_file(&place).unwrap();
            fs::rename(&was, &place).unwrap();
            is_closed(&server);
            // The next request gets another helper. Helpers also leave by themselves if an account is added to this machine.
            for helper in helpers(&server) {
                let _ = kill_process(process::pid(helper), Signal::KILL);
            }
            wait_until("the end of the helper", || helpers(&server).is_empty());
        }
    }
}

/// A common layout: each version is in its own folder, and a link names the current one.
fn a_link_within_its_folder_is_followed() {
    let site = site("home/current");
    fs::create_dir_all(site.path("home/versions/5")).unwrap();
    for name in ["cgi", "data"] {
        fs::rename(
            site.path(&format!("home/{name}")),
            site.path(&format!("home/versions/5/{name}")),
        )
        .unwrap();
    }
    for name in ["home/versions", "home/versions/5"] {
        own(&site, name, GAMES);
    }
    symlink("versions/5", site.path("home/current")).unwrap();
    let server = site.start();
    let tries = ["secret", "home/versions/5/data/note"].map(|name| at(&server.site, "file", name));
    let said = says(&server, "/p/p", &tries);
    assert_eq!(said, ["EACCES", "open"], "{}", server.errors());
}
