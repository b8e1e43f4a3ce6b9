//! RFC 3875, clause by clause, and what it leaves to the server: streaming, clocks, framing.

use std::{thread, time::Duration};

use crate::harness::{End, Reply, Site, child::pattern, encode, list};

/// The response to a program that prints `bytes`.
fn printed(bytes: impl AsRef<[u8]>) -> Reply {
    let server = Site::new().start();
    let reply = server.get(&format!("/cgi-bin/t?out={}", encode(bytes)));
    assert_eq!(reply.end, End::Whole);
    reply
}

fn s4_1_the_environment_is_the_documented_list() {
    let routes = "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n\
                  env = { GIT_PROJECT_ROOT = \"/srv/git\", EMPTY = \"\" }";
    let server = Site::new().table(routes).start();
    let mut client = server.connect();
    client.send(
        "POST /cgi-bin/t/info%20and/more?head&env HTTP/1.1\r\nHost: www.example.org:8080\r\n\
         Content-Type: text/x-test\r\nContent-Length: 4\r\nX-Thing: a\r\nX-Thing: b\r\n\
         Cookie: c=1\r\nCookie: d=2\r\nUser-Agent: test\r\nConnection: keep-alive\r\n\
         Authorization: Basic c2VjcmV0\r\nProxy: http://evil/\r\n\r\nbody",
    );
    let reply = client.reply();
    let mut lines: Vec<_> = reply.text().lines().map(str::to_owned).collect();
    lines.sort();
    let id = lines.iter().find_map(|l| l.strip_prefix("UNIQUE_ID="));
    let id = id.expect("a request id").to_owned();
    assert_eq!(id.len(), 20);
    let site = server.path().display();
    let port = server.address().port();
    let remote = client.stream.local_addr().unwrap().port();
    let version = env!("CARGO_PKG_VERSION");
    let mut wanted = vec![
        "CONTENT_LENGTH=4".to_owned(),
        "CONTENT_TYPE=text/x-test".into(),
        format!("DOCUMENT_ROOT={site}/public"),
        "EMPTY=".into(),
        "GATEWAY_INTERFACE=CGI/1.1".into(),
        "GIT_PROJECT_ROOT=/srv/git".into(),
        "HTTP_COOKIE=c=1; d=2".into(),
        "HTTP_HOST=www.example.org:8080".into(),
        "HTTP_USER_AGENT=test".into(),
        "HTTP_X_THING=a, b".into(),
        "PATH=/usr/local/bin:/usr/bin:/bin".into(),
        "PATH_INFO=/info and/more".into(),
        format!("PATH_TRANSLATED={site}/public/info and/more"),
        "QUERY_STRING=head&env".into(),
        "REDIRECT_STATUS=200".into(),
        "REMOTE_ADDR=127.0.0.1".into(),
        "REMOTE_HOST=127.0.0.1".into(),
        format!("REMOTE_PORT={remote}"),
        "REQUEST_METHOD=POST".into(),
        "REQUEST_SCHEME=http".into(),
        "REQUEST_URI=/cgi-bin/t/info%20and/more?head&env".into(),
        format!("SCRIPT_FILENAME={site}/cgi-bin/t"),
        "SCRIPT_NAME=/cgi-bin/t".into(),
        "SERVER_ADDR=127.0.0.1".into(),
        "SERVER_NAME=www.example.org".into(),
        format!("SERVER_PORT={port}"),
        "SERVER_PROTOCOL=HTTP/1.1".into(),
        format!("SERVER_SOFTWARE=galgo/{version}"),
        format!("UNIQUE_ID={id}"),
    ];
    wanted.sort();
    assert_eq!(lines, wanted);
}

fn variable(request: &str, name: &str) -> Option<String> {
    let server = Site::new().start();
    let text = server.ask(request).text();
    let prefix = format!("{name}=");
    text.lines()
        .find_map(|l| l.strip_prefix(&prefix).map(str::to_owned))
}

fn s4_1_2_content_length_is_never_invented() {
    let chunked = "POST /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(variable(chunked, "CONTENT_LENGTH"), None);
    let none = "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(variable(none, "CONTENT_LENGTH"), None);
    let zero = "POST /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(variable(zero, "CONTENT_LENGTH"), Some("0".into()));
}

