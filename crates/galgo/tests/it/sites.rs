//! `sites`: a folder for each host.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use crate::harness::{list, new_site};
use galgo_testkit::{Client, Config, Reply, Server, Site, eventually, wait_until};

list![
    a_host_has_what_its_folder_holds,
    a_new_host_needs_no_reload,
    what_changes_in_a_folder_is_seen,
    routes_of_the_configuration_beside_a_folder,
    a_host_that_is_no_name_of_a_folder,
    links_that_lead_out,
    sources_are_never_shown,
    what_is_refused_at_the_start,
    what_check_says,
    programs_have_their_limits,
    settings_in_the_folder_of_a_host,
];

const ENV: &str = "#!/bin/sh\necho Content-Type: text/plain\necho\nenv\n";

fn with(site: Site, host: &str) -> Site {
    site.file(&format!("www/{host}/public/index.html"), host, 0o644)
        .file(&format!("www/{host}/cgi-bin/env"), ENV, 0o755)
}

/// Returns a site with two hosts, a page for all others, and a file that no request must reach.
fn two() -> Site {
    let site = new_site()
        .config("sites = \"www\"\n")
        .file("public/index.html", "any", 0o644)
        .file("secret/public/index.html", "secret", 0o644);
    with(with(site, "a.example"), "b.example")
}

