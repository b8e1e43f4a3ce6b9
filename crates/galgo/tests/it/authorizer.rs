//! Authorizers: applications that decide which requests are let in (FastCGI, 6.3).

use std::os::unix::net::UnixStream;

use galgo_proto::fcgi::{Outcome, RecordType, Role};

use crate::harness::{
    Test,
    child::pattern,
    encode, new_site,
    upstream::{Application, ended, hear, hold, record, say, stdout},
    watch::Watch,
};
use galgo_testkit::{Server, wait_until};

const AUTHORIZER: &str = "authorizer = \"unix:app.sock\"\n";

/// Starts a site with programs, files and a constant answer that an authorizer guards, and programs without one.
fn site(answer: impl Fn(&mut UnixStream) + Send + Sync + 'static) -> (Application, Server) {
    site_with("", answer)
}

fn site_with(
    clocks: &str,
    answer: impl Fn(&mut UnixStream) + Send + Sync + 'static,
) -> (Application, Server) {
    let site = new_site()
        .config("dev_errors = false")
        .defaults(clocks)
        .file("kept/a.txt", "secret", 0o644)
        .config(&format!(
            "[[route]]\npath = \"/in/\"\ncgi = \"cgi-bin\"\nenv = {{ COLOUR = \"grey\", KIND = \"one\" }}\n{AUTHORIZER}\
             [[route]]\npath = \"/kept/\"\nfiles = \"kept\"\n{AUTHORIZER}\
             [[route]]\npath = \"/said\"\nrespond = {{ body = \"secret\" }}\n{AUTHORIZER}"
        ));
    let application = Application::start(site.folder(), move |_, stream| answer(stream));
    (application, site.start())
}

fn prints(text: &str) -> Vec<u8> {
    [stdout(text), stdout(""), ended(Outcome::COMPLETE)].concat()
}

/// Returns an application that reads the whole request and prints `text`.
fn says(text: &'static str) -> impl Fn(&mut UnixStream) {
    move |stream| {
        hear(stream).unwrap();
        say(stream, prints(text));
    }
}

fn tests_of_one() -> Vec<Test> {
    macro_rules! each {
        ($($name:ident),* $(,)?) => {
            vec![$(Test::new(module_path!(), stringify!($name), $name)),*]
        };
    }
    each![
        a_grant_and_its_variables,
        s6_3_3_a_grant_without_a_status,
        what_it_is_told,
        a_denial_is_the_answer,
        every_kind_of_route,
        a_body_waits_for_the_grant,
        a_local_redirect_is_asked_for_by_itself,
        nobody_there,
    ]
}

/// Returns the tests of this module.
pub fn tests() -> Vec<Test> {
    let hostile = rows().into_iter().map(|row| {
        let name = row.0;
        let row = std::sync::Arc::new(row);
        Test::new(module_path!(), name, move || hostile(row.clone()))
    });
    tests_of_one().into_iter().chain(hostile).collect()
}

fn a_grant_and_its_variables() {
    let (_app, server) = site(says(
        "Status: 200 OK\r\nvariable-REMOTE_USER: ada\r\nVariable-AUTH_TYPE: Token\r\nVariable-COLOUR: red, or blue\r\nVariable-X-Foo: 1\r\n\
         X-Secret: s\r\nContent-Length: 3\r\n\r\nignored",
    ));
    let watch = Watch::begin(&server);
    let request = "GET /in/t/x?head&env HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer 1\r\nVariable-X: 1\r\n\r\n";
    let reply = server.ask(request);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.field("x-secret"), None);
    let text = reply.text();
    let lines: Vec<_> = text.lines().collect();
    for line in [
        "REMOTE_USER=ada",
        "AUTH_TYPE=Token",
        "COLOUR=red, or blue",
        "X_Foo=1",
        "KIND=one",
        "PATH_INFO=/x",
        "SCRIPT_NAME=/in/t",
    ] {
        let times = lines.iter().filter(|l| **l == line).count();
        assert_eq!(times, 1, "{line}\n{text}");
    }
    // Only the authorizer judges this field; the program does not get it.
    assert!(!text.contains("HTTP_AUTHORIZATION"), "{text}");
    assert!(
        !lines
            .iter()
            .any(|l| l.starts_with("X=") || *l == "COLOUR=grey")
    );
    // A grant holds for one request only.
    let other = server.get("/cgi-bin/t?head&env").text();
    assert!(!other.contains("REMOTE_USER"), "{other}");
    watch.after(&["ok", "ok"]);
}

/// RFC 3875, 6.3.3: the status is 200 if the authorizer sends none.
fn s6_3_3_a_grant_without_a_status() {
    let (_app, server) = site(says("Variable-COLOUR: red\n\n"));
    let watch = Watch::begin(&server);
    let text = server.get("/in/t?head&env").text();
    assert!(text.contains("COLOUR=red\n"), "{text}");
    assert_eq!(server.get("/kept/a.txt").text(), "secret");
    watch.after(&["ok", "ok"]);
}

