use std::{
    ffi::{OsStr, OsString},
    fs,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{FileExt, symlink},
            net::UnixListener,
        },
    },
    path::Path,
    time::{Duration, SystemTime},
};

use galgo_proto::{
    Fields,
    h1::{BodyLen, Version},
    target::Target,
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, mknodat},
    thread::CapabilitySet,
};
use tempfile::TempDir;

use super::{send::SMALL, *};
use crate::body::{Body, Part};

const SECRET: &[u8] = b"root:x:0:0 this must never be served";

/// A temporary folder with `www`, the route's folder, and `secret` beside it.
struct Site {
    top: TempDir,
    files: config::Files,
}

fn site() -> Site {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("www");
    fs::create_dir(&path).unwrap();
    fs::write(top.path().join("secret"), SECRET).unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let files = config::Files {
        fd: rustix::fs::open(&path, flags, Mode::empty())
            .unwrap()
            .into(),
        path,
        index: vec!["index.html".into(), "index.htm".into()],
        listing: false,
        precompressed: true,
        types: Vec::new(),
        default_type: "application/octet-stream".into(),
        headers: Vec::new(),
        interpreters: std::sync::Arc::default(),
    };
    Site { top, files }
}

impl Site {
    fn path(&self, name: impl AsRef<Path>) -> std::path::PathBuf {
        self.files.path.join(name)
    }

    /// Writes a file that was last changed long ago, so that its entity tag is strong.
    fn put(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        self.put_at(name, bytes, 784_111_777);
    }

    fn put_at(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>, seconds: u64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(then).unwrap();
    }

    fn ask(&self, method: Method, target: &str, pairs: &[(&str, &str)]) -> Response {
        let head = head(method, target, pairs);
        let rest = head.target.path.strip_prefix(b"/").unwrap_or(b"");
        answer(&self.files, &head, rest)
    }

    fn get(&self, target: &str) -> Response {
        self.ask(Method::Get, target, &[])
    }

    fn get_with(&self, target: &str, name: &str, value: &str) -> Response {
        self.ask(Method::Get, target, &[(name, value)])
    }
}

/// A head as the parser would make it, without the parser's refusals: what is here must hold alone.
fn head(method: Method, raw: &str, pairs: &[(&str, &str)]) -> Head {
    let query_at = raw.find('?').map(|at| at + 1);
    let mut fields = Fields::new();
    pairs.iter().for_each(|(n, v)| fields.push(n, v));
    Head {
        method,
        target: Target {
            path: decode(raw.split('?').next().unwrap()),
            raw: raw.into(),
            query_at,
            authority: None,
            rewritten: None,
        },
        version: Version::Http11,
        fields,
        host: "localhost".into(),
        port: None,
        body: BodyLen::None,
        expects_continue: false,
        keep_alive: true,
    }
}

