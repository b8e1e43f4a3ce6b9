//! `sites` with `user = "owner"`: each host's programs run as their owner, although the configuration names no host.

pub(super) mod strict;
pub(super) mod wrong;

use std::{
    fs,
    os::unix::fs::{chown, lchown, symlink},
    process::Command,
};

use crate::{harness::list, warm::python, wasm};
use galgo_testkit::{
    Reply, Server, Site,
    accounts::{Accounts, uid},
    process::{command_line, parent, pids},
    wait_until,
};

use super::{MAN, NOBODY, SWAPS, WHO, apart, fails, helpers, mode, own, site, uid_of, written};

list![
    each_host_runs_as_its_owner,
    a_new_host_and_a_new_owner_need_no_reload,
    links_to_hosts_and_others,
    the_folder_of_the_hosts_is_roots,
    folders_of_a_host_that_are_swapped_lead_nowhere,
    warm_programs_have_their_owners_too,
    modules_have_their_owners_too,
    one_user_for_all_hosts,
    what_check_and_run_say,
    what_is_refused_in_words,
    a_reload_changes_whom_they_run_as,
];

const CONFIG: &str = "sites = { path = \"www\", user = \"owner\" }\n";

/// Reads the secret files of two hosts.
const READ: &str = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nid -u\ncat ../../one.example/data/secret ../../two.example/data/secret 2>&1\n";

/// Gives an account a host: a page, programs, and a secret.
fn host(site: &Site, host: &str, account: &str) {
    for (name, content, bits) in [
        ("public/index.html", host, 0o644),
        ("cgi-bin/who", WHO, 0o755),
        ("cgi-bin/read", READ, 0o755),
        ("data/secret", account, 0o600),
    ] {
        let name = format!("www/{host}/{name}");
        site.write(&name, content);
        mode(site, &name, bits);
    }
    mode(site, &format!("www/{host}/data"), 0o700);
    all_of(site, &format!("www/{host}"), uid(account));
}

/// Changes the owner of a folder and of everything in it.
fn all_of(site: &Site, name: &str, uid: u32) {
    let path = site.path(name);
    let mut chown = Command::new("chown");
    let done = chown.args(["-hR", &format!("{uid}:{uid}")]).arg(path);
    assert!(done.status().unwrap().success());
}

fn accounts(site: &Site, count: usize) -> Accounts {
    Accounts::new("galgo-h", count, |name| site.path(name))
}

