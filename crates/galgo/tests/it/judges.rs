//! Programs that decide whether a request is allowed: `authorizer = { cgi = "…" }`.

use crate::harness::{child::pattern, list, new_site, watch::Watch};
use galgo_testkit::Server;

list![
    a_grant_and_its_variables,
    what_it_is_told,
    the_body_is_for_who_answers,
    a_denial_is_the_answer,
    what_fails_lets_nobody_in,
    a_client_that_leaves_ends_it,
    it_gives_its_permit_back,
    its_source_is_not_shown,
];

const GRANT: &str = "printf 'Status: 204\\nVariable-REMOTE_USER: ada\\nVariable-COLOUR: red\\n\\n'";

/// Starts a server whose programs and files `script` guards.
fn serve(script: &str) -> Server {
    serve_with(script, "", "")
}

fn serve_with(script: &str, defaults: &str, more: &str) -> Server {
    new_site()
        .config("dev_errors = false")
        .config(more)
        .defaults(defaults)
        .defaults("kill_grace = \"100ms\"")
        .file("judge", format!("#!/bin/sh\n{script}\n"), 0o755)
        .file("kept/a.txt", "secret", 0o644)
        .config(
            "[[route]]\npath = \"/in/\"\ncgi = \"cgi-bin\"\nauthorizer = { cgi = \"judge\" }\nenv = { COLOUR = \"grey\" }\n\
             [[route]]\npath = \"/kept/\"\nfiles = \"kept\"\nauthorizer = { cgi = \"judge\" }",
        )
        .start()
}

fn a_grant_and_its_variables() {
    let server = serve(GRANT);
    let watch = Watch::begin(&server);
    let told = server.get("/in/t?head&env").text();
    for line in ["REMOTE_USER=ada", "COLOUR=red", "SCRIPT_NAME=/in/t"] {
        assert_eq!(told.lines().filter(|l| *l == line).count(), 1, "{told}");
    }
    assert!(!told.contains("grey"), "{told}");
    assert_eq!(server.get("/kept/a.txt").text(), "secret");
    // A grant holds only for its own request.
    assert!(!server.get("/cgi-bin/t?head&env").text().contains("ada"));
    watch.after(&["ok"; 3]);
}

fn what_it_is_told() {
    let server = serve(&format!("env > marks/told; cat > marks/input; {GRANT}"));
    let request = "POST /in/x/../t/y?head&count HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer 1\r\nX-A: b\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(server.ask(request).text(), "3");
    let told = std::fs::read_to_string(server.mark("told")).unwrap();
    let judge = format!("SCRIPT_FILENAME={}", server.path("judge").display());
    for line in [
        "REQUEST_METHOD=POST",
        "REQUEST_URI=/in/t/y?head&count",
        "HTTP_AUTHORIZATION=Bearer 1",
        "HTTP_X_A=b",
        &judge,
    ] {
        assert!(told.lines().any(|l| l == line), "{line} in {told}");
    }
    for name in ["CONTENT_LENGTH=", "SCRIPT_NAME=", "PATH_INFO=", "COLOUR="] {
        assert!(
            !told.lines().any(|l| l.starts_with(name)),
            "{name} in {told}"
        );
    }
    assert_eq!(std::fs::read(server.mark("input")).unwrap(), b"");
}

/// The body begins to arrive while the authorizer runs.
fn the_body_is_for_who_answers() {
    let server = serve(&format!(
        "touch marks/on; until [ -e marks/go ]; do sleep 0.01; done; {GRANT}"
    ));
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    let body = pattern(0, 300_000);
    client.begin_post("/in/t?head&echo", body.len());
    client.send(&body[..40_000]);
    server.wait_for("on");
    client.send(&body[40_000..50_000]);
    server.set("go");
    client.send(&body[50_000..]);
    assert!(client.reply().body == body);
    drop(client);
    watch.after(&["ok"]);
}

fn a_denial_is_the_answer() {
    let server = serve(
        "case $QUERY_STRING in\n\
         401) printf 'Status: 401\\nWWW-Authenticate: X\\nVariable-A: b\\nContent-Type: a/b\\n\\nwho?' ;;\n\
         there) printf 'Status: 303\\nLocation: /login\\n\\n' ;;\n\
         here) printf 'Location: /health\\n\\n' ;;\n\
         esac",
    );
    let watch = Watch::begin(&server);
    for target in ["/in/t", "/kept/a.txt"] {
        let reply = server.get(&format!("{target}?401"));
        assert_eq!((reply.status, reply.text().as_str()), (401, "who?"));
        assert_eq!(reply.field("www-authenticate"), Some("X"));
        assert_eq!(reply.field("variable-a"), None);
        let reply = server.get(&format!("{target}?there"));
        assert_eq!(
            (reply.status, reply.field("location")),
            (303, Some("/login"))
        );
        assert_eq!(server.get(&format!("{target}?here")).text(), "fine");
    }
    watch.after(&["ok"; 6]);
}

fn what_fails_lets_nobody_in() {
    let server = serve_with(
        &format!(
            "case $QUERY_STRING in\n\
             exit) {GRANT}; exit 1 ;;\n\
             die) {GRANT}; kill -9 $$ ;;\n\
             nothing) ;;\n\
             text) echo hello ;;\n\
             half) printf 'Status: 200' ;;\n\
             path) printf 'Variable-PATH: /tmp\\n\\n' ;;\n\
             stays) {GRANT}; exec >&-; sleep 100 ;;\n\
             late) sleep 100 ;;\n\
             esac"
        ),
        "first_byte_timeout = \"1s\"",
        "",
    );
    let watch = Watch::begin(&server);
    for (query, status) in [
        ("exit", 502),
        ("die", 502),
        ("nothing", 502),
        ("text", 502),
        ("half", 502),
        ("path", 502),
        ("stays", 502),
        ("late", 504),
    ] {
        let reply = server.get(&format!("/kept/a.txt?{query}"));
        assert_eq!(reply.status, status, "{query}: {reply:?}");
        assert!(!reply.text().contains("secret"), "{query}");
    }
    server.says("the authorizer let the request in, but ended with status 1");
    let mut outcomes = ["script_error"; 8];
    outcomes[7] = "script_timeout";
    watch.after(&outcomes);
    // A missing authorizer allows nothing either.
    std::fs::remove_file(server.path("judge")).unwrap();
    assert_ne!(server.get("/kept/a.txt").status, 200);
}

fn a_client_that_leaves_ends_it() {
    let server = serve("trap '' TERM; touch marks/on; sleep 100 & wait; sleep 100");
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.get("/kept/a.txt");
    server.wait_for("on");
    client.reset();
    watch.after(&["client_gone"]);
}

/// The authorizer gives its permit back before the program that answers asks for one.
fn it_gives_its_permit_back() {
    let server = serve_with(GRANT, "", "max_running = 1");
    for _ in 0..5 {
        assert_eq!(server.get("/in/t?head&out=x").text(), "x");
    }
}

fn its_source_is_not_shown() {
    let site = new_site().file("public/judge", "#!/bin/sh\n", 0o755);
    site.write(
        "galgo.toml",
        "[[route]]\npath = \"/\"\nfiles = \"public\"\n[[route]]\npath = \"/x\"\nrespond = { body = \"x\" }\nauthorizer = { cgi = \"public/judge\" }\n",
    );
    let check = site.galgo(&["check"]);
    assert!(
        check.out.contains("anybody could read their sources"),
        "{}",
        check.out
    );
}