fn decode(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) if *first == b'%' => {
                out.push(byte);
                rest = &tail[2..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// What would be sent.
fn bytes(body: &Body) -> Vec<u8> {
    let piece = |p: &crate::body::FilePart| {
        let file = fs::File::from(p.file.try_clone().unwrap());
        let mut buf = vec![0; usize::try_from(p.len).unwrap()];
        file.read_exact_at(&mut buf, p.offset).unwrap();
        buf
    };
    match body {
        Body::Empty => Vec::new(),
        Body::Program(_) => unreachable!("files are no programs"),
        Body::Bytes(b) => b.clone(),
        Body::Shared(b) => b.to_vec(),
        Body::File(p) => piece(p),
        Body::Parts(list) => list
            .iter()
            .flat_map(|p| match p {
                Part::Bytes(b) => b.clone(),
                Part::File(p) => piece(p),
            })
            .collect(),
    }
}

fn field<'a>(response: &'a Response, name: &'a str) -> &'a str {
    let value = response.fields.first(name).unwrap_or_default();
    std::str::from_utf8(value).unwrap()
}

#[track_caller]
fn assert_serves(response: &Response, status: u16, body: impl AsRef<[u8]>) {
    assert_eq!(response.status, status);
    assert!(bytes(&response.body) == body.as_ref(), "another body");
}

#[test]
fn s9_3_only_methods_that_read() {
    let site = site();
    site.put("a", "x");
    for method in ["PUT", "DELETE", "PATCH", "get", "PROPFIND"] {
        let r = site.ask(Method::Other(method.into()), "/a", &[]);
        assert_eq!((r.status, field(&r, "Allow")), (405, ALLOW), "{method}");
    }
    assert_eq!(site.ask(Method::Post, "/a", &[]).status, 405);
    let r = site.ask(Method::Other("OPTIONS".into()), "/a", &[]);
    assert_eq!((r.status, field(&r, "Allow")), (204, ALLOW));
}

#[test]
fn a_file_and_its_fields() {
    let site = site();
    site.put("a b/ä.html", "<p>");
    let r = site.get("/a%20b/%c3%a4.html");
    assert_serves(&r, 200, "<p>");
    assert!(matches!(r.body, Body::Bytes(_)));
    assert_eq!(field(&r, "Content-Type"), "text/html; charset=utf-8");
    let then = "Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(field(&r, "Last-Modified"), then);
    assert_eq!(field(&r, "Accept-Ranges"), "bytes");
    assert!(field(&r, "ETag").starts_with('"'));
    for name in ["Content-Length", "Date", "Content-Encoding"] {
        assert!(!r.fields.has(name), "{name}");
    }
}

#[test]
fn sizes_around_the_limit_of_one_write() {
    let site = site();
    for size in [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL] {
        let content: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        site.put("f", &content);
        let r = site.get("/f");
        assert_serves(&r, 200, &content);
        assert_eq!(matches!(r.body, Body::File(_)), size > SMALL, "{size}");
        let r = site.ask(Method::Head, "/f", &[]);
        assert_eq!((r.status, r.body.len()), (200, size));
    }
}

#[test]
fn s9_3_2_head_gives_the_fields_of_get() {
    let site = site();
    site.put("f.txt", "four");
    for accept in ["", "gzip"] {
        let get = site.get_with("/f.txt", "Accept-Encoding", accept);
        let head = site.ask(Method::Head, "/f.txt", &[("Accept-Encoding", accept)]);
        assert_eq!(get.fields, head.fields);
        assert_eq!(get.body.len(), head.body.len());
    }
}

#[test]
fn traversal_by_500_encodings() {
    let site = site();
    site.put("dir/inside", "x");
    site.put("dir/sub/inside", "x");
    let dots = [
        "..",
        "%2e%2e",
        ".%2e",
        "%2E.",
        "%252e%252e",
        "%c0%ae%c0%ae",
        "%e0%80%ae%e0%80%ae",
        "..;",
        "..%00",
        "..%20",
        "..%0a",
        "...",
        "....",
        "..%5c",
        "%uff0e%uff0e",
        ".%00.",
        "%2e%2e%3b",
        "..%09",
        ".",
        "%2e",
    ];
    let slashes = ["/", "%2f", "%252f", "%5c", "//", "/./", "%c0%af"];
    let starts = ["/", "//", "/dir/", "/dir/sub/", "/dir//"];
    let mut count = 0;
    for dot in dots {
        for (slash, start) in slashes.iter().flat_map(|s| starts.map(|start| (s, start))) {
            for (depth, end) in [(1, "secret"), (2, "secret"), (3, "etc/passwd"), (2, "")] {
                let up = format!("{dot}{slash}").repeat(depth);
                let target = format!("{start}{up}{end}");
                let r = site.get(&target);
                assert_eq!(r.status, 404, "{target}");
                assert!(r.body.is_empty() && r.fields.is_empty(), "{target}");
                count += 1;
            }
        }
    }
    assert!(count >= 500, "{count}");
}

#[test]
fn absolute_paths_and_proc_stay_beneath() {
    let site = site();
    let secret = site.top.path().join("secret");
    for target in [
        "//etc/passwd",
        "///etc/passwd",
        "/%2fetc/passwd",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "/../secret",
        "/www/../secret",
        secret.to_str().unwrap(),
    ] {
        assert_eq!(site.get(target).status, 404, "{target}");
        // And below a route whose path is longer, where the rest may be anything.
        let head = head(Method::Get, target, &[]);
        let rest = &head.target.path;
        assert_eq!(answer(&site.files, &head, rest).status, 404, "{target}");
    }
}

#[test]
fn links_are_followed_only_beneath() {
    let site = site();
    site.put("dir/real.txt", "inside");
    let link = |to: &Path, name| symlink(to, site.path(name)).unwrap();
    link(Path::new("dir/real.txt"), "in.txt");
    link(Path::new("dir/../dir/real.txt"), "round.txt");
    link(Path::new("dir"), "folder");
    assert_serves(&site.get("/in.txt"), 200, "inside");
    assert_serves(&site.get("/round.txt"), 200, "inside");
    assert_serves(&site.get("/folder/real.txt"), 200, "inside");

    link(Path::new("../secret"), "out");
    link(&site.top.path().join("secret"), "absolute");
    link(&site.path("dir/real.txt"), "absolute-inside");
    link(Path::new(".."), "up");
    link(Path::new("/"), "root");
    link(Path::new("/proc/self/root"), "proc");
    link(Path::new("/proc/self/fd/0"), "magic");
    link(Path::new("loop"), "loop");
    link(Path::new("nowhere"), "dangling");
    link(Path::new("../www/dir/real.txt"), "out-and-in");
    for target in [
        "/out",
        "/absolute",
        "/absolute-inside",
        "/up/secret",
        "/up",
        "/up/",
        "/root/etc/passwd",
        "/root/",
        "/proc/etc/passwd",
        "/magic",
        "/loop",
        "/dangling",
        "/out-and-in",
    ] {
        assert_eq!(site.get(target).status, 404, "{target}");
    }
}

#[test]
fn a_real_magic_link_is_not_followed() {
    let mut site = site();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    site.files.fd = rustix::fs::open("/proc/self", flags, Mode::empty())
        .unwrap()
        .into();
    for target in ["/root/etc/passwd", "/cwd/", "/exe", "/fd/0"] {
        assert_eq!(site.get(target).status, 404, "{target}");
    }
}

#[test]
fn only_regular_files_are_sent() {
    let site = site();
    let fifo = site.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = UnixListener::bind(site.path("socket")).unwrap();
    assert_eq!(site.get("/fifo").status, 404);
    assert_eq!(site.get("/socket").status, 404);
    site.put("file", "x");
    assert_eq!(site.get("/file/").status, 404);
    assert_eq!(site.get("/file/more").status, 404);
    let mut dev = self::site();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    dev.files.fd = rustix::fs::open("/dev", flags, Mode::empty())
        .unwrap()
        .into();
    assert_eq!(dev.get("/null").status, 404);
    assert_eq!(dev.get("/zero").status, 404);
}

/// Runs `f` on a thread that may not read what its user may not.
fn without_privileges<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = || {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective
                .remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            rustix::thread::set_capabilities(None, sets).unwrap();
            f()
        };
        scope.spawn(run).join().unwrap()
    })
}

