//! The site that both servers serve.

use std::{
    fs,
    io::Write,
    os::unix::fs::chown,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, UNIX_EPOCH},
};

use flate2::{Compression, write::GzEncoder};
use galgo_testkit::{
    Beside, Server, Site,
    accounts::{Accounts, uid},
    file::chmod,
    stream,
};

use super::{
    Pair,
    answer::ERROR_PAGE,
    is_ours,
    programs::{
        ACCEL, APP, ECHO, FIRST, LEND, LIMITS, LONG, MEMBER, MOVED, PATH, PHP, PHP_APP, PHP_MOVED,
        PHP_SEND, SCGI, SCRIPT, SECURE, SEND, STATUS, TALK, TLS, VARS, WHO,
    },
    requests::Asked,
};
use crate::site::{needed, new_site};

/// Path of php-fpm's socket on the pages.
pub(super) const FPM: &str = "/run/php/php8.2-fpm.sock";

/// Value of a variable in the environment of both servers.
pub(super) const KEY: &str = "a key of the site";

const LARGE: usize = 100_000;

/// Names of accounts on the pages.
const USERS: [&str; 2] = ["alice", "bob"];

/// galgo, in a folder with all files that the pairs mention.
pub(super) struct Scene {
    pub(super) galgo: Server,
    accounts: Option<Accounts>,
    _pool: Option<Beside>,
}

impl Scene {
    /// Starts galgo with the translation of the pair.
    pub(super) fn new(pair: &Pair) -> Self {
        let site = filled();
        let accounts = pair.has_users().then(|| {
            let home = |name: &str| site.path(&format!("home/{name}"));
            let accounts = Accounts::new("galgo-m", 2, home);
            accounts.names().iter().for_each(|name| give(&site, name));
            refused(&site, &accounts);
            accounts
        });
        include(&site, pair);
        age(site.folder());
        let translation = named(accounts.as_ref(), &pair.translation);
        let site = if translation.contains("listen = ") {
            site.without_arguments()
        } else {
            site
        };
        let site = site.config(&anywhere(&translation));
        let site = match &accounts {
            Some(_) => site.defaults("start = \"cold\""),
            None => site,
        };
        let site = site.config("access_log = \"off\"\ndev_errors = false");
        let site = site.env("SITE_KEY", KEY);
        Self {
            _pool: pair.says(FPM).then(|| pool(&site)),
            galgo: site.start(),
            accounts,
        }
    }

    /// Returns the pair with the names of the test's accounts.
    pub(super) fn named(&self, pair: &Pair) -> Pair {
        let named = |text: &String| named(self.accounts.as_ref(), text);
        Pair {
            number: pair.number.clone(),
            original: named(&pair.original),
            command: pair.command.as_ref().map(named),
            units: named(&pair.units),
            translation: named(&pair.translation),
            files: pair.files.clone(),
        }
    }

    /// Returns the request with the names of the test's accounts.
    pub(super) fn asked(&self, request: Asked) -> Asked {
        let target = named(self.accounts.as_ref(), &request.target);
        Asked { target, ..request }
    }
}

fn named(accounts: Option<&Accounts>, text: &str) -> String {
    let names = accounts.map(Accounts::names).unwrap_or_default();
    let pairs = USERS.iter().zip(names);
    pairs.fold(text.to_owned(), |text, (user, name)| {
        text.replace(user, name)
    })
}

/// Starts php-fpm for both servers.
fn pool(site: &Site) -> Beside {
    let (folder, socket) = (site.folder().display(), site.path("fpm.sock"));
    // If the test runs as root, the pool runs as root.
    let text = format!(
        "[global]\nerror_log = {folder}/logs/fpm.log\n[pool]\nlisten = {}\nlisten.mode = 0666\n\
         pm = static\npm.max_children = 2\n",
        socket.display()
    );
    let file = site.write("pool.conf", text);
    let mut fpm = Command::new(needed("/usr/sbin/php-fpm8.2"));
    fpm.args(["-F", "-R", "-y"]).arg(file).stderr(Stdio::null());
    Beside::at(&mut fpm, &socket)
}

/// Returns a configuration with the test's own places: a free port, the socket of php-fpm.
fn anywhere(translation: &str) -> String {
    let usual = [
        ("0.0.0.0:443", "127.0.0.1:0"),
        ("0.0.0.0:80", "127.0.0.1:0"),
        (FPM, "fpm.sock"),
    ];
    let text = translation.to_owned();
    usual
        .iter()
        .fold(text, |text, (at, own)| text.replace(at, own))
}

/// Adds the files that galgo's configuration includes, and galgo's certificate.
fn include(site: &Site, pair: &Pair) {
    for (name, text) in pair.files.iter().filter(|(name, _)| is_ours(name)) {
        chmod(site.write(name, text), 0o644);
    }
    if pair.is_secure() {
        let own = stream::own();
        for (file, name) in [(&own.certificate, "site.pem"), (&own.key, "site.key")] {
            chmod(site.write(name, fs::read(file).unwrap()), 0o600);
        }
    }
}