fn ask(server: &Server, host: &str, path: &str) -> Reply {
    server.ask(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

/// Returns the user id that a program runs as. `Err(status)`: the response was not 200.
fn runs_as(server: &Server, host: &str, path: &str) -> Result<u32, u16> {
    let reply = ask(server, host, path);
    match reply.status {
        200 => Ok(reply.text().lines().next().unwrap().parse().unwrap()),
        status => Err(status),
    }
}

fn each_host_runs_as_its_owner() {
    let site = site().config(CONFIG);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "one.example", one);
    host(&site, "two.example", two);
    let server = site.start();
    for (host, account, other) in [("one.example", one, two), ("two.example", two, one)] {
        let ran = runs_as(&server, host, "/cgi-bin/who");
        assert_eq!(ran, Ok(uid(account)), "{}", server.errors());
        assert_eq!(ask(&server, host, "/").text(), host);
        let said = ask(&server, host, "/cgi-bin/read").text();
        assert!(said.contains(account) && !said.contains(other), "{said}");
        assert_eq!(said.matches("Permission denied").count(), 1, "{said}");
        // No client can read the files beside both folders.
        for path in ["/data/secret", "/../data/secret", "/cgi-bin/../data/secret"] {
            assert_ne!(ask(&server, host, path).status, 200, "{path}");
        }
    }
    let mut users: Vec<_> = helpers(&server).into_iter().map(uid_of).collect();
    users.sort();
    let mut wanted = [one, two].map(|name| apart(uid(name)));
    wanted.sort();
    assert_eq!(users, wanted);
    // The configured routes run as before.
    assert_eq!(runs_as(&server, "one.example", "/own/nobody"), Ok(NOBODY));
}

fn a_new_host_and_a_new_owner_need_no_reload() {
    let site = site().config(CONFIG);
    let before = accounts(&site, 1);
    host(&site, "one.example", &before.names()[0]);
    let server = site.start();
    assert_eq!(runs_as(&server, "new.example", "/cgi-bin/read"), Err(404));
    // The account did not exist either when the server read its configuration.
    let after = accounts(&server.site, 1);
    host(&server.site, "new.example", &after.names()[0]);
    let new = uid(&after.names()[0]);
    assert_eq!(
        runs_as(&server, "new.example", "/cgi-bin/read"),
        Ok(new),
        "{}",
        server.errors()
    );
    assert_eq!(ask(&server, "new.example", "/").text(), "new.example");
    // The next request runs as the new owner.
    let old = uid(&before.names()[0]);
    all_of(&server.site, "www/new.example", old);
    assert_eq!(
        runs_as(&server, "new.example", "/cgi-bin/read"),
        Ok(old),
        "{}",
        server.errors()
    );
}

/// Replaces a file or folder by a link that belongs to an account.
fn link(site: &Site, to: &str, name: &str, account: &str) {
    let path = site.path("www").join(name);
    let _ = fs::rename(&path, path.with_extension("was"));
    symlink(to, &path).unwrap();
    let owner = Some(uid(account));
    lchown(path, owner, owner).unwrap();
}

/// Creates links to hosts and to other places, and some links that belong to the first of two accounts.
fn lay_links(site: &Site, one: &str, two: &str) {
    let www = site.path("www");
    // Other names of a host, also in a chain.
    symlink("one.example", www.join("www.one.example")).unwrap();
    symlink("./www.one.example", www.join("www2.one.example")).unwrap();
    symlink(www.join("one.example"), www.join("far.one.example")).unwrap();
    // These links lead to folders that are not a host's folder.
    symlink("two.example/data", www.join("below.example")).unwrap();
    fs::create_dir_all(www.join("two.example/data/cgi-bin")).unwrap();
    fs::copy(
        www.join("two.example/cgi-bin/who"),
        www.join("two.example/data/cgi-bin/who"),
    )
    .unwrap();
    all_of(site, "www/two.example", uid(two));
    mode(site, "www/two.example/data", 0o755);
    symlink("../outside", www.join("outside.example")).unwrap();
    // An account tries to run another account's program, or its own program by another path.
    link(
        site,
        "../../two.example/cgi-bin/who",
        "one.example/cgi-bin/theirs",
        one,
    );
    link(site, "who", "one.example/cgi-bin/mine", one);
    link(site, "../two.example/cgi-bin", "apart.example/cgi-bin", one);
}

fn links_to_hosts_and_others() {
    let site = site()
        .config(CONFIG)
        .file("outside/cgi-bin/who", WHO, 0o755);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "one.example", one);
    host(&site, "two.example", two);
    host(&site, "apart.example", one);
    all_of(&site, "outside", uid(one));
    lay_links(&site, one, two);
    let server = site.start();
    for host in ["", "www.", "www2.", "far."].map(|name| format!("{name}one.example")) {
        let host = &*host;
        let ran = runs_as(&server, host, "/cgi-bin/who");
        assert_eq!(ran, Ok(uid(one)), "{host}: {}", server.errors());
        assert_eq!(ask(&server, host, "/").text(), "one.example");
    }
    for (host, path, why) in [
        (
            "one.example",
            "/cgi-bin/theirs",
            "leads out of the program folder by a symbolic link",
        ),
        (
            "one.example",
            "/cgi-bin/mine",
            "one.example/cgi-bin/mine\" is a symbolic link",
        ),
        ("apart.example", "/cgi-bin/who", "a symbolic link leads out"),
        (
            "outside.example",
            "/cgi-bin/who",
            "a symbolic link leads out",
        ),
        (
            "below.example",
            "/cgi-bin/who",
            "but not to the folder of another host",
        ),
    ] {
        assert_eq!(runs_as(&server, host, path), Err(403), "{host}{path}");
        server.says(why);
    }
    // Within the host's folder the server follows a link, but the helper does not.
    fs::remove_file(server.path("www/apart.example/cgi-bin")).unwrap();
    link(&server.site, "cgi-bin.was", "apart.example/cgi-bin", one);
    let _ = ask(&server, "apart.example", "/");
    wait_until("the folder", || {
        runs_as(&server, "apart.example", "/cgi-bin/who") == Err(403)
    });
    server.says("apart.example/cgi-bin\" is a symbolic link");
}