#[test]
fn what_the_system_refuses_is_403() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |site: &Site, name, mode| {
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let site = site();
    site.put("unreadable", SECRET);
    site.put("closed/file", SECRET);
    site.put("enter/index.html", "index");
    site.put("enter/file", "file");
    site.put("bare/file", "file");
    mode(&site, "unreadable", 0);
    mode(&site, "closed", 0);
    mode(&site, "enter", 0o111);
    mode(&site, "bare", 0o111);
    without_privileges(|| {
        assert_serves(&site.get("/unreadable"), 403, "");
        assert_serves(&site.get("/closed/file"), 403, "");
        assert_serves(&site.get("/closed/"), 403, "");
        assert_serves(&site.get("/bare/"), 403, "");
        // A folder that may be entered works, its slash and its index too.
        assert_serves(&site.get("/enter/file"), 200, "file");
        assert_serves(&site.get("/enter/"), 200, "index");
        assert_eq!(site.get("/enter").status, 301);
    });
    // As any other user than root, the folders can be removed only so.
    for name in ["closed", "enter", "bare"] {
        mode(&site, name, 0o700);
    }
}

/// A program's source is never shown, whatever the configuration calls its folder.
#[test]
fn files_for_an_interpreter_are_refused() {
    let mut site = site();
    let php = (".php".to_owned(), "/usr/bin/php-cgi".into());
    site.files.interpreters = std::sync::Arc::new(vec![php]);
    site.files.index = vec!["index.php".into(), "index.html".into()];
    for name in [
        "a.php",
        "a.PhP",
        ".php/index.html",
        "php",
        "a.php.txt",
        "sub/index.php",
    ] {
        site.put(name, SECRET);
    }
    for target in ["/a.php", "/a.PhP", "/a%2ephp", "/sub/", "/sub/index.php"] {
        assert_serves(&site.get(target), 403, "");
    }
    for target in ["/php", "/a.php.txt"] {
        assert_serves(&site.get(target), 200, SECRET);
    }
    assert_eq!(site.get("/b.php").status, 404);
}

