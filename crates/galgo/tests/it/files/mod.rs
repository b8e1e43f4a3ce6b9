//! Static files over sockets.

use std::{
    fs::File,
    io::Read,
    time::{Duration, SystemTime},
};

use crate::harness::{End, Reply, Server, Site, child::pattern, eventually, list};

list![
    s14_2_ranges,
    s14_6_several_ranges,
    s13_preconditions,
    a_small_file_is_one_write,
    a_large_file_arrives_whole,
    a_file_that_is_cut_while_it_is_sent,
    a_file_that_is_replaced_while_it_is_sent,
    precompressed_siblings,
    folders,
    s9_methods,
    what_is_no_file,
    s3_routes_the_longest_path_wins,
    constant_answers,
    homes,
    headers_are_on_every_response,
    a_refusal_has_its_cause_in_the_log,
];

const SIZE: usize = 200_000;

/// With `public/f`, last changed long ago, so that its validators are strong.
fn site() -> Site {
    let site = Site::new().file("public/f", pattern(0, SIZE), 0o644);
    age(&site, "public/f");
    site
}

/// More than the buffers of both sides of a connection hold.
const LARGE: usize = 40_000_000;

fn large() -> Vec<u8> {
    pattern(0, 1_000_000).repeat(LARGE / 1_000_000)
}

fn age(site: &Site, path: &str) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let file = File::options().write(true).open(site.path().join(path));
    file.unwrap().set_modified(then).unwrap();
}

fn with(server: &Server, method: &str, target: &str, fields: &str) -> Reply {
    let mut client = server.connect();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ));
    let reply = client.reply_to(method);
    // Whatever was answered, the next request finds its place.
    client.get("/health");
    assert_eq!(client.reply().text(), "fine", "{method} {target} {fields}");
    reply
}

fn s14_2_ranges() {
    let server = site().start();
    let last = SIZE - 1;
    for (range, first, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=199999-", last, SIZE),
        ("bytes=100000-", 100_000, SIZE),
        ("bytes=100-999999999999999999999999", 100, SIZE),
        ("bytes=-1", last, SIZE),
        ("bytes=-150000", 50_000, SIZE),
        ("bytes=-999999", 0, SIZE),
        ("Bytes=7-7", 7, 8),
    ] {
        let reply = with(&server, "GET", "/f", &format!("Range: {range}\r\n"));
        assert_eq!(reply.status, 206, "{range}");
        let wanted = format!("bytes {first}-{}/{SIZE}", end - 1);
        assert_eq!(reply.field("content-range"), Some(wanted.as_str()));
        assert_eq!(reply.body, pattern(first, end - first), "{range}");
    }
    for range in ["bytes=200000-", "bytes=-0"] {
        let reply = with(&server, "GET", "/f", &format!("Range: {range}\r\n"));
        assert_eq!(reply.status, 416, "{range}");
        let wanted = format!("bytes */{SIZE}");
        assert_eq!(reply.field("content-range"), Some(wanted.as_str()));
    }
    // What is no range of bytes is no range at all; nor is one asked of HEAD.
    for range in [
        "bytes=",
        "bytes=a-b",
        "bytes=9-5",
        "lines=1-2",
        "bytes 1-2",
        "bytes=1-2-3",
    ] {
        let reply = with(&server, "GET", "/f", &format!("Range: {range}\r\n"));
        assert_eq!((reply.status, reply.body.len()), (200, SIZE), "{range}");
    }
    let many = (0..1000).map(|i| format!("{i}-{i}")).collect::<Vec<_>>();
    let reply = with(
        &server,
        "GET",
        "/f",
        &format!("Range: bytes={}\r\n", many.join(",")),
    );
    assert_eq!((reply.status, reply.body.len()), (200, SIZE));
    let reply = with(&server, "HEAD", "/f", "Range: bytes=0-0\r\n");
    assert_eq!(reply.status, 200);
}

