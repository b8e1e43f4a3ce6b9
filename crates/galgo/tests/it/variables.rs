//! Variables from elsewhere: `pass_env`, `env_file`.

use std::fs;

use crate::harness::{check_refuses, list, new_site};

list![
    they_reach_programs,
    a_file_is_read_again_with_the_configuration,
    no_secret_is_shown,
    wrong_configurations_are_named,
    rules_set_variables,
    rules_are_not_fields,
];

const FILE: &str = "# of the database\n\nDB_PASSWORD=o'so \"secret\" = # 1\n  TOKEN=\n";

fn they_reach_programs() {
    let server = new_site()
        .env("GALGO_PASSED", "on it goes")
        .env("GALGO_KEPT", "not this one")
        .file("secrets.env", FILE, 0o600)
        .config("[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nenv = { OWN = \"1\" }\npass_env = [\"GALGO_PASSED\", \"GALGO_MISSING\"]\nenv_file = \"secrets.env\"")
        .start();
    let text = server.get("/cgi-bin/t?head&env").text();
    for line in [
        "OWN=1",
        "GALGO_PASSED=on it goes",
        "DB_PASSWORD=o'so \"secret\" = # 1",
        "TOKEN=",
    ] {
        assert_eq!(
            text.lines().filter(|l| *l == line).count(),
            1,
            "{line}\n{text}"
        );
    }
    assert!(
        !text.contains("GALGO_MISSING") && !text.contains("GALGO_KEPT"),
        "{text}"
    );
}

fn a_file_is_read_again_with_the_configuration() {
    let server = new_site()
        .file("secrets.env", "TOKEN=one\n", 0o600)
        .config("[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nenv_file = \"secrets.env\"")
        .start();
    let has = |line: &str| server.get("/cgi-bin/t?head&env").text().contains(line);
    assert!(has("TOKEN=one\n"));
    fs::write(server.path("secrets.env"), "TOKEN=two\n").unwrap();
    assert!(server.reload());
    assert!(has("TOKEN=two\n"));
}

fn no_secret_is_shown() {
    for (content, words) in [
        ("hunter2", "line 1 of"),
        ("A=1\nmy hunter2=x\n", "line 2 of"),
        ("PATH_INFO=hunter2", "is computed for each request"),
    ] {
        let site = new_site().file("secrets.env", content, 0o600);
        let route = "[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nenv_file = \"secrets.env\"";
        let said = check_refuses(&site, route, words);
        assert!(!said.contains("hunter2"));
    }
}

fn wrong_configurations_are_named() {
    let route = "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n";
    for (keys, words) in [
        ("env_file = \"none.env\"", "does not exist"),
        ("env_file = \"open.env\"", "chmod 600"),
        (
            "env_file = \"secrets.env\"\nenv = { TOKEN = \"x\" }",
            "TOKEN is set twice",
        ),
        (
            "env = { HOME = \"x\" }\npass_env = [\"HOME\"]",
            "HOME is set twice",
        ),
        ("pass_env = [\"A B\"]", "is not the name of a variable"),
        (
            "pass_env = [\"HTTP_PROXY\"]",
            "is computed for each request",
        ),
        (
            "env_file = \"public/x.env\"\n[[route]]\npath = \"/\"\nfiles = \"public\"",
            "everybody could read it",
        ),
    ] {
        let site = new_site()
            .env("HOME", "/root")
            .file("secrets.env", FILE, 0o600)
            .file("open.env", FILE, 0o640)
            .file("public/x.env", FILE, 0o600);
        check_refuses(&site, &format!("{route}{keys}\n"), words);
    }
    // A file whose name begins with a dot is never served, so it is accepted.
    let site = new_site().file("public/.env", FILE, 0o600);
    site.write(
        "galgo.toml",
        format!("{route}env_file = \"public/.env\"\n[[route]]\npath = \"/\"\nfiles = \"public\"\n"),
    );
    assert_eq!(site.galgo(&["check"]).code, 0);
}

