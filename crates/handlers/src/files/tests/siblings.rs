//! Precompressed siblings, media types, and files that change while they are sent.

use super::*;

#[test]
fn s12_5_3_the_sibling_the_client_likes_best() {
    let site = site();
    site.put("a.css", "plain");
    site.put("a.css.gz", "gzip bytes");
    site.put("a.css.br", "br bytes");
    for (accept, coding, body) in [
        ("", "", "plain"),
        ("gzip, deflate, br, zstd", "br", "br bytes"),
        ("gzip", "gzip", "gzip bytes"),
        ("zstd", "", "plain"),
        ("zstd, gzip;q=0.1", "gzip", "gzip bytes"),
        ("gzip;q=0.5, identity", "", "plain"),
        ("br;q=0, *", "gzip", "gzip bytes"),
        ("*", "br", "br bytes"),
        ("gzip;q=0", "", "plain"),
        ("identity;q=0", "", "plain"),
        ("gzip, identity;q=0", "gzip", "gzip bytes"),
    ] {
        let r = site.get_with("/a.css", "Accept-Encoding", accept);
        assert_serves(&r, 200, body);
        assert_eq!(field(&r, "Content-Encoding"), coding, "{accept}");
        assert_eq!(field(&r, "Vary"), "Accept-Encoding");
        assert_eq!(field(&r, "Content-Type"), "text/css; charset=utf-8");
    }
    assert_eq!(field(&site.get("/a.css"), "Vary"), "Accept-Encoding");
}

#[test]
fn s8_8_3_3_each_coding_has_its_own_tag_and_ranges() {
    let site = site();
    site.put("a.js", "plain text");
    site.put("a.js.gz", "gzip");
    let plain = field(&site.get("/a.js"), "ETag").to_owned();
    let gzip = site.get_with("/a.js", "Accept-Encoding", "gzip");
    let gzip = field(&gzip, "ETag");
    assert_ne!(plain, gzip);
    let ask = |pairs: &[(&str, &str)]| {
        let mut all = vec![("Accept-Encoding", "gzip")];
        all.extend_from_slice(pairs);
        site.ask(Method::Get, "/a.js", &all)
    };
    assert_eq!(ask(&[("If-None-Match", gzip)]).status, 304);
    assert_eq!(ask(&[("If-None-Match", &plain)]).status, 200);
    let r = ask(&[("Range", "bytes=1-")]);
    assert_serves(&r, 206, "zip");
    assert_eq!(field(&r, "Content-Range"), "bytes 1-3/4");
    assert_eq!(field(&r, "Content-Encoding"), "gzip");
    // The tags differ even if both names are the same file.
    fs::hard_link(site.path("a.js"), site.path("a.js.br")).unwrap();
    let r = site.get_with("/a.js", "Accept-Encoding", "br");
    assert_eq!(field(&r, "Content-Encoding"), "br");
    assert_ne!(field(&r, "ETag"), plain);
    // A download that began in one coding does not continue in another.
    let r = ask(&[("Range", "bytes=1-"), ("If-Range", &plain)]);
    assert_serves(&r, 200, "gzip");
}

#[test]
fn a_sibling_that_is_not_to_be_used() {
    let mut site = site();
    let coding = |site: &Site, target: &str| {
        let r = site.get_with(target, "Accept-Encoding", "gzip");
        (r.status, field(&r, "Content-Encoding").to_owned())
    };
    let plain = (200, String::new());
    site.put_at("old.css", "plain", 1_000_000_001);
    site.put_at("old.css.gz", "gzip", 1_000_000_000);
    assert_eq!(coding(&site, "/old.css"), plain);
    site.put("empty.css", "plain");
    site.put("empty.css.gz", "");
    assert_eq!(coding(&site, "/empty.css"), plain);
    site.put("folder.css", "plain");
    fs::create_dir(site.path("folder.css.gz")).unwrap();
    assert_eq!(coding(&site, "/folder.css"), plain);
    site.put("link.css", "plain");
    symlink("../secret", site.path("link.css.gz")).unwrap();
    assert_eq!(coding(&site, "/link.css"), plain);
    // No sibling is sent for a compressed type, without the file itself, or if the setting is off.
    site.put("a.png", "png");
    site.put("a.png.gz", "gzip");
    assert_eq!(coding(&site, "/a.png"), plain);
    assert!(!site.get("/a.png").fields.has_field("Vary"));
    site.put("alone.css.gz", "gzip");
    assert_eq!(coding(&site, "/alone.css").0, 404);
    site.put("a.css", "plain");
    site.put("a.css.gz", "gzip");
    assert_eq!(coding(&site, "/a.css"), (200, "gzip".into()));
    assert_eq!(field(&site.get("/a.css.gz"), "Content-Encoding"), "");
    site.files.precompressed = false;
    assert_eq!(coding(&site, "/a.css"), plain);
    assert!(!site.get("/a.css").fields.has_field("Vary"));
}

#[test]
fn media_types() {
    let mut site = site();
    let types = [
        ("md", "text/markdown"),
        ("tar.gz", "application/x-tgz"),
        ("bin", "text/y;charset=x"),
    ];
    site.files.types = types.map(|(e, t)| (e.into(), t.into())).into();
    site.files.default_type = "text/plain".into();
    for (name, want) in [
        ("a.html", "text/html; charset=utf-8"),
        ("A.HTML", "text/html; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.wasm", "application/wasm"),
        ("a.md", "text/markdown"),
        ("a.MD", "text/markdown"),
        ("a.tar.gz", "application/x-tgz"),
        ("a.gz", "application/gzip"),
        ("a.bin", "text/y;charset=x"),
        ("md", "text/plain"),
        ("README", "text/plain"),
        ("html", "text/plain"),
        ("a.", "text/plain"),
        ("a.html~", "text/plain"),
        ("dir.html/README", "text/plain"),
        ("a.%00", "text/plain"),
    ] {
        assert_eq!(
            types::media_type(&site.files, name.as_bytes()),
            want,
            "{name}"
        );
    }
    types::media_type(&site.files, b"a.\xff");
}

#[test]
fn a_file_replaced_while_open_is_sent_as_it_was() {
    let site = site();
    let content = vec![b'a'; 200_000];
    site.put("f", &content);
    let r = site.get("/f");
    site.put("new", "b");
    fs::rename(site.path("new"), site.path("f")).unwrap();
    assert_serves(&r, 200, &content);
    assert_serves(&site.get("/f"), 200, "b");
}

#[test]
fn a_file_that_shrank_is_left_to_the_relay() {
    let site = site();
    site.put("f", "0123456789");
    let Opened::File(file) = open::open_path(&site.files.fd, b"f").unwrap() else {
        panic!("not a file");
    };
    fs::write(site.path("f"), "012").unwrap();
    let head = head(Method::Get, "/f", &[]);
    let r = send_file::answer_with_file(&site.files, &head, b"f", file, None, SystemTime::now())
        .unwrap();
    assert_eq!((r.status, r.body.len()), (200, 10));
    assert!(matches!(r.body, Body::File(_)));
}

#[test]
fn no_descriptor_outlives_its_response() {
    let site = site();
    site.put("f", vec![b'a'; 200_000]);
    let Body::File(part) = site.get("/f").body else {
        panic!("not a file");
    };
    let file: OwnedFd = std::sync::Arc::try_unwrap(part.file).unwrap();
    drop(file);
}
