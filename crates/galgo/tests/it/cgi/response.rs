//! Responses that a program may print, and how the server frames them.

use crate::harness::{child::pattern, encode, list, new_site, watch::Watch};
use galgo_testkit::{End, Reply, Server};

list![
    s6_2_1_document,
    s6_2_2_local_redirect_is_reprocessed,
    s6_2_2_local_redirect_after_a_body_has_none,
    s6_2_2_local_redirect_of_head_stays_head,
    s6_2_2_local_redirect_with_one_place,
    s6_3_1_a_document_without_a_type,
    s9110_13_a_document_is_compared_with_what_the_client_has,
    s6_2_3_client_redirect,
    s6_2_4_client_redirect_with_document,
    s6_3_3_status_with_its_own_reason,
    s6_3_4_every_set_cookie_is_kept,
    s6_3_4_unknown_fields_are_passed_on,
    s6_3_4_a_thousand_fields_are_passed_on,
    s6_3_5_x_cgi_fields_are_removed,
    fields_about_the_connection_are_removed,
    fields_that_the_server_adds_are_there_once,
    s8_6_no_length_of_a_204_and_the_stored_one_of_a_304,
    s6_3_1_an_empty_content_type_is_a_missing_one,
    what_is_no_head_is_shown_to_its_author,
    s5_nph_output_is_not_touched,
    s5_nph_without_output_is_a_502,
];

/// Returns the response to a program that prints `bytes`.
pub(super) fn printed(bytes: impl AsRef<[u8]>) -> Reply {
    let server = new_site().start();
    let reply = server.get(&format!("/cgi-bin/t?out={}", encode(bytes)));
    assert_eq!(reply.end, End::Whole);
    reply
}

fn s6_2_1_document() {
    let reply = printed("Content-Type: text/x-test; charset=utf-8\n\nhello");
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.field("content-type"),
        Some("text/x-test; charset=utf-8")
    );
    assert!(reply.field("date").is_some() && reply.field("server").is_some());
    assert_eq!(reply.text(), "hello");
}

fn s6_2_2_local_redirect_is_reprocessed() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let there = "/cgi-bin/t/path%20info?head&env";
    let location = encode(format!("Location: {there}\n\n"));
    let text = server.get(&format!("/cgi-bin/t?out={location}")).text();
    for line in [
        "PATH_INFO=/path info",
        "QUERY_STRING=head&env",
        "REQUEST_METHOD=GET",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    watch.after(&["ok"]);
}

fn s6_2_2_local_redirect_after_a_body_has_none() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let location = encode("Location: /cgi-bin/t?head&count&env\n\n");
    let mut client = server.connect();
    // The first body was not read, the second was read, and the third is still on its way.
    client.post(&format!("/cgi-bin/t?out={location}"), &pattern(0, 100_000));
    let unread = client.reply().text();
    client.post(
        &format!("/cgi-bin/t?take=1000&out={location}"),
        &pattern(0, 1000),
    );
    let read = client.reply().text();
    client.begin_post(&format!("/cgi-bin/t?out={location}"), 70_000);
    client.send(pattern(0, 69_000));
    let coming = client.reply().text();
    client.send(pattern(0, 1000));
    for text in [unread, read, coming] {
        assert!(text.starts_with('0'), "a body: {text}");
        assert!(text.contains("REQUEST_METHOD=GET\n"), "{text}");
        assert!(!text.contains("CONTENT_"), "{text}");
    }
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    watch.after(&["ok"; 3]);
}

fn s6_2_2_local_redirect_of_head_stays_head() {
    let server = new_site().start();
    let location = encode("Location: /cgi-bin/t?touch=head&head&out=x\n\n");
    let mut client = server.connect();
    client.send(format!(
        "HEAD /cgi-bin/t?out={location} HTTP/1.1\r\nHost: a\r\n\r\n"
    ));
    assert_eq!(client.reply_to("HEAD").status, 200);
    assert!(server.mark("head").exists());
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
}

/// The first program still runs when the second asks for the only permit.
fn s6_2_2_local_redirect_with_one_place() {
    let server = new_site()
        .config("max_running = 1")
        .defaults("kill_grace = \"50ms\"")
        .start();
    let watch = Watch::begin(&server);
    let location = encode("Location: /cgi-bin/t?head&out=there\n\n");
    let reply = server.get(&format!("/cgi-bin/t?deaf&out={location}&hang"));
    assert_eq!(reply.text(), "there");
    watch.after(&["ok"]);
}