fn what_it_is_told() {
    let (app, server) = site(|stream| {
        let heard = hear(stream).unwrap();
        assert_eq!(heard.role, Some(Role::AUTHORIZER));
        assert_eq!(heard.stdin, b"");
        let names = heard.params.iter().map(|(n, v)| format!(" {n}={v}"));
        let text: String = names.collect();
        say(
            stream,
            prints(&format!(
                "Status: 403\nContent-Type: text/plain\n\n{text} ."
            )),
        );
    });
    let watch = Watch::begin(&server);
    let reply = server.ask(
        "POST /in/t/info?a=b HTTP/1.1\r\nHost: a\r\nAuthorization: Basic eA==\r\nContent-Length: 4\r\nProxy: evil\r\n\r\nbody",
    );
    let text = reply.text();
    for pair in [
        " REQUEST_METHOD=POST ",
        " REQUEST_URI=/in/t/info?a=b ",
        " QUERY_STRING=a=b ",
        " HTTP_AUTHORIZATION=Basic eA== ",
        " REMOTE_ADDR=127.0.0.1 ",
        " GATEWAY_INTERFACE=CGI/1.1 ",
    ] {
        assert!(text.contains(pair), "{pair}\n{text}");
    }
    for name in [
        "CONTENT_LENGTH",
        "PATH_INFO",
        "PATH_TRANSLATED",
        "SCRIPT_NAME",
        "SCRIPT_FILENAME",
        "HTTP_PROXY",
        "COLOUR",
    ] {
        assert!(!text.contains(&format!(" {name}=")), "{name}\n{text}");
    }
    assert_eq!(app.accepted(), 1);
    watch.after(&["ok"]);
}

fn a_denial_is_the_answer() {
    let (_app, server) = site(says(
        "Status: 401 Who are you\nWWW-Authenticate: Basic realm=\"x\"\nVariable-SECRET: s\nContent-Type: text/plain\n\nname yourself",
    ));
    let watch = Watch::begin(&server);
    let reply = server.get("/in/t?touch=ran&head");
    assert_eq!(reply.status, 401);
    assert!(
        reply.head.starts_with("HTTP/1.1 401 Who are you\r\n"),
        "{}",
        reply.head
    );
    assert_eq!(reply.field("www-authenticate"), Some("Basic realm=\"x\""));
    assert_eq!(reply.field("variable-secret"), None);
    assert_eq!(reply.text(), "name yourself");
    assert!(!server.mark("ran").exists());
    // The refusal does not tell which files exist.
    for target in [
        "/in/none",
        "/in/",
        "/in",
        "/kept",
        "/kept/none",
        "/kept/a.txt",
    ] {
        assert_eq!(server.get(target).status, 401, "{target}");
    }
    watch.after(&["ok"; 7]);
}

fn every_kind_of_route() {
    let (app, server) = site(|stream| {
        let heard = hear(stream).unwrap();
        let known = heard.param("HTTP_X_KEY") == Some("1");
        say(
            stream,
            prints(if known {
                "Status: 200\n\n"
            } else {
                "Status: 403\nContent-Type: text/plain\n\nno"
            }),
        );
    });
    let watch = Watch::begin(&server);
    for target in ["/in/t?head&out=secret", "/kept/a.txt", "/said"] {
        let reply = server.get(target);
        assert_eq!((reply.status, reply.text()), (403, "no".into()), "{target}");
        let reply = server.ask(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\n\r\n"
        ));
        assert_eq!((reply.status, reply.text()), (200, "secret".into()));
    }
    assert_eq!(app.accepted(), 6);
    watch.after(&["ok"; 6]);
}