fn s4_1_7_query_string_is_always_set() {
    let server = Site::new().file(
        "cgi-bin/query",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nprintf '%s' \"${QUERY_STRING-unset}\"\n",
        0o755,
    );
    let server = server.start();
    assert_eq!(server.get("/cgi-bin/query").text(), "");
    assert_eq!(server.get("/cgi-bin/query?").text(), "");
    assert_eq!(server.get("/cgi-bin/query?a%20b").text(), "a%20b");
}

fn s4_1_12_any_method_reaches_the_program() {
    for method in [
        "GET", "POST", "PUT", "DELETE", "PROPFIND", "x-own", "OPTIONS",
    ] {
        let request = format!("{method} /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(variable(&request, "REQUEST_METHOD"), Some(method.into()));
    }
}

fn s4_2_a_chunked_body_is_streamed_as_it_comes() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.send(
        "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    client.send("3\r\nabc\r\n");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.chunk().unwrap(), b"abc");
    client.send("2\r\nd");
    assert_eq!(client.chunk().unwrap(), b"d");
    client.send("e\r\n0\r\n\r\n");
    assert_eq!(client.chunk().unwrap(), b"e");
    // Its input ends with the last chunk, not with the connection.
    assert_eq!(client.chunk().unwrap(), b"");
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    watch.after(&["ok"]);
}

/// Nothing of the next request is ever taken for the body of this one.
fn s4_2_input_ends_at_content_length() {
    let server = Site::new().start();
    let mut client = server.connect();
    client.send(
        "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
         GET /cgi-bin/t?head&count HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(client.reply().text(), "abc");
    assert_eq!(client.reply().text(), "0");
}

fn s4_2_a_body_as_a_file() {
    let server = Site::new().defaults("body = \"file\"").start();
    let watch = server.watch();
    let mut client = server.connect();
    // Its length is known once it is whole.
    client.send(
        "POST /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    );
    assert!(client.reply().text().contains("CONTENT_LENGTH=5\n"));
    // In memory, and in a file.
    for size in [5, 3_000_000] {
        client.post("/cgi-bin/t?head&echo", &pattern(0, size));
        assert!(client.reply().body == pattern(0, size));
    }
    client.get("/cgi-bin/t?head&count");
    assert_eq!(client.reply().text(), "0");
    drop(client);
    watch.after(&["ok"; 4]);
}

fn s4_2_a_body_larger_than_max_body() {
    let server = Site::new().defaults("max_body = 10").start();
    let watch = server.watch();
    let declared =
        "POST /cgi-bin/t?touch=ran&head HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
    assert_eq!(server.ask(declared).status, 413);
    assert!(!server.mark("ran").exists());
    let chunked = "POST /cgi-bin/t?count&head HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   b\r\nhello world\r\n0\r\n\r\n";
    assert_eq!(server.ask(chunked).status, 413);
    watch.after(&["client_error", "client_error"]);
}

fn s4_4_the_command_line() {
    let arguments = |site: Site, target: &str| -> Vec<String> {
        let server = site.start();
        let text = server.get(target).text();
        text.lines().skip(1).map(str::to_owned).collect()
    };
    let site = || {
        Site::new().file(
        "cgi-bin/words",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s\\n' \"$0\"\nfor a; do echo \"$a\"; done\n",
        0o755,
    )
    };
    assert!(arguments(site(), "/cgi-bin/words?one+two").is_empty());
    let asked = || site().defaults("query_args = true");
    assert_eq!(
        arguments(asked(), "/cgi-bin/words?one+t%20wo"),
        ["one", "t wo"]
    );
    assert!(arguments(asked(), "/cgi-bin/words?a=b").is_empty());
    assert!(arguments(asked(), "/cgi-bin/words?-s").is_empty());
}

/// 7.2: the program's own folder; argv[0] as the program was named.
fn s7_2_the_working_directory() {
    let server = Site::new()
        .file("cgi-bin/deep/er/x", "", 0o644)
        .program("cgi-bin/deep/er/t");
    let server = server.start();
    let text = server.get("/cgi-bin/deep/er/t/info?head&cwd&args").text();
    let folder = server.path().join("cgi-bin/deep/er");
    assert_eq!(text, format!("{0}\n{0}/t\n", folder.display()));
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
    let server = Site::new().start();
    let watch = server.watch();
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
    let server = Site::new().start();
    let watch = server.watch();
    let location = encode("Location: /cgi-bin/t?head&count&env\n\n");
    let mut client = server.connect();
    // One that was not read, one that was, and one that is still on its way.
    client.post(&format!("/cgi-bin/t?out={location}"), &pattern(0, 100_000));
    let unread = client.reply().text();
    client.post(
        &format!("/cgi-bin/t?take=1000&out={location}"),
        &pattern(0, 1000),
    );
    let read = client.reply().text();
    client.begin_post(&format!("/cgi-bin/t?out={location}"), 1000);
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
    let server = Site::new().start();
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

/// The first program still runs when the second asks for the only place.
fn s6_2_2_local_redirect_with_one_place() {
    let server = Site::new()
        .top("max_running = 1")
        .defaults("kill_grace = \"50ms\"")
        .start();
    let watch = server.watch();
    let location = encode("Location: /cgi-bin/t?head&out=there\n\n");
    let reply = server.get(&format!("/cgi-bin/t?deaf&out={location}&hang"));
    assert_eq!(reply.text(), "there");
    watch.after(&["ok"]);
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

fn s5_nph_output_is_not_touched() {
    let server = Site::new().program("cgi-bin/nph-t").start();
    let watch = server.watch();
    let own = "HTTP/1.1 299 Mine\nX: \x01\0\r\nDate: never\n\nbody\nHTTP/1.1 200 OK\r\n\r\n";
    let mut client = server.connect();
    client.get(&format!(
        "/cgi-bin/nph-t?out={}&touch=out&await=go&out=%00more",
        encode(own)
    ));
    client.get("/health");
    assert_eq!(client.take(own.len()), own.as_bytes());
    server.set("go");
    // And then the end of the connection: nothing behind it is answered.
    assert_eq!(client.rest(), b"\0more");
    drop(client);
    let lines = watch.after(&["ok"]);
    assert_eq!(lines[0]["status"], 299);
}

fn s5_nph_without_output_is_a_502() {
    let server = Site::new().program("cgi-bin/nph-t").start();
    let watch = server.watch();
    assert_eq!(server.get("/cgi-bin/nph-t?exit=1").status, 502);
    watch.after(&["script_error"]);
}

fn framing_content_length_of_the_program() {
    let reply = printed("Content-Type: text/plain\nContent-Length: 5\n\nhello");
    assert_eq!(reply.field("content-length"), Some("5"));
    assert_eq!(reply.field("transfer-encoding"), None);
}

/// A program that has ended before anything was sent has told its length.
fn framing_content_length_when_the_program_has_ended() {
    let server = Site::new().start();
    let mut client = server.connect();
    let queries = ["head&out=short", "head"];
    for (query, length) in queries.into_iter().zip(["5", "0"]) {
        // Whether it has ended is a matter of speed; the framing must be right either way.
        client.get(&format!("/cgi-bin/t?{query}"));
        let reply = client.reply();
        assert_eq!(reply.end, End::Whole);
        if let Some(n) = reply.field("content-length") {
            assert_eq!(n, length);
        }
    }
}

fn framing_chunked() {
    let server = Site::new().start();
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=a&await=go&out=b");
    let head = client.head();
    assert_eq!(head.field("transfer-encoding"), Some("chunked"));
    assert_eq!(head.field("content-length"), None);
    assert_eq!(client.take(6), b"1\r\na\r\n");
    server.set("go");
    assert_eq!(
        client.until(b"\r\n0\r\n\r\n").unwrap(),
        b"1\r\nb\r\n0\r\n\r\n"
    );
}

fn framing_http_1_0_until_close() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.send(
        "GET /cgi-bin/t?head&out=a&await=go&out=b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    );
    let head = client.head();
    assert_eq!(
        (
            head.field("transfer-encoding"),
            head.field("content-length")
        ),
        (None, None)
    );
    assert!(head.closes());
    server.set("go");
    assert_eq!(client.rest(), b"ab");
    drop(client);
    watch.after(&["ok"]);
}

fn framing_http_1_0_is_cut_with_a_reset() {
    use std::io::Read;
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.send("GET /cgi-bin/t?head&out=a&await=go&die=9 HTTP/1.0\r\n\r\n");
    client.head();
    assert_eq!(client.take(1), b"a");
    server.set("go");
    // An ordinary end would look like the end of a whole body.
    let error = client.stream.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    drop(client);
    watch.after(&["script_error"]);
}

fn server_sent_events_arrive_one_by_one() {
    let server = Site::new().start();
    let mut client = server.connect();
    let event = |n: usize| format!("out={}&await={n}", encode(format!("data: {n}\n\n")));
    let events: Vec<_> = (0..10).map(event).collect();
    let head = encode("Content-Type: text/event-stream\n\n");
    client.get(&format!("/cgi-bin/t?out={head}&{}", events.join("&")));
    assert_eq!(
        client.head().field("content-type"),
        Some("text/event-stream")
    );
    for n in 0..10 {
        assert_eq!(client.chunk().unwrap(), format!("data: {n}\n\n").as_bytes());
        server.set(&n.to_string());
    }
    assert_eq!(client.chunk().unwrap(), b"");
}

fn first_byte_timeout_is_a_504() {
    let server = Site::new()
        .defaults("first_byte_timeout = \"200ms\"")
        .start();
    let watch = server.watch();
    // Words on standard error are no head.
    let reply = server.get("/cgi-bin/t?last=told&err=still%20busy&hang");
    assert_eq!((reply.status, reply.end), (504, End::Whole));
    server.says("first_byte_timeout");
    server.wait_for("told");
    watch.after(&["script_timeout"]);
}

fn a_deaf_program_is_killed_after_its_grace() {
    let settings = "first_byte_timeout = \"100ms\"\nkill_grace = \"100ms\"";
    let server = Site::new().defaults(settings).start();
    let watch = server.watch();
    assert_eq!(
        server.get("/cgi-bin/t?deaf&bg=deaf%26hang&hang").status,
        504
    );
    watch.after(&["script_timeout"]);
}

fn idle_timeout_cuts() {
    let server = Site::new().defaults("idle_timeout = \"200ms\"").start();
    let watch = server.watch();
    let reply = server.get("/cgi-bin/t?head&out=a&hang");
    assert_eq!((reply.text(), reply.end), ("a".into(), End::Cut));
    server.says("idle_timeout");
    watch.after(&["script_timeout"]);
}

/// While bytes move the clock begins again.
fn idle_timeout_is_no_total() {
    let server = Site::new().defaults("idle_timeout = \"500ms\"").start();
    let mut client = server.connect();
    let steps: String = (0..12).map(|n| format!("&out=x&await={n}")).collect();
    client.get(&format!("/cgi-bin/t?head{steps}"));
    client.head();
    for n in 0..12 {
        assert_eq!(client.chunk().unwrap(), b"x");
        thread::sleep(Duration::from_millis(60));
        server.set(&n.to_string());
    }
    assert_eq!(client.chunk().unwrap(), b"");
}

fn total_timeout_before_the_head_is_a_504() {
    let server = Site::new().defaults("total_timeout = \"200ms\"").start();
    let watch = server.watch();
    assert_eq!(server.get("/cgi-bin/t?hang").status, 504);
    server.says("total_timeout");
    watch.after(&["script_timeout"]);
}

fn total_timeout_cuts_what_never_ends() {
    let server = Site::new().defaults("total_timeout = \"500ms\"").start();
    let watch = server.watch().memory(24 << 20);
    let reply = server.get("/cgi-bin/t?head&endless");
    assert_eq!((reply.status, reply.end), (200, End::Cut));
    server.says("total_timeout");
    watch.after(&["script_timeout"]);
}

fn run_to_completion() {
    let server = Site::new().defaults("run_to_completion = true").start();
    let watch = server.watch();
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=a&touch=up&await=gone&fill=1000000&touch=done");
    assert_eq!(client.head().status, 200);
    server.wait_for("up");
    client.reset();
    server.set("gone");
    server.wait_for("done");
    let lines = watch.after(&["client_gone"]);
    assert_eq!(lines[0]["exit"], 0);
}

fn run_to_completion_is_no_excuse_for_the_total_clock() {
    let settings = "run_to_completion = true\ntotal_timeout = \"300ms\"";
    let server = Site::new().defaults(settings).start();
    let watch = server.watch();
    let mut client = server.connect();
    client.get("/cgi-bin/t?touch=up&hang");
    server.wait_for("up");
    client.reset();
    watch.after(&["client_gone"]);
}

fn a_failed_program_shows_its_cause_to_its_author() {
    let query = "/cgi-bin/t?err=%3Cwhy%3E%0A&exit=3";
    let server = Site::new().top("dev_errors = true").start();
    let reply = server.get(query);
    assert_eq!(reply.status, 502);
    for words in ["it exited with status 3", "&lt;why&gt;"] {
        assert!(reply.text().contains(words), "{words} in {}", reply.text());
    }
    // To everybody else only if they ask for it.
    let server = Site::new().top("dev_errors = false").start();
    let text = server.get(query).text();
    assert!(!text.contains("exited") && !text.contains("why"), "{text}");
}

/// With a nonce in each request, and clients that leave in the middle: nobody gets what was meant
/// for somebody else.
fn every_client_gets_its_own_response() {
    let server = Site::new().top("max_running = 4").start();
    let watch = server.watch().memory(24 << 20);
    let until = std::time::Instant::now() + Duration::from_secs(6);
    let one = |seed: u64| {
        let mut random = seed;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            random >> 33
        };
        let mut client = server.connect();
        let mut matched = 0_usize;
        while std::time::Instant::now() < until {
            let nonce = format!("n{seed}-{}", next());
            match next() % 6 {
                0 => {
                    // Abandoned: in the response, or before it.
                    client.get(&format!("/cgi-bin/t?head&out={nonce}&fill=100000"));
                    if next() % 2 == 0 {
                        client.head();
                    }
                    client = server.connect();
                    continue;
                }
                1 => {
                    let location = encode(format!("Location: /cgi-bin/t?head&out={nonce}\n\n"));
                    client.get(&format!("/cgi-bin/t?out={location}"));
                }
                2 => {
                    client.post("/cgi-bin/t?head&echo", nonce.as_bytes());
                }
                3 => client.post(
                    &format!("/cgi-bin/t?head&out={nonce}"),
                    b"nobody reads this",
                ),
                4 => client.get(&format!("/cgi-bin/t?head&out={nonce}")),
                _ => client.get(&format!("/cgi-bin/t?err={nonce}&head&out={nonce}")),
            }
            let reply = client.reply();
            assert_eq!((reply.status, reply.text()), (200, nonce));
            matched += 1;
        }
        matched
    };
    let matched: usize = thread::scope(|scope| {
        let clients: Vec<_> = (1..=16)
            .map(|seed| scope.spawn(move || one(seed)))
            .collect();
        clients.into_iter().map(|c| c.join().unwrap()).sum()
    });
    assert!(matched > 100, "{matched} responses");
    drop(watch);
    assert!(!server.errors().contains("panicked"));
}

list![
    s4_1_the_environment_is_the_documented_list,
    s4_1_2_content_length_is_never_invented,
    s4_1_7_query_string_is_always_set,
    s4_1_12_any_method_reaches_the_program,
    s4_2_a_chunked_body_is_streamed_as_it_comes,
    s4_2_input_ends_at_content_length,
    s4_2_a_body_as_a_file,
    s4_2_a_body_larger_than_max_body,
    s4_4_the_command_line,
    s7_2_the_working_directory,
    s6_2_1_document,
    s6_2_2_local_redirect_is_reprocessed,
    s6_2_2_local_redirect_after_a_body_has_none,
    s6_2_2_local_redirect_of_head_stays_head,
    s6_2_2_local_redirect_with_one_place,
    s6_2_3_client_redirect,
    s6_2_4_client_redirect_with_document,
    s6_3_3_status_with_its_own_reason,
    s6_3_4_every_set_cookie_is_kept,
    s6_3_4_unknown_fields_are_passed_on,
    s6_3_5_x_cgi_fields_are_removed,
    fields_about_the_connection_are_removed,
    s5_nph_output_is_not_touched,
    s5_nph_without_output_is_a_502,
    framing_content_length_of_the_program,
    framing_content_length_when_the_program_has_ended,
    framing_chunked,
    framing_http_1_0_until_close,
    framing_http_1_0_is_cut_with_a_reset,
    server_sent_events_arrive_one_by_one,
    first_byte_timeout_is_a_504,
    a_deaf_program_is_killed_after_its_grace,
    idle_timeout_cuts,
    idle_timeout_is_no_total,
    total_timeout_before_the_head_is_a_504,
    total_timeout_cuts_what_never_ends,
    run_to_completion,
    run_to_completion_is_no_excuse_for_the_total_clock,
    a_failed_program_shows_its_cause_to_its_author,
    every_client_gets_its_own_response,
];
