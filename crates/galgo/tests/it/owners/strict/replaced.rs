//! Files and folders that a strict sandbox lists are replaced by others.

use std::{fs, os::unix::fs::symlink, path::Path, thread};

use super::{TRIES, at, files, says, site};
use crate::{
    harness::{
        inject::{Calls, fail},
        list, needs_root, skip,
    },
    owners::{mode, needs_a_lasting_place},
};
use galgo_testkit::{Site, wait_until};
use rustix::io::Errno;

list![
    a_file_that_is_replaced_is_read,
    what_is_replaced_is_found_everywhere,
    what_cannot_be_watched_is_found_all_the_same,
    a_link_to_the_next_release_is_followed,
];

/// Landlock still knows only the previous file.
fn a_file_that_is_replaced_is_read() {
    let server = site("{ read = [\"secret\"] }").start();
    let tries = [at(&server.site, "file", "secret")];
    for _ in 0..3 {
        assert_eq!(says(&server, "/table/p", &tries), ["open"]);
        let new = server.site.write("new", "another");
        fs::rename(new, server.path("secret")).unwrap();
        // The helper hears of the change before the next order, or together with it.
        wait_until("the next helper", || {
            says(&server, "/table/p", &tries) == ["open"]
        });
    }
}

/// A listed file, a listed folder, the folder of the programs, and the folders above them.
fn what_is_replaced_is_found_everywhere() {
    needs_root();
    let make = |site: &Site, of: &str, to: &str| {
        for (name, text, bits) in [
            ("file", "", 0o666),
            ("app/data/folder/kept", "", 0o666),
            ("app/strict/p", TRIES, 0o755),
        ] {
            if let Some(rest) = name.strip_prefix(of) {
                let path = format!("{to}{rest}");
                site.write(&path, text);
                mode(site, &path, bits);
            }
        }
    };
    for parent in ["/tmp", "/run", env!("CARGO_TARGET_TMPDIR")] {
        let site = Site::within(Path::new(parent), env!("CARGO_BIN_EXE_galgo"));
        let site = site.config(
            "user = \"nobody\"\n[defaults]\nstart = \"cold\"\n[[route]]\npath = \"/strict/\"\ncgi = \"app/strict\"\n\
             sandbox = { write = [\"file\", \"app/data/folder\"] }",
        );
        mode(&site, ".", 0o755);
        if !site.is_reachable() {
            skip!("others may not reach {}", site.folder().display());
        }
        make(&site, "", "");
        let server = site.arguments(&["--listen", "127.0.0.1:0"]).start();
        let listed = ["file", "app/data/folder/kept"];
        let puts = listed.map(|name| at(&server.site, "put", name)).join("&");
        let target = format!("/strict/p?{puts}");
        let written = || {
            let done = server.get(&target).text() == "put written\nput written\n";
            let is_there = |name| fs::read_to_string(server.path(name)).unwrap() == "x";
            done && listed.into_iter().all(is_there)
        };
        wait_until("both are written", written);
        for (n, what) in ["file", "app/data/folder", "app/data", "app/strict", "app"]
            .into_iter()
            .enumerate()
        {
            let [old, new] = ["old", "new"].map(|name| format!("{name}{n}"));
            make(&server.site, what, &new);
            fs::rename(server.path(what), server.path(&old)).unwrap();
            fs::rename(server.path(&new), server.path(what)).unwrap();
            wait_until(&format!("{what} below {parent} is found"), written);
        }
    }
}

/// If the kernel has no inotify instance left (128 on Debian), helpers are replaced often instead.
fn what_cannot_be_watched_is_found_all_the_same() {
    let site = site("{ write = [\"data/kept\"] }").env("GALGO_TEST_HELPER_IDLE", "10");
    let server = Calls::all("+inotify_init1").of(site).start();
    fail(&server, 0, u64::MAX, Errno::MFILE);
    let tries = [at(&server.site, "put", "data/kept")];
    for _ in 0..2 {
        assert_eq!(says(&server, "/table/p", &tries), ["written"]);
        server.says("cannot be watched");
        let new = server.site.write("new", "");
        mode(&server.site, "new", 0o666);
        fs::rename(new, server.path("data/kept")).unwrap();
        wait_until("another helper", || {
            says(&server, "/table/p", &tries);
            fs::read_to_string(server.path("data/kept")).unwrap() == "x"
        });
    }
}

fn a_link_to_the_next_release_is_followed() {
    needs_a_lasting_place();
    let site = files().config("user = \"nobody\"\n[[route]]\npath = \"/strict/\"\ncgi = \"current\"\nsandbox = \"strict\"\n");
    // Scripts will not do: their interpreter opens them again, and may find the other release.
    let program = |release: &str| {
        format!(
            "#include <stdio.h>\nint main(void) {{ puts(\"Content-Type: text/plain\\n\\n{release}\"); }}"
        )
    };
    let site = ["first", "second"].into_iter().fold(site, |site, name| {
        fs::create_dir(site.path(name)).unwrap();
        site.compiled(&format!("{name}/p"), &program(name), &[])
    });
    symlink("first", site.path("current")).unwrap();
    let server = site.start();
    let says = || server.get("/strict/p").text();
    thread::scope(|scope| {
        let turns = scope.spawn(|| {
            for release in ["second", "first"].into_iter().cycle().take(40) {
                symlink(release, server.path("next")).unwrap();
                fs::rename(server.path("next"), server.path("current")).unwrap();
                wait_until(release, || says().starts_with(release));
            }
        });
        // Requests at this moment get another helper, and none is lost.
        while !turns.is_finished() {
            let said = says();
            let whole = ["first\n", "second\n"].contains(&&*said);
            assert!(whole, "{said}{}", server.errors());
        }
    });
}