/// Until the grant, the authorizer gets no byte of the body, and the client is not asked to send it.
fn a_body_waits_for_the_grant() {
    let (_app, server) = site(|stream| {
        let heard = hear(stream).unwrap();
        assert_eq!(heard.stdin, b"");
        let known = heard.param("HTTP_X_KEY") == Some("1");
        say(
            stream,
            prints(if known {
                "Status: 200\n\n"
            } else {
                "Status: 403\nContent-Type: a/b\n\nno"
            }),
        );
        hold(stream);
    });
    let watch = Watch::begin(&server);
    let body = pattern(0, 300_000);
    let mut client = server.connect();
    client.send(
        "POST /in/t?head&echo HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nContent-Length: 300000\r\n\r\n",
    );
    client.send(&body);
    assert!(client.reply().body == body);
    // The connection is still in step: it answers the next request.
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    let mut client = server.connect();
    client.send("POST /in/t?head&echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    let reply = client.head();
    assert_eq!(reply.status, 403, "{}", reply.head);
    drop(client);
    let mut client = server.connect();
    client.send("POST /in/t?head&echo HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert!(client.until(b"100 Continue\r\n\r\n").is_some());
    client.send("body");
    assert_eq!(client.reply().text(), "body");
    drop(client);
    watch.after(&["ok"; 3]);
}

fn a_local_redirect_is_asked_for_by_itself() {
    let (app, server) = site(says("Status: 403\nContent-Type: text/plain\n\nno"));
    let watch = Watch::begin(&server);
    let target = format!("/cgi-bin/t?out={}", encode("Location: /kept/a.txt\n\n"));
    let reply = server.get(&target);
    assert_eq!((reply.status, reply.text()), (403, "no".into()));
    assert_eq!(app.accepted(), 1);
    watch.after(&["ok"]);
}

fn nobody_there() {
    let site = new_site()
        .file("kept/a.txt", "secret", 0o644)
        .config(&format!(
            "[[route]]\npath = \"/kept/\"\nfiles = \"kept\"\n{AUTHORIZER}"
        ));
    let server = site.start();
    let watch = Watch::begin(&server);
    let reply = server.get("/kept/a.txt");
    assert_eq!(reply.status, 502);
    assert!(!reply.text().contains("secret"));
    server.says("the socket does not exist");
    watch.after(&["script_error"]);
}

/// Name, bytes that the authorizer sends, whether it then closes the connection, status for the client,
/// outcome, and words of the error log.
type Row = (&'static str, Vec<u8>, bool, u16, &'static str, &'static str);

const GRANT: &str = "Status: 200\nVariable-REMOTE_USER: eve\n\n";

fn rows() -> Vec<Row> {
    let grant = || stdout(GRANT);
    let bad = |name, bytes: Vec<u8>, says| (name, bytes, false, 502, "script_error", says);
    let dies = |name, bytes: Vec<u8>| {
        let says = "closed the connection before the end of its response";
        (name, bytes, true, 502, "script_error", says)
    };
    let sets = |name, variable: &str, says| {
        let text = format!("Status: 200\nVariable-{variable}: x\n\n");
        bad(name, prints(&text), says)
    };
    vec![
        dies("dies_at_once", vec![]),
        dies("dies_behind_a_grant", grant()),
        dies(
            "dies_behind_the_end_of_a_grant",
            [grant(), stdout("")].concat(),
        ),
        bad(
            "garbage_behind_a_grant",
            [grant(), b"garbage, and more".to_vec()].concat(),
            "breaks the FastCGI protocol",
        ),
        bad(
            "a_grant_for_another_request",
            record(RecordType::STDOUT, 2, GRANT, 0),
            "not made",
        ),
        bad("nothing", ended(Outcome::COMPLETE), "printed nothing"),
        bad(
            "no_field",
            prints("\nVariable-REMOTE_USER: eve\n\n"),
            "the response head is empty",
        ),
        bad("no_head", prints("come in\n\n"), "is not a header field"),
        bad(
            "no_authorizer",
            ended(Outcome::UNKNOWN_ROLE),
            "FCGI_UNKNOWN_ROLE",
        ),
        (
            "overloaded_behind_a_grant",
            [grant(), ended(Outcome::OVERLOADED)].concat(),
            false,
            503,
            "busy",
            "overloaded",
        ),
        (
            "silence",
            vec![],
            false,
            504,
            "script_timeout",
            "first_byte_timeout",
        ),
        (
            "a_grant_without_an_end",
            grant(),
            false,
            504,
            "script_timeout",
            "idle_timeout",
        ),
        bad(
            "a_grant_and_much_behind_it",
            [grant(), stdout("x".repeat(60_000)).repeat(20)].concat(),
            "then printed more than 1M",
        ),
        sets("a_computed_variable", "SCRIPT_FILENAME", "computes"),
        sets("a_header_variable", "HTTP_PROXY", "computes"),
        sets("no_variable", "A.B", "not a valid name"),
        bad(
            "a_variable_twice",
            prints("Status: 200\nVariable-A: 1\nVariable-A: 2\n\n"),
            "twice",
        ),
    ]
}

/// The request is refused, whatever the authorizer does wrong.
fn hostile(row: std::sync::Arc<Row>) {
    let own = row.clone();
    // Only the tests of these clocks set them; other rows must not meet them on a slow machine.
    let clocks = match row.4 {
        "script_timeout" => "first_byte_timeout = \"2s\"\nidle_timeout = \"1s\"",
        _ => "",
    };
    let (app, server) = site_with(clocks, move |stream| {
        hear(stream);
        say(stream, &own.1);
        if !own.2 {
            hold(stream);
        }
    });
    let watch = Watch::begin(&server);
    let reply = server.get("/in/t?touch=ran&head&out=secret");
    assert_eq!(reply.status, row.3, "{reply:?}");
    assert!(!reply.text().contains("secret"));
    server.says(row.5);
    wait_until("the authorizer", || app.accepted() == 1);
    assert!(!server.mark("ran").exists());
    watch.after(&[row.4]);
}
