//! galgo behind a web server that speaks FastCGI or SCGI, and what a hostile one sends.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
};

use crate::harness::{
    LONG, Server, Site,
    child::pattern,
    encode, list, skip,
    upstream::{Application, ended, hear, say, stdout},
};

const BEGIN: u8 = 1;
const ABORT: u8 = 2;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let [a, b] = id.to_be_bytes();
    let [c, d] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = [1, kind, a, b, c, d, padding, 0];
    [&head[..], content, &vec![b'p'; padding.into()]].concat()
}

fn begin(id: u16, keep: bool) -> Vec<u8> {
    record(BEGIN, id, &[0, 1, keep.into(), 0, 0, 0, 0, 0], 0)
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in pairs {
        for text in [name, value] {
            match u8::try_from(text.len()) {
                Ok(n) if n < 128 => out.push(n),
                _ => out.extend((text.len() as u32 | 1 << 31).to_be_bytes()),
            }
        }
        out.extend(name.bytes().chain(value.bytes()));
    }
    out
}

/// The variables of a request for `target`, and others.
fn params<'a>(method: &'a str, target: &'a str, more: &[(&'a str, &'a str)]) -> Vec<u8> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let usual = [
        ("REQUEST_METHOD", method),
        ("SCRIPT_NAME", path),
        ("QUERY_STRING", query),
        ("REQUEST_URI", target),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REMOTE_ADDR", "203.0.113.7"),
        ("REMOTE_PORT", "4711"),
        ("SERVER_ADDR", "192.0.2.1"),
        ("SERVER_PORT", "443"),
        ("HTTP_HOST", "www.example.org"),
        ("HTTPS", "on"),
    ];
    let usual = usual
        .iter()
        .filter(|(n, _)| more.iter().all(|(m, _)| m != n));
    let all: Vec<_> = usual.chain(more).copied().collect();
    pairs(&all)
}

/// A whole request.
fn request(id: u16, keep: bool, params: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = begin(id, keep);
    for piece in params.chunks(60_000) {
        out.extend(record(PARAMS, id, piece, 3));
    }
    out.extend(record(PARAMS, id, b"", 0));
    for piece in body.chunks(0xffff) {
        out.extend(record(STDIN, id, piece, 255));
    }
    out.extend(record(STDIN, id, b"", 7));
    out
}

/// The site with both listeners, and their sockets.
fn serve(site: Site) -> (Server, PathBuf, PathBuf) {
    let (fcgi, scgi) = (site.path().join("f"), site.path().join("s"));
    let listen =
        [("fastcgi", &fcgi), ("scgi", &scgi)].map(|(p, s)| format!("{p}+unix:{}", s.display()));
    let arguments = ["-l", "127.0.0.1:0", "-l", &listen[0], "-l", &listen[1]];
    (site.arguments(&arguments).start(), fcgi, scgi)
}

struct Front(UnixStream);

/// A response: what was on STDOUT, and how the request ended (`None`: it did not).
#[derive(Debug)]
struct Reply {
    head: String,
    body: Vec<u8>,
    end: Option<(u32, u8)>,
    records: usize,
}

impl Front {
    fn connect(path: &PathBuf) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    fn record(&mut self) -> Option<(u8, u16, Vec<u8>)> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head).ok()?;
        assert_eq!(head[0], 1);
        let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
        self.0.read_exact(&mut content).ok()?;
        self.0.read_exact(&mut vec![0; head[6].into()]).ok()?;
        Some((head[1], u16::from_be_bytes([head[2], head[3]]), content))
    }

    fn reply(&mut self, id: u16) -> Reply {
        let (mut all, mut end, mut records) = (Vec::new(), None, 0);
        while let Some((kind, of, content)) = self.record() {
            assert_eq!(of, id);
            match kind {
                STDOUT => all.extend(content),
                END => {
                    end = Some((
                        u32::from_be_bytes(content[..4].try_into().unwrap()),
                        content[4],
                    ));
                    break;
                }
                other => panic!("a record of type {other}"),
            }
            records += 1;
        }
        let at = all
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .map_or(all.len(), |at| at + 4);
        let body = all.split_off(at);
        Reply {
            head: String::from_utf8(all).unwrap(),
            body,
            end,
            records,
        }
    }

    /// Nothing but the end of the connection comes.
    fn closed(&mut self) {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", rest.escape_ascii());
    }
}