fn s14_6_several_ranges() {
    let server = site().start();
    let reply = with(
        &server,
        "GET",
        "/f",
        "Range: bytes=0-4, 100000-199999, -1\r\n",
    );
    assert_eq!(reply.status, 206);
    let media = reply.field("content-type").unwrap();
    let boundary = media
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let mut wanted = Vec::new();
    for (first, end) in [(0, 5), (100_000, SIZE), (SIZE - 1, SIZE)] {
        let line = if first == 0 { "" } else { "\r\n" };
        wanted.extend_from_slice(
            format!(
                "{line}--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                 Content-Range: bytes {first}-{}/{SIZE}\r\n\r\n",
                end - 1
            )
            .as_bytes(),
        );
        wanted.extend(pattern(first, end - first));
    }
    wanted.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(reply.body == wanted, "{media}");
}

fn s13_preconditions() {
    let server = site().start();
    let whole = server.get("/f");
    let etag = whole.field("etag").unwrap().to_owned();
    let modified = whole.field("last-modified").unwrap();
    assert_eq!(modified, "Sun, 06 Nov 1994 08:49:37 GMT");
    let (before, after) = (
        "Sun, 06 Nov 1994 08:49:36 GMT",
        "Sun, 06 Nov 1994 08:49:38 GMT",
    );
    for (status, fields) in [
        (304, format!("If-None-Match: {etag}\r\n")),
        (304, format!("If-None-Match: \"x\", W/{etag}\r\n")),
        (304, "If-None-Match: *\r\n".into()),
        (200, "If-None-Match: \"x\"\r\n".into()),
        (304, format!("If-Modified-Since: {modified}\r\n")),
        (304, format!("If-Modified-Since: {after}\r\n")),
        (200, format!("If-Modified-Since: {before}\r\n")),
        (200, "If-Modified-Since: yesterday\r\n".into()),
        (
            200,
            format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {after}\r\n"),
        ),
        (200, format!("If-Match: {etag}\r\n")),
        (200, "If-Match: *\r\n".into()),
        (412, "If-Match: \"x\"\r\n".into()),
        (412, format!("If-Match: W/{etag}\r\n")),
        (412, format!("If-Unmodified-Since: {before}\r\n")),
        (200, format!("If-Unmodified-Since: {modified}\r\n")),
        (206, format!("Range: bytes=0-0\r\nIf-Range: {etag}\r\n")),
        (206, format!("Range: bytes=0-0\r\nIf-Range: {modified}\r\n")),
        (200, format!("Range: bytes=0-0\r\nIf-Range: {before}\r\n")),
        (200, "Range: bytes=0-0\r\nIf-Range: \"x\"\r\n".into()),
        (
            304,
            format!("Range: bytes=0-0\r\nIf-None-Match: {etag}\r\n"),
        ),
    ] {
        let reply = with(&server, "GET", "/f", &fields);
        assert_eq!(reply.status, status, "{fields}");
        if status == 304 {
            assert_eq!(reply.field("etag"), Some(etag.as_str()));
            assert_eq!(reply.field("content-length"), None);
        }
        let head = with(&server, "HEAD", "/f", &fields);
        let no_range = if status == 206 { 200 } else { status };
        assert_eq!(head.status, no_range, "HEAD {fields}");
    }
}

/// One read finds all of it, each time: two writes would sometimes be seen apart.
fn a_small_file_is_one_write() {
    let server = site().file("public/s", pattern(0, 3000), 0o644).start();
    let mut client = server.connect();
    for _ in 0..200 {
        client.get("/s");
        let mut buf = vec![0; 64 << 10];
        let n = client.stream.read(&mut buf).unwrap();
        let body = buf[..n].windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(buf[body..n], pattern(0, 3000));
    }
}

