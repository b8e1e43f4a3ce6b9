//! Error pages: `errors`.

use crate::harness::{check_refuses, list, new_site, watch::Watch};
use galgo_testkit::{Server, Site};

list![
    files_and_programs,
    what_stays_as_it_is,
    a_page_that_leads_on,
    never_in_circles,
    no_program_where_there_is_no_room,
    wrong_configurations_are_named,
];

fn site() -> Site {
    new_site()
        .file("public/404.html", "nothing here", 0o644)
        .file("kept/a.txt", "secret", 0o644)
        .file("site.htpasswd", "", 0o640)
        .config(
            r#"
dev_errors = false
errors = { 404 = "/404.html", 401 = "/401.html", 5xx = "/cgi-bin/t?head&env" }
[[route]]
path = "/kept/"
files = "kept"
passwords = "site.htpasswd"
errors = { 401 = "/404.html" }
[[route]]
path = "/in/"
cgi = "cgi-bin"
[[route]]
path = "/also/"
files = "kept"
passwords = "site.htpasswd"
[[route]]
path = "/said"
respond = { status = 404, body = "said so" }
[[route]]
path = "/gone/"
files = "kept"
errors = { 404 = "/sorry" }
[[route]]
path = "/sorry"
respond = { status = 410, body = "sorry" }
"#,
        )
}

fn get(server: &Server, target: &str, fields: &str) -> (u16, String) {
    let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    (reply.status, reply.text())
}

fn files_and_programs() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let nothing = (404, "nothing here".to_owned());
    assert_eq!(get(&server, "/none", ""), nothing);
    assert_eq!(get(&server, "/gone/none", ""), (410, "sorry".to_owned()));
    assert_eq!(get(&server, "/cgi-bin/none", ""), nothing);
    // Conditions and ranges of the request concern the requested file, not the error page.
    assert_eq!(
        get(&server, "/none", "If-None-Match: *\r\nRange: bytes=0-1\r\n"),
        nothing
    );
    let reply = server.get("/none");
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert!(reply.fields("etag").is_empty() && reply.fields("last-modified").is_empty());
    // Clients may also request the path of the error page directly.
    assert_eq!(get(&server, "/404.html", "").0, 200);
    let reply = server.get("/kept/a.txt");
    assert_eq!((reply.status, reply.text().as_str()), (401, "nothing here"));
    assert!(reply.field("www-authenticate").is_some());
    let post = "POST /in/t?out=nonsense HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    let reply = server.ask(post);
    assert_eq!(reply.status, 502);
    for line in [
        "REDIRECT_STATUS=502",
        "REDIRECT_URL=/in/t",
        "REQUEST_METHOD=GET",
        "REQUEST_URI=/in/t?out=nonsense",
        "QUERY_STRING=head&env",
    ] {
        let text = reply.text();
        let times = text.lines().filter(|l| *l == line).count();
        assert_eq!(times, 1, "{line}\n{text}");
    }
    let mut client = server.connect();
    client.send("HEAD /none HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply = client.reply_to("HEAD");
    assert_eq!(
        (reply.status, reply.field("content-length")),
        (404, Some("12"))
    );
    drop(client);
    watch.after(&[
        "not_found",
        "not_found",
        "not_found",
        "not_found",
        "not_found",
        "ok",
        "client_error",
        "script_error",
        "not_found",
    ]);
}

fn what_stays_as_it_is() {
    let server = site().start();
    let own = "/cgi-bin/t?out=Status:%20404%0AContent-Type:%20a/b%0A%0Amine";
    assert_eq!(get(&server, own, ""), (404, "mine".into()));
    assert_eq!(get(&server, "/said", ""), (404, "said so".into()));
    // A malformed target gets no error page.
    assert_eq!(get(&server, "/../x", "").0, 400);
    // The error page does not exist.
    let (status, text) = get(&server, "/also/a.txt", "");
    assert!(status == 401 && text.contains("Unauthorized"), "{text}");
    server.says("no error page for status 401: /401.html: it is answered with 404");
}