/// Such a document is delivered unchanged, with one warning for each program.
fn s6_3_1_a_document_without_a_type() {
    let server = new_site().own_binary("cgi-bin/other").start();
    let watch = Watch::begin(&server);
    let ask = |program: &str, head: &str| {
        let reply = server.get(&format!("/cgi-bin/{program}?out={}", encode(head)));
        assert_eq!(reply.field("content-type"), None, "{head}");
        (reply.status, reply.text())
    };
    let said = || {
        server
            .errors()
            .matches("a document but no Content-Type")
            .count()
    };
    // A response without a body needs no type.
    assert_eq!(ask("t", "Status: 404\n\n"), (404, String::new()));
    assert_eq!(said(), 0);
    for (head, status) in [
        ("Status: 200 OK\n\nbody", 200),
        ("Status: 404\n\nbody", 404),
        ("X-Thing: a\n\nbody", 200),
        ("Set-Cookie: a=b\nContent-Length: 4\n\nbody", 200),
        ("Content-Length: 4\n\nbody", 200),
    ] {
        assert_eq!(ask("t", head), (status, "body".into()), "{head}");
    }
    server.says("] /cgi-bin/t: the response has a document but no Content-Type");
    assert_eq!(ask("other", "Status: 200\n\nbody"), (200, "body".into()));
    server.says("] /cgi-bin/other: the response has a document but no Content-Type");
    assert_eq!(said(), 2);
    watch.after(&["ok"; 7]);
}

/// Returns the response to a request for a program that prints `printed`. A second request on the same
/// connection must be answered, too.
fn ask_twice(server: &Server, method: &str, printed: &str, fields: &str) -> Reply {
    let target = format!("/cgi-bin/t?out={}", encode(printed));
    let mut client = server.connect();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    let reply = client.reply_to(method);
    // The connection is still in step: it answers the next request.
    assert_eq!(client.reply().text(), "fine");
    reply
}

/// A program that names the version of its document need not look at the client's conditions: the server compares.
fn s9110_13_a_document_is_compared_with_what_the_client_has() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let ask = |method, printed, fields| ask_twice(&server, method, printed, fields);
    let tagged = "Content-Type: text/plain\nContent-Length: 4\nETag: \"a\"\nSet-Cookie: b=c\nCache-Control: no-cache\n\nbody";
    let dated = format!("Content-Type: text/plain\nLast-Modified: {DATE}\n\nbody");
    let since = format!("If-Modified-Since: {DATE}\r\n");
    for (method, printed, fields, status) in [
        ("GET", tagged, "If-None-Match: \"a\"\r\n", 304),
        ("GET", tagged, "If-None-Match: \"b\", W/\"a\"\r\n", 304),
        ("HEAD", tagged, "If-None-Match: \"a\"\r\n", 304),
        ("GET", tagged, "If-None-Match: \"b\"\r\n", 200),
        ("GET", tagged, &since, 200),
        ("GET", tagged, "If-Match: \"b\"\r\n", 412),
        ("HEAD", tagged, "If-Match: \"b\"\r\n", 412),
        ("GET", tagged, "If-Match: \"b\", \"a\"\r\n", 200),
        (
            "GET",
            &dated,
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n",
            412,
        ),
        (
            "GET",
            &dated,
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            200,
        ),
        (
            "GET",
            "Content-Type: a/b\n\nbody",
            "If-Match: \"a\"\r\n",
            200,
        ),
        // The program has already done the work that a POST asked for, so the condition comes too late.
        (
            "POST",
            tagged,
            "If-Match: \"b\"\r\nContent-Length: 0\r\n",
            200,
        ),
        (
            "POST",
            tagged,
            "If-None-Match: \"a\"\r\nContent-Length: 0\r\n",
            200,
        ),
        ("GET", &dated, &since, 304),
        (
            "GET",
            &dated,
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n",
            200,
        ),
        (
            "GET",
            "Content-Type: a/b\n\nbody",
            "If-None-Match: *\r\n",
            200,
        ),
        (
            "GET",
            "Status: 404\nContent-Type: a/b\nETag: \"a\"\n\nbody",
            "If-None-Match: \"a\"\r\n",
            404,
        ),
    ] {
        let reply = ask(method, printed, fields);
        assert_eq!(reply.status, status, "{method} {printed} {fields}");
        if status == 304 {
            assert_eq!(
                (reply.field("content-type"), reply.field("content-length")),
                (None, None)
            );
            assert!(reply.body.is_empty());
        }
    }
    let reply = ask("GET", tagged, "If-None-Match: \"a\"\r\n");
    assert_eq!(reply.field("etag"), Some("\"a\""));
    assert_eq!(reply.field("set-cookie"), Some("b=c"));
    assert_eq!(reply.field("cache-control"), Some("no-cache"));
    drop(watch);
}

