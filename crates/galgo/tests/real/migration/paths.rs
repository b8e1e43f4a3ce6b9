//! Paths and hosts of the requests for each pair.

/// Returns the paths that a pair is about, in addition to the paths of every site.
pub(super) fn paths(page: &str, number: &str) -> &'static [&'static str] {
    match (page, number) {
        ("fcgiwrap.md", "1" | "2") => PROGRAMS,
        ("fcgiwrap.md", "3") => &[
            "/",
            "/x/y/",
            "/a%20b?q=1",
            "/index.html",
            "/x?q",
            "/sub/a.png",
        ],
        ("fcgiwrap.md", "6") => &["/cgi-bin/member", "/cgi-bin/app/x/y?q", "/cgi-bin/none"],
        ("fcgiwrap.md", _) => &[
            "/cgi-bin/app",
            "/cgi-bin/app/x/y?q",
            "/cgi-bin/status",
            "/cgi-bin/none",
        ],
        ("suexec.md", "1") => &[
            "/cgi-bin/path",
            "/cgi-bin/status",
            "/cgi-bin/moved",
            "/cgi-bin/app/x?q",
        ],
        ("suexec.md", "2") => &["/cgi-bin/app", "/cgi-bin/none"],
        ("suexec.md", "3") => &[
            "/~alice/",
            "/~alice/cgi-bin/app/x/y?q",
            "/~bob/cgi-bin/app",
            "/~carol/",
            "/~alice/none",
        ],
        ("suexec.md", "4") => &[
            "/",
            "/x/y?a=b",
            "/x/y",
            "/static/index.html",
            "/static/none",
            "/static/none?a=b",
        ],
        ("suexec.md", "6") => &[
            "/cgi-bin/limits",
            "/cgi-bin/app/x?q",
            "/cgi-bin/status",
            "/cgi-bin/none",
        ],
        ("suexec.md", "7") => &[
            "/tools/",
            "/tools/app.cgi",
            "/tools/app.cgi/x/y?q",
            "/tools/none.cgi",
            "/tools/app.cgi~",
        ],
        ("suexec.md", _) => &[
            "/cgi-bin/app",
            "/cgi-bin/none",
            "/cgi-bin/writable",
            "/cgi-bin/strange",
            "/cgi-bin/setuid",
            "/cgi-bin/open/app",
        ],
        ("nginx.md", "11") => &[
            "/pictures/",
            "/pictures/one.png",
            "/pictures",
            "/s/a.png",
            "/s/none",
            "/cgi-bin/app?q",
            "/cgi-bin/app/x?q",
            "/find/x",
        ],
        ("nginx.md", "12") => &[
            "/long.html",
            "/index.html",
            "/static/ready.html",
            "/static/other.html",
            "/static/a.css",
            "/static/none",
        ],
        ("nginx.md", "14") => &[
            "/blog/post.php",
            "/blog/post.php/x/y?a=b",
            "/blog/",
            "/blog/moved.php",
            "/blog/none.php",
            "/blog/pic.png",
        ],
        ("nginx.md", "15" | "16") => &[
            "/cgi-bin/secure",
            "/cgi-bin/app/x?q",
            "/sub/a.png",
            "/cgi-bin/none",
        ],
        ("nginx.md", "17") => &[
            "/cgi-bin/first",
            "/cgi-bin/first?q",
            "/cgi-bin/status",
            "/cgi-bin/app",
        ],
        ("nginx.md", "18") => &["/index.html", "/pictures/one.png", "/pictures/none"],
        ("nginx.md", "13") => &[
            "/cgi-bin/app/x?q",
            "/cgi-bin/accel",
            "/protected/a.txt",
            "/sub/a.png",
        ],
        (_, "1") => &["/sub/", "/sub/index.html", "/sub/a.thing"],
        (_, "2") => PROGRAMS,
        ("apache.md", "3") => &["/old/x", "/blog/2026/a"],
        (_, "3") => &["/old", "/away/x", "/gone", "/blog/2026/a", "/blog/x/a"],
        ("apache.md", "4") => &[
            "/private/a.txt",
            "/private/none",
            "/private/none/",
            "/private/a.txt?a=b",
            "/private/none?a",
        ],
        (_, "4") => &[
            "/private/a.txt",
            "/private/none",
            "/sub/a.png",
            "/index.html",
        ],
        ("apache.md", "5") => &[
            "/sub/a.png",
            "/sub/none",
            "/sub/index.html",
            "/sub/a.thing",
            "/sub/",
        ],
        (_, "5") => &[
            "/private/a.txt",
            "/sub/a.thing",
            "/sub/a.png",
            "/index.html",
        ],
        ("apache.md", "6") => &["/x/y/z", "/sub/a.png", "/index.html", "/none"],
        (_, "6") => &["/private/a.txt", "/x/y/z", "/sub/a.png", "/index.html"],
        (_, "7") => &["/app/x", "/x/y/", "/sub/index.html"],
        ("apache.md", "8") => &[
            "/article/5",
            "/article/5?a=b",
            "/list?page=3",
            "/list?a=b&page=3",
            "/article/x",
            "/cgi-bin/app",
        ],
        ("apache.md", "9") => PROGRAMS,
        ("apache.md", "10") => &[
            "/intern/a.txt",
            "/intern/none",
            "/intern/none/",
            "/intern/a.txt?a=b",
            "/intern/none?a",
        ],
        ("apache.md", _) => apache(number),
        (
            "lighttpd.md",
            "11" | "12" | "13" | "14" | "15" | "16" | "17" | "18" | "19" | "20" | "21" | "22"
            | "23" | "24" | "25" | "26",
        ) => lighttpd(number),
        (_, "9") => &["/sub/a.thing", "/sub/a.png", "/index.html", "/a%20b.txt"],
        (_, "10") => &["/app.cgi", "/app.cgi/x/y?a=b", "/pic.png", "/none.cgi"],
        _ => &[],
    }
}

