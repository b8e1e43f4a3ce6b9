//! WebAssembly modules that run as other users, and in strict sandboxes: helpers start separate workers for them.

pub(super) mod life;

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    process::Command,
};

use crate::{
    harness::list,
    wasm::{host, programs},
};
use galgo_testkit::{
    Server, Site,
    accounts::{Accounts, uid},
    file::copy,
    process::{children, command_line, parent, pids},
    wait_until,
};

use super::{GAMES, MAN, NOBODY, fails, helpers, mode, own, site as plain, uid_of, written};

list![
    they_run_as_their_user,
    the_owner_of_the_file_decides,
    what_is_checked_before,
    what_is_checked_is_the_file_of_each_request,
    in_a_strict_sandbox,
    strict_ones_of_the_servers_user,
    folders_of_a_route_are_its_workers_alone,
    each_account_has_a_worker_of_its_own,
    what_is_no_program_is_said,
    limits_hold_for_each_instance,
    programs_of_their_user_do_not_reach_them,
    where_nothing_runs_them_it_is_said,
    another_build_is_said,
    check_names_the_user_and_what_is_wrong,
    run_becomes_the_user,
];

/// Returns a site with `/games/` as `games`, `/own/` as the files' owners, and `/strict/`, which is `/games/` in a strict
/// sandbox. Modules of `games` may write into `data`.
fn site() -> Site {
    host();
    let route = |path: &str, keys: &str| {
        format!(
            "[[route]]\npath = \"/{path}/\"\ncgi = \"games\"\nuser = \"games\"\nenv = {{ FOO = \"bar\" }}\n\
             preopen_rw = {{ \"/data\" = \"data\" }}\n{keys}"
        )
    };
    let site = plain()
        .config(&route("games", ""))
        .config(&route("strict", "sandbox = \"strict\"\n"))
        .config("cache = \"cache\"\nmax_running = 16\n")
        .file("data/note", "x", 0o600);
    for name in ["data", "data/note"] {
        own(&site, name, GAMES);
    }
    with(site, "a.wasm", &programs::hello())
}

/// Adds a module of `games`.
fn with(site: Site, name: &str, module: &[u8]) -> Site {
    let name = format!("games/{name}");
    let site = site.file(&name, module, 0o644);
    own(&site, &name, GAMES);
    site
}

/// Returns the workers that run modules below helpers: each is the child of its keeper.
fn workers(server: &Server) -> Vec<u32> {
    let helpers = helpers(server);
    let is_worker = |pid: &u32| {
        command_line(*pid).starts_with("galgo-wasm own-worker ")
            && parent(*pid)
                .and_then(parent)
                .is_some_and(|of| helpers.contains(&of))
    };
    pids().filter(is_worker).collect()
}

fn worker(server: &Server) -> u32 {
    let all = workers(server);
    assert_eq!(all.len(), 1, "{all:?} {}", server.errors());
    all[0]
}

fn fine(server: &Server, target: &str) {
    let reply = server.get(target);
    let met = (reply.status, reply.text());
    assert_eq!(met, (200, "yes\n".into()), "{target} {}", server.errors());
}

fn reconfigured(server: &Server, keys: &str) {
    server.reconfigure(|config| {
        config.merge(&format!(
            "[[route]]\npath = \"/games/\"\ncgi = \"games\"\n{keys}\n"
        ));
    });
    assert!(server.reload(), "{}", server.errors());
}

fn they_run_as_their_user() {
    let site = with(site(), "writes.wasm", &programs::writes("new"));
    let site = with(site, "reads.wasm", &programs::opens("note"));
    let site = with(site, "environment.wasm", &programs::environment());
    let server = site.start();
    for name in ["a", "writes", "reads"] {
        fine(&server, &format!("/games/{name}.wasm"));
    }
    let new = server.path("data/new").metadata().unwrap();
    assert_eq!(
        (new.uid(), new.gid(), new.mode() & 0o777),
        (GAMES, 60, 0o644)
    );
    let said = server.get("/games/environment.wasm/%ff?q").body;
    for pair in [&b"FOO=bar"[..], b"PATH_INFO=/\xff", b"QUERY_STRING=q"] {
        assert!(said.split(|&b| b == 0).any(|own| own == pair));
    }
    let worker = worker(&server);
    let keeper = parent(worker).unwrap();
    for pid in [worker, keeper] {
        assert_eq!(uid_of(pid), "5 5 5 5");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let has = |line: &str| status.lines().any(|l| l == line);
        assert!(
            has("NoNewPrivs:\t1") && has("Seccomp:\t2") && has("Groups:\t60 "),
            "{status}"
        );
    }
    // The server's own worker runs none of these modules, and its cache has no code of them.
    let of_server = children(server.pid());
    let of_server = of_server.into_iter().map(command_line);
    assert!(
        of_server
            .into_iter()
            .all(|line| !line.contains("galgo-wasm"))
    );
    let code = fs::read_dir(server.path("cache")).map_or(0, Iterator::count);
    assert_eq!(code, 0);
}

