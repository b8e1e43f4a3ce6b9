//! Listings, and cached files.

use galgo_io::rate_allowance::poll_once;

use super::*;

fn listing(site: &Site, target: &str) -> String {
    let r = site.get(target);
    assert_eq!(r.status, 200);
    assert_eq!(field(&r, "Content-Type"), "text/html; charset=utf-8");
    String::from_utf8(bytes(&r.body)).unwrap()
}

/// Returns the links of the rows, in order.
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
    // The page loads nothing from elsewhere.
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
        (
            "?page=0&page=-1&page=2x&page=99",
            ["y/", "Z/", "A", "b", "c"],
        ),
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
        let Opened::Folder(fd) = open::open_path(&site.files.fd, b"").unwrap() else {
            panic!("not a folder");
        };
        let listed = runtime().block_on(listing::read(&site.files, b"", fd, max));
        let listed = listed.unwrap();
        assert_eq!((listed.entries.len(), listed.more), (len, more), "{max}");
    }
}

#[test]
fn a_long_listing_has_pages() {
    let mut site = site();
    site.files.listing = true;
    for n in 0..2 * entries::PAGE + 5 {
        site.put(format!("d/f{n:04}"), "");
    }
    let rows = |html: &str| -> Vec<String> {
        let rows = links(html).into_iter().filter(|l| *l != "../");
        rows.map(str::to_owned).collect()
    };
    let (mut at, mut seen) = ("/d/?C=N&O=D".to_owned(), Vec::new());
    loop {
        let html = listing(&site, &at);
        seen.extend(rows(&html));
        assert!(html.contains("files: 2005"));
        let next = html.split("rel=\"next\" href=\"").nth(1);
        let Some(next) = next.and_then(|n| n.split('"').next()) else {
            assert!(html.contains("rel=\"prev\" href=\"?C=N&amp;O=D&amp;page=2\""));
            break;
        };
        at = format!("/d/{}", next.replace("&amp;", "&"));
    }
    let want: Vec<_> = (0..2005).rev().map(|n| format!("f{n:04}")).collect();
    assert!(seen == want, "{} names", seen.len());
    for query in [
        "page=4",
        "page=99999999999999999999",
        "page=3&C=S",
        "page=3",
    ] {
        let html = listing(&site, &format!("/d/?{query}"));
        assert!(rows(&html).len() <= entries::PAGE, "{query}");
        assert!(!html.contains("99999"));
    }
}

/// While a folder is read, other requests of the event loop go on, and none of them reads it a second time.
#[test]
fn a_long_listing_holds_nobody_up() {
    const FILES: usize = 2000;
    let mut site = site();
    site.files.listing = true;
    for n in 0..FILES {
        site.put(format!("f{n}"), "");
    }
    let head = head(Method::Get, "/", &[]);
    let turns = std::cell::Cell::new(0);
    let others = async {
        loop {
            turns.set(turns.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    let list = async || {
        let answer = super::super::answer(&site.files, &head, b"", |_| false);
        answer.response(std::future::ready(())).await.unwrap()
    };
    runtime().block_on(async {
        tokio::select! {
            never = others => never,
            (a, b) = async { tokio::join!(list(), list()) } => {
                assert_eq!((a.0.status, b.0.status), (200, 200));
            }
        }
        let read = turns.get();
        assert!(read > FILES / 100 && read < FILES / 20, "{read} turns");
        // The list is cached: only a stall of this machine for a second makes a request wait.
        let mut tries = 0;
        while poll_once(std::pin::pin!(list())).await.is_pending() {
            let _ = list().await;
            tries += 1;
            assert!(tries < 100, "the list is never kept");
        }
        // A folder that has changed has another key.
        site.put("0new", "");
        let fresh = list().await;
        assert!(
            String::from_utf8(bytes(&fresh.0.body))
                .unwrap()
                .contains("0new")
        );
    });
}

/// Sends requests until the answer comes from memory: a file must have settled first.
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

    // Write the file in place, with the same length.
    site.put("kept.txt", "two");
    assert_serves(&site.get("/kept.txt"), 200, "two");
    // Replace the file by a link that leads out.
    std::fs::remove_file(site.path("kept.txt")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", site.path("kept.txt")).unwrap();
    assert_eq!(site.get("/kept.txt").status, 404);
    // Remove the index.
    std::fs::remove_file(site.path("kept/index.html")).unwrap();
    assert_eq!(site.get("/kept/").status, 403);
}