#[test]
fn dotfiles_are_not_there() {
    let site = site();
    for name in [
        ".htpasswd",
        ".git/config",
        "dir/.env",
        ".well-known/.key",
        "a/.b/c",
    ] {
        site.put(name, SECRET);
        assert_eq!(site.get(&format!("/{name}")).status, 404, "{name}");
    }
    assert_eq!(site.get("/.git").status, 404);
    assert_eq!(site.get("/.git/").status, 404);
    site.put(".well-known/acme/token", "token");
    assert_serves(&site.get("/.well-known/acme/token"), 200, "token");
    site.put(".well-known-not", SECRET);
    assert_eq!(site.get("/.well-known-not").status, 404);
}

#[test]
fn strange_names() {
    let site = site();
    for name in [
        &b"new\nline"[..],
        b"\xff\xfe.txt",
        b"<&\"'>",
        b"back\\slash",
        b"-rf",
        b"a:b",
        b"%41",
    ] {
        site.put(OsStr::from_bytes(name), name);
        let encoded: String = name.iter().map(|b| format!("%{b:02x}")).collect();
        assert_serves(&site.get(&format!("/{encoded}")), 200, name);
    }
    site.put("a/b", "");
    for target in [
        "/a//b",
        "//a/b",
        "/a//",
        "//a",
        "/a/%00",
        "/%00",
        "/a%00.txt",
        "/dir//",
    ] {
        assert_eq!(site.get(target).status, 404, "{target}");
    }
    for len in [256, 5000] {
        assert_eq!(site.get(&format!("/{}", "x".repeat(len))).status, 404);
        assert_eq!(site.get(&format!("/{}/", "x".repeat(len))).status, 404);
    }
    assert_eq!(site.get(&"/x".repeat(4000)).status, 404);
}

