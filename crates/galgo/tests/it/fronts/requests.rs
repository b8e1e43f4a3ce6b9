//! Requests of a front, and their answers.

use super::*;

list![
    a_request_and_its_variables,
    names_that_no_front_may_make_variables_of,
    a_user_whom_no_front_has_verified_is_told_to_no_program,
    the_last_of_equal_variables_counts,
    the_program_is_named_by_its_file,
    everything_else_on_a_kept_connection,
    bodies_stream_in_both_directions,
    what_was_announced_comes_first,
    scgi,
];

fn a_request_and_its_variables() {
    let (server, fcgi, _) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut front = Front::connect(&fcgi);
    let more = [
        ("PATH_INFO", "/in fo"),
        ("REMOTE_USER", "ada"),
        ("AUTH_TYPE", "Basic"),
        ("HTTP_X_THING", "a"),
        ("HTTP_PROXY", "http://evil"),
        ("LD_PRELOAD", "evil"),
        ("CONTENT_LENGTH", "4"),
        ("CONTENT_TYPE", "text/x"),
        ("HTTP_AUTHORIZATION", "Basic c2VjcmV0"),
        ("REQUEST_URI", "/before/rewriting?head&env"),
    ];
    front.send(request(
        7,
        false,
        &params("POST", "/cgi-bin/t?head&env", &more),
        b"body",
    ));
    let reply = front.reply(7);
    assert_eq!(reply.end, DONE);
    assert!(
        reply
            .head
            .starts_with("Status: 200 OK\r\nContent-Type: text/plain\r\n"),
        "{}",
        reply.head
    );
    for http in [
        "Date:",
        "Server:",
        "Connection:",
        "Transfer-Encoding:",
        "HTTP/",
    ] {
        assert!(!reply.head.contains(http), "{}", reply.head);
    }
    let text = reply.text();
    for line in [
        "REMOTE_ADDR=203.0.113.7",
        "REMOTE_PORT=4711",
        "SERVER_ADDR=192.0.2.1",
        "SERVER_PORT=443",
        "SERVER_NAME=www.example.org",
        "HTTPS=on",
        "REQUEST_SCHEME=https",
        "REMOTE_USER=ada",
        "AUTH_TYPE=Basic",
        "SCRIPT_NAME=/cgi-bin/t",
        "PATH_INFO=/in fo",
        "QUERY_STRING=head&env",
        "REQUEST_URI=/before/rewriting?head&env",
        "HTTP_X_THING=a",
        "CONTENT_LENGTH=4",
        "CONTENT_TYPE=text/x",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    for withheld in ["HTTP_PROXY", "LD_PRELOAD", "HTTP_AUTHORIZATION"] {
        assert!(!text.contains(withheld), "{text}");
    }
    front.closed();
    assert_eq!(watch.after(&["ok"])[0]["remote"], "203.0.113.7");
}

/// A front sends fields as variables. A name that cannot come from a field is dropped, as such a field is over HTTP: Caddy
/// sends `HTTP_X.REMOTE.USER`.
fn names_that_no_front_may_make_variables_of() {
    let (server, fcgi, scgi) = serve(new_site());
    let watch = Watch::begin(&server);
    let names = [
        "HTTP_X.REMOTE.USER",
        "HTTP_X!REMOTE~USER",
        "HTTP_x_remote_user",
        "HTTP_X-REMOTE-USER",
    ];
    for name in names {
        let mut front = Front::connect(&fcgi);
        let params = params(
            "GET",
            "/cgi-bin/t?head&env",
            &[(name, "evil"), ("HTTP_X_A", "b")],
        );
        front.send(request(1, false, &params, b""));
        let text = front.reply(1).text();
        assert!(text.contains("HTTP_X_A=b\n"), "{name}: {text}");
        assert!(!text.contains("evil"), "{name}: {text}");
    }
    let fields: String = names.iter().map(|name| format!("{name}\0evil\0")).collect();
    let target = "/cgi-bin/t?head&env";
    let headers = format!(
        "CONTENT_LENGTH\x000\0SCGI\x001\0SCRIPT_NAME\0/cgi-bin/t\0QUERY_STRING\0head&env\0REQUEST_URI\0{target}\0{fields}"
    );
    let mut front = Front::connect(&scgi);
    front.send(format!("{}:{headers},", headers.len()));
    let mut said = String::new();
    front.0.stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("SCRIPT_NAME=/cgi-bin/t\n"), "{said}");
    assert!(!said.contains("evil"), "{said}");
    watch.after(&["ok"; 5]);
}

