//! `galgo check --url`: which steps a request goes through.

use crate::scene::new_site;
use galgo_testkit::Site;

fn site() -> Site {
    let site = new_site()
        .file("public/a.txt", "text", 0o644)
        .file("other/a.txt", "text", 0o644)
        .file("public/x.cgi", "#!/bin/sh\n", 0o755)
        .file("public/plain.cgi", "source", 0o644)
        .file("site.htpasswd", "", 0o640);
    site.sh("hello", "echo");
    site.write(
        "galgo.toml",
        r#"
errors = { 404 = "/404.html", 5xx = "/cgi-bin/oops" }
[[rewrite]]
pattern = "^/article/(?P<id>[0-9]+)$"
to = "/cgi-bin/hello/{id}?old"
[[route]]
path = "/cgi-bin/"
cgi = "cgi-bin"
[[route]]
path = "/"
host = ["example.org", "*.example.org"]
redirect = { to = "https://www.example.net{path}", status = 308 }
[[route]]
path = "/office/"
files = "other"
access = { allow = ["10.0.0.0/8"], methods = ["GET"] }
[[route]]
path = "/kept/"
files = "other"
passwords = "site.htpasswd"
compress = true
[[route]]
path = "/"
files = "public"
cgi_names = ["*.cgi"]
index = ["x.cgi"]
[[route]]
path = "/rules/"
cgi = "cgi-bin"
env = { AUDIENCE = "public", BOT = "" }
env_rules = [
  { headers = { User-Agent = "(?i)bot" }, set = { BOT = "1", AUDIENCE = "bots" } },
  { from = ["10.0.0.0/8"], set = { AUDIENCE = "staff" } },
]
access_log = "rules.log"
request_headers = { remove = ["Cookie"] }
headers = { X-Robots-Tag = "noindex" }
expires = { "*" = "1h" }
cors = { origins = ["https://app.example"] }
[[route]]
path = "/ws/"
cgi = "cgi-bin"
upgrade = true
[[route]]
path = "/app/"
files = "other"
try = ["{path}", "/cgi-bin/hello{path}"]
"#,
    );
    site
}

#[test]
fn says_which_steps_apply() {
    let site = site();
    for (args, lines) in [
        (
            &["http://a.example/a.txt"][..],
            &[
                "route|/: files and programs in",
                "answer|200 OK, content-type: text/plain",
            ][..],
        ),
        (&["/a.txt"], &["answer|200 OK"]),
        (&["http://a.example/a.txt#top"], &["answer|200 OK"]),
        (
            &["http://b.example.org/x?y"],
            &[
                "route|example.org/: redirect, 308 Permanent Redirect",
                "redirect|308 Permanent Redirect, location: https://www.example.net/x?y",
            ],
        ),
        (
            &["/article/7"],
            &[
                "rewrite|/cgi-bin/hello/7?old",
                "program|",
                "SCRIPT_NAME /cgi-bin/hello, PATH_INFO /7",
            ],
        ),
        (
            &["/cgi-bin/none"],
            &["program|not found", "answer|404 Not Found"],
        ),
        (
            &["/office/a.txt"],
            &["access|127.0.0.1 is denied", "answer|403 Forbidden"],
        ),
        (
            &["/office/a.txt", "--from", "10.1.2.3"],
            &["access|10.1.2.3 is allowed", "answer|200 OK"],
        ),
        (
            &["/office/a.txt", "--method", "POST"],
            &[
                "access|POST is not allowed",
                "answer|405 Method Not Allowed, allow: GET, HEAD",
            ],
        ),
        (
            &["/kept/a.txt"],
            &["passwords|401 without", "answer|200 OK", "compress|"],
        ),
        (&["/"], &["then|/x.cgi", "SCRIPT_NAME /x.cgi"]),
        (
            &["/plain.cgi"],
            &["program|", "chmod +x", "answer|403 Forbidden"],
        ),
        (
            &["/app/none"],
            &[
                "try|",
                "then|/cgi-bin/hello/app/none",
                "PATH_INFO /app/none",
            ],
        ),
        (&["/office"], &["access|"]),
        (
            &["/rules/hello"],
            &[
                "access_log|",
                "rules.log",
                "env_rules|none of its 2 rules matches",
                "request_headers|are changed",
                "program|",
                "errors|replace the page",
                "fields|are changed",
                "expires|Cache-Control",
                "cors|other origins may read it",
            ],
        ),
        (
            &["/rules/hello", "--header", "User-Agent: a Bot"],
            &["env_rules|AUDIENCE=bots, BOT=1\n"],
        ),
        (
            &[
                "/rules/hello",
                "--header",
                "User-Agent: bot",
                "--from",
                "10.1.2.3",
            ],
            &["env_rules|BOT=1, AUDIENCE=staff\n"],
        ),
        (
            &[
                "/rules/hello",
                "--method",
                "OPTIONS",
                "--header",
                "Origin: https://app.example",
                "--header",
                "Access-Control-Request-Method: GET",
            ],
            &["cors|204 No Content"],
        ),
        (
            &["/none.txt"],
            &["answer|404 Not Found", "errors|the page is /404.html"],
        ),
        (
            &["/ws/hello"],
            &["program|", "upgrade|after a 101 response"],
        ),
    ] {
        let done = site.galgo(&[&["check", ".", "--url"], args].concat());
        let mut rest = &*done.out;
        assert_eq!((done.code, &*done.err), (0, ""), "{args:?}");
        for line in lines {
            let found = match line.split_once('|') {
                None => rest.find(line),
                Some((step, says)) => rest.find(&format!("{step:<18} {says}")),
            };
            let at = found.unwrap_or_else(|| panic!("{args:?} {line}: {}", done.out));
            rest = &rest[at..];
        }
    }
}