#[test]
fn a_folder_gets_its_slash_on_this_site() {
    let site = site();
    for name in ["dir/f", "ä/f", "\\evil.example/f", "evil.example/f"] {
        site.put(name, "");
    }
    for (target, location) in [
        ("/dir", "/dir/"),
        ("/dir?", "/dir/?"),
        ("/dir?a=/b&c", "/dir/?a=/b&c"),
        ("/%c3%a4", "/%c3%a4/"),
        ("/\\evil.example", "/%5Cevil.example/"),
        ("/%5cevil.example", "/%5cevil.example/"),
    ] {
        let r = site.get(target);
        assert_serves(&r, 301, "");
        assert_eq!(field(&r, "Location"), location);
    }
    assert_eq!(site.get("//evil.example").status, 404);
    // Wherever the route begins: the answer must not lead away.
    for (raw, location) in [
        ("//evil.example", "/evil.example/"),
        ("///evil.example?x", "/evil.example/?x"),
        ("/\\/evil.example", "/%5C/evil.example/"),
        ("/\\\\evil.example", "/%5C%5Cevil.example/"),
    ] {
        let r = answer(&site.files, &head(Method::Get, raw, &[]), b"evil.example");
        assert_eq!(field(&r, "Location"), location);
    }
    let r = answer(&site.files, &head(Method::Get, "/static", &[]), b"");
    assert_eq!(field(&r, "Location"), "/static/");
}

#[test]
fn a_folder_answers_with_its_first_index() {
    let mut site = site();
    site.put("index.htm", "second");
    assert_serves(&site.get("/"), 200, "second");
    site.put("index.html", "first");
    let r = site.get("/");
    assert_serves(&r, 200, "first");
    assert_eq!(field(&r, "Content-Type"), "text/html; charset=utf-8");
    site.put("dir/index.html/not-a-file", "");
    site.put("dir/index.htm", "second");
    assert_serves(&site.get("/dir/"), 200, "second");
    site.put("empty/file", "");
    assert_serves(&site.get("/empty/"), 403, "");
    assert_serves(&site.get("/missing/"), 404, "");
    let r = answer(&site.files, &head(Method::Get, "/static/", &[]), b"");
    assert_serves(&r, 200, "first");
    site.files.index.clear();
    assert_serves(&site.get("/"), 403, "");
}

#[test]
fn an_index_that_leads_out_is_not_served() {
    let site = site();
    symlink("../secret", site.path("index.html")).unwrap();
    assert_serves(&site.get("/"), 403, "");
}

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
    let mut site = site();
    site.files.headers = vec![("Cache-Control".into(), "max-age=60".into())];
    site.put("a.html", "x");
    let r = site.get_with("/a.html", "If-None-Match", "*");
    let names: Vec<_> = r.fields.iter().map(|(n, _)| n).collect();
    let want: [&[u8]; 4] = [b"ETag", b"Last-Modified", b"Vary", b"Cache-Control"];
    assert_eq!(names, want);
    // Nor does a lifetime keep an error alive.
    assert!(!site.get("/missing").fields.has("Cache-Control"));
    assert!(site.get("/a.html").fields.has("Cache-Control"));
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
        let Found::File(file) = open::open(&site.files.fd, b"f").unwrap() else {
            panic!("not a file");
        };
        let now = then + Duration::from_millis(age);
        let r = send::file(&site.files, &head, b"f", file, None, now).unwrap();
        assert_eq!(field(&r, "ETag").starts_with("W/"), weak, "{age} ms");
    }
    // A tag that was weak matches the strong one it becomes, but not for a part of the file.
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
    // Not every file system keeps all of these.
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
        assert!(r.fields.has("ETag") && r.fields.has("Last-Modified"));
    }
    let r = site.get_with("/f", "Range", "bytes=200000-");
    assert_serves(&r, 416, "");
    assert_eq!(field(&r, "Content-Range"), "bytes */200000");
    let r = site.ask(Method::Head, "/f", &[("Range", "bytes=0-0")]);
    assert_eq!((r.status, r.body.len()), (200, 200_000));
    assert!(!r.fields.has("Content-Range"));
}