const RULES: &str = r#"
[[route]]
path = "/rules/"
cgi = "cgi-bin"
env = { KIND = "person", PLACE = "out" }
env_rules = [
  { headers = { User-Agent = "(?i)bot" }, set = { KIND = "robot" } },
  { headers = { User-Agent = "^good" }, set = { KIND = "good robot", GOOD = "" } },
  { path = "^/rules/env/(deep|low)$", query = "(^|&)x=1(&|$)", set = { DEEP = "yes" } },
  { methods = ["POST", "PUT"], set = { WRITES = "1" } },
  { host = ["*.example"], set = { PLACE = "in" } },
  { from = ["127.0.0.0/8"], set = { NEAR = "1" } },
  { from = ["192.0.2.0/24"], set = { FAR = "1" } },
  { headers = { X-None = "^$" }, set = { NONE = "1" } },
]
"#;

/// Like SetEnvIf, with a condition on each part of a request.
fn rules_set_variables() {
    let site = new_site().config(RULES);
    site.sh(
        "env",
        "echo Content-Type: text/plain\necho\nenv | grep -v '^HTTP_'",
    );
    let server = site.start();
    let asks = |line: &str, fields: &str| {
        let reply = server.ask(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(reply.status, 200);
        reply.text()
    };
    let is = |text: &str, there: &[&str], not: &[&str]| {
        let has = |line: &&str| text.lines().any(|l| l == *line);
        assert!(there.iter().all(has), "{there:?}\n{text}");
        let named = |name: &&str| text.lines().any(|l| l.starts_with(&format!("{name}=")));
        assert!(!not.iter().any(named), "{not:?}\n{text}");
    };
    let plain = asks("GET /rules/env", "");
    is(
        &plain,
        &["KIND=person", "PLACE=out", "NEAR=1", "NONE=1"],
        &["GOOD", "DEEP", "WRITES", "FAR"],
    );
    // The last matching rule wins. Of several fields with the same name, a single match is enough.
    let bot = asks("GET /rules/env", "User-Agent: aBOT\r\nX-None: 1\r\n");
    is(&bot, &["KIND=robot"], &["GOOD", "NONE"]);
    let good = asks("GET /rules/env", "User-Agent: x\r\nUser-Agent: goodbot\r\n");
    is(&good, &["KIND=good robot", "GOOD="], &[]);
    // A rule needs a match of all its conditions. Its `path` is compared with the cleaned path that selects the route.
    let deep = asks("GET /rules/x/../env/%64eep?a&x=1", "");
    is(&deep, &["DEEP=yes"], &[]);
    is(&asks("GET /rules/env/deep?x=2", ""), &[], &["DEEP"]);
    is(&asks("GET /rules/env/deeper?x=1", ""), &[], &["DEEP"]);
    let post = asks("POST /rules/env", "Content-Length: 0\r\n");
    is(&post, &["WRITES=1"], &[]);
    let reply = server.ask("GET /rules/env HTTP/1.1\r\nHost: B.example:80\r\n\r\n");
    is(&reply.text(), &["PLACE=in"], &[]);
}

/// A client cannot set a variable by sending a field: rules set only values from the configuration.
fn rules_are_not_fields() {
    let site = new_site().config(RULES);
    site.sh("env", "echo Content-Type: text/plain\necho\nenv");
    let server = site.start();
    let reply = server.ask(
        "GET /rules/env HTTP/1.1\r\nHost: a\r\nKIND: forged\r\nUser-Agent: bot\r\nNEAR: forged\r\n\r\n",
    );
    let text = reply.text();
    for line in [
        "KIND=robot",
        "NEAR=1",
        "HTTP_KIND=forged",
        "HTTP_USER_AGENT=bot",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.lines().any(|l| l == "KIND=forged"), "{text}");
}