fn a_page_that_leads_on() {
    let oops = "#!/bin/sh\necho Content-Type: text/plain\necho\n\
                echo $REDIRECT_STATUS $REDIRECT_URL $SCRIPT_NAME\n";
    let server = new_site()
        .file("public/nothing.html", "nothing here", 0o644)
        .file("oops/index.cgi", oops, 0o755)
        .config(
            r#"
dev_errors = false
errors = { 404 = "/tried/x", 403 = "/oops/", 401 = "/on" }
[[route]]
path = "/tried/"
files = "public"
try = ["/nowhere{path}", "/nothing.html"]
[[route]]
path = "/oops/"
files = "oops"
cgi_names = ["*.cgi"]
index = ["index.cgi"]
[[route]]
path = "/on"
redirect = { to = "/elsewhere" }
[[route]]
path = "/shut/"
files = "public"
access = { deny = ["all"] }
[[route]]
path = "/asks/"
files = "public"
passwords = "site.htpasswd"
"#,
        )
        .file("site.htpasswd", "", 0o640)
        .start();
    assert_eq!(get(&server, "/none", ""), (404, "nothing here".into()));
    let said = "403 /shut/x /oops/index.cgi\n".to_owned();
    assert_eq!(get(&server, "/shut/x", ""), (403, said));
    assert_eq!(get(&server, "/asks/x", "").0, 401);
    server.says("no error page for status 401: /on: it is answered with 302");
}

fn never_in_circles() {
    let server = new_site()
        .config(
            r#"
errors = { 404 = "/none.html", 401 = "/round/", 5xx = "/cgi-bin/t?out=nonsense", 403 = "/cgi-bin/t?out=Location:%20/cgi-bin/t%0A%0A" }
dev_errors = false
[[route]]
path = "/shut/"
files = "public"
access = { deny = ["all"] }
[[route]]
path = "/asks/"
files = "public"
passwords = "site.htpasswd"
[[route]]
path = "/round/"
files = "public"
try = ["/none{path}", "/about/"]
[[route]]
path = "/about/"
files = "public"
try = ["/none{path}", "/round/"]
"#,
        )
        .file("site.htpasswd", "", 0o640)
        .start();
    for (target, status) in [
        ("/asks/x", 401),
        ("/none", 404),
        ("/none.html", 404),
        ("/cgi-bin/t?out=nonsense", 502),
        ("/shut/x", 403),
    ] {
        assert_eq!(get(&server, target, "").0, status, "{target}");
    }
    server.says("no error page for status 401: /round/: more than 10 local redirects in a row");
    server.says("no error page for status 404: /none.html: it is answered with 404");
    server.says("no error page for status 502");
    server.says("no error page for status 403: /cgi-bin/t?");
    assert_eq!(server.get("/health").status, 200);
}

/// If the error page were a program, it would wait for a permit that is not free.
fn no_program_where_there_is_no_room() {
    let server = new_site()
        .file("mixed/busy.html", "busy", 0o644)
        .own_binary("mixed/oops.cgi")
        .own_binary("mixed/index.cgi")
        .config(
            r#"
max_running = 1
queue_wait = "100ms"
dev_errors = false
errors = { 404 = "/none.html" }
[[route]]
path = "/mixed/"
files = "mixed"
cgi_names = ["*.cgi"]
index = ["index.cgi"]
"#,
        )
        .config(&page("/file/", "/mixed/busy.html"))
        .config(&page("/program/", "/mixed/oops.cgi?head&touch=ran"))
        .config(&page("/index/", "/mixed/?head&touch=ran"))
        .start();
    let mut first = server.connect();
    first.get("/cgi-bin/t?touch=up&await=go&head&out=first");
    server.wait_for("up");
    assert_eq!(get(&server, "/file/t", ""), (503, "busy".into()));
    for target in ["/program/t", "/index/t"] {
        let (status, text) = get(&server, target, "");
        assert!(status == 503 && text.contains("Unavailable"), "{text}");
    }
    assert_eq!(get(&server, "/none", "").0, 404);
    // The error log keeps the order of events.
    server.says("no error page for status 404");
    let errors = server.errors();
    assert!(!errors.contains("no error page for status 503"), "{errors}");
    server.set("go");
    assert_eq!(first.reply().text(), "first");
    assert!(!server.mark("ran").exists());
}

/// Returns a route for programs with an error page for 503.
fn page(path: &str, page: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\ncgi = \"cgi-bin\"\nerrors = {{ 503 = \"{page}\" }}\n")
}

fn wrong_configurations_are_named() {
    for (keys, words) in [
        ("errors = { 200 = \"/x\" }", "is not the status of an error"),
        ("errors = { 6xx = \"/x\" }", "is not the status of an error"),
        ("errors = { 404 = \"x\" }", "is not the path of a page"),
        ("errors = { 404 = \"//x\" }", "is not the path of a page"),
        ("errors = { 404 = \"/../x\" }", "is not the path of a page"),
    ] {
        check_refuses(
            &new_site(),
            &format!("{keys}\n[[route]]\npath = \"/\"\nfiles = \"public\"\n"),
            words,
        );
    }
}