#[test]
fn s15_3_7_2_multipart() {
    let site = site();
    site.put("f.txt", "0123456789");
    let r = site.get_with("/f.txt", "Range", "bytes=0-1, -2, 4-4");
    assert_eq!(r.status, 206);
    assert!(!r.fields.has("Content-Range"));
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
    // Too many, or more than the file.
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
    // Not even where the two are one file.
    fs::hard_link(site.path("a.js"), site.path("a.js.br")).unwrap();
    let r = site.get_with("/a.js", "Accept-Encoding", "br");
    assert_eq!(field(&r, "Content-Encoding"), "br");
    assert_ne!(field(&r, "ETag"), plain);
    // What was begun in one coding is not continued in another.
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
    // Not for what is compressed already, nor without the file itself, nor when it is off.
    site.put("a.png", "png");
    site.put("a.png.gz", "gzip");
    assert_eq!(coding(&site, "/a.png"), plain);
    assert!(!site.get("/a.png").fields.has("Vary"));
    site.put("alone.css.gz", "gzip");
    assert_eq!(coding(&site, "/alone.css").0, 404);
    site.put("a.css", "plain");
    site.put("a.css.gz", "gzip");
    assert_eq!(coding(&site, "/a.css"), (200, "gzip".into()));
    assert_eq!(field(&site.get("/a.css.gz"), "Content-Encoding"), "");
    site.files.precompressed = false;
    assert_eq!(coding(&site, "/a.css"), plain);
    assert!(!site.get("/a.css").fields.has("Vary"));
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
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.wasm", "application/wasm"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.MD", "text/markdown; charset=utf-8"),
        ("a.tar.gz", "application/x-tgz"),
        ("a.gz", "application/gzip"),
        ("a.bin", "text/y;charset=x"),
        ("md", "text/plain; charset=utf-8"),
        ("README", "text/plain; charset=utf-8"),
        ("html", "text/plain; charset=utf-8"),
        ("a.", "text/plain; charset=utf-8"),
        ("a.html~", "text/plain; charset=utf-8"),
        ("dir.html/README", "text/plain; charset=utf-8"),
        ("a.%00", "text/plain; charset=utf-8"),
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
    let Found::File(file) = open::open(&site.files.fd, b"f").unwrap() else {
        panic!("not a file");
    };
    fs::write(site.path("f"), "012").unwrap();
    let head = head(Method::Get, "/f", &[]);
    let r = send::file(&site.files, &head, b"f", file, None, SystemTime::now()).unwrap();
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

fn listing(site: &Site, target: &str) -> String {
    let r = site.get(target);
    assert_eq!(r.status, 200);
    assert_eq!(field(&r, "Content-Type"), "text/html; charset=utf-8");
    String::from_utf8(bytes(&r.body)).unwrap()
}

/// The links of the rows, in order.
fn links(html: &str) -> Vec<&str> {
    let rows = html.split("<td><a href=\"").skip(1);
    rows.map(|r| r.split('"').next().unwrap()).collect()
}

#[test]
fn a_listing_is_escaped_and_linked_byte_for_byte() {
    let mut site = site();
    site.files.listing = true;
    for name in [&b"<script>&\"'"[..], b"a\nb", b"\xff", b"a:b", b".hidden"] {
        site.put(OsString::from_vec([b"d/", name].concat()), "x");
    }
    let html = listing(&site, "/d/");
    let want = ["../", "%3Cscript%3E%26%22%27", "a%0Ab", "a%3Ab", "%FF"];
    assert_eq!(links(&html), want);
    assert!(html.contains("&lt;script&gt;&amp;&quot;&#39;"));
    assert!(html.contains("a\u{240a}b") && html.contains('\u{fffd}'));
    assert!(!html.contains("<script") && !html.contains("hidden"));
    // Nothing is loaded from anywhere.
    assert!(!html.contains("http") && !html.contains("url("));
    for link in &links(&html)[1..] {
        assert_eq!(site.get(&format!("/d/{link}")).status, 200, "{link}");
    }
}

