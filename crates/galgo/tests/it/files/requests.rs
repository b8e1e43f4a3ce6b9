//! Requests for a file: methods, ranges, preconditions, codings.

use super::{SIZE, age, site, with};
use crate::harness::{child::pattern, list, new_site, watch::Watch};
use galgo_testkit::End;

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
    // A malformed range, a range of another unit and a range with HEAD are ignored.
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
    let most = format!("Range: bytes={}\r\n", many[..200].join(","));
    assert_eq!(with(&server, "GET", "/f", &most).status, 206);
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

fn precompressed_siblings() {
    let mut site =
        new_site().config("[[route]]\npath = \"/z/\"\nfiles = \"z\"\nprecompressed = true");
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
    // RFC 9110, 15.6.2: a method that no server knows is not implemented.
    let watch = Watch::begin(&server);
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
    // A body with a GET has no meaning and does not change the answer.
    let reply = server.ask("GET /f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(reply.body.len(), SIZE);
}

fn what_is_no_file() {
    let site =
        site()
            .file("public/.env", "secret", 0o644)
            .file("public/a/.git/config", "secret", 0o644);
    let pipe = site.path("public/pipe");
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

list![
    s14_2_ranges,
    s14_6_several_ranges,
    s13_preconditions,
    precompressed_siblings,
    s9_methods,
    what_is_no_file
];