/// nginx sends the name that a client claims as REMOTE_USER, and HAProxy also AUTH_TYPE: neither has asked for a password.
fn a_user_whom_no_front_has_verified_is_told_to_no_program() {
    let (server, fcgi, scgi) = serve(new_site());
    let watch = Watch::begin(&server);
    let claims = [
        &[("REMOTE_USER", "eve")][..],
        &[("REMOTE_USER", "eve"), ("AUTH_TYPE", "")],
        &[
            ("REMOTE_USER", "eve"),
            ("AUTH_TYPE", "Basic"),
            ("SERVER_SOFTWARE", "HAProxy 2.6.12"),
        ],
    ];
    for claim in claims {
        let mut front = Front::connect(&fcgi);
        let params = params("GET", "/cgi-bin/t?head&env", claim);
        front.send(request(1, false, &params, b""));
        let text = front.reply(1).text();
        assert!(text.contains("SCRIPT_NAME=/cgi-bin/t\n"), "{text}");
        assert!(
            !text.contains("REMOTE_USER") && !text.contains("AUTH_TYPE"),
            "{text}"
        );
        let named = claim
            .iter()
            .map(|(name, value)| format!("{name}\0{value}\0"));
        let headers = format!(
            "CONTENT_LENGTH\x000\0SCGI\x001\0SCRIPT_NAME\0/cgi-bin/t\0QUERY_STRING\0head&env\0{}",
            named.collect::<String>()
        );
        let mut front = Front::connect(&scgi);
        front.send(format!("{}:{headers},", headers.len()));
        let mut said = String::new();
        front.0.stream.read_to_string(&mut said).unwrap();
        assert!(said.contains("SCRIPT_NAME=/cgi-bin/t\n"), "{said}");
        assert!(!said.contains("REMOTE_USER"), "{said}");
    }
    watch.after(&["ok"; 6]);
}

/// nginx sends a variable twice if a `fastcgi_param` stands beside an include that sets it. Fields are lists (RFC 3875,
/// 4.1.18). A variable that frames the body must come only once.
fn the_last_of_equal_variables_counts() {
    let (server, fcgi, _) = serve(new_site().config("workers = 1"));
    let watch = Watch::begin(&server);
    let ask = |more: &[(&str, &str)]| {
        let mut front = Front::connect(&fcgi);
        let twice = [params("GET", "/cgi-bin/t?head&env", more), pairs(more)].concat();
        let more = [
            ("REMOTE_USER", "ada"),
            ("AUTH_TYPE", "Basic"),
            ("HTTP_X_A", "2"),
            ("SERVER_PORT", "8443"),
        ];
        front.send(request(1, false, &[twice, pairs(&more)].concat(), b""));
        front.reply(1)
    };
    let text = ask(&[("REMOTE_USER", "mallory"), ("HTTP_X_A", "1")]).text();
    for line in ["REMOTE_USER=ada", "HTTP_X_A=1, 1, 2", "SERVER_PORT=8443"] {
        assert_eq!(
            text.lines().filter(|l| *l == line).count(),
            1,
            "{line}: {text}"
        );
    }
    assert!(!text.contains("mallory"), "{text}");
    let reply = ask(&[("CONTENT_LENGTH", "0")]);
    assert!(reply.head.starts_with("Status: 400 "), "{}", reply.head);
    server.says("400 for unix: CONTENT_LENGTH came twice");
    watch.after(&["ok", "client_error"]);
}

