//! Answers that are kept for a short time and made once for all clients that ask meanwhile: `cache = "2s"`.

use crate::harness::{list, new_site, watch::Watch};
use galgo_testkit::{Client, Reply, Server, wait_until};

list![
    one_program_answers_all_who_wait,
    an_answer_is_kept_for_a_while,
    a_request_that_may_change_the_page_makes_it_stale,
    an_answer_of_before_a_change_is_not_kept,
    the_age_of_an_answer_goes_on,
    what_is_not_kept,
    requests_that_have_their_own_answer,
    other_requests_have_other_answers,
    what_the_program_is_not_told,
    conditions_and_head,
    conditions_on_an_answer_without_a_version,
    a_client_that_leaves_does_not_take_the_answer_with_it,
    a_program_that_goes_on_without_its_client_makes_the_page_stale,
    a_program_that_hangs_is_waited_for_no_longer_than_a_permit,
    a_program_that_dies_is_replaced,
    a_long_answer_is_not_kept,
    a_client_that_does_not_read_holds_up_nobody,
];

/// Starts a site whose program adds a line to `marks/runs` on each run; `script` may use the number of the run, `$n`.
fn serve(script: &str, more: &str) -> Server {
    let script =
        format!("#!/bin/sh\necho run >> ../marks/runs\nn=$(wc -l < ../marks/runs)\n{script}\n");
    new_site()
        .config("dev_errors = false")
        .defaults("kill_grace = \"100ms\"")
        .config("[[route]]\npath = \"/page/\"\ncgi = \"cgi-bin\"\ncache = \"1h\"")
        .config(more)
        .file("cgi-bin/p", script, 0o755)
        .start()
}

const PAGE: &str = "printf 'Content-Type: text/plain\\n%b\\n%s' \"$FIELDS\" \"page $n\"";

fn runs(server: &Server) -> usize {
    let text = std::fs::read_to_string(server.mark("runs"));
    text.unwrap_or_default().lines().count()
}

fn kind(reply: &Reply) -> Option<&str> {
    reply.field("x-cache")
}

fn ask(server: &Server, target: &str, fields: &str) -> Reply {
    server.ask(format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ))
}

/// Returns clients with a request each that the server has read.
fn waiting(server: &Server, number: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..number).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.get("/page/p");
        client.wait_until_read();
    }
    clients
}

/// Makes the first run wait for the mark `go`.
const WAITS: &str =
    "if [ $n = 1 ]; then touch ../marks/on; until [ -e ../marks/go ]; do sleep 0.01; done; fi";

fn one_program_answers_all_who_wait() {
    let server = serve(&format!("{WAITS}; {PAGE}"), "max_running = 2");
    let watch = Watch::begin(&server);
    let mut clients = waiting(&server, 1);
    server.wait_for("on");
    clients.extend(waiting(&server, 30));
    server.set("go");
    let replies: Vec<_> = clients.iter_mut().map(Client::reply).collect();
    assert!(replies.iter().all(|r| r.text() == "page 1"), "{replies:?}");
    assert_eq!(kind(&replies[0]), Some("miss"));
    assert!(replies[1..].iter().all(|r| kind(r) == Some("hit")));
    assert_eq!(runs(&server), 1);
    drop(clients);
    watch.after(&["ok"; 31]);
}

fn an_answer_is_kept_for_a_while() {
    let short = "[[route]]\npath = \"/page/\"\ncgi = \"cgi-bin\"\ncache = \"200ms\"";
    let server = serve(PAGE, short);
    let first = server.get("/page/p");
    assert_eq!((kind(&first), first.field("age")), (Some("miss"), None));
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert_eq!(server.get("/page/p").text(), "page 2");
    // The program asks for a shorter time than the route, so its `max-age` counts.
    let server = serve(&format!("FIELDS='Cache-Control: max-age=1\\n'\n{PAGE}"), "");
    assert_eq!(server.get("/page/p").text(), "page 1");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(server.get("/page/p").text(), "page 2");
    // The cache keeps the whole answer: status, fields and body.
    let server = serve(
        &format!("FIELDS='X-A: b\\nStatus: 404 Gone away\\n'\n{PAGE}"),
        "",
    );
    for wanted in ["miss", "hit"] {
        let reply = server.get("/page/p");
        assert_eq!((reply.status, kind(&reply)), (404, Some(wanted)));
        assert_eq!(
            (reply.field("x-a"), reply.text().as_str()),
            (Some("b"), "page 1")
        );
        assert!(reply.head.contains("404 Gone away"), "{}", reply.head);
        assert_eq!(reply.field("age").is_some(), wanted == "hit");
    }
}