fn ask(server: &Server, host: &str, path: &str) -> Reply {
    server.ask(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

fn said(server: &Server, host: &str, path: &str) -> String {
    let reply = ask(server, host, path);
    format!("{} {}", reply.status, reply.text())
}

fn a_host_has_what_its_folder_holds() {
    let server = two().start();
    for host in ["a.example", "b.example"] {
        assert_eq!(said(&server, host, "/"), format!("200 {host}"));
        let reply = ask(&server, host, "/cgi-bin/env/x?q");
        let has = |line: &str| assert!(reply.text().lines().any(|l| l == line), "{line}");
        has("PATH_INFO=/x");
        has("SCRIPT_NAME=/cgi-bin/env");
        has(&format!("SERVER_NAME={host}"));
        let root = server.path(&format!("www/{host}/public"));
        has(&format!("DOCUMENT_ROOT={}", root.display()));
        assert_eq!(ask(&server, host, "/cgi-bin/none").status, 404);
        assert_eq!(ask(&server, host, "/none").status, 404);
        let slash = ask(&server, host, "/cgi-bin");
        assert_eq!(
            (slash.status, slash.field("location")),
            (301, Some("/cgi-bin/"))
        );
    }
    // Every spelling of the host leads to its folder, and no other host does.
    for host in ["A.EXAMPLE", "a.example.", "a.example:8080", "A.Example.:1"] {
        assert_eq!(said(&server, host, "/"), "200 a.example", "{host}");
    }
    for host in [
        "c.example",
        "www.a.example",
        "a.exampl",
        "a.example.b.example",
        "localhost",
    ] {
        assert_eq!(said(&server, host, "/"), "200 any", "{host}");
    }
}

fn a_new_host_needs_no_reload() {
    let server = two().start();
    assert_eq!(said(&server, "new.example", "/"), "200 any");
    let folder = server.path("www/new.example/public");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("index.html"), "new").unwrap();
    assert_eq!(said(&server, "new.example", "/"), "200 new");
}

fn what_changes_in_a_folder_is_seen() {
    let server = two().start();
    let mut kept = Client::connect(server.address());
    let mut now = |path: &str| {
        kept.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        let reply = kept.reply();
        format!("{} {}", reply.status, reply.text())
    };
    assert_eq!(now("/"), "200 a.example");
    // A deployment replaces the folder with another of the same name.
    let next = server.path("www/next");
    fs::create_dir_all(next.join("public")).unwrap();
    fs::write(next.join("public/index.html"), "next").unwrap();
    fs::rename(server.path("www/a.example"), server.path("old")).unwrap();
    fs::rename(&next, server.path("www/a.example")).unwrap();
    wait_until("the new folder", || now("/") == "200 next");
    assert_eq!(now("/cgi-bin/env").split(' ').next(), Some("404"));
    fs::remove_dir_all(server.path("www/a.example")).unwrap();
    wait_until("the host is gone", || now("/") == "200 any");
}

fn routes_of_the_configuration_beside_a_folder() {
    let route = |host: &str, path: &str, body: &str| {
        let host = if host.is_empty() {
            String::new()
        } else {
            format!("host = \"{host}\"\n")
        };
        format!("[[route]]\n{host}path = \"{path}\"\nrespond = {{ body = \"{body}\" }}\n")
    };
    let routes = [
        route("b.example", "/", "named"),
        route("*.example", "/cgi-bin/env", "longer"),
        route("", "/.well-known/", "all"),
    ];
    let server = two().config(&routes.concat()).start();
    for (host, path, wanted) in [
        ("a.example", "/", "200 a.example"),
        ("b.example", "/", "200 named"),
        ("a.example", "/cgi-bin/env", "200 longer"),
        ("a.example", "/.well-known/x", "200 all"),
        ("a.example", "/health", "200 fine"),
    ] {
        assert_eq!(said(&server, host, path), wanted, "{host}{path}");
    }
}

/// The Host of a client selects the folder with that name and leads nowhere else.
fn a_host_that_is_no_name_of_a_folder() {
    let site = two()
        .file(
            "public/../www/Upper.example/public/index.html",
            "upper",
            0o644,
        )
        .file("www/.hidden/public/index.html", "hidden", 0o644)
        .file("www/under_score/public/index.html", "under", 0o644)
        .file("www/-dash/public/index.html", "dash", 0o644)
        .file("www/public/index.html", "folder itself", 0o644);
    let server = site.start();
    let (long, label) = (["a"; 130].join("."), "a".repeat(64));
    for host in [
        ".",
        "..",
        "...",
        "../secret",
        "..%2fsecret",
        "a.example/../../secret",
        "a.example/..",
        "a.example/.",
        "a.example\\..\\b.example",
        "/",
        "a.example/",
        "",
        "-",
        "%2e%2e",
        "a..example",
        ".a.example",
        "a.example..",
        "Upper.example",
        "UPPER.EXAMPLE",
        ".hidden",
        "under_score",
        "-dash",
        "[::1]",
        "a.example:80:80",
        "a.example:x",
        "a.example\0",
        "a.example\0.b.example",
        "b\u{fc}cher.example",
        "~",
        "*",
        "a.example@b.example",
        "a.example,b.example",
        &long,
        &label,
    ] {
        let said = said(&server, host, "/");
        let fine = said == "200 any" || said.starts_with("400 ") || said.starts_with("404 ");
        assert!(fine, "{host:?}: {said}");
    }
    // The same holds for a host in the target, and for HTTP/1.0 without a Host field.
    for request in [
        "GET http://../secret/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://..%2fsecret/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET /../../secret/public/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /..%2f..%2fsecret HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        let reply = server.ask(request);
        assert!(!reply.text().contains("secret"), "{request}");
        assert_ne!(reply.text(), "a.example", "{request}");
    }
    // A-labels (`xn--…`) are ordinary names.
    fs::create_dir_all(server.path("www/xn--bcher-kva.example/public")).unwrap();
    fs::write(
        server.path("www/xn--bcher-kva.example/public/index.html"),
        "books",
    )
    .unwrap();
    assert_eq!(said(&server, "xn--bcher-kva.example", "/"), "200 books");
}

fn links_that_lead_out() {
    let site = two();
    let www = site.path("www");
    fs::create_dir_all(www.join("c.example/cgi-bin")).unwrap();
    fs::create_dir_all(www.join("d.example/releases/5")).unwrap();
    fs::write(www.join("d.example/releases/5/index.html"), "five").unwrap();
    for (to, link) in [
        // These links give an existing host another name.
        ("a.example", "www.a.example"),
        (www.join("a.example").to_str().unwrap(), "far.a.example"),
        // These relative and absolute links lead out of the folder of hosts.
        ("../secret", "out.example"),
        (site.path("secret").to_str().unwrap(), "far.example"),
        ("../../secret/public", "c.example/public"),
        // The first link leads to the host's own release, the second to another host's folder.
        ("releases/5", "d.example/public"),
        ("../b.example/cgi-bin", "d.example/cgi-bin"),
    ] {
        symlink(to, www.join(link)).unwrap();
    }
    let server = site.start();
    for host in ["www.a.example", "far.a.example"] {
        assert_eq!(said(&server, host, "/"), "200 a.example");
    }
    for (host, path) in [
        ("out.example", "/"),
        ("far.example", "/"),
        ("c.example", "/"),
        ("d.example", "/cgi-bin/env"),
    ] {
        let reply = ask(&server, host, path);
        assert_eq!(reply.status, 403, "{host}{path}: {}", reply.text());
    }
    server.says("a symbolic link leads out of its folder");
    fs::remove_file(server.path("www/d.example/cgi-bin")).unwrap();
    assert_eq!(said(&server, "d.example", "/"), "200 five");
}

fn sources_are_never_shown() {
    let site = two();
    let www = site.path("www");
    // The programs' folder is also served as files, or lies in such a folder.
    symlink("cgi-bin", www.join("b.example/files")).unwrap();
    fs::rename(www.join("b.example/public"), www.join("b.example/old")).unwrap();
    symlink("cgi-bin", www.join("b.example/public")).unwrap();
    fs::create_dir_all(www.join("c.example/public/bin")).unwrap();
    symlink("public/bin", www.join("c.example/cgi-bin")).unwrap();
    let program = www.join("c.example/public/bin/env");
    fs::write(&program, ENV).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let server = site.start();
    for (host, path) in [
        ("b.example", "/env"),
        ("c.example", "/bin/env"),
        ("a.example", "/../cgi-bin/env"),
        ("a.example", "/%2e%2e/cgi-bin/env"),
        ("a.example", "/./cgi-bin/env"),
        ("a.example", "//cgi-bin/env"),
    ] {
        let reply = ask(&server, host, path);
        assert!(!reply.text().contains("#!/bin/sh"), "{host}{path}");
    }
    assert_eq!(ask(&server, "b.example", "/env").status, 403);
    server.says("contains the other");
}

fn what_is_refused_at_the_start() {
    let server = two().start();
    for (route, words) in [
        (
            "[[route]]\npath = \"/all/\"\nfiles = \"www\"\n",
            "sites: the files at \"/all/\"",
        ),
        (
            "[[route]]\npath = \"/all/\"\nfiles = \"www/a.example\"\n",
            "would publish the sources of the hosts' programs",
        ),
        (
            "[[route]]\npath = \"/p/\"\ncgi = \"www/a.example/public\"\n",
            "where anybody could read their sources",
        ),
        (
            "[[route]]\npath = \"/p/\"\nfiles = \"public\"\npasswords = \"www/a.example/public/site.htpasswd\"\n",
            "lies in the folder of a host of `sites`",
        ),
    ] {
        let file = server.path("www/a.example/public/site.htpasswd");
        fs::write(&file, "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let before = Config::read(&server.path("galgo.toml"));
        server.configure(route);
        assert!(!server.reload(), "{route}");
        server.says(words);
        before.write(&server.path("galgo.toml"));
    }
}

fn what_check_says() {
    let site = two().file("www/a.example/cgi-bin/bad", "#!/nowhere\n", 0o755);
    fs::create_dir_all(site.path("www/Upper/public")).unwrap();
    fs::create_dir_all(site.path("www/empty")).unwrap();
    symlink("/", site.path("www/out.example")).unwrap();
    let server = site.clone().start();
    let done = site.galgo(&["check", "."]);
    for words in [
        "www/Upper: is not a host name",
        "www/empty: has neither public/ nor cgi-bin/",
        "a symbolic link leads out of its folder",
        "www/a.example/cgi-bin/bad",
        "www/b.example/cgi-bin/env",
    ] {
        done.has_out(words);
    }
    let url = site.galgo(&["check", ".", "--url", "http://A.example/cgi-bin/env/x"]);
    url.has_out("a.example/cgi-bin/: programs in");
    url.has_out("PATH_INFO /x");
    site.galgo(&["check", ".", "--url", "http://out.example/"])
        .has_out("answer             403");
    drop(server);
}

/// `max_running` in `[defaults]` applies to each host by itself.
fn programs_have_their_limits() {
    let site = two().defaults("max_running = 1\n");
    for host in ["a.example", "b.example"] {
        site.write(&format!("www/{host}/cgi-bin/wait"), "");
        let program = site.path(&format!("www/{host}/cgi-bin/wait"));
        let gate = site.path("gate");
        let text = format!(
            "#!/bin/sh\necho Content-Type: text/plain\necho\necho in\nuntil [ -e {} ]; do sleep 0.05; done\n",
            gate.display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let server = site.start();
    let ask = |host: &str| {
        let mut client = Client::connect(server.address());
        client.send(format!(
            "GET /cgi-bin/wait HTTP/1.1\r\nHost: {host}\r\n\r\n"
        ));
        client
    };
    let mut first = ask("a.example");
    assert_eq!(first.head().status, 200);
    let mut second = ask("a.example");
    // Meanwhile the program of another host runs.
    let mut other = ask("b.example");
    assert_eq!(other.head().status, 200);
    assert!(!second.has_news());
    fs::write(server.path("gate"), "").unwrap();
    assert_eq!(second.reply().status, 200);
    eventually("both end", || {
        (!first.is_closed() && !other.is_closed()).then_some(())
    });
}

/// `include` finds the settings. Their routes come before the folder's default routes.
fn settings_in_the_folder_of_a_host() {
    let settings = "host = [\"a.example\", \"www.a.example\"]\n\
        access_log = \"access.log\"\n\
        headers = { X-Site = \"a\" }\n\
        errors = { 404 = \"/index.html\" }\n\
        [[route]]\npath = \"/\"\nfiles = \"public\"\n\
        [[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nenv = { SITE = \"ours\" }\n";
    let site = two().config("include = \"www/*/site.toml\"\n").file(
        "www/a.example/site.toml",
        settings,
        0o644,
    );
    let server = site.start();
    for host in ["a.example", "www.a.example"] {
        let reply = ask(&server, host, "/");
        assert_eq!(
            (reply.text(), reply.field("x-site")),
            ("a.example".into(), Some("a"))
        );
        let none = ask(&server, host, "/none");
        assert_eq!((none.status, none.text()), (404, "a.example".into()));
        let program = ask(&server, host, "/cgi-bin/env").text();
        assert!(program.lines().any(|line| line == "SITE=ours"), "{program}");
    }
    let other = ask(&server, "b.example", "/");
    assert_eq!(
        (other.text(), other.field("x-site")),
        ("b.example".into(), None)
    );
    assert!(
        !ask(&server, "b.example", "/cgi-bin/env")
            .text()
            .contains("SITE=")
    );
    let log = server.path("www/a.example/access.log");
    eventually("the log of the host", || {
        let text = fs::read_to_string(&log).ok()?;
        (text.lines().count() == 6).then_some(())
    });
    // No client can read the settings.
    for path in ["/site.toml", "/../site.toml", "/access.log"] {
        let reply = ask(&server, "a.example", path);
        assert!(!reply.text().contains("host ="), "{path}");
    }
    // A new host may have settings, too: they take effect at the next reload.
    let settings = settings.replace("a.example", "c.example");
    let site = with(server.site.clone(), "c.example");
    assert_eq!(ask(&server, "c.example", "/").field("x-site"), None);
    site.write("www/c.example/site.toml", settings);
    assert!(server.reload());
    assert_eq!(ask(&server, "c.example", "/").field("x-site"), Some("a"));
}
