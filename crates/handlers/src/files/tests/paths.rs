//! Resolution of paths to files, and refusals.

use super::*;

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
        // Repeat below a route with a longer path, because the rest may be anything there.
        let head = head(Method::Get, target, &[]);
        let rest = head.target.path();
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
    // The target of a link counts, however it is written.
    assert_serves(&site.get("/absolute-inside"), 200, "inside");
    assert_serves(&site.get("/out-and-in"), 200, "inside");
    for target in [
        "/out",
        "/absolute",
        "/up/secret",
        "/up",
        "/up/",
        "/root/etc/passwd",
        "/root/",
        "/proc/etc/passwd",
        "/magic",
        "/loop",
        "/dangling",
    ] {
        assert_eq!(site.get(target).status, 404, "{target}");
    }
}

#[test]
fn a_real_magic_link_is_not_followed() {
    let mut site = site();
    site.files.fd = crate::root::open_folder("/proc/self".as_ref()).unwrap();
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
    dev.files.fd = crate::root::open_folder("/dev".as_ref()).unwrap();
    assert_eq!(dev.get("/null").status, 404);
    assert_eq!(dev.get("/zero").status, 404);
}

/// Runs `f` on a thread without the privilege to read other users' files.
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
        // A folder that may be entered works, and so do its slash and its index.
        assert_serves(&site.get("/enter/file"), 200, "file");
        assert_serves(&site.get("/enter/"), 200, "index");
        assert_eq!(site.get("/enter").status, 301);
    });
    // Any user but root can only now remove the folders.
    for name in ["closed", "enter", "bare"] {
        mode(&site, name, 0o700);
    }
}

/// A program's source is never shown, whatever name the configuration gives its folder.
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

/// A link has another name than the program that it leads to.
#[test]
fn a_link_shows_no_source() {
    let mut site = site();
    let php = (".php".to_owned(), "/usr/bin/php-cgi".into());
    site.files.interpreters = std::sync::Arc::new(vec![php]);
    site.files.index = vec!["start.html".into()];
    for name in ["a.php", "sub/.htpasswd", "page"] {
        site.put(name, SECRET);
    }
    let link = |to: &str, name: &str| symlink(to, site.path(name)).unwrap();
    link("a.php", "a.txt");
    link("a.txt", "chain");
    link(site.path("a.php").to_str().unwrap(), "absolute");
    link("sub", "other");
    link("sub/.htpasswd", "passwords");
    link("../a.php", "sub/start.html");
    link("page", "name.of.page");
    for target in ["/a.txt", "/chain", "/absolute", "/passwords", "/sub/"] {
        assert_serves(&site.get(target), 403, "");
    }
    assert_eq!(site.get("/other/.htpasswd").status, 404);
    assert_serves(&site.get("/name.of.page"), 200, SECRET);
    // The program stands in place of a sibling in another coding.
    site.put("b.css", "b");
    link("a.php", "b.css.gz");
    let r = site.get_with("/b.css", "Accept-Encoding", "gzip");
    assert_serves(&r, 200, "b");
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
    // Wherever the route begins, the answer must not lead away.
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
