//! Passwords of routes: Basic authentication with an htpasswd file.

pub mod fail2ban;

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::harness::{list, new_site, watch::Watch};
use galgo_testkit::{Client, Reply, Server, Site, wait_until};

list![
    who_comes_in_and_who_does_not,
    what_programs_and_logs_are_told,
    no_spelling_leads_round_a_password,
    a_failure_waits_and_is_logged,
    a_failure_with_a_page_is_one_failure,
    an_address_that_tries_passwords_waits_for_itself,
    a_password_that_changes,
    the_file_is_never_served,
    over_http2,
    the_command_line_sets_passwords,
    wrong_configurations_are_named,
];

const FILE: &str = "\
ada:$2y$05$24lW8A7dOzsf9qZZCQsBT.m9ScqVK9QTiO2UyklS4gMhvP9v2nqlS
bob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/
eve:$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.
old:rqXexS6ZhobKA
";

const ROUTES: &str = r#"
[[route]]
path = "/in/"
cgi = "cgi-bin"
passwords = "site.htpasswd"
require = ["ada", "@staff"]
groups = { staff = ["bob"] }
[[route]]
path = "/kept/"
files = "kept"
passwords = "site.htpasswd"
realm = "Kept things"
"#;

fn site() -> Site {
    new_site()
        .file("kept/a.txt", "secret", 0o644)
        .file("kept/sub/b.txt", "secret", 0o644)
        .file("site.htpasswd", FILE, 0o640)
        .config(ROUTES)
}

/// Returns `user:password` in Base64.
fn token(pair: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let piece = |three: &[u8]| {
        let bits = (0..3).fold(0, |bits, i| {
            bits << 8 | usize::from(*three.get(i).unwrap_or(&0))
        });
        let letter = |i: usize| {
            if i <= three.len() {
                char::from(LETTERS[bits >> (18 - 6 * i) & 63])
            } else {
                '='
            }
        };
        (0..4).map(letter).collect::<String>()
    };
    pair.as_bytes().chunks(3).map(piece).collect()
}

fn request(target: &str, pair: &str) -> String {
    let field = match pair {
        "" => String::new(),
        pair => format!("Authorization: Basic {}\r\n", token(pair)),
    };
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n")
}

fn ask(server: &Server, target: &str, pair: &str) -> Reply {
    server.ask(request(target, pair))
}

fn who_comes_in_and_who_does_not() {
    let server = site().start();
    let watch = Watch::begin(&server);
    for (target, pair, status) in [
        ("/kept/a.txt", "ada:secret", 200),
        ("/kept/a.txt", "bob:secret", 200),
        ("/kept/a.txt", "eve:secret", 200),
        ("/kept/a.txt", "", 401),
        ("/kept/none", "", 401),
        ("/kept", "", 401),
        ("/kept/a.txt", "ada:Secret", 401),
        ("/kept/a.txt", "ada:", 401),
        ("/kept/a.txt", "Ada:secret", 401),
        ("/kept/a.txt", "old:secret", 401),
        ("/kept/a.txt", "nobody:secret", 401),
        ("/in/t?head", "ada:secret", 200),
        ("/in/t?head", "bob:secret", 200),
        // The password is right, but the route does not list this user.
        ("/in/t?head", "eve:secret", 401),
    ] {
        let reply = ask(&server, target, pair);
        assert_eq!(reply.status, status, "{target} {pair}");
        let realm = if target.starts_with("/kept") {
            "Basic realm=\"Kept things\", charset=\"UTF-8\""
        } else {
            "Basic realm=\"restricted\", charset=\"UTF-8\""
        };
        let challenge = reply.field("www-authenticate");
        assert_eq!(
            challenge,
            (status == 401).then_some(realm),
            "{target} {pair}"
        );
        assert_eq!(
            reply.text().contains("secret"),
            status == 200 && target.starts_with("/kept")
        );
    }
    // Two Authorization fields count as no password.
    let field = format!("Authorization: Basic {}\r\n", token("ada:secret"));
    let twice = format!("GET /kept/a.txt HTTP/1.1\r\nHost: a\r\n{field}{field}\r\n");
    assert_eq!(server.ask(twice).status, 401);
    let post = "POST /kept/a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(server.ask(post).status, 401);
    let denied = "client_error";
    watch.after(&[
        "ok", "ok", "ok", denied, denied, denied, denied, denied, denied, denied, denied, "ok",
        "ok", denied, denied, denied,
    ]);
}