/// Makes a site that belongs to root.
fn filled() -> Site {
    let site = new_site();
    for (name, content) in [
        ("public/index.html", "<p>index</p>\n"),
        ("public/404.html", ERROR_PAGE),
        ("public/errors/403.html", ERROR_PAGE),
        ("public/errors/404.html", ERROR_PAGE),
        ("public/a b.txt", "a space\n"),
        ("php/index.php", PHP_APP),
        ("php/app.php", PHP_APP),
        ("php/send.php", PHP_SEND),
        ("php/pic.png", "png"),
        ("app.py", SCGI),
        ("public/sub/a.png", "png"),
        ("public/sub/a.thing", "thing"),
        ("public/sub/index.html", "<p>sub</p>\n"),
        ("public/status", "fine"),
        ("private/a.txt", "secret\n"),
        ("gallery/one.png", "png"),
        ("gallery/a b.txt", "a space\n"),
        ("gallery/more/two.png", "png"),
        ("public/long.html", LONG),
        ("static/ready.html", LONG),
        ("static/other.html", LONG),
        ("static/a.css", LONG),
        ("blog/index.php", PHP),
        ("blog/post.php", PHP),
        ("blog/moved.php", PHP_MOVED),
        ("blog/pic.png", "png"),
        ("mixed/index.html", "<p>mixed</p>\n"),
        ("mixed/pic.png", "png"),
        ("www/a.example/public/index.html", "<p>a</p>\n"),
        ("www/b.example/public/index.html", "<p>b</p>\n"),
        ("notes/README", "read me\n"),
        ("notes/a.html", "<p>as text</p>\n"),
        ("vault/a.pdf", "a document\n"),
        (
            "public/pages/index.html",
            &*"<p>a line of a page</p>\n".repeat(200),
        ),
        (
            "public/pages/long.css",
            &*"p { color: black }\n".repeat(200),
        ),
        ("public/pages/a.png", "png"),
        ("scripts/index.php", SCRIPT),
        ("scripts/a.php", SCRIPT),
        ("scripts/style.css", "p { color: red }\n"),
        (
            "site.htpasswd",
            "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n",
        ),
        ("groups", "staff: bob carol\n"),
    ] {
        chmod(site.write(name, content), 0o644);
    }
    let mut ready = GzEncoder::new(Vec::new(), Compression::best());
    ready.write_all(LONG.as_bytes()).unwrap();
    chmod(
        site.write("static/ready.html.gz", ready.finish().unwrap()),
        0o644,
    );
    site.write("public/large.bin", vec![b'x'; LARGE]);
    site.write("public/long.txt", "a line of text\n".repeat(200));
    for name in ["empty", "logs"] {
        fs::create_dir_all(site.path(name)).unwrap();
    }
    programs(&site);
    site
}

/// Adds the programs.
fn programs(site: &Site) {
    for (name, text) in [
        ("cgi-bin/app", APP),
        ("cgi-bin/status", STATUS),
        ("cgi-bin/moved", MOVED),
        ("cgi-bin/oops", APP),
        ("cgi-bin/accel", ACCEL),
        ("cgi-bin/secure", SECURE),
        ("cgi-bin/first", FIRST),
        ("cgi-bin/member", MEMBER),
        ("cgi-bin/lend", LEND),
        ("mixed/app.cgi", APP),
        ("cgi-bin/vars", VARS),
        ("cgi-bin/send", SEND),
        ("cgi-bin/tls", TLS),
        ("cgi-bin/talk", TALK),
        ("cgi-bin/echo", ECHO),
        ("www/a.example/cgi-bin/app", APP),
    ] {
        chmod(site.write(name, text), 0o755);
    }
}

/// Gives an account files, programs, and a home.
fn give(site: &Site, name: &str) {
    let who = format!("{APP}{WHO}");
    for (file, content, mode) in [
        ("public/index.html", "<p>own</p>\n", 0o644),
        ("public/app.cgi", &*who, 0o755),
        ("cgi-bin/app", &*who, 0o755),
        ("cgi-bin/path", PATH, 0o755),
        ("cgi-bin/limits", LIMITS, 0o755),
        ("cgi-bin/status", STATUS, 0o755),
        ("cgi-bin/moved", MOVED, 0o755),
    ] {
        let path = site.write(&format!("{name}/{file}"), content);
        chmod(path, mode);
    }
    for (file, content, mode) in [
        ("index.html", "<p>home</p>\n", 0o644),
        ("cgi-bin/app", &*who, 0o755),
    ] {
        let path = site.write(&format!("home/{name}/public_html/{file}"), content);
        chmod(path, mode);
    }
    let uid = uid(name);
    own(&site.path(name), uid);
    own(&site.path(&format!("home/{name}")), uid);
}

/// Gives a file, or a folder with its whole content, to a user.
fn own(path: &Path, uid: u32) {
    chown(path, Some(uid), Some(uid)).unwrap();
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        entries.for_each(|entry| own(&entry.unwrap().path(), uid));
    }
}

/// Adds programs of the first account that suexec refuses to run.
fn refused(site: &Site, accounts: &Accounts) {
    let [alice, bob] = [0, 1].map(|n| &*accounts.names()[n]);
    for (name, user, mode) in [
        ("writable", alice, 0o775),
        ("strange", bob, 0o755),
        ("setuid", alice, 0o4755),
        ("open/app", alice, 0o755),
    ] {
        let path = site.write(&format!("{alice}/cgi-bin/{name}"), APP);
        own(&path, uid(user));
        chmod(&path, mode);
    }
    let open = site.path(&format!("{alice}/cgi-bin/open"));
    chown(&open, Some(uid(alice)), Some(uid(alice))).unwrap();
    chmod(open, 0o777);
}

/// Makes all files old: to some servers, the version of a file that has just changed is a weak validator.
fn age(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            age(&entry.path());
        } else {
            let file = fs::File::open(entry.path()).unwrap();
            let long_ago = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            file.set_modified(long_ago).unwrap();
        }
    }
}