fn a_large_file_arrives_whole() {
    const HUGE: usize = 100 << 20;
    let site = Site::new();
    let block = pattern(0, 1_000_000);
    let file = File::create(site.path().join("public/large")).unwrap();
    for at in (0..HUGE).step_by(block.len()) {
        let n = block.len().min(HUGE - at);
        std::os::unix::fs::FileExt::write_all_at(&file, &block[..n], at as u64).unwrap();
    }
    let server = site.start();
    let watch = server.watch().memory(8 << 20);
    let mut client = server.connect();
    client.get("/large");
    let head = client.head();
    assert_eq!(head.field("content-length"), Some("104857600"));
    // The pattern repeats itself in each block: compared block by block, not all in memory.
    let mut at = 0;
    while at < HUGE {
        let piece = client.take(block.len().min(HUGE - at));
        assert!(piece[..] == block[..piece.len()], "at {at}");
        at += piece.len();
    }
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    watch.after(&["ok"]);
}

fn a_file_that_is_cut_while_it_is_sent() {
    let site = Site::new().file("public/large", large(), 0o644);
    let server = site.start();
    let watch = server.watch();
    let mut client = server.connect();
    client.get("/large");
    assert_eq!(client.head().status, 200);
    // The server cannot have sent it all: nobody has read it.
    let path = server.path().join("public/large");
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let got = client.rest();
    assert!(got.len() < LARGE, "{}", got.len());
    // What was queued beyond the new end the kernel may have set to zeros.
    let kept = got.len().min(1 << 20);
    assert!(got[..kept] == large()[..kept]);
    drop(client);
    watch.after(&["cut"]);
}

fn a_file_that_is_replaced_while_it_is_sent() {
    let site = Site::new()
        .file("public/large", large(), 0o644)
        .file("public/new", "new", 0o644);
    let server = site.start();
    let mut client = server.connect();
    client.get("/large");
    assert_eq!(client.head().status, 200);
    let at = |name: &str| server.path().join("public").join(name);
    std::fs::rename(at("new"), at("large")).unwrap();
    assert_eq!(server.get("/large").text(), "new");
    assert!(client.take(LARGE) == large());
    client.get("/large");
    assert_eq!(client.reply().text(), "new");
}

fn precompressed_siblings() {
    let mut site =
        Site::new().table("[[route]]\npath = \"/z/\"\nfiles = \"z\"\nprecompressed = true");
    for name in [
        "a.css",
        "a.css.br",
        "a.css.zst",
        "a.css.gz",
        "b.css",
        "c.png",
        "c.png.gz",
    ] {
        site = site.file(&format!("z/{name}"), name, 0o644);
        age(&site, &format!("z/{name}"));
    }
    let server = site
        .file("public/a.css", "plain", 0o644)
        .file("public/a.css.gz", "gz", 0o644)
        .start();
    for (target, accept, body) in [
        ("/z/a.css", "gzip", "a.css.gz"),
        ("/z/a.css", "gzip, br", "a.css.br"),
        ("/z/a.css", "zstd, gzip", "a.css.zst"),
        ("/z/a.css", "br;q=0, gzip;q=0.1", "a.css.gz"),
        ("/z/a.css", "identity", "a.css"),
        ("/z/a.css", "gzip;q=0", "a.css"),
        ("/z/b.css", "gzip, br, zstd", "b.css"),
        ("/z/c.png", "gzip", "c.png"),
        ("/a.css", "gzip", "plain"),
    ] {
        let reply = with(
            &server,
            "GET",
            target,
            &format!("Accept-Encoding: {accept}\r\n"),
        );
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, body),
            "{target} {accept}"
        );
        let coding = body.rsplit_once(".css.").map(|(_, c)| match c {
            "gz" => "gzip",
            "zst" => "zstd",
            other => other,
        });
        assert_eq!(reply.field("content-encoding"), coding, "{target} {accept}");
        let varies = reply.field("vary") == Some("Accept-Encoding");
        assert_eq!(varies, target.starts_with("/z/") && target.ends_with("css"));
    }
}