fn what_programs_and_logs_are_told() {
    let passing = "[[route]]\npath = \"/passed/\"\ncgi = \"cgi-bin\"\npasswords = \"site.htpasswd\"\npass_authorization = true";
    let server = site().config(passing).start();
    let text = ask(&server, "/in/t?head&env", "ada:secret").text();
    for line in ["REMOTE_USER=ada", "AUTH_TYPE=Basic"] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.contains("AUTHORIZATION"), "{text}");
    let text = ask(&server, "/passed/t?head&env", "ada:secret").text();
    assert!(
        text.contains("HTTP_AUTHORIZATION=Basic YWRhOnNlY3JldA=="),
        "{text}"
    );
    // A local redirect is a request of its own: a grant for another path does not apply here.
    let text = ask(
        &server,
        "/in/t?out=Location:%20/cgi-bin/t%3Fhead%26env%0A%0A",
        "ada:secret",
    )
    .text();
    assert!(!text.contains("REMOTE_USER"), "{text}");
    wait_until("the log", || server.access().len() >= 4);
    let users: Vec<_> = server
        .access()
        .iter()
        .map(|line| line["user"].clone())
        .collect();
    assert!(users.iter().any(|user| user == "ada"), "{users:?}");
    assert!(
        !server.errors().contains("password failed"),
        "{}",
        server.errors()
    );
}

/// RFC 3986, 6: for every spelling of the path, a route with a password answers, or the file is not found.
fn no_spelling_leads_round_a_password() {
    let server = site().start();
    for target in [
        "//kept/a.txt",
        "/kept//a.txt",
        "/%6bept/a.txt",
        "/kept/%61.txt",
        "/x/../kept/a.txt",
        "/x/%2e%2e/kept/a.txt",
        "/./kept/./a.txt",
        "/kept/sub/../a.txt",
        "/kept/a.txt/",
        "/kept/a.txt/info",
        "/kept/a.txt;x",
        "/kept;/a.txt",
        "/KEPT/a.txt",
        "/kept%2fa.txt",
        "/kept/a.txt?x",
        "/kept",
        "http://b/kept/a.txt",
        "/in/t/info?head",
        "/in//t?head",
        "/in/t;x?head",
        "/in/t%20?head",
    ] {
        let reply = ask(&server, target, "");
        let shut = matches!(reply.status, 400 | 401 | 404);
        assert!(
            shut && !reply.text().contains("secret"),
            "{target}: {}",
            reply.status
        );
    }
}

fn a_failure_waits_and_is_logged() {
    let server = site().start();
    for (pair, why) in [
        ("ada:wrong", "wrong password: \"ada\""),
        (
            "nobody from 203.0.113.9:x",
            "there is no such user: \"nobody from 203.0.113.9\"",
        ),
    ] {
        let begun = Instant::now();
        assert_eq!(ask(&server, "/in/t", pair).status, 401);
        assert!(begun.elapsed() >= Duration::from_secs(1), "{pair}");
        server.says(&format!("password failed for 127.0.0.1: {why}"));
    }
    // A request without a password is no failure.
    let before = server.errors().matches("password failed").count();
    assert_eq!(ask(&server, "/in/t", "").status, 401);
    assert_eq!(server.errors().matches("password failed").count(), before);
}

/// The page for the 401 needs the same password, for example if a password protects the whole site.
fn a_failure_with_a_page_is_one_failure() {
    let server = site()
        .file("kept/401.html", "who are you?", 0o644)
        .config("errors = { 401 = \"/kept/401.html\" }")
        .start();
    for pair in ["ada:wrong", "bob:wrong"] {
        assert_eq!(ask(&server, "/kept/a.txt", pair).status, 401);
    }
    server.says("wrong password: \"bob\"");
    let failed = server.errors().matches("password failed").count();
    assert_eq!(failed, 2, "{}", server.errors());
    let page = ask(&server, "/kept/401.html", "ada:secret");
    assert_eq!(page.text(), "who are you?");
}

fn an_address_that_tries_passwords_waits_for_itself() {
    let server = site().start();
    assert_eq!(ask(&server, "/kept/a.txt", "ada:secret").status, 200);
    let begun = Instant::now();
    let wrong: Vec<_> = (0..3)
        .map(|n| {
            let mut client = server.connect();
            client.send(request("/kept/a.txt", &format!("ada:wrong{n}")));
            client
        })
        .collect();
    // A password that galgo remembers is checked without a wait.
    assert_eq!(ask(&server, "/kept/a.txt", "ada:secret").status, 200);
    let all: Vec<_> = wrong
        .into_iter()
        .map(|mut client: Client| client.reply().status)
        .collect();
    assert_eq!(all, [401; 3]);
    assert!(begun.elapsed() >= Duration::from_secs(3));
}

fn a_password_that_changes() {
    let server = site().start();
    let get = |pair: &str| ask(&server, "/kept/a.txt", pair).status;
    assert_eq!(get("ada:secret"), 200);
    let file = server.path("site.htpasswd");
    std::fs::write(&file, "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfR=\n").unwrap();
    assert_eq!((get("ada:secret"), get("bob:secret")), (401, 401));
    std::fs::write(&file, "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").unwrap();
    assert_eq!(get("ada:secret"), 200);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(get("ada:secret"), 500);
    server.says("passwords: ");
    std::fs::write(&file, FILE).unwrap();
    assert_eq!(get("bob:secret"), 200);
    // The password file grows to ten megabytes of users.
    let many: String = (0..180_000)
        .map(|n| format!("u{n}:{{SHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=xxxxxxxxxxxxx\n"))
        .collect();
    std::fs::write(&file, many + FILE).unwrap();
    assert_eq!(get("eve:secret"), 200);
}