fn the_folder_of_the_hosts_is_roots() {
    let site = site().config(CONFIG);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "one.example", one);
    let server = site.start();
    // A user with the right to create folders beside the hosts' folders would decide which programs the hosts run.
    for (bits, why) in [
        (0o777, "www\" is writable for others"),
        (0o1777, "www\" is writable for others"),
        (0o775, "www\" is writable for its group"),
    ] {
        mode(&server.site, "www", bits);
        assert_eq!(runs_as(&server, "one.example", "/cgi-bin/who"), Err(403));
        server.says(why);
    }
    mode(&server.site, "www", 0o755);
    chown(server.path("www"), Some(uid(two)), None).unwrap();
    assert_eq!(runs_as(&server, "one.example", "/cgi-bin/who"), Err(403));
    chown(server.path("www"), Some(0), None).unwrap();
    assert_eq!(
        runs_as(&server, "one.example", "/cgi-bin/who"),
        Ok(uid(one))
    );
}

/// An account keeps swapping its host's folder with a link to another host, and its programs with links, while clients
/// request them.
fn folders_of_a_host_that_are_swapped_lead_nowhere() {
    let site = site().config(CONFIG).compiled("swap", SWAPS, &[]);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "one.example", one);
    host(&site, "two.example", two);
    let ran = "#!/bin/sh\nid -u >> MARK\necho Content-Type: text/plain\necho\nid -u\n";
    let mark = site.path("marks/ran").display().to_string();
    site.write("www/two.example/cgi-bin/p", ran.replace("MARK", &mark));
    mode(&site, "www/two.example/cgi-bin/p", 0o755);
    all_of(&site, "www/two.example", uid(two));
    // The folders `d` and `mine` that the program swaps: `d` has this account's program, and `mine` is a link to the other
    // host's.
    let home = site.path("www/one.example");
    fs::create_dir_all(home.join("cgi-bin/d")).unwrap();
    fs::copy(home.join("cgi-bin/who"), home.join("cgi-bin/d/p")).unwrap();
    symlink("../../two.example/cgi-bin", home.join("cgi-bin/mine")).unwrap();
    all_of(&site, "www/one.example", uid(one));
    let server = site.start();
    let id = uid(one).to_string();
    let mut swaps = Command::new("setpriv");
    swaps.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    swaps
        .arg(server.path("swap"))
        .current_dir(server.path("www/one.example/cgi-bin"));
    let mut swaps = swaps.spawn().unwrap();
    let status = loop {
        match runs_as(&server, "one.example", "/cgi-bin/d/p") {
            Ok(user) => assert_eq!(user, uid(one)),
            Err(status) => assert!([403, 404, 502].contains(&status), "{status}"),
        }
        if let Some(status) = swaps.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success());
    // The account may run programs that it may read, but only as itself.
    let ran = fs::read_to_string(mark).unwrap_or_default();
    assert!(ran.lines().all(|line| line == id), "{ran}");
}

fn warm_programs_have_their_owners_too() {
    let site = site().config(CONFIG);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    let program = python("import os", "os.getuid()");
    for (name, account) in [("one.example", one), ("two.example", two)] {
        let file = format!("www/{name}/cgi-bin/whose");
        site.write(&file, &program);
        mode(&site, &file, 0o755);
        host(&site, name, account);
    }
    symlink("one.example", site.path("www/www.one.example")).unwrap();
    let server = site.start();
    server.configure("[defaults]\nstart = \"warm\"\n");
    assert!(server.reload());
    for (host, account) in [
        ("one.example", one),
        ("two.example", two),
        ("www.one.example", one),
    ] {
        wait_until("a template", || {
            let said = ask(&server, host, "/cgi-bin/whose").text();
            let words: Vec<_> = said.split_whitespace().collect();
            assert_eq!(words[1], uid(account).to_string(), "{}", server.errors());
            words[0] == "warm"
        });
    }
}

fn modules_have_their_owners_too() {
    wasm::host();
    let site = site().config(CONFIG);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    for (name, account) in [("one.example", one), ("two.example", two)] {
        let file = format!("www/{name}/cgi-bin/a.wasm");
        site.write(&file, wasm::programs::hello());
        mode(&site, &file, 0o644);
        host(&site, name, account);
    }
    // A host cannot run the module of another host.
    link(
        &site,
        "../../one.example/cgi-bin/a.wasm",
        "two.example/cgi-bin/b.wasm",
        two,
    );
    own(&site, "www/two.example/cgi-bin/a.wasm", uid(one));
    symlink("one.example", site.path("www/www.one.example")).unwrap();
    let server = site.start();
    for host in ["one.example", "www.one.example"] {
        let reply = ask(&server, host, "/cgi-bin/a.wasm");
        let met = (reply.status, reply.text());
        assert_eq!(met, (200, "yes\n".into()), "{host} {}", server.errors());
    }
    let workers = pids().filter(|pid| command_line(*pid).starts_with("galgo-wasm own-worker "));
    let below = |pid: &u32| {
        parent(*pid)
            .and_then(parent)
            .is_some_and(|of| helpers(&server).contains(&of))
    };
    let users: Vec<_> = workers.filter(below).map(uid_of).collect();
    let user = uid(one);
    let ids = format!("{user} {user} {user} {user}");
    assert_eq!(users, [&*ids; 2]);
    for module in ["a.wasm", "b.wasm"] {
        let reply = ask(&server, "two.example", &format!("/cgi-bin/{module}"));
        assert_eq!(reply.status, 403, "{module} {}", server.errors());
    }
}

