//! If helpers start all programs, the server sees only the files that it is configured to serve, and its own.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use galgo_testkit::{
    Server, Site,
    accounts::{Accounts, uid},
    wait_until,
};
use rustix::process::Signal;

use super::{
    GAMES,
    execute::{OWN, ROUTE, runs_as, site},
    mode, own, taken,
};
use crate::harness::{list, new_site, skip};

list![
    whoever_controls_the_server_sees_what_is_configured,
    a_reload_shows_what_is_below_it,
    a_reload_to_other_places_is_an_upgrade,
    without_a_manager_no_reload_is_an_upgrade,
    a_configuration_that_is_wrong_stays_unused,
    what_is_replaced_by_another_of_its_name_is_seen,
    folders_that_are_replaced_are_seen_after_a_reload,
    homes_and_new_hosts_are_served,
    bodies_wait_in_files,
];

/// Flags of open(2).
const READ: i32 = 0;
const WRITE: i32 = 1;
const MAKE: i32 = 0o101;

/// Results of open(2).
const OPENED: &str = "0";
const REFUSED: &str = "-13";

/// Creates a separate folder that all users may read.
fn elsewhere() -> Site {
    let other = new_site()
        .file("page", "a page elsewhere", 0o644)
        .file("site.htpasswd", "", 0o644);
    mode(&other, ".", 0o755);
    other
}

fn files(path: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!("[[route]]\npath = \"/{path}/\"\nfiles = \"{folder}\"\n")
}

/// Returns a site whose service manager is told which process serves.
fn managed() -> Site {
    site().env("NOTIFY_SOCKET", "@galgo-nobody")
}

/// Reloads a configuration that only another process can serve.
fn moves_on(server: &Server) {
    let before = server.pid();
    assert!(
        server.upgraded_by(|| server.signal(Signal::HUP)),
        "{}",
        server.errors()
    );
    assert_ne!(server.pid(), before);
    wait_until("it serves", || server.get("/cgi-bin/who").status == 200);
}

fn whoever_controls_the_server_sees_what_is_configured() {
    if !cfg!(target_arch = "x86_64") {
        skip!("the attack is made for x86_64");
    }
    let other = elsewhere();
    let configured = || {
        let site = site()
            .file("logs/none", "", 0o644)
            .file("public/open", "", 0o666)
            .config(ROUTE);
        for name in ["logs", "logs/none"] {
            own(&site, name, super::NOBODY);
        }
        site.config("access_log = \"logs/access\"\nspool = \"logs\"\n[[route]]\npath = \"/p/\"\nfiles = \"public\"\n")
    };
    let server = configured().start();
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    let new = |folder: &str| PathBuf::from(folder).join(format!("galgo-{}", server.pid()));
    let hidden = [
        (other.path("page"), READ),
        (other.folder().to_owned(), READ),
        ("/var/lib/dpkg/status".into(), READ),
        ("/var/lib".into(), READ),
        ("/".into(), READ),
        (new("/tmp"), MAKE),
        (new("/var/tmp"), MAKE),
        (new("/dev/shm"), MAKE),
        (server.path("public/open"), WRITE),
    ];
    for (file, flags) in &hidden {
        assert_eq!(taken::open(&server, file, *flags), REFUSED, "{file:?}");
    }
    let seen = [
        (server.path("games/who"), READ),
        (server.path("galgo.toml"), READ),
        (server.path("logs/access"), WRITE),
        (server.path("logs/new"), MAKE),
        ("/etc/nsswitch.conf".into(), READ),
        ("/proc/self/status".into(), READ),
        ("/dev/null".into(), WRITE),
    ];
    for (file, flags) in &seen {
        assert_eq!(taken::open(&server, file, *flags), OPENED, "{file:?}");
    }
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    // Proves that the attack works: a server that starts programs itself sees all that its user may see.
    let server = configured().config(OWN).start();
    for (file, flags) in hidden.iter().filter(|(file, _)| file.exists()).take(5) {
        assert_eq!(taken::open(&server, file, *flags), OPENED, "{file:?}");
    }
    assert_eq!(taken::open(&server, &new("/var/tmp"), MAKE), OPENED);
    fs::remove_file(new("/var/tmp")).unwrap();
}

fn a_reload_shows_what_is_below_it() {
    let server = site()
        .file("more/page", "more", 0o644)
        .config(ROUTE)
        .start();
    let before = server.pid();
    server.configure(&files("more", &server.path("more")));
    assert!(server.reload(), "{}", server.errors());
    assert_eq!(server.get("/more/page").text(), "more");
    assert_eq!(server.pid(), before);
}