fn the_file_is_never_served() {
    let server = new_site()
        .file("public/other.htpasswd", FILE, 0o644)
        .file("public/.hidden/site.htpasswd", FILE, 0o644)
        .file("public/x.htpasswd~", FILE, 0o644)
        .config("[[route]]\npath = \"/in/\"\nfiles = \"public\"\npasswords = \"public/.hidden/site.htpasswd\"")
        .start();
    for (target, status) in [
        ("/other.htpasswd", 403),
        ("/x.htpasswd~", 403),
        ("/.hidden/site.htpasswd", 404),
        ("/.hidden//site.htpasswd", 404),
    ] {
        let reply = server.get(target);
        assert_eq!(reply.status, status, "{target}");
        assert!(!reply.text().contains("$2y$"));
    }
}

fn over_http2() {
    let server = site()
        .arguments(&["-l", "127.0.0.1:0", "-l", "h2c+127.0.0.1:0"])
        .start();
    let at = server.listener(1).strip_prefix("h2c+").unwrap().to_owned();
    let status = |user: &str| {
        let out = Command::new("curl")
            .args([
                "-s",
                "--http2-prior-knowledge",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code} %{http_version}",
                "-u",
                user,
            ])
            .arg(format!("http://{at}/kept/a.txt"))
            .output();
        String::from_utf8(out.unwrap().stdout).unwrap()
    };
    assert_eq!(status("ada:secret"), "200 2");
    assert_eq!(status("ada:other"), "401 2");
}

fn the_command_line_sets_passwords() {
    let site = site();
    let set = |args: &[&str], password: &str| {
        let mut command = site.command(&[&["passwd", "site.htpasswd"], args].concat());
        galgo_testkit::Done::of(&mut command, password.as_bytes())
    };
    let server = site.clone().start();
    let get = |pair: &str| ask(&server, "/kept/a.txt", pair).status;
    assert_eq!(get("ada:secret"), 200);
    for (args, password) in [
        (&["ada"][..], "n\u{e9}w"),
        (&["new", "--argon2"], "longer and longer"),
    ] {
        let done = set(args, &format!("{password}\n"));
        assert!(done.code == 0, "{done:?}");
        assert_eq!(get(&format!("{}:{password}", args[0])), 200);
    }
    assert_eq!(get("ada:secret"), 401);
    let file = std::fs::read_to_string(site.path("site.htpasswd")).unwrap();
    let names: Vec<_> = file.lines().map(|l| l.split(':').next().unwrap()).collect();
    assert_eq!(names, ["ada", "bob", "eve", "old", "new"]);
    assert!(
        file.contains("ada:$2y$10$") && file.contains("new:$argon2id$"),
        "{file}"
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(site.path("site.htpasswd"))
            .unwrap()
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o640);
    assert!(set(&["ada", "--delete"], "").code == 0);
    assert_eq!(get("ada:n\u{e9}w"), 401);
    for (args, password, words) in [
        (&["ada", "--delete"][..], "", "has no user \"ada\""),
        (&["a:b"], "x\n", "is not the name of a user"),
        (&["ada"], "\n", "the password is empty"),
        (&["ada"], &"x".repeat(73), "--argon2"),
    ] {
        let done = set(args, password);
        assert!(done.code != 0);
        assert!(done.err.contains(words), "{words}: {done:?}");
    }
    let left: Vec<_> = std::fs::read_dir(site.folder())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".site")),
        "{left:?}"
    );
}

fn wrong_configurations_are_named() {
    let check = |keys: &str| {
        let site =
            new_site()
                .file("site.htpasswd", FILE, 0o640)
                .file("public/open.htpasswd", FILE, 0o640);
        let toml = format!(
            "[[route]]\npath = \"/in/\"\ncgi = \"cgi-bin\"\n{keys}\n[[route]]\npath = \"/\"\nfiles = \"public\"\n"
        );
        site.write("galgo.toml", toml);
        let done = site.galgo(&["check"]);
        format!("{}{}", done.out, done.err)
    };
    for (keys, words) in [
        ("passwords = \"none\"", "none does not exist"),
        ("realm = \"a\"", "realm: needs `passwords` beside it"),
        (
            "passwords = \"site.htpasswd\"\nrealm = \"a\\\"b\"",
            "realm: holds visible ASCII",
        ),
        (
            "passwords = \"site.htpasswd\"\nrequire = [\"@staff\"]",
            "group \"staff\" is not defined",
        ),
        (
            "passwords = \"site.htpasswd\"\nrequire = [\"a:b\"]",
            "is not the name of a user",
        ),
        (
            "passwords = \"public/open.htpasswd\"",
            "everybody could read it",
        ),
        (
            "passwords = \"site.htpasswd\"",
            "line 2: the hash of \"bob\" is weak",
        ),
        (
            "passwords = \"site.htpasswd\"",
            "line 4: galgo does not support the hash of \"old\"",
        ),
        (
            "passwords = \"site.htpasswd\"\nrequire = [\"zoe\"]",
            "has no user \"zoe\"",
        ),
    ] {
        let said = check(keys);
        assert!(said.contains(words), "{keys}: {said}");
    }
}
