//! Access rules: which clients may ask, by address, method and host, with passwords or without.

use crate::harness::{
    check_refuses, list, new_site,
    upstream::{Application, ended, hear, say, stdout},
};
use galgo_proto::fcgi::Outcome;
use galgo_testkit::{Client, Server, Site};

list![
    by_address,
    by_method,
    with_passwords,
    no_spelling_leads_round_a_rule,
    no_index_leads_round_a_rule,
    no_index_script_leads_round_a_rule,
    who_is_behind_a_proxy,
    wrong_configurations_are_named,
];

fn site() -> Site {
    new_site()
        .file("kept/a.txt", "secret", 0o644)
        .file("kept/sub/b.txt", "secret", 0o644)
        .file(
            "site.htpasswd",
            "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n",
            0o640,
        )
}

fn route(path: &str, keys: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nfiles = \"kept\"\n{keys}\n")
}

fn status(server: &Server, from: [u8; 4], request: &str) -> u16 {
    let mut client = Client::connect_from(from, server.address());
    client.send(request);
    client.reply().status
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn by_address() {
    let server = site()
        .config(&route(
            "/one/",
            "access = { allow = [\"127.0.0.2\", \"::1\"] }",
        ))
        .config(&route(
            "/net/",
            "access = { allow = [\"127.1.0.0/16\"], deny = [\"127.1.2.0/24\"] }",
        ))
        .config(&route("/not/", "access = { deny = [\"127.0.0.9\"] }"))
        .config(&route(
            "/none/",
            "access = { deny = [\"all\"], allow = [\"all\"] }",
        ))
        .config(&route("/unix/", "access = { allow = [\"unix\"] }"))
        .start();
    for (path, from, wanted) in [
        ("/one/a.txt", [127, 0, 0, 2], 200),
        ("/one/a.txt", [127, 0, 0, 3], 403),
        ("/one/none", [127, 0, 0, 3], 403),
        ("/one", [127, 0, 0, 3], 403),
        ("/net/a.txt", [127, 1, 1, 1], 200),
        ("/net/a.txt", [127, 1, 2, 1], 403),
        ("/net/a.txt", [127, 2, 1, 1], 403),
        ("/not/a.txt", [127, 0, 0, 8], 200),
        ("/not/a.txt", [127, 0, 0, 9], 403),
        ("/none/a.txt", [127, 0, 0, 1], 403),
        ("/unix/a.txt", [127, 0, 0, 1], 403),
    ] {
        assert_eq!(status(&server, from, &get(path)), wanted, "{path} {from:?}");
    }
}

fn by_method() {
    let server = site()
        .config("[[route]]\npath = \"/in/\"\ncgi = \"cgi-bin\"\naccess = { methods = [\"GET\", \"PURGE\"] }")
        .start();
    for (method, wanted) in [
        ("GET", 200),
        ("PURGE", 200),
        ("POST", 405),
        ("get", 405),
        ("OPTIONS", 405),
        ("DELETE", 405),
    ] {
        let reply = server.ask(format!("{method} /in/t?head HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(reply.status, wanted, "{method}");
        let allow = reply.field("allow");
        assert_eq!(
            allow,
            (wanted == 405).then_some("GET, PURGE, HEAD"),
            "{method}"
        );
    }
    server.says("405 for 127.0.0.1: `access` of the route does not name this method");
    let mut client = server.connect();
    client.send("HEAD /in/t?head HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply_to("HEAD").status, 200);
}

fn with_passwords() {
    let all = "passwords = \"site.htpasswd\"\naccess = { allow = [\"127.0.0.2\"] }";
    let any = "passwords = \"site.htpasswd\"\naccess = { allow = [\"127.0.0.2\"], deny = [\"127.0.0.7\"], satisfy = \"any\" }";
    let server = site()
        .config(&route("/all/", all))
        .config(&route("/any/", any))
        .start();
    let shown = "Authorization: Basic YWRhOnNlY3JldA==\r\n";
    for (path, from, field, wanted) in [
        ("/all/a.txt", [127, 0, 0, 2], shown, 200),
        ("/all/a.txt", [127, 0, 0, 2], "", 401),
        ("/all/a.txt", [127, 0, 0, 3], shown, 403),
        ("/any/a.txt", [127, 0, 0, 2], "", 200),
        ("/any/a.txt", [127, 0, 0, 3], shown, 200),
        ("/any/a.txt", [127, 0, 0, 3], "", 401),
        // A client whose address is denied is not let in by a password.
        ("/any/a.txt", [127, 0, 0, 7], shown, 403),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        assert_eq!(
            status(&server, from, &request),
            wanted,
            "{path} {from:?} {field}"
        );
    }
}

fn no_spelling_leads_round_a_rule() {
    let server = site()
        .config(&route("/kept/", "access = { deny = [\"all\"] }"))
        .config("[[route]]\npath = \"/in/\"\ncgi = \"cgi-bin\"\naccess = { deny = [\"all\"] }")
        .start();
    for target in [
        "/kept/a.txt",
        "//kept/a.txt",
        "/kept//a.txt",
        "///kept///sub///b.txt",
        "/%6bept/a.txt",
        "/%6B%65%70%74/%61.txt",
        "/x/../kept/a.txt",
        "/x/%2e%2e/kept/a.txt",
        "/x/.%2E/kept/a.txt",
        "/./kept/./a.txt",
        "/kept/sub/../a.txt",
        "/kept/a.txt/",
        "/kept/a.txt/info",
        "/kept/a.txt;x=1",
        "/kept;x/a.txt",
        "/KEPT/a.txt",
        "/kept%2fa.txt",
        "/kept%5ca.txt",
        "/kept\\a.txt",
        "/kept/a.txt%20",
        "/kept/a.txt.",
        "/kept/a.txt?",
        "/kept",
        "http://b/kept/a.txt",
        "/in/t?head",
        "/in/t/info?head",
        "/in//t?head",
        "/in/t//?head",
        "/in/./t?head",
        "/in/t;x?head",
    ] {
        let reply = server.get(target);
        assert!(
            matches!(reply.status, 400 | 403 | 404),
            "{target}: {}",
            reply.status
        );
        assert!(!reply.text().contains("secret"), "{target}");
    }
}

/// An index file that is served for its folder follows the rules of its own path, in whichever route they stand.
fn no_index_leads_round_a_rule() {
    let server = site()
        .file("kept/index.html", "secret", 0o644)
        .file("kept/open/index.html", "for all", 0o644)
        .file("kept/exact/index.html", "secret", 0o644)
        .file("www/a.example/public/kept/index.html", "secret", 0o644)
        .config("sites = \"www\"")
        .config(&route("/by/", ""))
        .config(&route("/by/*.html", "passwords = \"site.htpasswd\""))
        .config("[[route]]\npath = \"/by/exact/index.html\"\nrespond = { status = 403 }")
        .config(&route("/hosts/", ""))
        .config(&route(
            "/hosts/*.html",
            "host = \"b\"\naccess = { deny = [\"all\"] }",
        ))
        .config(&route("/kept/*.html", "access = { deny = [\"all\"] }"))
        .start();
    let shown = "Authorization: Basic YWRhOnNlY3JldA==\r\n";
    for (path, host, field, wanted) in [
        ("/by/index.html", "a", "", 401),
        ("/by/", "a", "", 401),
        ("/by/", "a", "Range: bytes=0-3\r\n", 401),
        ("/by/", "a", shown, 200),
        // The rule `/by/*.html` is for files of that folder, not for files of the folders below.
        ("/by/open/", "a", "", 200),
        ("/by/exact/", "a", shown, 403),
        ("/hosts/", "a", "", 200),
        ("/hosts/", "b", "", 403),
        ("/hosts/", "a", "", 200),
        ("/kept/index.html", "a.example", "", 403),
        ("/kept/", "a.example", "", 403),
    ] {
        let reply = server.ask(format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n"
        ));
        assert_eq!(reply.status, wanted, "{path} {host} {field}");
        let secret = reply.text().contains("secret");
        assert!(wanted == 200 || !secret, "{path} {host} {field}");
    }
    for (path, wanted) in [("/by/", "401"), ("/hosts/", "200")] {
        let said = server.site.galgo(&["check", "--url", path]).out;
        assert!(said.contains(wanted), "{path}: {said}");
    }
}

fn no_index_script_leads_round_a_rule() {
    const SCRIPTS: &str = "fastcgi = \"unix:app.sock\"\nroot = \"scripts\"\nscripts = [\".php\"]";
    let route = |path: &str, root: &str, keys: &str| {
        let scripts = SCRIPTS.replace("\"scripts\"", &format!("\"{root}\""));
        format!("[[route]]\npath = \"{path}\"\n{scripts}\n{keys}\n")
    };
    let site = site()
        .file("scripts/index.php", "", 0o644)
        .file("scripts/shut/index.php", "", 0o644)
        .config(&route("/app/", "scripts", ""))
        .config(&route(
            "/app/shut/*.php",
            "scripts/shut",
            "access = { deny = [\"all\"] }",
        ));
    let _application = Application::start(site.folder(), |_, stream| {
        let heard = hear(stream).unwrap();
        let script = heard.param("SCRIPT_NAME").unwrap_or_default();
        let text = format!("Content-Type: text/plain\n\n{script}");
        let end = ended(Outcome::COMPLETE);
        say(stream, [stdout(&text), stdout(""), end].concat());
    });
    let server = site.start();
    for (target, status) in [
        ("/app/index.php", 200),
        ("/app/", 200),
        ("/app/shut/index.php", 403),
        ("/app/shut/", 403),
        ("/app/shut/?x", 403),
    ] {
        let reply = server.get(target);
        assert_eq!(reply.status, status, "{target}");
        let ran = reply.text() == "/app/index.php";
        assert_eq!(ran, status == 200, "{target}: {}", reply.text());
    }
}

fn who_is_behind_a_proxy() {
    let rule = route("/kept/", "access = { allow = [\"203.0.113.0/24\"] }");
    let ask = |server: &Server, from: &str| {
        let field = format!("X-Forwarded-For: {from}\r\n");
        let request = format!("GET /kept/a.txt HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        server.ask(request).status
    };
    let alone = site().config(&rule).start();
    assert_eq!(ask(&alone, "203.0.113.7"), 403);
    let behind = site()
        .config("trusted_proxies = [\"127.0.0.1\"]")
        .config(&rule)
        .start();
    assert_eq!(ask(&behind, "203.0.113.7"), 200);
    assert_eq!(ask(&behind, "203.0.113.7, 198.51.100.1"), 403);
}

fn wrong_configurations_are_named() {
    for (keys, words) in [
        (
            "access = { allow = [\"10.0.0.0/33\"] }",
            "is not a block of IP addresses",
        ),
        (
            "access = { allow = [\"example.org\"] }",
            "is not a block of IP addresses",
        ),
        ("access = { allow = [] }", "allow: names no address"),
        ("access = { methods = [\"get\"] }", "is no method"),
        (
            "access = { satisfy = \"any\" }",
            "needs `allow`, and `passwords`",
        ),
        (
            "access = { satisfy = \"some\" }",
            "is neither \"all\" nor \"any\"",
        ),
        ("access = { alow = [\"all\"] }", "did you mean \"allow\"?"),
    ] {
        let site = site();
        check_refuses(&site, &route("/", keys), words);
    }
}