fn s6_2_3_client_redirect() {
    let reply = printed("Location: https://example.org/there\n\n");
    assert_eq!(reply.status, 302);
    assert_eq!(reply.field("location"), Some("https://example.org/there"));
    assert_eq!(reply.body, b"");
    let reply = printed("Status: 303 See Other\nLocation: /guestbook\n\n");
    assert_eq!(
        (reply.status, reply.field("location")),
        (303, Some("/guestbook"))
    );
}

fn s6_2_4_client_redirect_with_document() {
    let reply = printed(
        "Location: https://example.org/there\nStatus: 307 Elsewhere\nContent-Type: text/plain\n\nover there",
    );
    assert!(
        reply.head.starts_with("HTTP/1.1 307 Elsewhere\r\n"),
        "{}",
        reply.head
    );
    assert_eq!(reply.text(), "over there");
}

fn s6_3_3_status_with_its_own_reason() {
    let reply = printed("Status: 418 I'm a teapot\nContent-Type: text/plain\n\nshort");
    assert!(
        reply.head.starts_with("HTTP/1.1 418 I'm a teapot\r\n"),
        "{}",
        reply.head
    );
    let reply = printed("Status: 404\nContent-Type: text/plain\n\nnone");
    assert!(
        reply.head.starts_with("HTTP/1.1 404 Not Found\r\n"),
        "{}",
        reply.head
    );
}

fn s6_3_4_every_set_cookie_is_kept() {
    let reply =
        printed("Content-Type: text/plain\nSet-Cookie: a=1\nSet-Cookie: b=2\nset-cookie: c=3\n\n");
    assert_eq!(reply.fields("set-cookie"), ["a=1", "b=2", "c=3"]);
    let reply = printed("Location: /there\nSet-Cookie: a=1\nSet-Cookie: b=2\n\n");
    assert_eq!(
        (reply.status, reply.field("location")),
        (302, Some("/there"))
    );
    assert_eq!(reply.fields("set-cookie"), ["a=1", "b=2"]);
}

fn s6_3_4_unknown_fields_are_passed_on() {
    let reply = printed("Content-Type: text/plain\nX-Unknown: a  b\nETag: \"x\"\n\n");
    assert_eq!(reply.field("x-unknown"), Some("a  b"));
    assert_eq!(reply.field("etag"), Some("\"x\""));
}

fn s6_3_5_x_cgi_fields_are_removed() {
    let reply = printed("Content-Type: text/plain\nX-CGI-Thing: a\nx-cgi-other: b\n\n");
    assert!(
        !reply.head.to_ascii_lowercase().contains("x-cgi"),
        "{}",
        reply.head
    );
}

fn fields_about_the_connection_are_removed() {
    let reply = printed(
        "Content-Type: text/plain\nConnection: close\nKeep-Alive: timeout=1\nUpgrade: h2c\nTrailer: X\n\nbody",
    );
    for name in ["connection", "keep-alive", "upgrade", "trailer"] {
        assert_eq!(reply.field(name), None, "{}", reply.head);
    }
}

/// RFC 9110, 6.6.1 and 10.2.4: the field must be there once; it may come from the program or from the server.
fn fields_that_the_server_adds_are_there_once() {
    let date = "Sat, 01 Jan 2000 00:00:00 GMT";
    let reply = printed(format!(
        "Content-Type: text/plain\nDate: {date}\nserver: mine\n\nbody"
    ));
    assert_eq!(reply.fields("date"), [date]);
    assert_eq!(reply.fields("server"), ["mine"]);
}

