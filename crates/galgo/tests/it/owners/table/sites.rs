//! The servers whose programs make the attacks.

use std::fs;

use crate::harness::{needs_root, new_site, skip};
use galgo_testkit::{
    Server, Site,
    accounts::{Accounts, uid},
    stream::certificate,
};

use super::{
    super::{mode, own, workers},
    attacks::{ATTACKS, TAKES},
};
use crate::secrets::ATTACK;

/// Folders: of programs that run as the server's user, and of programs that run as another user.
pub(super) const FOLDERS: [&str; 2] = ["own", "other"];

/// Accounts for the attacks, so that no other process counts for `processes`.
#[derive(Clone, Copy)]
pub(super) struct Users<'a> {
    /// User of a server that root has started.
    pub server: &'a str,
    /// User of that server's other programs.
    pub other: &'a str,
    /// Owner of the program and the file that are attacked.
    pub third: &'a str,
    /// User that starts another server.
    pub starts: &'a str,
}

impl<'a> Users<'a> {
    pub fn of(accounts: &'a Accounts) -> Self {
        let [server, other, third, starts] = accounts.names() else {
            panic!("no accounts")
        };
        Self {
            server,
            other,
            third,
            starts,
        }
    }
}

/// Limits below the amounts that the attacks take.
const LIMITS: &str = "[defaults]\nstart = \"cold\"\nmemory = \"256M\"\nprocesses = 200\nfile_size = \"2M\"\ncpu = \"1s\"\nidle_timeout = \"1h\"\nfirst_byte_timeout = \"1h\"\n";

/// Returns a route of each kind for the programs of a folder.
fn routes(folder: &str, keys: &str) -> String {
    let cgi = |kind: &str, more: &str| {
        format!("[[route]]\npath = \"/{folder}/{kind}/\"\ncgi = \"{folder}\"\n{keys}{more}")
    };
    let worker = |kind: &str, more: &str| {
        format!(
            "[[route]]\npath = \"/{folder}/{kind}\"\n{keys}{more}fastcgi = {{ run = [\"{folder}/app\"], workers = 1 }}\n"
        )
    };
    let (warm, strict) = ("start = \"warm\"\n", "sandbox = \"strict\"\n");
    let data = "preopen_rw = { \"/data\" = \"data\" }\n";
    [
        cgi("cold", data),
        cgi("strict", &format!("{data}{strict}")),
        cgi("warm", warm),
        cgi("warm-strict", &format!("{warm}{strict}")),
        worker("worker", ""),
        worker("worker-strict", strict),
    ]
    .concat()
}

/// Adds the programs of a folder, owned by the user that they run as.
fn programs(mut site: Site, folder: &str, user: u32) -> Site {
    site = site
        .file(&format!("{folder}/attacks"), ATTACKS, 0o755)
        .compiled(&format!("{folder}/app"), workers::SHELL, &[])
        .compiled(&format!("{folder}/bystander"), ATTACK, &[])
        .compiled(&format!("{folder}/takes"), TAKES, &[]);
    for name in ["", "/app", "/bystander", "/takes", "/attacks"] {
        own(&site, &format!("{folder}{name}"), user);
    }
    site
}

/// Returns a site with the server's own programs, owned by `server`. The attacked files have the same owners on each site.
fn site(users: Users<'_>, starts: u32, server: u32) -> Site {
    needs_root();
    let (pem, key) = certificate(&["localhost"]);
    let site = new_site();
    if !site.is_reachable() {
        skip!("others may not reach {}", site.folder().display());
    }
    let tls = format!(
        "listen = [\"127.0.0.1:0\", \"https://127.0.0.1:0\"]\n[tls]\ncertificate = {:?}\nkey = {:?}\n",
        site.path("tls.pem"),
        site.path("tls.key")
    );
    let site = programs(site, FOLDERS[0], server)
        .file("users", "of a third user", 0o600)
        .file("servers", "of the server", 0o600)
        .file("open", "for all", 0o644)
        .file("shared", "for all", 0o666)
        .file("data/note", "x", 0o644)
        .file("tls.pem", pem, 0o644)
        .file("tls.key", key, 0o600)
        .config(&tls)
        .config("access_log = \"access.log\"\n")
        .config(LIMITS)
        .config(&routes(FOLDERS[0], ""));
    for (name, uid) in [
        ("users", uid(users.third)),
        ("servers", server),
        ("tls.key", starts),
        (".", starts),
    ] {
        own(&site, name, uid);
    }
    mode(&site, ".", 0o755);
    mode(&site, "shared", 0o666);
    mode(&site, "data", 0o777);
    fs::copy("/usr/bin/id", site.path("rooted")).unwrap();
    mode(&site, "rooted", 0o4755);
    site.waiting()
}

/// Starts a server that begins as root and becomes another user.
pub(super) fn by_root(users: Users<'_>) -> Server {
    let site = site(users, 0, uid(users.server));
    let site = programs(site, FOLDERS[1], uid(users.other));
    let site = programs(site, "third", uid(users.third));
    site.config(&format!("user = {:?}\n", users.server))
        .config(&routes(FOLDERS[1], &format!("user = {:?}\n", users.other)))
        .config(&format!(
            "[[route]]\npath = \"/third/\"\ncgi = \"third\"\nuser = {:?}\n",
            users.third
        ))
        .start()
}

/// Starts a server as an ordinary user.
pub(super) fn without_root(users: Users<'_>) -> Server {
    let id = uid(users.starts);
    let (user, group) = (format!("--reuid={id}"), format!("--regid={id}"));
    site(users, id, id)
        .through(&["setpriv", &user, &group, "--clear-groups"])
        .start()
}

/// Starts a server as root that stays root.
pub(super) fn all_root(users: Users<'_>) -> Server {
    site(users, 0, 0).start()
}