/// The front names the program by its file, as for fcgiwrap, but only in the folders of `cgi` routes.
fn the_program_is_named_by_its_file() {
    let (server, fcgi, _) = serve(new_site().own_binary("cgi-bin/nph-t").own_binary("beside"));
    let watch = Watch::begin(&server);
    let ask = |more: &[(&str, &str)]| {
        let mut front = Front::connect(&fcgi);
        front.send(request(
            1,
            false,
            &params("GET", "/elsewhere?head&env", more),
            b"",
        ));
        let reply = front.reply(1);
        assert_eq!(reply.end, DONE);
        reply
    };
    let base = server.site.folder().display().to_string();
    let file = format!("{base}/cgi-bin/t");
    let text = ask(&[("SCRIPT_FILENAME", &file), ("PATH_INFO", "/a")]).text();
    assert!(
        text.contains("SCRIPT_NAME=/elsewhere\n") && text.contains("PATH_INFO=/a\n"),
        "{text}"
    );
    let behind = format!("{file}/x/y");
    let text = ask(&[("SCRIPT_FILENAME", &behind), ("SCRIPT_NAME", "/e/x/y")]).text();
    assert!(
        text.contains("SCRIPT_NAME=/e\n") && text.contains("PATH_INFO=/x/y\n"),
        "{text}"
    );
    let apache = format!("proxy:fcgi://localhost{file}");
    assert!(
        ask(&[("SCRIPT_FILENAME", &apache)])
            .text()
            .contains("SCRIPT_NAME=/elsewhere\n")
    );
    let text = ask(&[("DOCUMENT_ROOT", &base), ("SCRIPT_NAME", "/cgi-bin/t/z")]).text();
    assert!(
        text.contains("SCRIPT_NAME=/cgi-bin/t\n") && text.contains("PATH_INFO=/z\n"),
        "{text}"
    );
    let through = [
        ("DOCUMENT_ROOT", "/nowhere"),
        ("SCRIPT_NAME", "/cgi-bin/t/z"),
    ];
    assert!(ask(&through).text().contains("PATH_INFO=/z\n"));
    let nph = format!("{base}/cgi-bin/nph-t");
    assert!(
        ask(&[("SCRIPT_FILENAME", &nph)])
            .head
            .starts_with("Status: 200 ")
    );
    let rows = [
        (format!("{base}/beside"), 403),
        ("/bin/sh".into(), 403),
        (format!("{base}/cgi-binx/t"), 403),
        (format!("{base}/cgi-bin/../beside"), 404),
        (format!("{base}/cgi-bin"), 403),
        (format!("{base}/cgi-bin/missing"), 404),
        (format!("{base}/cgi-bin/t/unsaid"), 403),
    ];
    for (file, status) in &rows {
        let reply = ask(&[("SCRIPT_FILENAME", file)]);
        assert!(
            reply.head.starts_with(&format!("Status: {status} ")),
            "{file}: {}",
            reply.head
        );
        assert!(!reply.text().contains("SCRIPT_NAME"), "{file}");
    }
    server.says("/bin/sh\", which no folder of a `cgi` route contains");
    let mut outcomes = vec!["ok"; 6];
    outcomes.extend(
        rows.iter()
            .map(|(_, s)| if *s == 403 { "refused" } else { "not_found" }),
    );
    watch.after(&outcomes);
}