fn the_owner_of_the_file_decides() {
    let site = site().config("min_uid = 6\nmin_gid = 12\n");
    for (name, uid) in [
        ("man", MAN),
        ("nobody", NOBODY),
        ("root", 0),
        ("games", GAMES),
    ] {
        let name = format!("own/{name}.wasm");
        site.write(&name, programs::hello());
        own(&site, &name, uid);
    }
    let server = site.start();
    fine(&server, "/own/man.wasm");
    assert_eq!(uid_of(worker(&server)), "6 6 6 6");
    fine(&server, "/own/nobody.wasm");
    let mut users: Vec<_> = workers(&server).into_iter().map(uid_of).collect();
    users.sort();
    assert_eq!(users, ["6 6 6 6", "65534 65534 65534 65534"]);
    for name in ["root", "games"] {
        assert_eq!(
            server.get(&format!("/own/{name}.wasm")).status,
            403,
            "{name}"
        );
    }
    server.says("min_uid = 6");
    assert_eq!(workers(&server).len(), 2);
}

fn what_is_checked_before() {
    let site = site();
    symlink("a.wasm", site.path("games/link.wasm")).unwrap();
    let module = programs::hello();
    for (name, bits, uid) in [
        ("group", 0o664, GAMES),
        ("others", 0o646, GAMES),
        ("setuid", 0o4644, GAMES),
        ("foreign", 0o644, MAN),
        ("roots", 0o644, 0),
    ] {
        let name = format!("games/{name}.wasm");
        site.write(&name, &module);
        own(&site, &name, uid);
        mode(&site, &name, bits);
    }
    for (name, bits, uid) in [("open", 0o777, GAMES), ("mans", 0o755, MAN)] {
        let inside = format!("games/{name}/a.wasm");
        site.write(&inside, &module);
        own(&site, &inside, GAMES);
        own(&site, &format!("games/{name}"), uid);
        mode(&site, &format!("games/{name}"), bits);
    }
    let server = site.start();
    for route in ["games", "strict"] {
        for (path, why) in [
            ("group.wasm", "is writable for its group: chmod g-w"),
            ("others.wasm", "is writable for others: chmod o-w"),
            ("setuid.wasm", "is set-user-ID: chmod u-s"),
            (
                "foreign.wasm",
                "belongs to the user 6, but its program runs as the user 5",
            ),
            ("link.wasm", "is a symbolic link"),
            ("open/a.wasm", "games/open\" is writable for others"),
            ("mans/a.wasm", "games/mans\" belongs to the user 6"),
        ] {
            let reply = server.get(&format!("/{route}/{path}"));
            assert_eq!(reply.status, 403, "{route} {path} {}", server.errors());
            server.says(why);
        }
        fine(&server, &format!("/{route}/roots.wasm"));
    }
}

/// The file is checked even if the module's code is already compiled.
fn what_is_checked_is_the_file_of_each_request() {
    let server = site().start();
    fine(&server, "/games/a.wasm");
    mode(&server.site, "games/a.wasm", 0o664);
    assert_eq!(server.get("/games/a.wasm").status, 403);
    mode(&server.site, "games/a.wasm", 0o644);
    fine(&server, "/games/a.wasm");
    mode(&server.site, "games", 0o777);
    assert_eq!(server.get("/games/a.wasm").status, 403);
}

fn in_a_strict_sandbox() {
    let site = with(site(), "writes.wasm", &programs::writes("new"));
    let site = with(site, "reads.wasm", &programs::opens("note"));
    let site = with(site, "up.wasm", &programs::opens("../galgo.toml"));
    let server = site.start();
    for name in ["a", "writes", "reads"] {
        fine(&server, &format!("/strict/{name}.wasm"));
    }
    assert_eq!(server.get("/strict/up.wasm").text(), "no\n");
    assert_eq!(server.path("data/new").metadata().unwrap().uid(), GAMES);
    let worker = worker(&server);
    assert_eq!(uid_of(worker), "5 5 5 5");
    let own = |of: u32, what: &str| fs::read_link(format!("/proc/{of}/ns/{what}")).unwrap();
    if galgo_spawn::sandbox::kernel().namespaces {
        for what in ["pid", "mnt"] {
            assert_ne!(own(worker, what), own(server.pid(), what), "{what}");
        }
    }
}

