//! Requests and their responses.

use std::{process::Command, task::Poll};

use super::*;

list![
    programs_files_and_constants,
    what_programs_are_told,
    bodies_reach_programs,
    a_program_that_leaves_its_input,
    fifty_at_once,
    a_large_answer_in_small_windows,
    head_has_no_body,
    what_is_refused,
    nph_programs_have_their_heads_read,
    a_body_beyond_its_limit,
    an_answer_before_the_end_of_a_body_is_not_lost,
    curl_speaks_it,
    s10_1_1_continue_is_sent_when_the_body_is_wanted,
];

/// The server goes on to read the rest of a body for a moment. RFC 9113, 8.1 lets it reset the stream, but clients then drop the
/// answer.
fn an_answer_before_the_end_of_a_body_is_not_lost() {
    let site = new_site().config("[[route]]\npath = \"/small/\"\ncgi = \"cgi-bin\"\nmax_body = 9");
    let (_server, socket) = serve(site);
    let body = [0; 40_000];
    for (target, status) in [
        ("/none", 405),
        ("/cgi-bin/none", 404),
        ("/cgi-bin", 301),
        ("/small/t", 413),
        ("/cgi-bin/t?head&out=x", 200),
    ] {
        // The client may be too slow for that moment, but not each time.
        let arrives = || {
            let mut client = Connection::connect(&socket);
            let asked = request("POST", target).header("content-length", body.len());
            let mut stream = client.send(asked, false).unwrap();
            client.write(&mut stream, &body[1..], false);
            let answer = &mut stream.response;
            let (head, mut answer) = client.runtime.block_on(answer).unwrap().into_parts();
            assert_eq!(head.status, status, "{target}");
            while let Some(Ok(_)) = client.runtime.block_on(answer.data()) {}
            let ended = stream
                .body
                .send_data(Bytes::from_static(b"x"), true)
                .is_ok();
            // The server has seen the end of the body, and a reset would have come before this answer.
            assert_eq!(client.get("/health").status, 200);
            let reset = std::future::poll_fn(|cx| Poll::Ready(stream.body.poll_reset(cx)));
            ended && client.runtime.block_on(reset).is_pending()
        };
        assert!((0..9).any(|_| arrives()), "{target}");
    }
    // The server does not wait for a client that sends no more.
    let mut client = Connection::connect(&socket);
    let mut stream = client.begin("POST", "/none", false);
    let reset = std::future::poll_fn(|cx| stream.body.poll_reset(cx));
    let reason = client.runtime.block_on(reset).unwrap();
    assert_eq!(reason, Reason::NO_ERROR);
}

fn programs_files_and_constants() {
    let large = pattern(0, 1_000_000);
    let (server, socket) = serve(new_site().file("public/large", &large, 0o644));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let reply = client.get("/cgi-bin/t?head&out=hello");
    assert_eq!((reply.status, reply.text().as_str()), (200, "hello"));
    assert!(reply.field("date").is_some() && reply.field("connection").is_none());
    let reply = client.get("/large");
    assert!(reply.body == large && reply.cut.is_none());
    assert_eq!(reply.field("content-length"), Some("1000000"));
    let ranges = request("GET", "/large").header("range", "bytes=0-9,999990-");
    let ranges = client.send(ranges, true).unwrap();
    let reply = client.reply(ranges);
    assert_eq!(reply.status, 206);
    assert!(reply.text().matches("0123456789").count() == 2 && reply.cut.is_none());
    assert_eq!(client.get("/health").text(), "fine");
    assert_eq!(client.get("/missing").status, 404);
    let empty = client.get("/cgi-bin/t?head");
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    assert!(client.end().is_ok());
    let lines = watch.after(&["ok", "ok", "ok", "not_found", "ok"]);
    assert_eq!(lines[1]["bytes"], 1_000_000);
    assert_eq!(lines[0]["remote"], "unix");
}

fn what_programs_are_told() {
    let (_server, socket) = serve(new_site());
    let mut client = Connection::connect(&socket);
    let request = request("GET", "/cgi-bin/t?head&env")
        .header("cookie", "a=1")
        .header("x-y", "one")
        .header("cookie", "b=2")
        .header("te", "trailers");
    let stream = client.send(request, true).unwrap();
    let told = client.reply(stream).text();
    for line in [
        "SERVER_PROTOCOL=HTTP/2.0",
        "HTTP_HOST=localhost",
        "SERVER_NAME=localhost",
        "REQUEST_URI=/cgi-bin/t?head&env",
        "HTTP_COOKIE=a=1; b=2",
        "HTTP_X_Y=one",
    ] {
        assert!(told.lines().any(|l| l == line), "{line} in {told}");
    }
    assert!(!told.contains("HTTP_TE") && !told.contains("CONTENT_LENGTH"));
}