fn a_reload_to_other_places_is_an_upgrade() {
    let other = elsewhere();
    let server = managed().config(ROUTE).start();
    server.configure(&files("more", other.folder()));
    moves_on(&server);
    assert_eq!(server.get("/more/page").text(), "a page elsewhere");
    server.says(
        "this process can open only the paths that were configured when it started: so a new galgo process takes over",
    );
    // The server cannot even read this file.
    let more = elsewhere();
    let passwords = more.path("site.htpasswd");
    server.configure(&format!(
        "[[route]]\npath = \"/in/\"\nfiles = \"public\"\npasswords = \"{}\"\n",
        passwords.display()
    ));
    moves_on(&server);
    assert_eq!(server.get("/in/page").status, 401);
    // Logs and sockets.
    let logs = new_site();
    own(&logs, ".", super::NOBODY);
    mode(&logs, ".", 0o755);
    server.configure(&format!(
        "access_log = \"{}\"\n",
        logs.path("log").display()
    ));
    moves_on(&server);
    server.get("/more/page");
    wait_until("a line", || {
        fs::read_to_string(logs.path("log")).is_ok_and(|log| log.contains("/more/page"))
    });
    assert!(server.reload(), "{}", server.errors());
}

/// A parent that only waits for the process to end would take an upgrade for the end of the service.
fn without_a_manager_no_reload_is_an_upgrade() {
    let other = elsewhere();
    let server = site().config(ROUTE).start();
    let before = server.pid();
    server.configure(&files("more", other.folder()));
    let words =
        "to use the new configuration, send SIGUSR2: a new process is not limited to the old paths";
    for _ in 0..2 {
        assert!(!server.reload());
        server.says(words);
        assert_eq!(server.get("/more/page").status, 404);
    }
    assert_eq!(server.pid(), before);
    assert!(server.upgrade(), "{}", server.errors());
    assert_eq!(server.get("/more/page").text(), "a page elsewhere");
}

fn a_configuration_that_is_wrong_stays_unused() {
    let server = managed().config(ROUTE).start();
    let before = server.pid();
    let file = server.path("galgo.toml");
    let good = fs::read_to_string(&file).unwrap();
    for (wrong, words) in [
        ("lisen = []\n", "unknown key \"lisen\""),
        ("pid_file = \"\"\n", "pid_file: is empty"),
    ] {
        fs::write(&file, format!("{wrong}{good}")).unwrap();
        assert!(!server.reload());
        server.says(words);
        assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    }
    fs::write(&file, good).unwrap();
    assert!(server.reload(), "{}", server.errors());
    assert_eq!(server.pid(), before);
}

/// Logs, passwords, the configuration and its included files.
fn what_is_replaced_by_another_of_its_name_is_seen() {
    const LETS_IN: &str = "ada:$2y$05$24lW8A7dOzsf9qZZCQsBT.m9ScqVK9QTiO2UyklS4gMhvP9v2nqlS\n";
    let etc = elsewhere();
    let site = site().config(ROUTE).config(&format!(
        "include = \"sites/*.toml\"\naccess_log = \"logs/access\"\n[[route]]\npath = \"/in/\"\nfiles = \"public\"\npasswords = \"{}\"\n",
        etc.path("site.htpasswd").display()
    ));
    let site = site
        .file("logs/none", "", 0o644)
        .file("sites/none", "", 0o644)
        .file("public/page", "a page", 0o644);
    own(&site, "logs", super::NOBODY);
    let server = site.start();
    let before = server.pid();
    let ask = || {
        server.ask(
            "GET /in/page HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YWRhOnNlY3JldA==\r\n\r\n",
        )
    };
    assert_eq!(ask().status, 401);
    let replace = |name: &str, text: &str| {
        etc.write("new", text);
        mode(&etc, "new", 0o644);
        fs::rename(etc.path("new"), name).unwrap();
    };
    let file = etc.path("site.htpasswd");
    replace(file.to_str().unwrap(), LETS_IN);
    wait_until("the new file is read", || ask().status == 200);
    fs::rename(server.path("logs/access"), server.path("logs/access.1")).unwrap();
    server.signal(Signal::USR1);
    wait_until("a new log", || {
        server.get("/cgi-bin/who");
        fs::read(server.path("logs/access")).is_ok_and(|log| !log.is_empty())
    });
    let toml = server.path("galgo.toml");
    let text = fs::read_to_string(&toml).unwrap();
    replace(toml.to_str().unwrap(), &text);
    server.site.write(
        "sites/a.toml",
        "[[route]]\npath = \"/a/\"\nfiles = \"../public\"\n",
    );
    assert!(server.reload(), "{}", server.errors());
    assert_eq!(server.get("/a/page").status, 200);
    assert_eq!(server.pid(), before);
}