/// Without `user`, the module's file may belong to any user.
fn strict_ones_of_the_servers_user() {
    host();
    let site = plain()
        .config("cache = \"cache\"\n[[route]]\npath = \"/strict-own/\"\ncgi = \"own\"\nsandbox = \"strict\"\n")
        .file("own/a.wasm", programs::hello(), 0o664);
    own(&site, "own/a.wasm", MAN);
    let server = site.start();
    fine(&server, "/strict-own/a.wasm");
    assert_eq!(uid_of(worker(&server)), "65534 65534 65534 65534");
}

/// The server's own worker, which runs the modules of all other routes, does not learn of these folders.
fn folders_of_a_route_are_its_workers_alone() {
    let site = site().file("cgi-bin/a.wasm", programs::hello(), 0o644);
    let server = site.file("more/note", "x", 0o600).start();
    for route in ["cgi-bin", "games"] {
        fine(&server, &format!("/{route}/a.wasm"));
    }
    let (shared, own) = (crate::wasm::worker(&server), worker(&server));
    reconfigured(
        &server,
        "user = \"games\"\npreopen = { \"/more\" = \"more\" }",
    );
    for route in ["cgi-bin", "games"] {
        fine(&server, &format!("/{route}/a.wasm"));
    }
    // A changed folder needs another worker.
    assert_eq!(crate::wasm::worker(&server), shared);
    assert!(workers(&server).iter().any(|pid| *pid != own));
}

fn each_account_has_a_worker_of_its_own() {
    host();
    let site = plain();
    let accounts = Accounts::new("galgo-m", 3, |name| site.path(name));
    for name in accounts.names() {
        let module = format!("{name}/cgi-bin/a.wasm");
        site.write(&module, programs::prints(name));
        for path in ["", "/cgi-bin", "/cgi-bin/a.wasm"] {
            own(&site, &format!("{name}{path}"), uid(name));
        }
        mode(&site, name, 0o711);
    }
    let config = format!(
        "[userdir]\nfiles = \"public_html\"\ncgi = \"cgi-bin\"\nuser = \"owner\"\nusers = {:?}\n",
        accounts.names()
    );
    let server = site.config(&config).start();
    for name in accounts.names() {
        let reply = server.get(&format!("/~{name}/cgi-bin/a.wasm"));
        assert_eq!(reply.text(), *name, "{}", server.errors());
    }
    let mut users: Vec<_> = workers(&server).into_iter().map(uid_of).collect();
    let mut want: Vec<_> = accounts
        .names()
        .iter()
        .map(|n| vec![uid(n).to_string(); 4].join(" "))
        .collect();
    users.sort();
    want.sort();
    assert_eq!(users, want);
}

fn what_is_no_program_is_said() {
    let traps = programs::command("(call $deep)", "(func $deep unreachable)");
    let site = with(site(), "empty.wasm", b"");
    let site = with(site, "text.wasm", b"#!/bin/sh\necho");
    let site = with(site, "library.wasm", &wat::parse_str("(module)").unwrap());
    let site = with(site, "traps.wasm", &traps);
    let server = site.start();
    for (name, says) in [
        ("empty", "the file is empty"),
        ("text", "not a WebAssembly module"),
        ("library", "_start"),
        ("traps", "wasm trap"),
    ] {
        for _ in 0..2 {
            let reply = server.get(&format!("/games/{name}.wasm"));
            assert_eq!(reply.status, 502, "{name} {}", server.errors());
        }
        server.says(says);
    }
    fine(&server, "/games/a.wasm");
    assert_eq!(workers(&server).len(), 1);
}

fn limits_hold_for_each_instance() {
    let bomb = programs::command(
        "(call $head)
         (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
         (call $verdict (i32.le_u (memory.size) (i32.const 320)))",
        "",
    );
    let endless = programs::command("(loop $again (br $again))", "");
    let site = with(site(), "bomb.wasm", &bomb);
    let site = with(site, "endless.wasm", &endless);
    let site = with(site, "sleeps.wasm", &programs::sleeps("begun\n"));
    let limited = |path: &str, keys: &str| {
        format!("[[route]]\npath = \"/{path}/\"\ncgi = \"games\"\nuser = \"games\"\n{keys}\n")
    };
    let server = site
        .config(&limited("memory", "memory = \"20M\""))
        .config(&limited("cpu", "cpu = \"1s\""))
        .config(&limited("time", "first_byte_timeout = \"100ms\""))
        .start();
    fine(&server, "/memory/a.wasm");
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|c| c.get("/memory/bomb.wasm"));
    for client in &mut clients {
        assert_eq!(client.reply().text(), "yes\n", "{}", server.errors());
    }
    assert_eq!(server.get("/cpu/endless.wasm").status, 502);
    server.says("SIGXCPU");
    fine(&server, "/cpu/a.wasm");
    for name in ["endless", "sleeps"] {
        assert_eq!(
            server.get(&format!("/time/{name}.wasm")).status,
            504,
            "{name}"
        );
    }
    // No endless module keeps running.
    let time = workers(&server);
    assert_eq!(time.len(), 3);
}