/// RFC 9110, 8.6: Content-Length of a 204 and of a 304.
fn s8_6_no_length_of_a_204_and_the_stored_one_of_a_304() {
    let reply = printed("Status: 204\nContent-Length: 4\n\nbody");
    assert_eq!((reply.status, reply.field("content-length")), (204, None));
    assert_eq!(reply.field("transfer-encoding"), None);
    let reply = printed("Status: 304\nETag: \"x\"\nContent-Length: 7\n\n");
    assert_eq!(
        (reply.status, reply.field("content-length")),
        (304, Some("7"))
    );
    assert_eq!(reply.body, b"");
}

fn s6_3_1_an_empty_content_type_is_a_missing_one() {
    let server = new_site().start();
    for head in ["Content-Type: \nX: y\n\n", "Content-Type:\n\n"] {
        let reply = server.get(&format!("/cgi-bin/t?out={}", encode(format!("{head}body"))));
        assert_eq!((reply.status, reply.text().as_str()), (200, "body"));
        assert_eq!(reply.field("content-type"), None);
    }
    server.says("has a document but no Content-Type");
    assert_eq!(server.errors().matches("no Content-Type").count(), 1);
    let twice = encode("Content-Type:\nContent-Type: text/plain\n\nbody");
    assert_eq!(server.get(&format!("/cgi-bin/t?out={twice}")).status, 502);
    let redirect = encode("Content-Type: \nLocation: /cgi-bin/t?head\n\n");
    let reply = server.get(&format!("/cgi-bin/t?out={redirect}"));
    assert_eq!(reply.status, 302);
}

/// Python's cgitb prints such output, after a line that is no field.
fn what_is_no_head_is_shown_to_its_author() {
    let trace = "<!--: spam\nContent-Type: text/html\n\n<p>Traceback <tag>\n  File \"a.py\"\nValueError: boom\n";
    let target = format!("/cgi-bin/t?out={}&exit=1", encode(trace));
    let server = new_site().config("dev_errors = true").start();
    let reply = server.get(&target);
    assert_eq!(reply.status, 502);
    for words in [
        "is not a header field",
        "&lt;tag&gt;",
        "ValueError: boom",
        "status 1",
    ] {
        assert!(reply.text().contains(words), "{words} in {}", reply.text());
    }
    server.says("/cgi-bin/t: ValueError: boom\n");
    // Endless output is shown and logged only up to a limit.
    assert_eq!(
        server.get("/cgi-bin/t?out=no%20field%0A&endless").status,
        502
    );
    assert!(server.errors().len() < 200_000);
    let server = new_site().config("dev_errors = false").start();
    let text = server.get(&target).text();
    assert!(!text.contains("boom") && !text.contains("field"), "{text}");
    server.says("ValueError: boom\n");
}

fn s5_nph_output_is_not_touched() {
    let server = new_site().own_binary("cgi-bin/nph-t").start();
    let watch = Watch::begin(&server);
    let own = "HTTP/1.1 299 Mine\nX: \x01\0\r\nDate: never\n\nbody\nHTTP/1.1 200 OK\r\n\r\n";
    let mut client = server.connect();
    client.get(&format!(
        "/cgi-bin/nph-t?out={}&touch=out&await=go&out=%00more",
        encode(own)
    ));
    client.get("/health");
    assert_eq!(client.take(own.len()), own.as_bytes());
    server.set("go");
    // Then the connection ends: no request after this one is answered.
    assert_eq!(client.rest(), b"\0more");
    drop(client);
    let lines = watch.after(&["ok"]);
    assert_eq!(lines[0]["status"], 299);
}

fn s5_nph_without_output_is_a_502() {
    let server = new_site().own_binary("cgi-bin/nph-t").start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/cgi-bin/nph-t?exit=1").status, 502);
    watch.after(&["script_error"]);
}

fn s6_3_4_a_thousand_fields_are_passed_on() {
    let server = new_site().start();
    let reply = server.get("/cgi-bin/t?fields=1000&head&out=a");
    assert_eq!((reply.status, reply.text().as_str()), (200, "a"));
    assert_eq!(reply.field("x-999"), Some("999"));
}