/// A release is another folder behind the same link, or has the same name.
fn folders_that_are_replaced_are_seen_after_a_reload() {
    let other = elsewhere();
    for release in ["one", "two"] {
        other.write(&format!("{release}/page"), release);
    }
    symlink("one", other.path("now")).unwrap();
    let server = managed()
        .config(ROUTE)
        .config(&files("p", &other.path("now")))
        .start();
    assert_eq!(server.get("/p/page").text(), "one");
    fs::remove_file(other.path("now")).unwrap();
    symlink("two", other.path("now")).unwrap();
    moves_on(&server);
    assert_eq!(server.get("/p/page").text(), "two");
    fs::rename(other.path("two"), other.path("old")).unwrap();
    other.write("two/page", "three");
    moves_on(&server);
    assert_eq!(server.get("/p/page").text(), "three");
    assert!(server.reload(), "{}", server.errors());
}

/// Creates two accounts with homes in a folder; each has a page with its name.
fn accounts_in(homes: &Site) -> Accounts {
    let accounts = Accounts::new("galgo-v", 2, |name| homes.path(name));
    for name in accounts.names() {
        homes.write(&format!("{name}/public_html/page"), name);
        mode(homes, name, 0o711);
        own(homes, name, uid(name));
    }
    accounts
}

fn homes_and_new_hosts_are_served() {
    let (homes, www) = (elsewhere(), elsewhere());
    let accounts = accounts_in(&homes);
    www.write("one.example/public/index.html", "one");
    let server = site().config(ROUTE).config(&format!(
        "sites = {{ path = \"{}\", user = \"owner\" }}\n[userdir]\nfiles = \"public_html\"\nusers = {:?}\n",
        www.folder().display(),
        accounts.names()
    ));
    let server = server.start();
    let before = server.pid();
    let has = |user: &str| server.get(&format!("/~{user}/page")).text() == user;
    assert!(accounts.names().iter().all(|name| has(name)));
    let of = |host: &str| {
        let reply = server.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        (reply.status == 200).then(|| reply.text())
    };
    assert_eq!(of("one.example").as_deref(), Some("one"));
    www.write("two.example/public/index.html", "two");
    wait_until("the new host", || {
        of("two.example").as_deref() == Some("two")
    });
    // More accounts: the system's account files are then replaced.
    let toml = server.path("galgo.toml");
    let of_first = fs::read_to_string(&toml).unwrap();
    let users = |more: &[String]| {
        let all = [accounts.names(), more].concat();
        let first = format!("{:?}", accounts.names());
        fs::write(&toml, of_first.replace(&first, &format!("{all:?}"))).unwrap();
    };
    let beside = accounts_in(&homes);
    users(beside.names());
    assert!(server.reload(), "{}", server.errors());
    assert!(beside.names().iter().all(|name| has(name)));
    // If the server cannot see their homes, it reports an error instead of leaving them out.
    let others = elsewhere();
    let far = accounts_in(&others);
    users(far.names());
    assert!(!server.reload());
    server.says(&format!(
        "{}/public_html: this process can open only the paths that were configured when it started",
        others.path(&far.names()[0]).display()
    ));
    assert_eq!(server.pid(), before);
    assert!(server.upgrade(), "{}", server.errors());
    assert!(far.names().iter().all(|name| has(name)));
}

/// Bodies are stored in the folder for temporary files, in which the server can create no file with a name.
fn bodies_wait_in_files() {
    let site = site()
        .file(
            "games/count",
            "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nwc -c\n",
            0o755,
        )
        .config(ROUTE);
    own(&site, "games/count", GAMES);
    let server = site.start();
    let body = vec![b'x'; 3 << 20];
    let mut client = server.connect();
    client.post("/cgi-bin/count", &body);
    let reply = client.reply();
    assert_eq!(
        reply.text().trim(),
        body.len().to_string(),
        "{}",
        server.errors()
    );
}