fn programs_of_their_user_do_not_reach_them() {
    let server = site().start();
    fine(&server, "/games/a.wasm");
    let worker = worker(&server);
    let all = [worker, parent(worker).unwrap()];
    let query = all.map(|pid| pid.to_string()).join("&");
    let met = server.get(&format!("/games/attack?{query}")).text();
    for pid in all {
        let line = met
            .lines()
            .find(|l| l.starts_with(&format!("{pid} ")))
            .unwrap();
        assert!(
            line.split(' ').skip(1).all(|e| e == "1" || e == "13"),
            "{met}"
        );
    }
    fine(&server, "/games/a.wasm");
    assert_eq!(workers(&server), [worker]);
}

/// When `galgo-wasm` has been installed, the next request finds it.
fn where_nothing_runs_them_it_is_said() {
    let site = site().copied("bin/galgo");
    let server = site.start();
    for route in ["games", "strict"] {
        assert_eq!(
            server.get(&format!("/{route}/a.wasm")).status,
            403,
            "{route}"
        );
        assert!(
            server
                .get(&format!("/{route}/who"))
                .text()
                .starts_with("5\n")
        );
    }
    server.says("it is a WebAssembly module and needs galgo-wasm, which is not beside galgo (");
    copy(host(), &server.path("bin/galgo-wasm"));
    for route in ["games", "strict"] {
        wait_until("a helper that knows it", || {
            server.get(&format!("/{route}/a.wasm")).text() == "yes\n"
        });
    }
}

fn another_build_is_said() {
    let site = site().copied("bin/galgo");
    let other = "#!/bin/sh\necho \"called with $2\" >&2\nexit 1\n";
    let site = site.file("other", other, 0o755);
    copy(site.path("other"), &site.path("bin/galgo-wasm"));
    let server = site.start();
    assert_eq!(server.get("/games/a.wasm").status, 502);
    server.says("the wasm worker of the program's user ended right after its start");
    assert_eq!(workers(&server), [0; 0]);
}

fn check_names_the_user_and_what_is_wrong() {
    host();
    let config = "user = \"nobody\"\n[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\n\
        [[route]]\npath = \"/strict/\"\ncgi = \"own\"\nsandbox = \"strict\"\n";
    let site = written(site().file("own/b.wasm", programs::hello(), 0o644), config);
    let said = site.galgo(&["check"]).out;
    let of = |name: &str| said.lines().find(|l| l.contains(name)).unwrap_or_default();
    let fine =
        "is a module; runs as games, in a worker of this user and route; sandbox = \"standard\"";
    assert!(of("a.wasm").contains(fine), "{said}");
    let strict = "is a module; runs as nobody, the server's own user, in a worker of this user and route; sandbox = \"strict\"";
    assert!(of("b.wasm").contains(strict), "{said}");
    mode(&site, "games/a.wasm", 0o664);
    let said = fails(&site, &["check"]);
    assert!(
        said.contains("is writable for its group: chmod g-w"),
        "{said}"
    );
}

fn run_becomes_the_user() {
    host();
    let config = "user = \"nobody\"\ncache = \"cache\"\n[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\n\
        preopen_rw = { \"/data\" = \"data\" }\n";
    let site = with(site(), "writes.wasm", &programs::writes("new"));
    let site = written(site, config);
    let run = |module: &Path| {
        let mut galgo = Command::new(env!("CARGO_BIN_EXE_galgo"));
        galgo
            .args(["run", "-o", "body"])
            .arg(module)
            .output()
            .unwrap()
    };
    let done = run(&site.path("games/writes.wasm"));
    let words = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.stdout, b"yes\n", "{words}");
    assert_eq!(site.path("data/new").metadata().unwrap().uid(), GAMES);
    mode(&site, "games/a.wasm", 0o664);
    let done = run(&site.path("games/a.wasm"));
    let words = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        !done.status.success() && words.contains("is writable for its group"),
        "{words}"
    );
}