fn bodies_reach_programs() {
    let (server, socket) = serve(
        new_site()
            .defaults("body = \"stream\"")
            .config("[[route]]\npath = \"/kept/\"\ncgi = \"cgi-bin\"\nbody = \"file\""),
    );
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    for size in [0, 1, 40_000, 1_000_000] {
        let body = pattern(0, size);
        for folder in ["cgi-bin", "kept"] {
            let reply = client.post(&format!("/{folder}/t?head&echo"), &body);
            assert!(reply.status == 200 && reply.body == body, "{folder} {size}");
        }
        let request = request("POST", "/cgi-bin/t?head&echo").header("content-length", size);
        let mut stream = client.send(request, false).unwrap();
        assert!(client.write(&mut stream, &body, true));
        assert!(client.reply(stream).body == body);
    }
    let reply = client.post("/cgi-bin/t?head&slowly", &pattern(0, 100_000));
    assert_eq!(reply.text(), "100000");
    // Trailers mean nothing.
    let mut stream = client.begin("POST", "/cgi-bin/t?head&echo", false);
    assert!(client.write(&mut stream, b"abc", false));
    let trailers = HeaderMap::from_iter([(http::header::EXPIRES, 0.into())]);
    stream.body.send_trailers(trailers).unwrap();
    assert_eq!(client.reply(stream).text(), "abc");
    drop(client);
    watch.after(&["ok"; 14]);
}

/// The server tells the client to stop sending (RFC 9113, 8.1), and the connection goes on.
fn a_program_that_leaves_its_input() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    for _ in 0..20 {
        let request =
            request("POST", "/cgi-bin/t?head&out=done").header("content-length", 2_000_000);
        let mut stream = client.send(request, false).unwrap();
        assert!(!client.write(&mut stream, &pattern(0, 2_000_000), true));
        let reply = client.reply(stream);
        assert_eq!((reply.status, reply.text().as_str()), (200, "done"));
    }
    drop(client);
    watch.after(&["ok"; 20]);
}

fn fifty_at_once() {
    let (server, socket) = serve(new_site().config("max_running = 60"));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let target = |i| format!("/cgi-bin/t?head&touch=on{i}&await=go&out={i}");
    let streams: Vec<_> = (0..50)
        .map(|i| client.begin("GET", &target(i), true))
        .collect();
    for i in 0..50 {
        server.wait_for(&format!("on{i}"));
    }
    server.set("go");
    for (i, stream) in streams.into_iter().enumerate() {
        assert_eq!(client.reply(stream).text(), i.to_string());
    }
    drop(client);
    watch.after(&["ok"; 50]);
}

fn a_large_answer_in_small_windows() {
    let large = pattern(0, 300_000);
    let (server, socket) = serve(new_site().file("public/large", &large, 0o644));
    let watch = Watch::begin(&server).memory(20 << 20);
    let mut small = Builder::new();
    small
        .initial_window_size(700)
        .initial_connection_window_size(70_000);
    let mut client = Connection::of(&socket, &small);
    let length = encode("Content-Type: a/b\nContent-Length: 300000\n\n");
    for target in [
        "/cgi-bin/t?head&fill=300000",
        "/large",
        &format!("/cgi-bin/t?out={length}&fill=300000"),
    ] {
        let reply = client.get(target);
        assert!(reply.cut.is_none() && reply.body == large, "{target}");
    }
    drop(client);
    watch.after(&["ok"; 3]);
}

fn head_has_no_body() {
    let (_server, socket) = serve(new_site().file("public/file", "content", 0o644));
    let mut client = Connection::connect(&socket);
    let length = encode("Content-Type: a/b\nContent-Length: 7\n\n");
    for (target, length) in [
        ("/file".to_owned(), Some("7")),
        ("/health".to_owned(), Some("4")),
        ("/cgi-bin/t?head&fill=100000".to_owned(), None),
        (format!("/cgi-bin/t?out={length}&out=content"), Some("7")),
    ] {
        let stream = client.begin("HEAD", &target, true);
        let reply = client.reply(stream);
        assert_eq!((reply.status, reply.cut, reply.body.len()), (200, None, 0));
        assert_eq!(reply.field("content-length"), length, "{target}");
    }
    let none = encode("Status: 204\n\n");
    let reply = client.get(&format!("/cgi-bin/t?out={none}"));
    assert_eq!((reply.status, reply.field("content-length")), (204, None));
}

