//! Conditions and ranges.

use super::*;

#[test]
fn s13_conditional_requests() {
    let site = site();
    site.put("a.html", "x");
    let r = site.get("/a.html");
    let (etag, modified) = (field(&r, "ETag"), field(&r, "Last-Modified"));
    let old = "Sun, 06 Nov 1994 08:49:36 GMT";
    for (name, value, status) in [
        ("If-None-Match", etag, 304),
        ("If-None-Match", "*", 304),
        ("If-None-Match", "\"x\"", 200),
        ("If-Modified-Since", modified, 304),
        ("If-Modified-Since", old, 200),
        ("If-Match", etag, 200),
        ("If-Match", "\"x\"", 412),
        ("If-Unmodified-Since", modified, 200),
        ("If-Unmodified-Since", old, 412),
    ] {
        let r = site.get_with("/a.html", name, value);
        assert_eq!(r.status, status, "{name}: {value}");
        assert_eq!(r.body.is_empty(), status != 200);
    }
}

#[test]
fn s15_4_5_not_modified_has_what_a_cache_needs() {
    let site = site();
    site.put("a.html", "x");
    let r = site.get_with("/a.html", "If-None-Match", "*");
    let names: Vec<_> = r.fields.iter().map(|(n, _)| n).collect();
    // Later steps need the type, and remove it.
    let want: [&[u8]; 4] = [b"ETag", b"Last-Modified", b"Vary", b"Content-Type"];
    assert_eq!(names, want);
}

#[test]
fn s8_8_1_a_tag_is_weak_until_the_file_has_settled() {
    let site = site();
    let now = SystemTime::now();
    let file = fs::File::create(site.path("f")).unwrap();
    file.set_modified(now + Duration::from_secs(3600)).unwrap();
    let r = site.get("/f");
    assert!(field(&r, "ETag").starts_with("W/\""));
    // 8.8.2.1: never later than the message itself.
    let said = httpdate::parse_http_date(field(&r, "Last-Modified")).unwrap();
    assert!(said <= SystemTime::now());
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    file.set_modified(then).unwrap();
    let head = head(Method::Get, "/f", &[]);
    for (age, weak) in [(0, true), (999, true), (1000, false), (5000, false)] {
        let Opened::File(file) = open::open_path(&site.files.fd, b"f").unwrap() else {
            panic!("not a file");
        };
        let now = then + Duration::from_millis(age);
        let r = send_file::answer_with_file(&site.files, &head, b"f", file, None, now).unwrap();
        assert_eq!(field(&r, "ETag").starts_with("W/"), weak, "{age} ms");
    }
    // A weak tag matches the strong tag that it becomes, but not for a part of the file.
    file.set_modified(now - Duration::from_secs(3600)).unwrap();
    let strong = site.get("/f");
    let strong = field(&strong, "ETag");
    let weak = format!("W/{strong}");
    assert!(strong.starts_with('"'));
    assert_eq!(site.get_with("/f", "If-None-Match", &weak).status, 304);
    assert_eq!(site.get_with("/f", "If-Match", &weak).status, 412);
}

#[test]
fn s8_8_3_the_tag_changes_with_the_file() {
    let site = site();
    let tag = || {
        field(&site.get("/f"), "ETag")
            .trim_start_matches("W/")
            .to_owned()
    };
    site.put("f", "one");
    let first = tag();
    assert_eq!(first, tag());
    site.put("f", "four");
    let longer = tag();
    assert_ne!(first, longer);
    site.put_at("f", "one!", 784_111_778);
    let later = tag();
    assert_ne!(longer, later);
    site.put_at("new", "two!", 784_111_778);
    fs::rename(site.path("new"), site.path("f")).unwrap();
    assert_ne!(later, tag());
}

