//! The program that runs modules: `galgo-wasm`, beside the server's binary.

use std::{fs, os::unix::fs::PermissionsExt};

use rustix::process::geteuid;

use super::{programs, site};
use crate::harness::{list, skip};
use galgo_testkit::{Server, Site, file::copy};

list![
    modules_are_refused_until_what_runs_them_is_there,
    one_that_does_not_fit_is_not_used,
    it_is_found_in_a_folder_that_the_user_may_not_enter,
    what_is_installed_later_is_the_next_servers,
];

/// Returns a site with a module, and with a copy of galgo that is alone in its folder.
fn alone() -> Site {
    site(&[("a.wasm", programs::hello())]).copied("bin/galgo")
}

fn install(server: &Server) {
    copy(super::host(), &server.path("bin/galgo-wasm"));
}

fn modules_are_refused_until_what_runs_them_is_there() {
    let server = alone().start();
    for _ in 0..2 {
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 403);
    }
    server.says(
        "a.wasm: it is a WebAssembly module and needs galgo-wasm, which is not beside galgo (",
    );
    install(&server);
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
}

fn one_that_does_not_fit_is_not_used() {
    let site = alone();
    let other = "#!/bin/sh\nprintf '9.9.9-0\\nengine\\n'\n";
    let site = site.file("other", other, 0o755);
    let at = site.path("bin/galgo-wasm");
    copy(site.path("other"), &at);
    let server = site.start();
    let refused = |why: &str| {
        for _ in 0..2 {
            assert_eq!(server.get("/cgi-bin/a.wasm").status, 403, "{why}");
        }
        server.says(why);
    };
    refused("is 9.9.9-0: build and install both together");
    fs::remove_file(&at).unwrap();
    install(&server);
    fs::set_permissions(&at, fs::Permissions::from_mode(0o757)).unwrap();
    refused("users who cannot change galgo can change galgo-wasm in");
    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
}

/// galgo opened the program through its folder's descriptor, and executes it through the program's own descriptor.
fn it_is_found_in_a_folder_that_the_user_may_not_enter() {
    if !geteuid().is_root() {
        skip!("it takes root to become another user");
    }
    let site = site(&[("a.wasm", programs::hello())]).copied("private/bin/galgo");
    if !site.is_reachable() {
        skip!("nobody cannot enter the folders above the test's");
    }
    copy(super::host(), &site.path("private/bin/galgo-wasm"));
    for (folder, mode) in [("", 0o755), ("private", 0o700)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(site.path(folder), mode).unwrap();
    }
    let server = site.config("user = \"nobody\"").start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
}

fn what_is_installed_later_is_the_next_servers() {
    let server = alone().start();
    install(&server);
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    let other = server.path("bin/draft");
    fs::write(&other, "").unwrap();
    fs::rename(other, server.path("bin/galgo-wasm")).unwrap();
    super::replace(&server, "b.wasm", &programs::prints("b"));
    assert_eq!(server.get("/cgi-bin/b.wasm").text(), "b");
    // A reload does not look for the program again either.
    server.configure("max_running = 17");
    assert!(server.reload());
    super::replace(&server, "c.wasm", &programs::prints("c"));
    assert_eq!(server.get("/cgi-bin/c.wasm").text(), "c");
}