#[test]
fn a_listing_is_sorted_by_plain_links() {
    let mut site = site();
    site.files.listing = true;
    site.put_at("b", "1", 3_000);
    site.put_at("A", "22", 1_000);
    site.put_at("c", "333", 2_000);
    site.put_at("Z/f", "", 9_000);
    site.put_at("y/f", "", 9_000);
    for (query, want) in [
        ("", ["y/", "Z/", "A", "b", "c"]),
        ("?C=N&O=D", ["Z/", "y/", "c", "b", "A"]),
        ("?C=S;O=A", ["y/", "Z/", "b", "A", "c"]),
        ("?C=S&O=D", ["Z/", "y/", "c", "A", "b"]),
        ("?C=X&<script>", ["y/", "Z/", "A", "b", "c"]),
    ] {
        let html = listing(&site, &format!("/{query}"));
        assert_eq!(links(&html), want, "{query}");
        assert!(!html.contains("<script"));
    }
    let html = listing(&site, "/?C=M");
    assert_eq!(links(&html)[2..], ["A", "c", "b"]);
    assert!(html.contains("href=\"?C=M&amp;O=D\"") && html.contains("href=\"?C=N&amp;O=A\""));
}

#[test]
fn a_listing_shows_only_what_would_be_served() {
    let mut site = site();
    site.files.listing = true;
    site.put("real", "12345");
    symlink("real", site.path("in")).unwrap();
    symlink("../secret", site.path("out")).unwrap();
    symlink("/", site.path("root")).unwrap();
    symlink("nowhere", site.path("dangling")).unwrap();
    mknodat(CWD, site.path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let html = listing(&site, "/");
    assert_eq!(links(&html), ["in", "real"]);
    assert_eq!(html.matches("5 B").count(), 2);
    // An index comes before the list, and the list can be off.
    site.put("index.html", "index");
    assert_serves(&site.get("/"), 200, "index");
}

#[test]
fn a_listing_is_bounded_and_says_so() {
    let site = site();
    for i in 0..7 {
        site.put(format!("f{i}"), "");
    }
    for (max, len, more) in [(6, 6, true), (7, 7, false), (8, 7, false)] {
        let Found::Folder(fd) = open::open(&site.files.fd, b"").unwrap() else {
            panic!("not a folder");
        };
        let (entries, left) = listing::read(&site.files, b"", fd, max).unwrap();
        assert_eq!((entries.len(), left), (len, more), "{max}");
    }
}

/// Asks until the answer comes from memory: a file must have settled first.
fn remembered(site: &Site, target: &str) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !matches!(site.get(target).body, Body::Shared(_)) {
        assert!(
            std::time::Instant::now() < until,
            "{target} is never remembered"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn what_is_remembered_is_what_is_there() {
    let mut site = site();
    site.files.precompressed = false;
    site.put("kept.txt", "one");
    site.put("kept/index.html", "index");
    remembered(&site, "/kept.txt");
    remembered(&site, "/kept/");
    assert_serves(&site.get("/kept.txt"), 200, "one");
    assert_serves(&site.get("/kept/"), 200, "index");
    let ranged = site.ask(Method::Get, "/kept.txt", &[("Range", "bytes=0-1")]);
    assert_eq!(ranged.status, 206);
    let tag = field(&site.get("/kept.txt"), "ETag").to_owned();
    let matched = site.ask(Method::Get, "/kept.txt", &[("If-None-Match", &tag)]);
    assert_eq!(matched.status, 304);

    // Written in place, in the same length.
    site.put("kept.txt", "two");
    assert_serves(&site.get("/kept.txt"), 200, "two");
    // Replaced by a link that leads out.
    std::fs::remove_file(site.path("kept.txt")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", site.path("kept.txt")).unwrap();
    assert_eq!(site.get("/kept.txt").status, 404);
    // Removed.
    std::fs::remove_file(site.path("kept/index.html")).unwrap();
    assert_eq!(site.get("/kept/").status, 403);
}