/// Files, constants, ranges, HEAD and 304 come in records as output of programs does, on a connection that is kept.
fn everything_else_on_a_kept_connection() {
    let site = new_site()
        .file("public/f", pattern(0, 300_000), 0o644)
        .file("public/s", "small", 0o644);
    let (server, fcgi, _) = serve(site);
    let watch = Watch::begin(&server);
    let mut front = Front::connect(&fcgi);
    let mut ask = |method: &str, target: &str, more: &[(&str, &str)]| {
        front.send(request(9, true, &params(method, target, more), b""));
        let reply = front.reply(9);
        assert_eq!(reply.end, DONE, "{target}");
        reply
    };
    assert!(ask("GET", "/f", &[]).body == pattern(0, 300_000));
    let small = ask("GET", "/s", &[]);
    assert_eq!(small.text(), "small");
    let etag = small
        .head
        .split("ETag: ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned();
    let same = ask("GET", "/s", &[("HTTP_IF_NONE_MATCH", &etag)]);
    assert!(
        same.head.starts_with("Status: 304 ") && same.body.is_empty(),
        "{}",
        same.head
    );
    let head = ask("HEAD", "/f", &[]);
    assert!(head.head.contains("Content-Length: 300000\r\n") && head.body.is_empty());
    let part = ask("GET", "/f", &[("HTTP_RANGE", "bytes=100000-299998")]);
    assert!(part.head.starts_with("Status: 206 ") && part.body == pattern(100_000, 199_999));
    let parts = ask("GET", "/f", &[("HTTP_RANGE", "bytes=0-0,5-70000")]);
    assert!(parts.body.len() > 70_000);
    assert_eq!(ask("GET", "/health", &[]).text(), "fine");
    assert_eq!(ask("GET", "/cgi-bin/t?head&out=a", &[]).text(), "a");
    let large = ask("GET", "/cgi-bin/t?head&fill=3000000", &[]);
    assert!(large.body == pattern(0, 3_000_000));
    assert!(large.records < 1000, "{} records", large.records);
    assert!(
        ask("HEAD", "/cgi-bin/t?head&fill=3000000", &[])
            .body
            .is_empty()
    );
    let length = format!(
        "/cgi-bin/t?out={}&fill=200000",
        encode("Content-Type: a/b\nContent-Length: 100000\n\n")
    );
    assert_eq!(ask("GET", &length, &[]).body.len(), 100_000);
    let kept = encode("Content-Type: a/b\nX-Accel-Redirect: /x\n\n");
    assert!(
        ask("GET", &format!("/cgi-bin/t?out={kept}"), &[])
            .head
            .contains("X-Accel-Redirect: /x\r\n")
    );
    assert!(ask("GET", "/missing", &[]).head.starts_with("Status: 404 "));
    assert!(
        ask("GET", "/cgi-bin/t?out=junk", &[])
            .head
            .starts_with("Status: 502 ")
    );
    drop(front);
    let mut outcomes = vec!["ok"; 11];
    outcomes.extend(["not_found", "script_error"]);
    // The constant answer is a health request, which is not counted.
    watch.after(&outcomes);
}

fn bodies_stream_in_both_directions() {
    let (server, fcgi, scgi) = serve(new_site());
    let watch = Watch::begin(&server).memory(24 << 20);
    let body = pattern(0, 20_000_000);
    for length in [Some("20000000"), None] {
        let more: Vec<_> = length.map(|n| ("CONTENT_LENGTH", n)).into_iter().collect();
        let mut front = Front::connect(&fcgi);
        let bytes = request(
            1,
            false,
            &params("POST", "/cgi-bin/t?head&echo", &more),
            &body,
        );
        let mut half = Front(Client::over(front.0.stream.try_clone().unwrap()));
        let sending = std::thread::spawn(move || half.send(bytes));
        let reply = front.reply(1);
        sending.join().unwrap();
        assert_eq!(reply.end, DONE);
        assert!(reply.body == body, "{} bytes", reply.body.len());
    }
    let mut front = Front::connect(&scgi);
    let mut half = Front(Client::over(front.0.stream.try_clone().unwrap()));
    let bytes = [
        scgi_head("POST", "/cgi-bin/t?head&echo", "20000000"),
        body.clone(),
    ]
    .concat();
    let sending = std::thread::spawn(move || half.send(bytes));
    let mut all = Vec::new();
    front.0.stream.read_to_end(&mut all).unwrap();
    sending.join().unwrap();
    assert!(all.starts_with(b"Status: 200 OK\r\n") && all.ends_with(&body));
    // A piece arrives before the program prints the next.
    let mut front = Front::connect(&fcgi);
    front.send(request(
        1,
        false,
        &params("GET", "/cgi-bin/t?head&out=a&await=go&out=b", &[]),
        b"",
    ));
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\na") {
        seen.extend(front.record().unwrap().2);
    }
    server.set("go");
    assert_eq!(front.reply(1).end, DONE);
    watch.after(&["ok", "ok", "ok", "ok"]);
}