/// Returns the same for Apache's later pairs.
fn apache(number: &str) -> &'static [&'static str] {
    match number {
        "11" => &[
            "/tools/",
            "/tools/app.cgi/x/y?a=b",
            "/tools/pic.png",
            "/tools/none.cgi",
            "/notes/README",
            "/notes/a.html",
        ],
        "12" => &[
            "/cgi-bin/vars",
            "/cgi-bin/vars/x?q",
            "/cgi-bin/vars/bot",
            "/cgi-bin/app",
            "/cgi-bin/none",
            "/cgi-bin/status",
        ],
        "13" | "14" => &["/", "/cgi-bin/app/x?q", "/cgi-bin/none"],
        "15" => &[
            "/cgi-bin/app",
            "/cgi-bin/app/x?q",
            "/sub/a.png",
            "/sub/none",
            "/sub/index.html",
        ],
        "16" => &["/cgi-bin/app", "/cgi-bin/app/x?q", "/sub/a.png", "/sub/"],
        "17" => &[
            "/cgi-bin/send/a.pdf",
            "/cgi-bin/send/a.pdf?q",
            "/cgi-bin/send/none",
            "/cgi-bin/send/outside",
            "/cgi-bin/app",
            "/cgi-bin/status",
        ],
        "18" => &[
            "/~alice/",
            "/~alice/none",
            "/~carol/",
            "/cgi-bin/app/x?q",
            "/cgi-bin/none",
        ],
        "19" => &[
            "/scripts/",
            "/scripts/a.php",
            "/scripts/a.php/x?a=b",
            "/scripts/none.php",
            "/scripts/style.css",
        ],
        "20" => &["/app/a.php", "/app/a.php/x?a=b", "/app/none.php"],
        "21" => &["/pages/", "/pages/long.css", "/pages/a.png", "/pages/none"],
        "22" => &[
            "/",
            "/sub",
            "/sub/a.png",
            "/cgi-bin/tls",
            "/cgi-bin/app/x?q",
        ],
        _ => &[],
    }
}
/// Returns the same for lighttpd's later pairs.
fn lighttpd(number: &str) -> &'static [&'static str] {
    match number {
        "11" => &[
            "/article/5",
            "/article/5?a=b",
            "/article/x",
            "/cgi-bin/app/x?q",
            "/sub/a.thing",
        ],
        "12" => &[
            "/none",
            "/sub/a.png",
            "/sub/none",
            "/sub/",
            "/errors/404.html",
        ],
        "13" => &["/old", "/old?a=b", "/index.html", "/none"],
        "14" => &["/index.html", "/none"],
        "15" => &["/~alice/", "/~alice/none", "/~bob/index.html", "/~carol/"],
        "16" => &["/cgi-bin/app/x?q", "/sub/a.png", "/sub/none", "/index.html"],
        "17" | "19" => PHP,
        "18" => &["/cgi-bin/lend", "/cgi-bin/lend/none", "/cgi-bin/app/x?q"],
        "20" => &["/app", "/app/", "/app/x/y?a=b", "/app/a%20b", "/apple"],
        "21" => &[
            "/sub/a.thing",
            "/sub/none",
            "/index.html",
            "/errors/404.html",
            "/sub/",
        ],
        "22" => &[
            "/long.txt",
            "/cgi-bin/app/x?q",
            "/cgi-bin/status",
            "/index.html",
            "/large.bin",
        ],
        "23" => &[
            "/errors/",
            "/errors/404.html",
            "/errors/none",
            "/sub/",
            "/errors/?C=N",
        ],
        "24" => &[
            "/cgi-bin/tls",
            "/cgi-bin/app/x?q",
            "/sub",
            "/sub/a.png",
            "/cgi-bin/none",
        ],
        "25" => &[
            "/cgi-bin/app/x?q",
            "/sub/a.png",
            "/sub/none",
            "/index.html",
            "/cgi-bin/none",
        ],
        "26" => &[
            "/cgi-bin/app",
            "/cgi-bin/app/x?q",
            "/cgi-bin/talk",
            "/cgi-bin/none",
        ],
        _ => &[],
    }
}

const PHP: &[&str] = &[
    "/index.php",
    "/",
    "/app.php/x/y?a=b",
    "/none.php",
    "/send.php",
    "/send.php?none",
    "/pic.png",
];

const PROGRAMS: &[&str] = &[
    "/cgi-bin/app",
    "/cgi-bin/app/x/y",
    "/cgi-bin/app/a%20b?q=1&r=%20",
    "/cgi-bin/none",
    "/cgi-bin/status",
    "/cgi-bin/moved",
];

/// Returns the hosts of a pair that tells hosts apart.
pub(super) fn hosts(page: &str, number: &str) -> &'static [&'static str] {
    match (page, number) {
        ("nginx.md" | "lighttpd.md", "8") => &[
            "a.example",
            "x.a.example",
            "A.Example",
            "www.b.example",
            "other",
        ],
        ("apache.md", "3") => &["example.org", "www.example.org"],
        ("apache.md", "13") => &["a.example", "A.Example", "b.example", "other"],
        ("apache.md", "14") => &["a.example", "www.a.example", "x.dev.a.example", "other"],
        ("suexec.md", "2") | ("nginx.md", "18") => &["a.example", "b.example"],
        ("lighttpd.md", "9" | "13" | "14") => &["a.example", "b.example", "other"],
        _ => &["localhost"],
    }
}