/// RFC 9111, 4.4: invalidation of stored responses.
fn a_request_that_may_change_the_page_makes_it_stale() {
    let script = format!("FIELDS=\"Status: ${{QUERY_STRING:-200}}\\nX-A: b\\n\"\n{PAGE}");
    let server = serve(&script, "");
    let pages = ["/page/p", "/page/p?200", "/page/p/other"];
    for (request, still_kept) in [
        ("POST /page/p", [false, false, true]),
        ("DELETE /page/p?201", [false, false, true]),
        ("PUT /page/p?303", [false, false, true]),
        ("X-ANY /page/p", [false, false, true]),
        ("POST /page/p?500", [true; 3]),
        ("POST /page/p?404", [true; 3]),
        ("OPTIONS /page/p", [true; 3]),
        ("POST /page/p/more", [true; 3]),
    ] {
        // Every page is in the cache before the request.
        pages.iter().for_each(|page| drop(server.get(page)));
        let reply = server.ask(format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        ));
        assert!(kind(&reply).is_none(), "{request}: {}", reply.head);
        for (page, is_kept) in pages.iter().zip(still_kept) {
            let want = if is_kept { "hit" } else { "miss" };
            assert_eq!(kind(&server.get(page)), Some(want), "{request}: {page}");
        }
    }
}

fn an_answer_of_before_a_change_is_not_kept() {
    let server = serve(&format!("{WAITS}; {PAGE}"), "max_running = 2");
    let mut clients = waiting(&server, 1);
    server.wait_for("on");
    let post = "POST /page/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(server.ask(post).text(), "page 2");
    server.set("go");
    assert_eq!(clients[0].reply().text(), "page 1");
    assert_eq!(server.get("/page/p").text(), "page 3");
    assert_eq!(server.get("/page/p").text(), "page 3");
}

/// RFC 9111, 4.2.3 and 5.1: the age of a stored response.
fn the_age_of_an_answer_goes_on() {
    let server = serve(
        &format!("FIELDS='Age: 300\\nCache-Control: max-age=99999999999999999999\\n'\n{PAGE}"),
        "",
    );
    assert_eq!(server.get("/page/p").field("age"), Some("300"));
    let hit = server.get("/page/p");
    let age = hit.field("age").and_then(|age| age.parse::<u64>().ok());
    assert!(
        kind(&hit) == Some("hit") && age >= Some(300),
        "{}",
        hit.head
    );
}

fn what_is_not_kept() {
    for fields in [
        "Set-Cookie: a=b",
        "Cache-Control: no-store",
        "Cache-Control: private",
        "Cache-Control: max-age=0",
        "Vary: *",
        "Vary: Cookie",
        "Status: 500",
        "Status: 302\\nLocation: /x",
        "Content-Length: 9",
    ] {
        let server = serve(&format!("FIELDS='{fields}\\n'\n{PAGE}"), "");
        for n in 1..4 {
            let reply = server.get("/page/p");
            assert_eq!(
                (kind(&reply), runs(&server)),
                (None, n),
                "{fields} {reply:?}"
            );
        }
    }
}

