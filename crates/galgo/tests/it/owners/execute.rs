//! If helpers start all programs, the server itself can execute nothing, even under an attacker's control.

use std::path::Path;

use galgo_testkit::{Server, Site, process::pids, wait_until};

use super::{GAMES, NOBODY, WHO, mode, needs_root, own, taken, workers::SHELL};
use crate::{
    harness::{list, new_site, skip},
    warm::python,
    wasm,
};

list![
    whoever_controls_the_server_executes_nothing,
    a_reload_that_would_need_that_is_refused,
    everything_else_goes_on,
];

/// Every route of this site has a `user`; the configuration has no other routes.
pub(super) fn site() -> Site {
    needs_root();
    let site = new_site();
    if !site.is_reachable() {
        skip!("others may not reach {}", site.folder().display());
    }
    let site = site
        .file("games/who", WHO, 0o755)
        .file("own/who", WHO, 0o755);
    for name in ["games", "games/who"] {
        own(&site, name, GAMES);
    }
    mode(&site, ".", 0o755);
    site
}

/// Replaces the route that every test site has.
pub(super) const ROUTE: &str =
    "user = \"nobody\"\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"games\"\nuser = \"games\"\n";
pub(super) const OWN: &str = "[[route]]\npath = \"/own/\"\ncgi = \"own\"\n";

fn runs(pid: u32) -> bool {
    pids().any(|p| {
        p == pid
            && std::fs::read_to_string(format!("/proc/{p}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
    })
}

pub(super) fn runs_as(server: &Server, path: &str) -> u32 {
    let reply = server.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", server.errors());
    reply.text().lines().next().unwrap().parse().unwrap()
}

fn whoever_controls_the_server_executes_nothing() {
    if !cfg!(target_arch = "x86_64") {
        skip!("the attack is made for x86_64");
    }
    let server = site().config(ROUTE).start();
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    assert_eq!(
        taken::execute(&server, Path::new("/bin/true")).unwrap(),
        "-1"
    );
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    // Proves that the attack works: a server that starts programs itself becomes the other program.
    let mut server = site().config(ROUTE).config(OWN).start();
    assert_eq!(runs_as(&server, "/own/who"), NOBODY);
    let _ = taken::execute(&server, Path::new("/bin/true"));
    wait_until("its end as /bin/true", || !runs(server.pid()));
    server.kill();
}

fn a_reload_that_would_need_that_is_refused() {
    let server = site().config(ROUTE).start();
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    server.configure(OWN);
    assert!(!server.reload());
    server.says("/own/: restart galgo to start its programs");
    assert_ne!(server.get("/own/who").status, 200);
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    // A route with a `user` needs no restart.
    for name in ["own", "own/who"] {
        own(&server.site, name, GAMES);
    }
    server.configure(&format!("{OWN}user = \"games\"\n"));
    assert!(server.reload(), "{}", server.errors());
    assert_eq!(runs_as(&server, "/own/who"), GAMES);
}

/// Cold and warm programs, a worker and a module still run, and an upgrade still replaces the binary.
fn everything_else_goes_on() {
    wasm::host();
    let site = site()
        .compiled("games/app", SHELL, &[])
        .config(ROUTE)
        .config("[[route]]\npath = \"/warm/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\n")
        .config("[[route]]\npath = \"/app\"\nuser = \"games\"\nfastcgi = { run = [\"games/app\"], workers = 1 }\n");
    site.write("games/a.wasm", wasm::programs::hello());
    mode(&site, "games/a.wasm", 0o644);
    site.write("games/warm.py", python("import os", "os.getuid()"));
    mode(&site, "games/warm.py", 0o755);
    for name in ["games/app", "games/a.wasm", "games/warm.py"] {
        own(&site, name, GAMES);
    }
    let server = site.start();
    for _ in 0..2 {
        assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
        assert_eq!(
            server.get("/cgi-bin/a.wasm").text(),
            "yes\n",
            "{}",
            server.errors()
        );
        let mut client = server.connect();
        client.post("/app", b"id -u");
        assert_eq!(client.reply().text(), "5\n");
        wait_until("a warm start", || {
            server.get("/warm/warm.py").text().starts_with("warm")
        });
        assert!(server.upgrade(), "{}", server.errors());
    }
    if cfg!(target_arch = "x86_64") {
        assert_eq!(
            taken::execute(&server, Path::new("/bin/true")).unwrap(),
            "-1"
        );
    }
}