fn folders() {
    let server = Site::new()
        .table("[[route]]\npath = \"/list/\"\nfiles = \"list\"\nlisting = true\nheaders = { X-More = \"1\" }")
        .file("list/<b>&.txt", "", 0o644)
        .file("list/sub/a", "", 0o644)
        .file("list/.hidden", "", 0o644)
        .file("public/with/index.html", "index", 0o644)
        .file("public/without/file", "", 0o644)
        .start();
    for (target, to) in [
        ("/list", "/list/"),
        ("/list/sub", "/list/sub/"),
        ("/with", "/with/"),
        ("/with?a=b", "/with/?a=b"),
        ("//with", "/with/"),
    ] {
        let reply = server.get(target);
        if target.starts_with("//") {
            assert_eq!(reply.field("location").unwrap_or(to), to, "{target}");
            continue;
        }
        assert_eq!(
            (reply.status, reply.field("location")),
            (301, Some(to)),
            "{target}"
        );
    }
    assert_eq!(server.get("/with/").text(), "index");
    assert_eq!(server.get("/without/").status, 403);
    let listing = server.get("/list/");
    assert_eq!((listing.status, listing.field("x-more")), (200, Some("1")));
    let html = listing.text();
    assert!(
        html.contains("&lt;b&gt;&amp;.txt") && html.contains("%3Cb%3E%26.txt"),
        "{html}"
    );
    assert!(html.contains("sub/") && !html.contains("hidden"), "{html}");
    assert_eq!(server.get("/list/none").field("x-more"), Some("1"));
}

fn s9_methods() {
    let server = site().start();
    for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND", "UNLOCK"] {
        let reply = with(&server, method, "/f", "Content-Length: 0\r\n");
        assert_eq!(
            (reply.status, reply.field("allow")),
            (405, Some("GET, HEAD, OPTIONS")),
            "{method}"
        );
    }
    // RFC 9110, 15.6.2: what no server knows is not implemented.
    let watch = server.watch();
    for method in ["get", "FROB", "X-Y"] {
        let reply = with(&server, method, "/f", "Content-Length: 0\r\n");
        assert_eq!(
            (reply.status, reply.field("allow")),
            (501, None),
            "{method}"
        );
    }
    watch.after(&["client_error"; 3]);
    let reply = with(&server, "OPTIONS", "/f", "");
    assert_eq!(
        (reply.status, reply.field("allow")),
        (204, Some("GET, HEAD, OPTIONS"))
    );
    // A body with a GET means nothing and hides nothing.
    let reply = server.ask("GET /f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(reply.body.len(), SIZE);
}