fn requests_that_have_their_own_answer() {
    let server = serve(PAGE, "");
    assert_eq!(server.get("/page/p").text(), "page 1");
    for (n, fields) in [
        "Cookie: a=b\r\n",
        "Authorization: Basic eA==\r\n",
        "Range: bytes=0-1\r\n",
        "Cache-Control: no-store\r\n",
    ]
    .iter()
    .enumerate()
    {
        let reply = ask(&server, "/page/p", fields);
        assert_eq!(reply.text(), format!("page {}", n + 2), "{fields}");
        assert_eq!(kind(&reply), None);
    }
    // A client cannot force the server to make another client's answer anew.
    assert_eq!(
        ask(&server, "/page/p", "Cache-Control: no-cache\r\n").text(),
        "page 1"
    );
    let post = "POST /page/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(server.ask(post).text(), "page 6");
}

fn other_requests_have_other_answers() {
    let server = serve(
        &format!("FIELDS='Vary: Accept-Language, Accept\\n'\n{PAGE}"),
        "",
    );
    let requests = [
        ("/page/p", "localhost", ""),
        ("/page/p?a", "localhost", ""),
        ("/page/p?b", "localhost", ""),
        ("/page/p/x", "localhost", ""),
        ("/page/p", "evil.example", ""),
        ("/page/p", "localhost:81", ""),
        ("/page/p", "localhost", "Accept-Language: de\r\n"),
        ("/page/p", "localhost", "Accept-Language: en\r\n"),
        ("/page/p", "localhost", "Accept: de\r\n"),
    ];
    for wanted in ["miss", "hit"] {
        for (n, (target, host, fields)) in requests.iter().enumerate() {
            let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
            let reply = server.ask(&request);
            assert_eq!(reply.text(), format!("page {}", n + 1), "{request}");
            assert_eq!(kind(&reply), Some(wanted), "{request}");
        }
    }
    // A field that Vary does not name does not matter.
    let reply = ask(&server, "/page/p", "User-Agent: x\r\n");
    assert_eq!(
        (kind(&reply), reply.text().as_str()),
        (Some("hit"), "page 1")
    );
}

/// A program could copy these fields into a page for other clients, so the server does not pass them on.
fn what_the_program_is_not_told() {
    let server = serve("printf 'Content-Type: a/b\\n\\n'; env", "");
    let fields = "X-Forwarded-Host: evil\r\nX-Original-URL: /evil\r\nForwarded: host=evil\r\n\
        Origin: evil\r\nReferer: evil\r\nX-A: evil\r\nIf-None-Match: \"evil\"\r\nAccept: kept\r\n";
    let reply = ask(&server, "/page/p", fields);
    assert_eq!(kind(&reply), Some("miss"));
    let told = reply.text();
    assert!(!told.contains("evil"), "{told}");
    for line in ["HTTP_ACCEPT=kept", "HTTP_HOST=localhost"] {
        assert!(told.lines().any(|l| l == line), "{told}");
    }
}