/// The front stops reading after it got the length of the next piece and before the first byte of it. Output that waits from
/// then on must come after that piece. The kernel's buffers decide where a front stops, so there are several fronts.
fn what_was_announced_comes_first() {
    const PIECES: usize = 150;
    // Programs of a crowd would run after the other programs of this machine; `cpu_share = 0` prevents that.
    let config = "rate_grace = \"1h\"\ncpu_share = 0";
    let (server, fcgi, _) = serve(new_site().config(config));
    let watch = Watch::begin(&server);
    let slow: Vec<_> = (0..16)
        .map(|i| {
            let size = 20_003 + 577 * i;
            let pieces = format!("&fill={size}&pause=1").repeat(PIECES);
            let url = format!("/cgi-bin/t?head{pieces}&touch=over{i}");
            let mut front = Front::connect(&fcgi);
            front.send(request(1, false, &params("GET", &url, &[]), b""));
            (front, size)
        })
        .collect();
    for (i, (mut front, size)) in slow.into_iter().enumerate() {
        server.wait_for(&format!("over{i}"));
        let reply = front.reply(1);
        let wanted = pattern(0, size).repeat(PIECES);
        assert_eq!((reply.end, reply.body.len()), (DONE, wanted.len()));
        let at = reply.body.iter().zip(&wanted).position(|(a, b)| a != b);
        assert_eq!(at, None, "pieces of {size} bytes");
    }
    watch.after(&["ok"; 16]);
}

fn scgi() {
    let (server, _, scgi) = serve(new_site());
    let watch = Watch::begin(&server);
    let request = scgi_head("POST", "/cgi-bin/t?head&env&count", "5");
    // The head arrives in two pieces, cut at each of these bytes.
    for cut in [1, 2, 3, 4, 10, request.len() - 1, request.len()] {
        let mut front = Front::connect(&scgi);
        front.send(&request[..cut]);
        std::thread::yield_now();
        front.send([&request[cut..], b"12345"].concat());
        let text = std::io::read_to_string(front.0.stream).unwrap();
        assert!(text.starts_with("Status: 200 OK\r\n"), "{text}");
        assert!(
            text.contains("\nREMOTE_ADDR=203.0.113.8\n") && text.ends_with("\n5"),
            "{text}"
        );
    }
    let rows: [(&[u8], &str); 7] = [
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b":,", "400"),
        (b"03:abc,", "400"),
        (b"3:abc;", "400"),
        (b"12345678:", "431"),
        (b"999999:", "431"),
        (b"24:CONTENT_LENGTH\x000\0A\0B\0C\0D\0,", "400"),
    ];
    for (bytes, status) in rows {
        let mut front = Front::connect(&scgi);
        front.send(bytes);
        let text = std::io::read_to_string(front.0.stream).unwrap();
        assert!(
            text.starts_with(&format!("Status: {status} ")),
            "{bytes:?}: {text}"
        );
    }
    let mut outcomes = vec!["ok"; 7];
    outcomes.extend(["client_error"; 7]);
    watch.after(&outcomes);
}