fn what_is_no_file() {
    let site =
        site()
            .file("public/.env", "secret", 0o644)
            .file("public/a/.git/config", "secret", 0o644);
    let pipe = site.path().join("public/pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let server = site.start();
    for target in [
        "/.env",
        "/a/.git/config",
        "/%2eenv",
        "/pipe",
        "/f/",
        "/f/more",
        "/none",
        "/no/ne",
    ] {
        let reply = server.get(target);
        assert_eq!((reply.status, reply.end), (404, End::Whole), "{target}");
    }
}

fn s3_routes_the_longest_path_wins() {
    let respond = |host: &str, path: &str, body: &str| {
        let host = if host.is_empty() {
            String::new()
        } else {
            format!("host = \"{host}\"\n")
        };
        format!(
            "[[route]]\npath = \"{path}\"\n{host}respond = {{ type = \"text/plain\", body = \"{body}\" }}"
        )
    };
    let server = Site::new()
        .table(&respond("", "/a/", "folder"))
        .table(&respond("", "/a/b", "longer"))
        .table(&respond("", "/a/b/c/", "longest"))
        .table(&respond("git.example.org", "/a/", "host"))
        .table(&respond("git.example.org", "/cgi-bin/t", "host's"))
        .start();
    for (host, target, wanted) in [
        ("localhost", "/a/", "folder"),
        ("localhost", "/a/x", "folder"),
        ("localhost", "/a/b", "longer"),
        ("localhost", "/a/b/x", "longer"),
        ("localhost", "/a/bc", "folder"),
        ("localhost", "/a/b/c/d", "longest"),
        ("git.example.org", "/a/", "host"),
        ("GIT.example.org:8080", "/a/x", "host"),
        ("git.example.org.", "/a/x", "host"),
        ("git.example.org", "/a/b", "longer"),
        ("git.example.org", "/cgi-bin/t?head&out=program", "host's"),
        (
            "other.example.org",
            "/cgi-bin/t?head&out=program",
            "program",
        ),
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(reply.text(), wanted, "{host} {target}");
    }
}

fn constant_answers() {
    let gif = b"GIF89a\x01\x00\x01\x00\x80\x00\x00";
    let server = Site::new()
        .file("pixel.gif", gif, 0o644)
        .table("[[route]]\npath = \"/\"\nrespond = { type = \"image/gif\", file = \"pixel.gif\", headers = { X-Ad = \"no\" } }")
        .table("[[route]]\npath = \"/gone\"\nrespond = { status = 410, body = \"gone\" }")
        .start();
    for (host, target) in [
        ("a", "/"),
        ("b.example", "/any/thing?x"),
        ("[::1]", "/x.php"),
    ] {
        let reply = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!((reply.status, &reply.body[..]), (200, &gif[..]), "{target}");
        assert_eq!(reply.field("content-type"), Some("image/gif"));
        assert_eq!(reply.field("x-ad"), Some("no"));
    }
    let reply = server.get("/gone");
    assert_eq!((reply.status, reply.text().as_str()), (410, "gone"));
}

/// The home is that of an account, so this looks at what any machine has: `daemon`, whose home has no
/// such folders; the server starts, says so, and serves nothing there.
fn homes() {
    let server = Site::new()
        .table("[userdir]\nfiles = \"no-such-public_html\"\ncgi = \"no-such-cgi-bin\"\nusers = [\"daemon\"]")
        .start();
    server.says("~daemon");
    for target in [
        "/~daemon/",
        "/~daemon/cgi-bin/x",
        "/~root/",
        "/~root/.profile",
    ] {
        assert_eq!(server.get(target).status, 404, "{target}");
    }
    eventually("the warning", || {
        server.errors().contains("warning").then_some(())
    });
}

fn headers_are_on_every_response() {
    let route = "[[route]]\npath = \"/s/\"\nfiles = \"public\"\n\
                 headers = { X-A = \"b\", Cache-Control = \"max-age=9\" }\n";
    let server = Site::new()
        .file("public/f", "text", 0o644)
        .file("public/empty/sub/f", "", 0o644)
        .table(route)
        .start();
    for (method, target, status) in [
        ("GET", "/s/f", 200),
        ("OPTIONS", "/s/f", 204),
        ("GET", "/s", 301),
        ("GET", "/s/empty", 301),
        ("GET", "/s/none", 404),
        ("GET", "/s/empty/", 403),
        ("POST", "/s/f", 405),
    ] {
        let reply = with(&server, method, target, "");
        assert_eq!(reply.status, status, "{method} {target}");
        assert_eq!(reply.field("x-a"), Some("b"), "{method} {target}");
        // An error is not kept.
        let kept = if status < 400 {
            "max-age=9"
        } else {
            "no-store"
        };
        if method != "OPTIONS" {
            assert_eq!(
                reply.field("cache-control"),
                Some(kept),
                "{method} {target}"
            );
        }
    }
}

fn a_refusal_has_its_cause_in_the_log() {
    let server = Site::new()
        .top("dev_errors = true")
        .file("public/folder/f", "", 0o644)
        .file("public/page.wcgi", "", 0o644)
        .start();
    for (path, words) in [
        ("/folder/", "the folder has no index, and is not listed: "),
        ("/page.wcgi", "its name is that of a program's source"),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, 403);
        assert!(
            reply.text().contains(words.split('\'').next().unwrap()),
            "{}",
            reply.text()
        );
        server.says(&format!("] {path}: {words}"));
    }
}