fn conditions_and_head() {
    let server = serve(&format!("FIELDS='ETag: \"e\"\\n'\n{PAGE}"), "");
    for wanted in [Some("miss"), Some("hit")] {
        let reply = ask(&server, "/page/p", "If-None-Match: \"e\"\r\n");
        assert_eq!((reply.status, kind(&reply)), (304, wanted));
    }
    assert_eq!(
        ask(&server, "/page/p", "If-None-Match: \"f\"\r\n").text(),
        "page 1"
    );
    assert_eq!(ask(&server, "/page/p", "If-Match: \"f\"\r\n").status, 412);
    let mut client = server.connect();
    client.send("HEAD /page/p HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let reply = client.reply_to("HEAD");
    assert_eq!(
        (kind(&reply), reply.field("content-length")),
        (Some("hit"), Some("6"))
    );
    assert_eq!(runs(&server), 1);
}

/// The program sees no conditions, so only the server can decide them (RFC 9110, 13.1).
fn conditions_on_an_answer_without_a_version() {
    let server = serve(PAGE, "");
    for wanted in ["miss", "hit"] {
        let reply = ask(&server, "/page/p", "If-None-Match: *\r\n");
        assert_eq!((reply.status, kind(&reply)), (304, Some(wanted)));
    }
    for (fields, wanted) in [
        ("If-Match: \"f\"\r\n", 412),
        ("If-Match: *\r\n", 200),
        ("If-None-Match: \"f\"\r\n", 200),
        (
            "If-Unmodified-Since: Thu, 01 Jan 1990 00:00:00 GMT\r\n",
            200,
        ),
    ] {
        assert_eq!(ask(&server, "/page/p", fields).status, wanted, "{fields}");
    }
    assert_eq!(runs(&server), 1);
}

/// With `run_to_completion` the program changes the page after the client of the change has gone.
fn a_program_that_goes_on_without_its_client_makes_the_page_stale() {
    let script = "if [ $REQUEST_METHOD = POST ]; then cat >/dev/null; touch ../marks/on\n\
        until [ -e ../marks/go ]; do sleep 0.01; done; touch ../marks/changed; fi\n\
        printf 'Content-Type: text/plain\\n\\n'; if [ -e ../marks/changed ]; then echo new; else echo old; fi";
    let more = "[defaults]\nrun_to_completion = true";
    let server = serve(script, more);
    let mut client = server.connect();
    client.post("/page/p", b"x");
    server.wait_for("on");
    drop(client);
    assert_eq!(server.get("/page/p").text(), "old\n");
    assert_eq!(kind(&server.get("/page/p")), Some("hit"));
    server.set("go");
    wait_until("the new page", || server.get("/page/p").text() == "new\n");
}

fn a_client_that_leaves_does_not_take_the_answer_with_it() {
    let server = serve(&format!("{WAITS}; {PAGE}"), "");
    let watch = Watch::begin(&server);
    let first = waiting(&server, 1).remove(0);
    server.wait_for("on");
    let mut others = waiting(&server, 5);
    first.reset();
    // The test never sets the mark `go`.
    for client in &mut others {
        assert_eq!(client.reply().text(), "page 2");
    }
    assert_eq!(runs(&server), 2);
    drop(others);
    watch.after(&["ok", "ok", "ok", "ok", "ok", "client_gone"]);
}

fn a_program_that_hangs_is_waited_for_no_longer_than_a_permit() {
    let server = serve(&format!("{WAITS}; {PAGE}"), "queue_wait = \"1s\"");
    let mut first = waiting(&server, 1).remove(0);
    server.wait_for("on");
    for mut client in waiting(&server, 3) {
        let reply = client.reply();
        assert_eq!((reply.status, kind(&reply)), (200, None));
    }
    server.set("go");
    assert_eq!(first.reply().text(), "page 1");
}

fn a_program_that_dies_is_replaced() {
    let server = serve(&format!("{WAITS}; [ $n = 1 ] && kill -9 $$; {PAGE}"), "");
    let mut first = waiting(&server, 1).remove(0);
    server.wait_for("on");
    let mut others = waiting(&server, 5);
    server.set("go");
    assert_eq!(first.reply().status, 502);
    for client in &mut others {
        assert_eq!(client.reply().text(), "page 2");
    }
    assert_eq!(runs(&server), 2);
}

fn a_long_answer_is_not_kept() {
    let server = serve(
        "printf 'Content-Type: a/b\\n\\n'; head -c 3000000 /dev/zero",
        "",
    );
    let watch = Watch::begin(&server).memory(32 << 20);
    for n in 1..4 {
        let reply = server.get("/page/p");
        assert_eq!((reply.body.len(), kind(&reply)), (3_000_000, None));
        assert_eq!(runs(&server), n);
    }
    watch.after(&["ok"; 3]);
}

/// The first client to be answered, which reads nothing, does not hold up others: its answer is
/// whole before it is sent.
fn a_client_that_does_not_read_holds_up_nobody() {
    let server = serve(
        "printf 'Content-Type: a/b\\n\\n'; head -c 1000000 /dev/zero",
        "",
    );
    let deaf = waiting(&server, 1);
    for _ in 0..3 {
        let reply = server.get("/page/p");
        assert_eq!(reply.body.len(), 1_000_000);
        assert_eq!(runs(&server), 1);
    }
    drop(deaf);
}
