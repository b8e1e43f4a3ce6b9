//! The site that both sides serve.

use std::{
    fs,
    os::unix::fs::chown,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use galgo_testkit::{
    Server, Site,
    accounts::{Accounts, uid},
    file::chmod,
};

use super::{Pair, answer::ERROR_PAGE, requests::Asked};
use crate::site::new_site;

/// Prints what a program is told that does not depend on the server.
const APP: &str = "#!/bin/sh\n\
printf 'Content-Type: text/plain\\nX-Powered-By: sh\\n\\n'\n\
for name in REQUEST_METHOD QUERY_STRING PATH_INFO SCRIPT_NAME REMOTE_ADDR SITE_NAME HTTP_X_TEST HTTP_COOKIE; do\n\
  eval \"printf '%s=%s\\n' $name \\\"\\$$name\\\"\"\n\
done\n\
case $REQUEST_METHOD in P*) echo $CONTENT_LENGTH; cat;; esac\n";

/// Answers with a status of its own.
const STATUS: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Status: 404 Not Found\\nContent-Type: text/plain\\nCache-Control: no-store\\n\\nmine\\n'\n";

/// Sends the client elsewhere.
const MOVED: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Status: 302 Found\\nLocation: http://elsewhere.example/x\\n\\n'\n";

/// Has the server send a file, or one that is not there.
const SEND: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\nX-Powered-By: sh\\nX-Sendfile: %s/private%s\\n\\n' \"${PWD%/*}\" \"${PATH_INFO:-/a.txt}\"\n";

/// Prints what a PHP program is told that does not depend on the server.
const PHP: &str = "<?php\nheader('Content-Type: text/plain');\n\
foreach (['REQUEST_METHOD', 'QUERY_STRING', 'PATH_INFO', 'SCRIPT_NAME', 'PHP_SELF', 'REMOTE_ADDR', 'HTTP_X_TEST', 'HTTP_COOKIE'] as $name)\n\
  echo \"$name=\", $_SERVER[$name] ?? '', \"\\n\";\n\
print_r($_GET); print_r($_POST); print_r($_COOKIE);\n";

/// The same of PHP.
const PHP_SEND: &str = "<?php\nheader('Content-Type: text/plain');\n\
header('X-Sendfile: ' . dirname(__DIR__) . ($_SERVER['QUERY_STRING'] == 'none' ? '/private/none' : '/private/a.txt'));\n";

/// An application that speaks SCGI on a Unix socket, and prints what it is told.
const SCGI: &str = include_str!("scgi.py");

const LARGE: usize = 100_000;

/// Prints who runs it, and where; a program of an account.
const WHO: &str = "id -un; id -gn; umask; basename \"$PWD\"; echo \"$REMOTE_USER $AUTH_TYPE\"\n";

/// What programs of suexec find.
const PATH: &str =
    "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\n\\n%s\\n' \"$PATH\"\n";

/// What stands for accounts on the pages.
const USERS: [&str; 2] = ["alice", "bob"];

/// galgo, in a folder with everything that the pairs speak of.
pub(super) struct Scene {
    pub(super) galgo: Server,
    accounts: Option<Accounts>,
}

impl Scene {
    /// Starts galgo as the pair says.
    pub(super) fn new(pair: &Pair) -> Self {
        let site = filled();
        let accounts = pair.has_users().then(|| {
            let home = |name: &str| site.path(&format!("home/{name}"));
            let accounts = Accounts::new("galgo-m", 2, home);
            accounts.names().iter().for_each(|name| give(&site, name));
            refused(&site, &accounts);
            accounts
        });
        for (name, text) in &pair.files {
            let text = text.replace("/srv/site", site.folder().to_str().unwrap());
            site.write(name, text);
        }
        age(site.folder());
        let site = site.config(&named(accounts.as_ref(), &pair.translation));
        let site = match &accounts {
            Some(_) => site.defaults("start = \"cold\""),
            None => site,
        };
        let galgo = site.config("access_log = \"off\"\ndev_errors = false");
        Self {
            galgo: galgo.start(),
            accounts,
        }
    }

    /// The pair, with the accounts that there are.
    pub(super) fn named(&self, pair: &Pair) -> Pair {
        let named = |text: &String| named(self.accounts.as_ref(), text);
        Pair {
            number: pair.number.clone(),
            original: named(&pair.original),
            command: pair.command.as_ref().map(named),
            translation: named(&pair.translation),
            files: pair.files.clone(),
        }
    }

    /// The request, likewise.
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

/// A site that belongs to root.
fn filled() -> Site {
    let site = new_site();
    for (name, content) in [
        ("public/index.html", "<p>index</p>\n"),
        ("public/404.html", ERROR_PAGE),
        ("public/errors/403.html", ERROR_PAGE),
        ("public/errors/404.html", ERROR_PAGE),
        ("public/a b.txt", "a space\n"),
        ("php/index.php", PHP),
        ("php/app.php", PHP),
        ("php/send.php", PHP_SEND),
        ("php/pic.png", "png"),
        ("app.py", SCGI),
        ("public/sub/a.png", "png"),
        ("public/sub/a.thing", "thing"),
        ("public/sub/index.html", "<p>sub</p>\n"),
        ("public/status", "fine"),
        ("private/a.txt", "secret\n"),
        ("mixed/index.html", "<p>mixed</p>\n"),
        ("mixed/pic.png", "png"),
        ("www/a.example/public/index.html", "<p>a</p>\n"),
        ("www/b.example/public/index.html", "<p>b</p>\n"),
        (
            "site.htpasswd",
            "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n",
        ),
        ("groups", "staff: bob carol\n"),
    ] {
        chmod(site.write(name, content), 0o644);
    }
    site.write("public/large.bin", vec![b'x'; LARGE]);
    site.write("public/long.txt", "a line of text\n".repeat(200));
    fs::create_dir_all(site.path("empty")).unwrap();
    for (name, text) in [
        ("cgi-bin/app", APP),
        ("cgi-bin/status", STATUS),
        ("cgi-bin/moved", MOVED),
        ("cgi-bin/oops", APP),
        ("cgi-bin/send", SEND),
        ("mixed/app.cgi", APP),
    ] {
        chmod(site.write(name, text), 0o755);
    }
    site
}

/// Gives an account files, programs, and a home.
fn give(site: &Site, name: &str) {
    let who = format!("{APP}{WHO}");
    for (file, content, mode) in [
        ("public/index.html", "<p>own</p>\n", 0o644),
        ("cgi-bin/app", &*who, 0o755),
        ("cgi-bin/path", PATH, 0o755),
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

/// Gives a file, or a folder with all that is in it, to a user.
fn own(path: &Path, uid: u32) {
    chown(path, Some(uid), Some(uid)).unwrap();
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        entries.for_each(|entry| own(&entry.unwrap().path(), uid));
    }
}

/// Adds programs of the first account that are not to be run.
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

/// Makes all files older than a moment: the version of a file that has just changed is a weak one to some servers.
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
