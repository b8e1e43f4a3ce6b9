//! Secrets and identity: what a request must not set, and what nobody must see.

use std::{
    collections::BTreeSet,
    os::unix::fs::symlink,
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Client, Server, Site, eventually, list};

list![
    httpoxy,
    s4_1_18_names_that_pose_as_others,
    s4_1_the_environment_is_the_documented_list,
    hostile_names_change_nothing,
    s4_1_18_authorization_is_withheld,
    shellshock,
    s4_4_words_of_the_query,
    sources_never_appear,
    a_program_folder_serves_no_files,
    traversal_by_encoding,
    traversal_by_links,
    descriptors_of_a_program,
    every_answer_goes_to_who_asked,
    error_pages_hold_nothing_of_the_request,
];

/// The environment of a program for a GET with `fields`.
fn environment(server: &Server, target: &str, fields: &str) -> Vec<String> {
    let reply = server.ask(format!(
        "GET {target}?head&env HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ));
    assert_eq!(reply.status, 200, "{fields}");
    reply.text().lines().map(str::to_owned).collect()
}

fn has_name(env: &[String], name: &str) -> bool {
    env.iter().any(|v| v.starts_with(&format!("{name}=")))
}

fn httpoxy() {
    let server = Site::new().start();
    for field in [
        "Proxy: evil\r\n",
        "proxy: evil\r\n",
        "PROXY: evil\r\n",
        "pRoXy: evil\r\n",
        "Proxy: evil\r\nProxy: evil\r\n",
        "Proxy:evil\r\nX: y\r\nPROXY:\tevil\r\n",
        "HTTP_PROXY: evil\r\n",
        "Proxy_: evil\r\n",
        "_Proxy: evil\r\n",
    ] {
        let env = environment(&server, "/cgi-bin/t", field);
        assert!(!env.iter().any(|v| v.contains("evil")), "{field}: {env:?}");
        let named = env.iter().any(|v| v.to_ascii_uppercase().contains("PROXY"));
        assert!(!named, "{field}: {env:?}");
    }
    let reply = server.ask(
        "POST /cgi-bin/t?head&count&env HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
         Trailer: Proxy\r\n\r\n0\r\nProxy: evil\r\n\r\n",
    );
    assert_eq!(reply.status, 200);
    assert!(!reply.text().contains("evil"));
}

fn s4_1_18_names_that_pose_as_others() {
    let server = Site::new().start();
    for name in [
        "X_Evil",
        "Content_Length",
        "Content_Type",
        "Transfer_Encoding",
        "Remote_User",
        "REMOTE_ADDR",
        "Http_Host",
        "X-Real_IP",
        "_",
    ] {
        let env = environment(&server, "/cgi-bin/t", &format!("{name}: evil\r\n"));
        assert!(!env.iter().any(|v| v.contains("evil")), "{name}: {env:?}");
    }
    // The one that is spelled right stays, whatever poses as it.
    let env = environment(
        &server,
        "/cgi-bin/t",
        "X-Real_IP: evil\r\nX-Real-IP: good\r\n",
    );
    assert!(env.contains(&"HTTP_X_REAL_IP=good".to_owned()), "{env:?}");
    // Two names for one variable: neither can be believed.
    for (a, b) in [("X-A", "X.A"), ("X-Real-IP", "X!Real-IP"), ("x.y", "X~Y")] {
        for (first, second) in [(a, b), (b, a)] {
            let mut client = server.connect();
            client.send(format!(
                "GET /cgi-bin/t?head&out=ran HTTP/1.1\r\nHost: localhost\r\n{first}: 1\r\n{second}: 2\r\n\r\n\
                 GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            ));
            assert_eq!(client.reply().status, 400, "{first} {second}");
            assert!(client.is_over());
        }
    }
    // As are two values of a field that has one.
    for field in ["Content-Type", "content-type"] {
        let reply = server.ask(format!(
            "GET /cgi-bin/t?head HTTP/1.1\r\nHost: localhost\r\nContent-Type: a/b\r\n{field}: c/d\r\n\r\n"
        ));
        assert_eq!(reply.status, 400);
    }
}

fn s4_1_the_environment_is_the_documented_list() {
    let server = Site::new().start();
    let mut client = server.connect();
    let from = client.stream.local_addr().unwrap().port();
    client.send(
        "POST /cgi-bin/t/a%20b//c?take=5&head&env HTTP/1.1\r\nHost: LocalHost\r\nContent-Type: text/plain\r\n\
         Content-Length: 5\r\nCookie: a=1\r\nCookie: b=2\r\nX-Thing: 1\r\nX-Thing: 2\r\nEmpty:\r\n\
         Connection: keep-alive\r\nKeep-Alive: 9\r\nTE: gzip\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\
         Authorization: Basic x\r\nProxy-Authorization: Basic x\r\n\r\nhello",
    );
    let text = client.reply().text();
    let mut env: Vec<_> = text.lines().collect();
    env.sort_unstable();
    let line = eventually("the line of the request", || {
        let posts = |l: &serde_json::Value| l["method"] == "POST";
        server.access().into_iter().find(posts)
    });
    let dir = server.path().display();
    let port = server.address().port();
    let id = line["id"].as_str().unwrap();
    let mut wanted = format!(
        "CONTENT_LENGTH=5\nCONTENT_TYPE=text/plain\nDOCUMENT_ROOT={dir}/public\n\
         GATEWAY_INTERFACE=CGI/1.1\nHTTP_COOKIE=a=1; b=2\nHTTP_EMPTY=\nHTTP_HOST=LocalHost\n\
         HTTP_X_THING=1, 2\nPATH=/usr/local/bin:/usr/bin:/bin\nPATH_INFO=/a b//c\n\
         PATH_TRANSLATED={dir}/public/a b//c\nQUERY_STRING=take=5&head&env\nREDIRECT_STATUS=200\n\
         REMOTE_ADDR=127.0.0.1\nREMOTE_HOST=127.0.0.1\nREMOTE_PORT={from}\nREQUEST_METHOD=POST\n\
         REQUEST_SCHEME=http\nREQUEST_URI=/cgi-bin/t/a%20b//c?take=5&head&env\n\
         SCRIPT_FILENAME={dir}/cgi-bin/t\nSCRIPT_NAME=/cgi-bin/t\nSERVER_ADDR=127.0.0.1\n\
         SERVER_NAME=localhost\nSERVER_PORT={port}\nSERVER_PROTOCOL=HTTP/1.1\n\
         SERVER_SOFTWARE=galgo/{}\nUNIQUE_ID={id}",
        env!("CARGO_PKG_VERSION")
    );
    let mut sorted: Vec<_> = wanted.lines().collect();
    sorted.sort_unstable();
    wanted = sorted.join("\n");
    assert_eq!(env.join("\n"), wanted);
}

fn hostile_names_change_nothing() {
    let server = Site::new().start();
    let plain: BTreeSet<_> = names(&environment(&server, "/cgi-bin/t", ""));
    for name in [
        "LD_PRELOAD",
        "LD-PRELOAD",
        "PATH",
        "BASH_ENV",
        "ENV",
        "PERL5OPT",
        "PYTHONPATH",
        "IFS",
        "NODE_OPTIONS",
        "REMOTE-USER",
        "AUTH-TYPE",
        "SCRIPT-FILENAME",
        "REDIRECT-STATUS",
        "GATEWAY-INTERFACE",
        "HTTPS",
        "Content-Length-",
    ] {
        let env = environment(&server, "/cgi-bin/t", &format!("{name}: evil\r\n"));
        let mut more: Vec<_> = names(&env).difference(&plain).cloned().collect();
        more.retain(|n| !n.starts_with("HTTP_"));
        assert!(more.is_empty(), "{name}: {more:?}");
        for value in env.iter().filter(|v| v.contains("evil")) {
            assert!(value.starts_with("HTTP_"), "{name}: {value}");
        }
    }
}

fn names(env: &[String]) -> BTreeSet<String> {
    let name = |v: &String| v.split('=').next().unwrap().to_owned();
    env.iter().map(name).collect()
}

fn s4_1_18_authorization_is_withheld() {
    let server = Site::new()
        .table("[[route]]\npath = \"/open/\"\ncgi = \"cgi-bin\"\npass_authorization = true")
        .start();
    let field = "Authorization: Basic c2VjcmV0\r\nProxy-Authorization: Basic c2VjcmV0\r\n";
    let env = environment(&server, "/cgi-bin/t", field);
    assert!(!env.iter().any(|v| v.contains("c2VjcmV0")), "{env:?}");
    let env = environment(&server, "/open/t", field);
    assert!(env.contains(&"HTTP_AUTHORIZATION=Basic c2VjcmV0".to_owned()));
    assert!(!has_name(&env, "HTTP_PROXY_AUTHORIZATION"));
    // Nobody has verified it.
    assert!(!has_name(&env, "REMOTE_USER") && !has_name(&env, "AUTH_TYPE"));
    // Nor do other spellings find a way.
    let env = environment(&server, "/cgi-bin/t", "Authorization.: c2VjcmV0\r\n");
    assert!(!has_name(&env, "HTTP_AUTHORIZATION"));
}

fn shellshock() {
    let server = Site::new()
        .table("[[route]]\npath = \"/open/\"\ncgi = \"cgi-bin\"\ndrop_shellshock = false")
        .start();
    for value in ["() { :;}; echo x", "() {", "\t() { _; } >_[$($())] { x; }"] {
        for name in ["User-Agent", "Referer", "X", "Cookie"] {
            let fields = format!("{name}: {value}\r\n");
            let env = environment(&server, "/cgi-bin/t", &fields);
            assert!(!env.iter().any(|v| v.contains("() {")), "{env:?}");
            let env = environment(&server, "/open/t", &fields);
            assert!(env.iter().any(|v| v.contains("=() {")), "{env:?}");
        }
    }
    server.says("() {");
    let env = environment(&server, "/cgi-bin/t", "X: a() { b\r\n");
    assert!(env.contains(&"HTTP_X=a() { b".to_owned()));
}

fn s4_4_words_of_the_query() {
    let script = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nfor a; do printf '[%s]' \"$a\"; done\n";
    let server = Site::new()
        .file("cgi-bin/words", script, 0o755)
        .file("cgi-bin/words.php", script, 0o644)
        .table("[[route]]\npath = \"/words/\"\ncgi = \"cgi-bin\"\nquery_args = true")
        .table("[interpreters]\n\".php\" = \"/bin/sh\"")
        .start();
    for (target, wanted) in [
        ("/words/words?a+b", "[a][b]"),
        ("/words/words?a%20b+%24(id)", "[a b][$(id)]"),
        ("/words/words?a=b", ""),
        ("/words/words?-s", ""),
        ("/words/words?%2ds", ""),
        ("/words/words?a+-s", ""),
        ("/words/words?a%00b", ""),
        ("/words/words", ""),
        ("/cgi-bin/words?a+b", ""),
        ("/words/words.php?a+b", ""),
        ("/words/words.php?-s", ""),
        ("/cgi-bin/words.php?-x", ""),
    ] {
        let reply = server.get(target);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, wanted),
            "{target}"
        );
    }
    let post =
        server.ask("POST /words/words?a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(post.text(), "");
}

const SOURCE: &str = "THE-SOURCE-OF-A-PROGRAM";

fn sources_never_appear() {
    let script = format!("#!/bin/sh\n# {SOURCE}\nprintf 'Content-Type: text/plain\\n\\nran'\n");
    let mut site = Site::new()
        .table("[interpreters]\n\".php\" = \"/bin/sh\"")
        .table("[[route]]\npath = \"/index/\"\nfiles = \"index\"\nindex = [\"index.php\"]\nlisting = true");
    for (path, mode) in [
        ("cgi-bin/run", 0o755),
        ("cgi-bin/run.php", 0o644),
        ("cgi-bin/run.bak", 0o644),
        ("cgi-bin/run~", 0o755),
        ("cgi-bin/.run", 0o755),
        ("cgi-bin/sub/run", 0o755),
        ("cgi-bin/text.txt", 0o644),
        ("cgi-bin/index.html", 0o644),
        ("public/run.php", 0o644),
        ("public/RUN.PHP", 0o644),
        ("public/run.php~", 0o644),
        ("public/run.php.bak", 0o644),
        ("public/.run.php.swp", 0o644),
        ("public/sub/run.php", 0o755),
        ("index/index.php", 0o644),
    ] {
        site = site.file(path, &script, mode);
    }
    let server = site.start();
    let scripts = [
        "/cgi-bin/run",
        "/cgi-bin/run.php",
        "/cgi-bin/run.bak",
        "/cgi-bin/run~",
        "/cgi-bin/.run",
        "/cgi-bin/sub/run",
        "/cgi-bin/text.txt",
        "/cgi-bin/",
        "/cgi-bin/index.html",
        "/run.php",
        "/RUN.PHP",
        "/sub/run.php",
        "/index/",
        "/index/index.php",
    ];
    let behind = [
        "", "%00", "%00.html", "%0a", "%0d", "%20", "%09", ".", "%2e", "..", "/", "//", "/.",
        "/..", "/x", ";x", ";x=/", "%3b", "%2f", "%2F", "%5c", "\\", "%252f", "%25", "%", "~",
        ".bak", ".old", ".orig", ".save", ".swp", "?-s", "?%2ds", "?source", "%3f", "%23",
        "::$DATA", ":", "%c0%80",
    ];
    for script in scripts {
        for end in behind {
            let target = format!("{script}{end}");
            let upper = target.to_ascii_uppercase();
            let doubled = format!("/{target}");
            for target in [&target, &upper, &doubled] {
                check_source(
                    &server,
                    &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n"),
                );
            }
        }
        for head in [
            format!("GET {script} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-\r\n"),
            format!("GET {script} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=-20,0-10\r\n"),
            format!("GET {script} HTTP/1.1\r\nHost: localhost\r\nTranslate: f\r\n"),
            format!("GET {script} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: br, gzip\r\n"),
            format!("GET {script} HTTP/1.0\r\n"),
            format!("GET http://localhost{script} HTTP/1.1\r\nHost: localhost\r\n"),
            format!("GET {script} HTTP/1.1\r\nHost: other.example\r\n"),
            format!("HEAD {script} HTTP/1.1\r\nHost: localhost\r\n"),
            format!("PUT {script} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"),
            format!("POST {script} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"),
            format!("PROPFIND {script} HTTP/1.1\r\nHost: localhost\r\n"),
            format!("COPY {script} HTTP/1.1\r\nHost: localhost\r\nDestination: /a.txt\r\n"),
            format!("get {script} HTTP/1.1\r\nHost: localhost\r\n"),
        ] {
            check_source(&server, &head);
        }
    }
    // They do run where they should.
    for target in ["/cgi-bin/run", "/cgi-bin/run.php", "/cgi-bin/sub/run"] {
        assert_eq!(server.get(target).text(), "ran", "{target}");
    }
    for target in [
        "/run.php",
        "/index/",
        "/index/index.php",
        "/run.php~",
        "/RUN.PHP",
    ] {
        assert_eq!(server.get(target).status, 403, "{target}");
    }
}

fn check_source(server: &Server, head: &str) {
    let mut client = server.connect();
    client.send(format!("{head}Connection: close\r\n\r\n"));
    let said = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(said.starts_with("HTTP/1.1 "), "{head}: {said}");
    assert!(!said.contains("SOURCE"), "{head}: {said}");
    assert!(!said.contains("printf"), "{head}: {said}");
}

fn a_program_folder_serves_no_files() {
    let server = Site::new()
        .file("cgi-bin/page.html", "<p>", 0o644)
        .file("cgi-bin/sub/data.db", "data", 0o600)
        .start();
    for (target, status) in [
        ("/cgi-bin/page.html", 403),
        ("/cgi-bin/sub/data.db", 403),
        ("/cgi-bin/page.html/more", 403),
        ("/cgi-bin/", 404),
        ("/cgi-bin/sub/", 404),
        ("/cgi-bin/sub", 404),
        ("/cgi-bin/none", 404),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    server.says("chmod +x");
}

/// Ways to write a step up, and a slash.
const UP: [&str; 16] = [
    "..",
    "%2e%2e",
    "%2E.",
    ".%2e",
    "%252e%252e",
    "..%00",
    "..%0a",
    "%00..",
    "....",
    "..;",
    "..%20",
    "%c0%ae%c0%ae",
    "%u002e%u002e",
    "%e0%80%ae%e0%80%ae",
    ".%00.",
    "%%32%65%%32%65",
];
const SLASH: [&str; 10] = [
    "/",
    "%2f",
    "%2F",
    "\\",
    "%5c",
    "//",
    "/./",
    "%252f",
    "%c0%af",
    "%ef%bc%8f",
];

fn traversal_by_encoding() {
    let server = Site::new()
        .file("secret", "OUTSIDE", 0o644)
        .file(
            "outside",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nOUTSIDE'\n",
            0o755,
        )
        .file("public/sub/a", "a", 0o644)
        .start();
    let mut tried = 0;
    for up in UP {
        for slash in SLASH {
            for (before, behind) in [
                ("/", "secret"),
                ("/sub", "secret"),
                ("/cgi-bin/", "outside"),
                ("/cgi-bin", "outside"),
                ("/cgi-bin/t/", "secret"),
            ] {
                let steps = format!("{up}{slash}").repeat(1 + tried % 3);
                let lead = if before.ends_with('/') { "" } else { slash };
                let target = format!("{before}{lead}{steps}{behind}");
                check_traversal(&server, &target);
                tried += 1;
            }
        }
    }
    for target in [
        "//etc/passwd",
        "///etc/passwd",
        "/%2fetc/passwd",
        "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/secret",
        "/dev/fd/3",
        "/cgi-bin//../secret",
        "/cgi-bin/t/../../secret",
        "/cgi-bin/t/%2e%2e/%2e%2e/secret",
        "/~root/secret",
        "/~root/.profile",
        "http://localhost/../secret",
        "file:///etc/passwd",
    ] {
        check_traversal(&server, target);
        tried += 1;
    }
    assert!(tried > 500);
}

fn check_traversal(server: &Server, target: &str) {
    let mut client = server.connect();
    client.send(format!(
        "GET {target}?head&env HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    ));
    let said = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(said.starts_with("HTTP/1.1 "), "{target}: {said}");
    let outside = said.contains("OUTSIDE") || said.contains("root:");
    assert!(!outside, "{target}: {said}");
    // What a program is told holds no step up either.
    for line in said.lines().filter(|l| l.starts_with("PATH_")) {
        let value = line.split('=').nth(1).unwrap();
        assert!(
            !value.split('/').any(|s| s == ".." || s == "."),
            "{target}: {line}"
        );
    }
}

fn traversal_by_links() {
    let site = Site::new()
        .file("secret", "OUTSIDE", 0o644)
        .file(
            "outside",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nOUTSIDE'\n",
            0o755,
        )
        .file("public/inside", "inside", 0o644)
        .file(
            "cgi-bin/inside",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\ninside'\n",
            0o755,
        );
    let at = |path: &str| site.path().join(path);
    for (to, link) in [
        ("../secret", "public/file"),
        ("..", "public/folder"),
        ("/etc", "public/etc"),
        ("/proc", "public/proc"),
        ("/proc/self/root", "public/root"),
        ("/proc/self/fd/0", "public/fd"),
        ("inside", "public/fine"),
        ("../outside", "cgi-bin/out"),
        ("..", "cgi-bin/up"),
        ("inside", "cgi-bin/fine"),
        ("loop", "public/loop"),
    ] {
        symlink(to, at(link)).unwrap();
    }
    symlink(at("secret"), at("public/absolute")).unwrap();
    let server = site.start();
    for target in [
        "/file",
        "/folder/secret",
        "/folder/public/inside",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "/root/etc/passwd",
        "/fd",
        "/absolute",
        "/loop",
        "/cgi-bin/out",
        "/cgi-bin/up/outside",
        "/cgi-bin/up/cgi-bin/inside",
    ] {
        let reply = server.get(target);
        assert!(
            matches!(reply.status, 403 | 404),
            "{target}: {}",
            reply.status
        );
        check_traversal(&server, target);
    }
    assert_eq!(server.get("/fine").text(), "inside");
    assert_eq!(server.get("/cgi-bin/fine").text(), "inside");
}

fn descriptors_of_a_program() {
    let server = Site::new().start();
    let idle: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = server.connect();
            client.get("/health");
            client.reply();
            client
        })
        .collect();
    let mut busy = server.connect();
    busy.get("/cgi-bin/t?head&touch=busy&hang");
    server.wait_for("busy");
    let fds = "/cgi-bin/t?head&fds";
    assert_eq!(server.get(fds).text(), "0 1 2\n");
    // After the logs were opened again too.
    std::fs::rename(server.path().join("access.log"), server.path().join("old")).unwrap();
    let pid = Pid::from_raw(server.pid() as i32).unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    eventually("the new log", || {
        server.path().join("access.log").exists().then_some(())
    });
    assert_eq!(server.get(fds).text(), "0 1 2\n");
    let post = format!("POST {fds} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(server.ask(post).text(), "0 1 2\n");
    drop(idle);
}

fn every_answer_goes_to_who_asked() {
    const CLIENTS: usize = 8;
    const EACH: usize = 250;
    let echo = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s' \"$QUERY_STRING\"\n";
    let local = "#!/bin/sh\nprintf 'Location: /cgi-bin/echo?%s\\n\\n' \"$QUERY_STRING\"\n";
    let redirect = "#!/bin/sh\nprintf 'Location: http://localhost/?%s\\n\\n' \"$QUERY_STRING\"\n";
    let body = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; cat\n";
    let server = Site::new()
        .file("cgi-bin/echo", echo, 0o755)
        .file("cgi-bin/local", local, 0o755)
        .file("cgi-bin/redirect", redirect, 0o755)
        .file("cgi-bin/body", body, 0o755)
        .start();
    let checked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for who in 0..CLIENTS {
            let (server, checked) = (&server, &checked);
            scope.spawn(move || {
                let mut client = server.connect();
                for n in 0..EACH {
                    let nonce = format!("nonce-{who}-{n}");
                    // Spread without a pattern that the other clients share.
                    let dice = (who * 7919 + n * 104_729) % 23;
                    let name = ["echo", "local", "redirect"][dice % 3];
                    if dice > 20 {
                        client.get(&format!("/cgi-bin/{name}?{nonce}"));
                        std::mem::replace(&mut client, server.connect()).reset();
                        continue;
                    }
                    if dice > 15 {
                        client.post("/cgi-bin/body", nonce.as_bytes());
                        assert_eq!(client.reply().text(), nonce);
                    } else {
                        client.get(&format!("/cgi-bin/{name}?{nonce}"));
                        let reply = client.reply();
                        let said = match name {
                            "redirect" => reply.field("location").unwrap_or_default().to_owned(),
                            _ => reply.text(),
                        };
                        let wanted = match name {
                            "redirect" => format!("http://localhost/?{nonce}"),
                            _ => nonce,
                        };
                        assert_eq!(said, wanted);
                    }
                    checked.fetch_add(1, Ordering::Relaxed);
                    if dice == 7 {
                        client = server.connect();
                    }
                }
            });
        }
    });
    assert!(checked.into_inner() > CLIENTS * EACH * 8 / 10);
}

fn error_pages_hold_nothing_of_the_request() {
    let server = Site::new()
        .file("cgi-bin/text", "", 0o644)
        .defaults("max_body = 10")
        .start();
    let get = |target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: canary.example\r\nX-Canary: canary\r\n{fields}\r\n")
    };
    for (status, request) in [
        (400, get("/canary#canary", "")),
        (400, get("/canary", "canary\r\n")),
        (400, get("/%00canary", "")),
        (403, get("/cgi-bin/text?canary", "")),
        (404, get("/canary?canary", "Cookie: canary\r\n")),
        (404, get("/cgi-bin/canary", "")),
        (404, get("/canary/", "")),
        (405, "CANARY /canary HTTP/1.1\r\nHost: canary.example\r\n\r\n".into()),
        (405, "TRACE /canary HTTP/1.1\r\nHost: canary.example\r\n\r\n".into()),
        (412, get("/file", "If-Match: \"canary\"\r\n")),
        (413, "POST /cgi-bin/t?canary HTTP/1.1\r\nHost: canary.example\r\nContent-Length: 99\r\n\r\ncanary".into()),
        (414, get(&format!("/canary{}", "a".repeat(20_000)), "")),
        (417, get("/canary", "Expect: canary\r\n")),
        (431, get("/canary", &"canary: canary\r\n".repeat(300))),
        (501, get("/canary", "Transfer-Encoding: canary\r\n")),
        (502, get("/cgi-bin/t?exit=1&canary", "")),
        (502, get("/cgi-bin/t?err=canary&out=canary", "")),
        (502, get("/cgi-bin/t?out=Status:%20canary%0a%0a", "")),
        (505, get("/canary", "").replace("HTTP/1.1", "HTTP/1.2")),
    ] {
        if status == 412 {
            std::fs::write(server.path().join("public/file"), "x").unwrap();
        }
        let reply = server.ask(&request);
        assert_eq!(reply.status, status, "{request}");
        let said = format!("{}{}", reply.head, reply.text());
        let lower = said.to_ascii_lowercase();
        assert!(!lower.contains("canary"), "{request}: {said}");
        let folder = server.path().to_str().unwrap();
        assert!(!said.contains(folder) && !said.contains("/cgi-bin"), "{said}");
        // What it does hold: the status, and the id by which the log knows the request.
        let id = said.split("<small>Request ").nth(1).unwrap().split('<').next().unwrap();
        assert_eq!(id.len(), 20, "{said}");
        eventually("the id in the log", || {
            server.access().iter().any(|l| l["id"] == id && l["status"] == status).then_some(())
        });
    }
}