impl Reply {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

const DONE: Option<(u32, u8)> = Some((0, 0));

fn a_request_and_its_variables() {
    let (server, fcgi, _) = serve(Site::new());
    let watch = server.watch();
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

/// fcgiwrap's contract, within the folders of `cgi` routes.
fn the_program_is_named_by_its_file() {
    let (server, fcgi, _) = serve(Site::new().program("cgi-bin/nph-t").program("beside"));
    let watch = server.watch();
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
    let base = server.path().display().to_string();
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
    let rows = [
        (format!("{base}/beside"), 403),
        ("/bin/sh".into(), 403),
        (format!("{base}/cgi-binx/t"), 403),
        (format!("{base}/cgi-bin/../beside"), 404),
        (format!("{base}/cgi-bin"), 403),
        (format!("{base}/cgi-bin/missing"), 404),
        (format!("{base}/cgi-bin/nph-t"), 403),
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
    server.says("/bin/sh\", which lies in no folder of a `cgi` route");
    server.says("an nph- program speaks HTTP");
    let mut outcomes = vec!["ok"; 5];
    outcomes.extend(
        rows.iter()
            .map(|(_, s)| if *s == 403 { "refused" } else { "not_found" }),
    );
    watch.after(&outcomes);
}

/// Files, constants, ranges, HEAD and 304 stand in records as programs do, on a connection that is kept.
/// A front that names a program's file gets no further than a client: the authorizer of its route is asked, and before
/// anything is looked for.
fn a_program_named_by_its_file_is_guarded() {
    let site = Site::new()
        .table("[[route]]\npath = \"/in/\"\ncgi = \"guarded\"\nauthorizer = \"unix:app.sock\"\n");
    std::fs::create_dir(site.path().join("guarded")).unwrap();
    let site = site.program("guarded/t");
    let _application = Application::start(site.path(), |_, stream| {
        let heard = hear(stream).unwrap();
        let head = match heard.param("HTTP_X_KEY") {
            Some(_) => "Status: 200\nVariable-REMOTE_USER: ada\n\n",
            None => "Status: 403\nContent-Type: text/plain\n\nno",
        };
        let end = ended(galgo_proto::fcgi::Outcome::Complete);
        say(stream, [stdout(head), stdout(""), end].concat());
    });
    let (server, fcgi, _) = serve(site);
    let watch = server.watch();
    let file = |name: &str| format!("{}/guarded/{name}", server.path().display());
    let ask = |file: &str, key: &[(&str, &str)]| {
        let named = [&[("SCRIPT_FILENAME", file), ("REMOTE_USER", "eve")], key].concat();
        let mut front = Front::connect(&fcgi);
        let params = params("GET", "/elsewhere?head&env", &named);
        front.send(request(1, false, &params, b""));
        front.reply(1)
    };
    for name in ["t", "none"] {
        let reply = ask(&file(name), &[]);
        assert!(reply.head.starts_with("Status: 403"), "{}", reply.head);
        assert_eq!(reply.text(), "no");
    }
    let text = ask(&file("t"), &[("HTTP_X_KEY", "1")]).text();
    // The authorizer's word is the last one.
    assert!(text.contains("REMOTE_USER=ada\n"), "{text}");
    assert!(!text.contains("eve"), "{text}");
    let reply = ask(&file("none"), &[("HTTP_X_KEY", "1")]);
    assert!(reply.head.starts_with("Status: 404"), "{}", reply.head);
    watch.after(&["ok", "ok", "ok", "not_found"]);
}

fn everything_else_on_a_kept_connection() {
    let site = Site::new()
        .file("public/f", pattern(0, 300_000), 0o644)
        .file("public/s", "small", 0o644);
    let (server, fcgi, _) = serve(site);
    let watch = server.watch();
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
    let (server, fcgi, scgi) = serve(Site::new());
    let watch = server.watch().memory(24 << 20);
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
        let mut half = Front(front.0.try_clone().unwrap());
        let sending = std::thread::spawn(move || half.send(bytes));
        let reply = front.reply(1);
        sending.join().unwrap();
        assert_eq!(reply.end, DONE);
        assert!(reply.body == body, "{} bytes", reply.body.len());
    }
    let mut front = Front::connect(&scgi);
    let mut half = Front(front.0.try_clone().unwrap());
    let bytes = [
        scgi_head("POST", "/cgi-bin/t?head&echo", "20000000"),
        body.clone(),
    ]
    .concat();
    let sending = std::thread::spawn(move || half.send(bytes));
    let mut all = Vec::new();
    front.0.read_to_end(&mut all).unwrap();
    sending.join().unwrap();
    assert!(all.starts_with(b"Status: 200 OK\r\n") && all.ends_with(&body));
    // A piece arrives before the next is printed.
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

fn scgi_head(method: &str, target: &str, length: &str) -> Vec<u8> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = [
        ("CONTENT_LENGTH", length),
        ("SCGI", "1"),
        ("REQUEST_METHOD", method),
        ("SCRIPT_NAME", path),
        ("QUERY_STRING", query),
        ("REQUEST_URI", target),
        ("REMOTE_ADDR", "203.0.113.8"),
    ];
    let headers: String = pairs.iter().map(|(n, v)| format!("{n}\0{v}\0")).collect();
    format!("{}:{headers},", headers.len()).into_bytes()
}

fn scgi() {
    let (server, _, scgi) = serve(Site::new());
    let watch = server.watch();
    let request = scgi_head("POST", "/cgi-bin/t?head&env&count", "5");
    // At every byte.
    for cut in [1, 2, 3, 4, 10, request.len() - 1, request.len()] {
        let mut front = Front::connect(&scgi);
        front.send(&request[..cut]);
        std::thread::yield_now();
        front.send([&request[cut..], b"12345"].concat());
        let text = std::io::read_to_string(front.0).unwrap();
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
        let text = std::io::read_to_string(front.0).unwrap();
        assert!(
            text.starts_with(&format!("Status: {status} ")),
            "{bytes:?}: {text}"
        );
    }
    let mut outcomes = vec!["ok"; 7];
    outcomes.extend(["client_error"; 7]);
    watch.after(&outcomes);
}

fn a_front_that_leaves_ends_the_program() {
    for deaf in ["", "deaf&"] {
        let (server, fcgi, scgi) = serve(Site::new().defaults("kill_grace = \"100ms\""));
        let watch = server.watch();
        let silent = format!("/cgi-bin/t?{deaf}touch=on&head&out=a&hang");
        let full = request(1, true, &params("GET", &silent, &[]), b"");
        let leave = |front: &mut Front, how: usize| match how {
            0 => front.send(record(ABORT, 1, b"", 0)),
            1 => front.0.shutdown(Shutdown::Write).unwrap(),
            _ => front.0.shutdown(Shutdown::Both).unwrap(),
        };
        for how in 0..3 {
            let mut front = Front::connect(&fcgi);
            front.send(&full);
            server.wait_for("on");
            std::fs::remove_file(server.mark("on")).unwrap();
            leave(&mut front, how);
            assert!(front.reply(1).end.is_none());
        }
        let mut front = Front::connect(&scgi);
        front.send(scgi_head("GET", &silent, "0"));
        server.wait_for("on");
        leave(&mut front, 2);
        // While its body is still to come.
        let mut front = Front::connect(&fcgi);
        let all = request(
            1,
            false,
            &params("POST", "/cgi-bin/t?head&echo", &[("CONTENT_LENGTH", "9")]),
            b"123456789",
        );
        front.send(&all[..all.len() - 280]);
        drop(front);
        watch.after(&["client_gone"; 5]);
    }
}

/// A cut response has no END_REQUEST.
fn a_cut_response_looks_cut() {
    let (server, fcgi, _) = serve(Site::new());
    let watch = server.watch();
    let short = format!(
        "out={}&out=abc",
        encode("Content-Type: a/b\nContent-Length: 9\n\n")
    );
    for steps in [
        "head&fill=100000&die=9",
        "head&out=a&touch=x&die=11",
        &short,
    ] {
        let mut front = Front::connect(&fcgi);
        front.send(request(
            1,
            true,
            &params("GET", &format!("/cgi-bin/t?{steps}"), &[]),
            b"",
        ));
        let reply = front.reply(1);
        // What died before anything was sent is a 502.
        assert!(
            reply.end.is_none() || reply.head.starts_with("Status: 502"),
            "{steps}: {reply:?}"
        );
    }
    watch.after(&["script_error"; 3]);
}

/// Whatever marks the end of the body.
fn the_front_is_told_the_exit_status() {
    let (server, fcgi, _) = serve(Site::new());
    let watch = server.watch();
    let typed = |more: &str| encode(format!("Content-Type: text/plain\n{more}\n"));
    let length = typed("Content-Length: 3\n");
    for (query, status) in [
        ("head&out=abc".into(), 0),
        ("head&out=abc&exit=7".into(), 7),
        ("head&exit=255".into(), 255),
        (format!("out={length}&out=abc&exit=8"), 8),
        (format!("out={}&exit=9", encode("Status: 204\n\n")), 9),
        ("head&fill=1000000&exit=10".into(), 10),
    ] {
        let mut front = Front::connect(&fcgi);
        front.send(request(
            1,
            false,
            &params("GET", &format!("/cgi-bin/t?{query}"), &[]),
            b"",
        ));
        let reply = front.reply(1);
        assert_eq!(reply.end, Some((status, 0)), "{query}");
    }
    // A program that is ended before its response has begun gets none.
    let mut front = Front::connect(&fcgi);
    let target = format!("/cgi-bin/t?out={length}&out=abc&await=seen&die=15");
    front.send(request(1, false, &params("GET", &target, &[]), b""));
    assert!(front.record().is_some_and(|(kind, ..)| kind == STDOUT));
    server.set("seen");
    assert_eq!(front.reply(1).end, Some((128 + 15, 0)));
    watch.after(&["ok"; 7]);
}

fn one_request_at_a_time_on_a_connection() {
    let (server, fcgi, _) = serve(Site::new());
    let watch = server.watch();
    let mut front = Front::connect(&fcgi);
    let get_values = record(
        9,
        0,
        &pairs(&[("FCGI_MPXS_CONNS", ""), ("FCGI_OTHER", "")]),
        5,
    );
    front.send(&get_values);
    assert_eq!(
        front.record().unwrap(),
        (10, 0, pairs(&[("FCGI_MPXS_CONNS", "0")]))
    );
    front.send(record(99, 0, b"what", 0));
    assert_eq!(
        front.record().unwrap(),
        (11, 0, vec![99, 0, 0, 0, 0, 0, 0, 0])
    );
    // Another role.
    front.send(record(BEGIN, 3, &[0, 3, 1, 0, 0, 0, 0, 0], 0));
    assert_eq!(
        front.record().unwrap(),
        (END, 3, vec![0, 0, 0, 0, 3, 0, 0, 0])
    );
    // A second request while one runs: refused once that is over, and its records mean nothing.
    front.send(request(
        1,
        true,
        &params("GET", "/cgi-bin/t?head&touch=on&await=go&out=a", &[]),
        b"",
    ));
    server.wait_for("on");
    front.send(request(
        2,
        true,
        &params("GET", "/cgi-bin/t?head&out=b", &[]),
        b"body",
    ));
    server.set("go");
    assert_eq!(front.reply(1).text(), "a");
    assert_eq!(
        front.record().unwrap(),
        (END, 2, vec![0, 0, 0, 0, 1, 0, 0, 0])
    );
    // An abort before the variables are whole, then another request.
    front.send(
        [
            begin(5, true),
            record(PARAMS, 5, &pairs(&[("A", "b")]), 0),
            record(ABORT, 5, b"", 0),
        ]
        .concat(),
    );
    assert_eq!(front.record().unwrap(), (STDOUT, 5, vec![]));
    assert_eq!(front.record().unwrap(), (END, 5, vec![0; 8]));
    front.send(request(
        6,
        true,
        &params("GET", "/cgi-bin/t?head&out=c", &[]),
        b"",
    ));
    assert_eq!(front.reply(6).text(), "c");
    drop(front);
    watch.after(&["ok", "ok"]);
}

fn several_connections_at_once() {
    let (server, fcgi, _) = serve(Site::new().top("max_running = 16"));
    let watch = server.watch();
    let mut fronts: Vec<_> = (0..8).map(|_| Front::connect(&fcgi)).collect();
    for (i, front) in fronts.iter_mut().enumerate() {
        let target = format!("/cgi-bin/t?head&touch=on{i}&await=go&out={i}");
        front.send(request(1, false, &params("GET", &target, &[]), b""));
    }
    for i in 0..8 {
        server.wait_for(&format!("on{i}"));
    }
    server.set("go");
    for (i, front) in fronts.iter_mut().enumerate() {
        assert_eq!(front.reply(1).text(), i.to_string());
    }
    watch.after(&["ok"; 8]);
}

fn a_request_split_at_every_byte() {
    let (server, fcgi, _) = serve(Site::new());
    let watch = server.watch();
    let all = request(
        1,
        true,
        &params("POST", "/cgi-bin/t?head&echo", &[("CONTENT_LENGTH", "5")]),
        b"12345",
    );
    let mut front = Front::connect(&fcgi);
    for byte in &all {
        front.send([*byte]);
    }
    assert_eq!(front.reply(1).text(), "12345");
    for cut in (1..all.len()).step_by(13) {
        front.send(&all[..cut]);
        std::thread::yield_now();
        front.send(&all[cut..]);
        assert_eq!(front.reply(1).text(), "12345", "cut at {cut}");
    }
    drop(front);
    let requests = 1 + (1..all.len()).step_by(13).count();
    watch.after(&vec!["ok"; requests]);
}

/// One row each: what is sent, the status of an answer (0: the connection is closed), and the log's word.
fn what_a_hostile_front_sends() {
    let site = Site::new().top("head_timeout = \"1s\"\nrate_grace = \"1s\"");
    let (server, fcgi, _) = serve(site);
    let post = |more: &[(&str, &str)]| params("POST", "/cgi-bin/t?take=9&head", more);
    let ok = params("GET", "/cgi-bin/t?head", &[]);
    let begun = |rest: &[Vec<u8>]| [begin(1, true), rest.concat()].concat();
    let five = post(&[("CONTENT_LENGTH", "5")]);
    let head = |params: &[u8]| [record(PARAMS, 1, params, 0), record(PARAMS, 1, b"", 0)].concat();
    let large = vec![b'x'; 60_000];
    let rows: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        (
            "garbage",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            0,
            "client_error",
        ),
        (
            "version 2",
            [&[2], &begin(1, true)[1..]].concat(),
            0,
            "client_error",
        ),
        (
            "stdin first",
            begun(&[record(STDIN, 1, b"a", 0)]),
            400,
            "client_error",
        ),
        ("begin twice", begun(&[begin(1, true)]), 400, "client_error"),
        (
            "begin too short",
            record(BEGIN, 1, &[0, 1], 0),
            0,
            "client_error",
        ),
        (
            "unknown type",
            begun(&[record(77, 1, b"a", 0)]),
            400,
            "client_error",
        ),
        (
            "stdout from the front",
            begun(&[record(STDOUT, 1, b"a", 0)]),
            400,
            "client_error",
        ),
        (
            "values that are cut",
            record(9, 0, &[200, 1], 0),
            0,
            "client_error",
        ),
        (
            "variables that are cut",
            begun(&[head(&[5, 5, b'a'])]),
            400,
            "client_error",
        ),
        (
            "a length of 2^31",
            begun(&[head(&[0xff, 0xff, 0xff, 0xff, 1])]),
            400,
            "client_error",
        ),
        ("no variables", begun(&[head(b"")]), 400, "client_error"),
        (
            "too many",
            begun(&[record(PARAMS, 1, &large, 0), record(PARAMS, 1, &large, 0)]),
            431,
            "client_error",
        ),
        (
            "NUL in a field",
            begun(&[head(&params("GET", "/", &[("HTTP_A", "\0")]))]),
            400,
            "client_error",
        ),
        (
            "twice",
            begun(&[head(&[ok.clone(), pairs(&[("HTTPS", "off")])].concat())]),
            400,
            "client_error",
        ),
        (
            "half the variables",
            begun(&[record(PARAMS, 1, &ok[..9], 0)]),
            408,
            "client_error",
        ),
        (
            "half a header",
            begin(1, true)[..5].to_vec(),
            0,
            "client_error",
        ),
        (
            "half of stdin",
            begun(&[head(&five), record(STDIN, 1, b"abc", 0)]),
            408,
            "client_error",
        ),
        (
            "less stdin",
            begun(&[
                head(&five),
                record(STDIN, 1, b"abc", 0),
                record(STDIN, 1, b"", 0),
            ]),
            400,
            "client_error",
        ),
        (
            "more stdin",
            begun(&[head(&five), record(STDIN, 1, b"abcdef", 0)]),
            400,
            "client_error",
        ),
        (
            "a bad type in stdin",
            begun(&[head(&five), record(66, 1, b"abc", 0)]),
            400,
            "client_error",
        ),
        (
            "too large a body",
            begun(&[head(&post(&[("CONTENT_LENGTH", "99999999999")]))]),
            413,
            "client_error",
        ),
    ];
    for (name, bytes, status, outcome) in rows {
        let watch = server.watch();
        let mut front = Front::connect(&fcgi);
        front.send(bytes);
        match status {
            0 => front.closed(),
            _ => {
                let reply = front.reply(1);
                let wanted = format!("Status: {status} ");
                assert!(reply.head.starts_with(&wanted), "{name}: {reply:?}");
                assert_eq!(reply.end, DONE, "{name}");
            }
        }
        drop(front);
        watch.after(&[outcome]);
    }
    // Ids of no request are not answered and do no harm.
    let watch = server.watch();
    let mut front = Front::connect(&fcgi);
    for kind in [ABORT, PARAMS, STDIN] {
        front.send(record(kind, 4242, b"x", 9));
    }
    front.send(request(
        0xffff,
        false,
        &params("GET", "/cgi-bin/t?head&out=a", &[]),
        b"",
    ));
    assert_eq!(front.reply(0xffff).text(), "a");
    watch.after(&["ok"]);
    // Nor does silence.
    let watch = server.watch();
    drop(Front::connect(&fcgi));
    watch.after(&[]);
}

/// Over TCP only who is near, or trusted, may say who a client is.
/// An address of this machine beyond loopback. No packet is sent to find it.
fn address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// What `/health` answers over FastCGI on TCP.
fn over_tcp(server: &mut Server) -> Vec<u8> {
    let line = server.next_line();
    let at = line
        .trim_end()
        .strip_prefix("listening on fastcgi+")
        .unwrap();
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let health = request(1, false, &params("GET", "/health", &[]), b"");
    // A connection that is refused may be reset before all of it is written.
    let _ = stream.write_all(&health);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

/// Over TCP a front says who users are: loopback and `trusted_proxies` may, nobody else.
fn a_stranger_is_no_front() {
    let fine = |all: &[u8]| all.windows(4).any(|w| w == b"fine");
    let site = Site::new().arguments(&["-l", "127.0.0.1:0", "-l", "fastcgi+127.0.0.1:0"]);
    assert!(fine(&over_tcp(&mut site.start())));
    let Some(own) = address() else {
        skip!("this machine has no address beyond loopback");
    };
    let listen = format!("fastcgi+{own}:0");
    for (trusted, known) in [(String::new(), false), (format!("\"{own}\""), true)] {
        let mut site = Site::new()
            .top(&format!("trusted_proxies = [{trusted}]"))
            .arguments(&["-l", "127.0.0.1:0", "-l", &listen]);
        if rustix::process::geteuid().is_root() {
            // Root serves this machine only.
            site = site.top("user = \"nobody\"");
        }
        let mut server = site.start();
        let all = over_tcp(&mut server);
        assert_eq!(fine(&all), known, "{:?}", String::from_utf8_lossy(&all));
        if !known {
            assert_eq!(all, b"");
            server.says("is no front server: add its address to trusted_proxies if it is");
        }
    }
}

list![
    a_request_and_its_variables,
    the_program_is_named_by_its_file,
    a_program_named_by_its_file_is_guarded,
    everything_else_on_a_kept_connection,
    bodies_stream_in_both_directions,
    scgi,
    a_front_that_leaves_ends_the_program,
    a_cut_response_looks_cut,
    the_front_is_told_the_exit_status,
    one_request_at_a_time_on_a_connection,
    several_connections_at_once,
    a_request_split_at_every_byte,
    what_a_hostile_front_sends,
    a_stranger_is_no_front,
];