#[test]
fn a_program_that_cannot_start_is_named() {
    let site = galgo_testkit::Site::new(crate::scene::GALGO);
    site.program("lost.py", "#!/no/such/python\n");
    site.program("fine", "#!/bin/sh\n");
    let done = site.galgo(&["check", ".", "--url", "/cgi-bin/lost.py"]);
    done.has_out("fails              interpreter `/no/such/python` does not exist");
    done.has_out("answer             502 Bad Gateway");
    let toml = "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n[[route]]\npath = \"/app\"\nfastcgi = { run = [\"cgi-bin/lost.py\"] }\n";
    site.write("galgo.toml", toml);
    let why = "lost.py: interpreter `/no/such/python` does not exist";
    site.galgo(&["check", ".", "--url", "/app"]).has_out(why);
    site.galgo(&["check"])
        .has_out("FAIL  fastcgi cgi-bin/lost.py: interpreter `/no/such/python` does not exist");
    let done = site.galgo(&["check", ".", "--url", "/cgi-bin/fine"]);
    assert!(
        !done.out.contains("fails") && !done.out.contains("answer"),
        "{done:?}"
    );
}

#[test]
fn wrong_arguments_are_named() {
    let site = site();
    for (url, words) in [
        ("ftp://a/", "is not a URL"),
        ("a.txt", "is not a URL"),
        ("/../x", "the server answers 400"),
        ("http://a b/", "the server answers 400"),
    ] {
        let done = site.galgo(&["check", ".", "--url", url]);
        assert!(
            done.code == 1 && done.err.contains(words),
            "{url}: {}",
            done.err
        );
    }
    assert_eq!(site.galgo(&["check", ".", "--from", "::1"]).code, 2);
    for field in ["User-Agent", "X-A: 1\r\nX-B: 2"] {
        let done = site.galgo(&["check", ".", "--url", "/", "--header", field]);
        assert_eq!(done.code, 1, "{field}");
        done.has_err("is not a header field");
    }
}

#[test]
fn nothing_runs_and_no_file_is_made() {
    let site = galgo_testkit::Site::new(crate::scene::GALGO);
    site.program("mark", "#!/bin/sh\ntouch ../ran\necho\n");
    site.write(
        "galgo.toml",
        r#"
error_log = "error.log"
errors = { 404 = "/cgi-bin/mark" }
[[route]]
path = "/cgi-bin/"
cgi = "cgi-bin"
authorizer = { cgi = "cgi-bin/mark" }
access_log = "access.log"
rate_limit = { requests = 1, per = "1h", burst = 1 }
"#,
    );
    let done = site.galgo(&["check", ".", "--url", "/cgi-bin/none"]);
    // The steps of the page follow those of its error. No rate limit ends them.
    let mut rest = &*done.out;
    for line in [
        "authorizer",
        "program            not found",
        "answer             404 Not Found",
        "errors             the page is /cgi-bin/mark",
        "authorizer",
        "SCRIPT_NAME /cgi-bin/mark",
    ] {
        let at = rest.find(line);
        rest = &rest[at.unwrap_or_else(|| panic!("{line}: {}", done.out))..];
    }
    for made in ["ran", "error.log", "access.log"] {
        assert!(!site.path(made).exists(), "{made}");
    }
}