fn one_user_for_all_hosts() {
    let config = "sites = { path = \"www\", user = \"games\" }\n";
    let site = site()
        .config(config)
        .file("www/one.example/cgi-bin/who", WHO, 0o755)
        .file("www/two.example/cgi-bin/who", WHO, 0o755);
    own(&site, "www/two.example/cgi-bin/who", MAN);
    let server = site.start();
    assert_eq!(runs_as(&server, "one.example", "/cgi-bin/who"), Ok(5));
    assert_eq!(runs_as(&server, "two.example", "/cgi-bin/who"), Err(403));
    server.says("belongs to the user 6, but its program runs as the user 5");
}

fn what_check_and_run_say() {
    let site = site();
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "one.example", one);
    host(&site, "two.example", two);
    own(&site, "www/two.example/cgi-bin/who", 0);
    let site = written(site, &format!("user = \"nobody\"\n{CONFIG}"));
    let said = fails(&site, &["check"]);
    let line = |part: &str| {
        let found = said.lines().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {said}")).to_owned()
    };
    let fine = line("www/one.example/cgi-bin/who");
    assert!(
        fine.contains(&format!(
            "runs as {one}, sandbox = \"standard\"; leftover processes are killed by their helper"
        )),
        "{fine}"
    );
    let refused = line("www/two.example/cgi-bin/who");
    assert!(
        refused.starts_with("FAIL") && refused.contains("min_uid = 1000"),
        "{refused}"
    );
    let url = |url: &str| site.galgo(&["check", ".", "--url", url]);
    url("http://one.example/cgi-bin/who").has_out(format!("runs as {one}, sandbox = \"standard\""));
    let refused = url("http://two.example/cgi-bin/who");
    refused.has_out("min_uid = 1000");
    refused.has_out("answer             403");
    let config = site.path("galgo.toml");
    let mut galgo = Command::new(env!("CARGO_BIN_EXE_galgo"));
    galgo.args(["run", "-o", "body", "--config"]).arg(config);
    let done = galgo
        .arg(site.path("www/one.example/cgi-bin/who"))
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(
        said.starts_with(&format!("{}\n", uid(one))),
        "{said}{error}"
    );
}

fn what_is_refused_in_words() {
    let site = site().file("www/one.example/cgi-bin/who", WHO, 0o755);
    for (config, words) in [
        (
            "sites = { user = \"owner\" }\n",
            "1:9: sites: has no `path`",
        ),
        ("sites = { path = \"none\" }\n", "does not exist"),
        (
            "sites = { path = \"www\", user = \"root\" }\n",
            "1:32: user: programs of a route with `user` never run as root",
        ),
        (
            "sites = { path = \"www\", owner = true }\n",
            "unknown key \"owner\"",
        ),
        ("sites = true\n", "a folder, or a table"),
    ] {
        site.write("galgo.toml", config);
        let said = fails(&site, &["check"]);
        assert!(said.contains(words), "{words}: {said}");
    }
    // Without root, galgo refuses to start.
    let config = format!("listen = [\"127.0.0.1:0\"]\n{CONFIG}");
    let site = written(site, &config);
    let mut galgo = Command::new("setpriv");
    galgo.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    galgo.args([env!("CARGO_BIN_EXE_galgo"), "serve"]);
    let done = galgo.arg(site.folder()).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        !done.status.success() && said.contains("sites: `user` needs root"),
        "{said}"
    );
}

fn a_reload_changes_whom_they_run_as() {
    let site = site().config("sites = \"www\"\n");
    let accounts = accounts(&site, 1);
    let one = accounts.names()[0].as_str();
    host(&site, "one.example", one);
    let server = site.start();
    let asks = || runs_as(&server, "one.example", "/cgi-bin/who");
    assert_eq!(asks(), Ok(NOBODY));
    server.configure(CONFIG);
    assert!(server.reload());
    assert_eq!(asks(), Ok(uid(one)), "{}", server.errors());
    server.configure("sites = \"www\"\n");
    assert!(server.reload());
    assert_eq!(asks(), Ok(NOBODY));
}
