//! Places of programs and files: several hosts on a route, names in its path, programs among files.

use crate::harness::{check_refuses, list, new_site};
use galgo_testkit::{Server, Site};

list![
    several_hosts_and_wildcards,
    names_in_a_path,
    programs_among_files,
    an_index_that_is_a_program,
    no_source_is_shown,
    rules_hold_for_programs_among_files,
    names_in_a_path_beside_programs_among_files,
    scripts_of_an_application_among_files,
    a_check_knows_them,
    wrong_configurations_are_named,
];

fn get(server: &Server, host: &str, target: &str) -> (u16, String) {
    let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    (reply.status, reply.text())
}

fn says(path: &str, host: &str, body: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\n{host}\nrespond = {{ body = \"{body}\" }}\n")
}

fn several_hosts_and_wildcards() {
    let server = new_site()
        .config(&says(
            "/",
            "host = [\"example.org\", \"*.example.org\"]",
            "wide",
        ))
        .config(&says("/", "host = \"www.example.org\"", "www"))
        .config(&says("/", "host = [\"*.eu.example.org\"]", "eu"))
        .config(&says("/a", "", "any"))
        .config(&says("/", "", "other"))
        .config("[[rewrite]]\npattern = \"^/b\"\nto = \"/a\"\nhost = [\"*.example.org\"]")
        .start();
    for (host, target, status, body) in [
        ("example.org", "/", 200, "wide"),
        ("EXAMPLE.ORG.:81", "/", 200, "wide"),
        ("q.example.org", "/", 200, "wide"),
        ("a.b.example.org", "/", 200, "wide"),
        ("www.example.org", "/", 200, "www"),
        ("a.www.example.org", "/", 200, "wide"),
        ("a.eu.example.org", "/", 200, "eu"),
        ("eu.example.org", "/", 200, "wide"),
        ("badexample.org", "/", 200, "other"),
        ("example.org.evil", "/", 200, "other"),
        // The longest path wins, regardless of the host.
        ("www.example.org", "/a", 200, "any"),
        ("www.example.org", "/b", 200, "any"),
        ("example.org", "/b", 200, "wide"),
    ] {
        let (got, text) = get(&server, host, target);
        assert_eq!(got, status, "{host} {target}");
        assert!(status == 404 || text == body, "{host} {target}: {text}");
    }
}

fn names_in_a_path() {
    let program =
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s %s' \"$SCRIPT_NAME\" \"$PATH_INFO\"";
    let site = new_site()
        .file("public/app/a.txt", "text", 0o644)
        .file("progs/x.cgi", program, 0o755)
        .file("progs/y.sh", program, 0o755);
    let server = site
        .config("[[route]]\npath = \"/app/*.cgi\"\ncgi = \"progs\"")
        .config(&says("/*.php", "", "no php here"))
        .config("[[route]]\npath = \"/\"\nfiles = \"public\"")
        .start();
    for (target, status, body) in [
        ("/app/x.cgi", 200, "/app/x.cgi "),
        ("/app/x.cgi/info", 200, "/app/x.cgi /info"),
        ("/app/a.txt", 200, "text"),
        ("/app/y.sh", 404, ""),
        ("/app/none.cgi", 404, ""),
        ("/app/sub/x.cgi", 404, ""),
        ("/wp-login.php", 200, "no php here"),
        ("/a/wp-login.php", 404, ""),
    ] {
        let (got, text) = get(&server, "a", target);
        assert_eq!(got, status, "{target}");
        assert!(status != 200 || text == body, "{target}: {text}");
    }
}

/// Returns a site with a folder that holds both files and programs.
fn mixed() -> Site {
    let program = "#!/bin/sh\ncat >/dev/null; printf 'Content-Type: text/plain\\n\\n%s|%s|%s|%s' \"$REQUEST_METHOD\" \"$SCRIPT_NAME\" \"$PATH_INFO\" \"$OWN\"";
    let site = new_site()
        .file("www/pic.png", "picture", 0o644)
        .file("www/sub/page.html", "page", 0o644)
        .file("www/plain.cgi", "source", 0o644)
        .file("www/x.cgi.bak", "source", 0o644)
        .file("www/x.cgi~", "source", 0o644)
        .file("www/X.CGI", "source", 0o644)
        .file("www/dir.cgi/pic.png", "in a folder", 0o644)
        .file("www/static/index.html", "still", 0o644)
        .file("www/x.cgi", program, 0o755)
        .file("www/sub/index.cgi", program, 0o755)
        .file("www/static/index.cgi", program, 0o755);
    site.config(
        "[[route]]\npath = \"/\"\nfiles = \"www\"\ncgi_names = [\"*.cgi\", \"run-*\"]\n\
         index = [\"index.html\", \"index.cgi\"]\nenv = { OWN = \"1\" }\nlisting = true",
    )
}

fn programs_among_files() {
    let server = mixed().start();
    for (target, status, body) in [
        ("/pic.png", 200, "picture"),
        ("/sub/page.html", 200, "page"),
        ("/x.cgi", 200, "GET|/x.cgi||1"),
        ("/x.cgi/a//b?q", 200, "GET|/x.cgi|/a//b|1"),
        ("/dir.cgi/pic.png", 200, "in a folder"),
        ("/none.cgi", 404, ""),
        ("/pic.png/x.cgi", 404, ""),
    ] {
        let (got, text) = get(&server, "a", target);
        assert_eq!(got, status, "{target}");
        assert!(status != 200 || text == body, "{target}: {text}");
    }
    let post = "POST /x.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(server.ask(post).text(), "POST|/x.cgi||1");
    let post = "POST /pic.png HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(server.ask(post).status, 405);
}

fn an_index_that_is_a_program() {
    let server = mixed().start();
    let found = |target| get(&server, "a", target);
    assert_eq!(found("/sub/"), (200, "GET|/sub/index.cgi||1".into()));
    assert_eq!(found("/static/"), (200, "still".into()));
    let reply = server.get("/sub");
    assert_eq!(
        (reply.status, reply.field("location")),
        (301, Some("/sub/"))
    );
    let post = "POST /sub/ HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(server.ask(post).text(), "POST|/sub/index.cgi||1");
    // Without an index, the folder's list is shown.
    assert!(found("/").1.contains("pic.png"));
}

fn no_source_is_shown() {
    let server = mixed().start();
    for target in [
        "/plain.cgi",
        "/x.cgi.bak",
        "/x.cgi~",
        "/X.CGI",
        "/plain%2Ecgi",
        "//plain.cgi",
        "/sub/../plain.cgi",
        "/./x.cgi~",
    ] {
        for field in ["", "Range: bytes=0-3\r\n", "If-None-Match: \"x\"\r\n"] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n");
            let reply = server.ask(request);
            assert_eq!(reply.status, 403, "{target}");
            assert!(!reply.text().contains("source"), "{target}");
        }
    }
    server.says("chmod +x");
    // HEAD is refused like GET for a file that has a program's name but is not executable.
    let head = server.ask("HEAD /plain.cgi HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(head.status, 403);
}

fn rules_hold_for_programs_among_files() {
    let site = mixed().file(
        "site.htpasswd",
        "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n",
        0o640,
    );
    let server = site
        .config("[[route]]\npath = \"/sub/\"\nfiles = \"www/sub\"\ncgi_names = [\"*.cgi\"]\nindex = [\"index.cgi\"]\naccess = { deny = [\"all\"] }")
        .config("[[route]]\npath = \"/static/index.cgi\"\nrespond = { status = 403 }")
        .config("[[route]]\npath = \"/static/\"\nfiles = \"www/static\"\ncgi_names = [\"*.cgi\"]\nindex = [\"index.cgi\"]")
        .start();
    for target in ["/sub/", "/sub/index.cgi", "/sub/page.html", "/static/"] {
        assert_eq!(get(&server, "a", target).0, 403, "{target}");
    }
}

/// Like a ScriptAliasMatch beside ExecCGI: if both match, the route with the longer path runs the program; no route shows it.
fn names_in_a_path_beside_programs_among_files() {
    let route = |path: &str, keys: &str| format!("[[route]]\npath = \"{path}\"\n{keys}\n");
    let files = "files = \"www\"\ncgi_names = [\"*.cgi\"]";
    let server = mixed()
        .config(&route(
            "/sub/*.cgi",
            "cgi = \"www/sub\"\nenv = { OWN = \"sub\" }",
        ))
        .config(&route(
            "/run/x*.cgi",
            "cgi = \"www/static\"\nenv = { OWN = \"run\" }",
        ))
        .config(&route("/one", "cgi = \"www/x.cgi\""))
        .start();
    for (target, status, body) in [
        ("/sub/index.cgi/a", 200, "GET|/sub/index.cgi|/a|sub"),
        ("/sub/", 200, "GET|/sub/index.cgi||sub"),
        ("/sub/page.html", 200, "page"),
        ("/static/index.cgi", 200, "GET|/static/index.cgi||1"),
        ("/run/index.cgi", 404, ""),
        ("/one", 200, "GET|/one||"),
        ("/x.cgi~", 403, ""),
        ("/X.CGI", 403, ""),
    ] {
        let (got, text) = get(&server, "a", target);
        assert_eq!(got, status, "{target}");
        assert!(status != 200 || text == body, "{target}: {text}");
    }
    drop(server);
    // The same holds for names that an interpreter runs.
    let server = new_site()
        .file("php/a.php", "source", 0o644)
        .file("php/a.png", "picture", 0o644)
        .config("[interpreters]\n\".php\" = \"/bin/sh\"")
        .config(&route("/app/*.php", "cgi = \"php\""))
        .config(&route("/", "files = \"php\""))
        .start();
    for (target, status) in [("/a.php", 403), ("/app/a.php", 502), ("/a.png", 200)] {
        assert_eq!(get(&server, "a", target).0, status, "{target}");
    }
    // If the pattern matches the name of a folder, all files in that folder count as programs.
    let site = mixed();
    let below = route("/", files) + &route("/q/*.cgi", "cgi = \"www\"");
    check_refuses(&site, &below, "anybody could read their sources");
}

/// Like nginx: `location ~ \\.php$` beside files. Nothing listens at the application's address: requests for it get 502.
fn scripts_of_an_application_among_files() {
    let files = "[[route]]\npath = \"/\"\nfiles = \"www\"\nindex = [\"index.php\"]\n";
    let php = "[[route]]\npath = \"/*.php\"\nfastcgi = \"unix:none.sock\"\nroot = \"www\"\n";
    let site = || {
        let site = new_site().file("www/a.png", "picture", 0o644);
        let names = [
            "index.php",
            "x.php",
            "x.php~",
            "X.PHP",
            "sub/x.php",
            "sub/index.php",
        ];
        names.into_iter().fold(site, |site, name| {
            site.file(&format!("www/{name}"), "<?php source", 0o644)
        })
    };
    check_refuses(
        &site(),
        &(files.to_owned() + php),
        "add to this route: cgi_names = [\"*.php\"]",
    );
    let files = files.replace("index =", "cgi_names = [\"*.php\"]\nindex =");
    let server = site().config(&files).config(php).start();
    for (target, status) in [
        ("/x.php", 502),
        ("/x.php/info?q", 502),
        ("/", 502),
        ("/index.php", 502),
        ("/a.png", 200),
        // The pattern matches names directly in its folder only. In that folder this name would be a program.
        ("/sub/x.php", 403),
        ("/sub/", 403),
        ("/x.php~", 403),
        ("/X.PHP", 403),
        ("/none.php", 404),
    ] {
        let (got, text) = get(&server, "a", target);
        assert_eq!(got, status, "{target}: {text}");
        assert!(!text.contains("source"), "{target}: {text}");
    }
}

fn a_check_knows_them() {
    let site = mixed();
    site.write(
        "galgo.toml",
        "[[route]]\npath = \"/\"\nfiles = \"www\"\ncgi_names = [\"*.cgi\"]",
    );
    let done = site.galgo(&["check"]);
    let lines = |name: &str| done.out.lines().filter(|l| l.contains(name)).count();
    assert_eq!(
        (lines("/x.cgi"), lines("index.cgi")),
        (1, 2),
        "{}",
        done.out
    );
    assert_eq!((lines("plain.cgi"), lines("png")), (1, 0), "{}", done.out);
    // A program counts for a route only if the route answers requests for it.
    site.write(
        "galgo.toml",
        "[[route]]\npath = \"/*.cgi\"\ncgi = \"www/sub\"\n[[route]]\npath = \"/*.pl\"\ncgi = \"www\"",
    );
    let done = site.galgo(&["check"]);
    assert!(done.out.contains("2 routes, 1 program:"), "{}", done.out);
}

fn wrong_configurations_are_named() {
    let route = |keys: &str| format!("[[route]]\npath = \"/\"\n{keys}\n");
    for (config, words) in [
        (
            route("cgi = \"cgi-bin\"\ncgi_names = [\"*.cgi\"]"),
            "is an option of `files` routes",
        ),
        (route("files = \"public\"\ncgi_names = []"), "names nothing"),
        (
            route("files = \"public\"\ncgi_names = [\"a/*\"]"),
            "is not a pattern for file names",
        ),
        (
            route("files = \"public\"\nenv = { A = \"\" }"),
            "is an option of `cgi` routes",
        ),
        (route("host = []\nfiles = \"public\""), "names no host"),
        (
            route("host = [\"a\", \"*\"]\nfiles = \"public\""),
            "is not a host name",
        ),
        (
            route("host = [\"a\", \"b\"]\nfiles = \"public\"")
                + &route("host = \"B\"\nfiles = \"public\""),
            "and the host \"b\" already",
        ),
        (
            "[[route]]\npath = \"/*/a\"\nfiles = \"public\"".into(),
            "before its last segment",
        ),
        (
            "[[route]]\npath = \"/*.x\"\ncgi = \"cgi-bin/t\"".into(),
            "matches names in a folder",
        ),
        // Another route to the same folder would show the programs' sources.
        (
            route("files = \"public\"\ncgi_names = [\"*.cgi\"]")
                + "[[route]]\npath = \"/b\"\nfiles = \"public\"",
            "anybody could read their sources at \"/b/\": move the programs out, add a `cgi` route with that path, or add to this route: cgi_names = [\"*.cgi\"]",
        ),
    ] {
        let site = new_site().file("public/a.txt", "x", 0o644);
        check_refuses(&site, &config, words);
    }
}