#[test]
fn times_that_no_date_can_say() {
    let mut site = site();
    site.files.listing = true;
    site.put("f", "x");
    let mut stat = rustix::fs::stat(site.path("f")).unwrap();
    for (seconds, known) in [
        (-1, false),
        (0, true),
        (253_402_300_799, true),
        (253_402_300_800, false),
        (i64::MAX, false),
    ] {
        stat.st_mtime = seconds;
        let modified = open::modified(&stat);
        assert_eq!(modified.is_some(), known, "{seconds}");
        modified.map(httpdate::fmt_http_date);
    }
    // Some file systems cannot keep all of these times.
    for seconds in [-1, -10_000_000_000, 253_402_300_800, 1 << 33, i64::MAX] {
        let time = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            last_modification: rustix::fs::Timespec {
                tv_sec: seconds,
                tv_nsec: 5,
            },
        };
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(CWD, site.path("f"), &time, flags).unwrap();
        assert_serves(&site.get("/f"), 200, "x");
        assert_eq!(site.get("/").status, 200);
    }
}

#[test]
fn s14_single_ranges() {
    let site = site();
    let content: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    site.put("f", &content);
    for (range, at) in [
        ("bytes=0-0", 0..1),
        ("bytes=100-199", 100..200),
        ("bytes=-1", 199_999..200_000),
        ("bytes=100-", 100..200_000),
        ("bytes=300000-,5-6", 5..7),
    ] {
        let r = site.get_with("/f", "Range", range);
        assert_serves(&r, 206, &content[at.clone()]);
        let want = format!("bytes {}-{}/200000", at.start, at.end - 1);
        assert_eq!(field(&r, "Content-Range"), want);
        assert_eq!(field(&r, "Content-Type"), "application/octet-stream");
        assert!(r.fields.has_field("ETag") && r.fields.has_field("Last-Modified"));
    }
    let r = site.get_with("/f", "Range", "bytes=200000-");
    assert_serves(&r, 416, "");
    assert_eq!(field(&r, "Content-Range"), "bytes */200000");
    let r = site.ask(Method::Head, "/f", &[("Range", "bytes=0-0")]);
    assert_eq!((r.status, r.body.len()), (200, 200_000));
    assert!(!r.fields.has_field("Content-Range"));
}

#[test]
fn s15_3_7_2_multipart() {
    let site = site();
    site.put("f.txt", "0123456789");
    let r = site.get_with("/f.txt", "Range", "bytes=0-1, -2, 4-4");
    assert_eq!(r.status, 206);
    assert!(!r.fields.has_field("Content-Range"));
    let boundary = field(&r, "Content-Type")
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let part = |at: &str, data: &str| {
        format!(
            "--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Range: bytes {at}/10\r\n\r\n{data}\r\n"
        )
    };
    let parts = [part("0-1", "01"), part("8-9", "89"), part("4-4", "4")];
    let want = format!("{}--{boundary}--\r\n", parts.concat());
    assert_eq!(String::from_utf8(bytes(&r.body)).unwrap(), want);
    assert_eq!(r.body.len(), want.len() as u64);
    let again = site.get_with("/f.txt", "Range", "bytes=0-1, -2, 4-4");
    assert_ne!(field(&again, "Content-Type"), field(&r, "Content-Type"));
    // Too many ranges, or ranges for more bytes than the file has.
    let many = format!("bytes={}", "0-0,".repeat(17));
    assert_serves(&site.get_with("/f.txt", "Range", &many), 200, "0123456789");
    let r = site.get_with("/f.txt", "Range", "bytes=0-,1-");
    assert_serves(&r, 200, "0123456789");
}

#[test]
fn s13_1_5_if_range() {
    let site = site();
    site.put("f", "0123456789");
    let etag = field(&site.get("/f"), "ETag").to_owned();
    for (if_range, status) in [
        (etag.as_str(), 206),
        ("\"x\"", 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 206),
        ("Sun, 06 Nov 1994 08:49:38 GMT", 200),
    ] {
        let pairs = [("Range", "bytes=1-2"), ("If-Range", if_range)];
        assert_eq!(site.ask(Method::Get, "/f", &pairs).status, status);
    }
    // 13.2.2: preconditions come first.
    let pairs = [("Range", "bytes=99-"), ("If-None-Match", &etag)];
    assert_eq!(site.ask(Method::Get, "/f", &pairs).status, 304);
}