/// The server refuses these requests as in HTTP/1; the connection goes on.
fn what_is_refused() {
    let limits = "max_fields = 8\nmax_target = 300\nmax_head = \"2K\"";
    let (server, socket) = serve(new_site().config(limits));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let many = |request: http::request::Builder| {
        (0..9).fold(request, |r, i| r.header(format!("x-{i}"), "a"))
    };
    for (request, status) in [
        (request("TRACE", "/health"), 405),
        (request("GET", "/a/../../b"), 400),
        (request("GET", "/%00"), 400),
        (request("GET", "/health").header("host", "elsewhere"), 400),
        (request("GET", "/health").header("expect", "else"), 417),
        (request("GET", &format!("/{}", "a".repeat(300))), 414),
        (many(request("GET", "/health")), 431),
        (request("GET", "/health").header("x", "a".repeat(2100)), 431),
    ] {
        let stream = client.send(request, true).unwrap();
        let reply = client.reply(stream);
        assert_eq!((reply.status, reply.cut), (status, None));
    }
    assert_eq!(client.get("/health").text(), "fine");
    drop(client);
    watch.after(&["client_error"; 8]);
}

fn nph_programs_have_their_heads_read() {
    let (server, socket) = serve(new_site().own_binary("cgi-bin/nph-t"));
    let mut client = Connection::connect(&socket);
    let own = "HTTP/1.1 404 Mine\r\nX: y\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
    let reply = client.get(&format!("/cgi-bin/nph-t?out={}", encode(own)));
    assert_eq!((reply.status, reply.text().as_str()), (404, "body"));
    assert_eq!(reply.field("x"), Some("y"));
    assert_eq!(reply.field("connection"), None);
    let redirect = encode("HTTP/1.1 302 Found\nLocation: /cgi-bin/t?head\n\n");
    let reply = client.get(&format!("/cgi-bin/nph-t?out={redirect}"));
    assert_eq!(reply.status, 302);
    assert_eq!(
        client
            .get("/cgi-bin/nph-t?out=HTTP/1.1%20what%0A%0A")
            .status,
        502
    );
    server.says("is not a status");
    assert_eq!(client.get("/cgi-bin/t?head").status, 200);
}

fn a_body_beyond_its_limit() {
    let (server, socket) = serve(new_site().defaults("max_body = \"100K\""));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let declared = request("POST", "/cgi-bin/t?head&count").header("content-length", 200_000);
    let stream = client.send(declared, false).unwrap();
    assert_eq!(client.reply(stream).status, 413);
    // The server finds this out after the program has its permit: then the response may have begun.
    let reply = client.post("/cgi-bin/t?count", &pattern(0, 1_000_000));
    assert_eq!(reply.status, 413);
    drop(client);
    watch.after(&["client_error"; 2]);
}

fn curl(socket: &Path, arguments: &[&str]) -> (String, String) {
    let mut curl = Command::new("curl");
    let usual = ["-q", "-sS", "--max-time", "120", "--http2-prior-knowledge"];
    let socket = ["--unix-socket", socket.to_str().unwrap()];
    curl.args(usual).args(socket).args(arguments);
    let done = curl.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(done.stdout), text(done.stderr))
}

fn curl_speaks_it() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let (said, _) = curl(
        &socket,
        &[
            "-i",
            "--data",
            "abc",
            "http://localhost/cgi-bin/t?head&echo",
        ],
    );
    assert!(said.starts_with("HTTP/2 200"), "{said}");
    assert!(said.ends_with("\r\n\r\nabc"), "{said}");
    watch.after(&["ok"]);
}

fn s10_1_1_continue_is_sent_when_the_body_is_wanted() {
    let (_server, socket) = serve(new_site());
    for (target, wanted) in [("/cgi-bin/t?head&echo", true), ("/missing", false)] {
        let url = format!("http://localhost{target}");
        let expects = ["-v", "-H", "Expect: 100-continue", "--data", "abc", &url];
        let (said, told) = curl(&socket, &expects);
        assert_eq!(told.contains("< HTTP/2 100"), wanted, "{told}");
        assert_eq!(said.ends_with("abc"), wanted, "{said}");
    }
}
