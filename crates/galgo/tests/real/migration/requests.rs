//! What both sides are asked.

use std::{collections::BTreeSet, fmt};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    pub(super) method: &'static str,
    pub(super) host: &'static str,
    pub(super) target: String,
    /// Of HTTP.
    pub(super) version: &'static str,
    /// `{tag}`, `{weak}` and `{date}` are the validators that the server itself has given.
    pub(super) fields: &'static str,
    pub(super) body: &'static str,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields.trim_end().replace("\r\n", ", ");
        let (method, host, version) = (self.method, self.host, self.version);
        write!(f, "{method} {host}{} {version} [{fields}]", self.target)
    }
}

/// Paths that every site with files is asked for.
const EVERYWHERE: [&str; 10] = [
    "/",
    "/index.html",
    "/none",
    "/none/",
    "/sub",
    "/sub/a.png",
    "/a%20b.txt",
    "/large.bin",
    "/sub/../index.html",
    "/./index.html",
];

/// What else a pair is about.
fn paths(page: &str, number: &str) -> &'static [&'static str] {
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
            | "23",
        ) => lighttpd(number),
        (_, "9") => &["/sub/a.thing", "/sub/a.png", "/index.html", "/a%20b.txt"],
        (_, "10") => &["/app.cgi", "/app.cgi/x/y?a=b", "/pic.png", "/none.cgi"],
        _ => &[],
    }
}

/// The same of the later pairs of Apache's.
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
/// The same of the later pairs of lighttpd's.
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

/// Hosts of the pairs that tell them apart.
fn hosts(page: &str, number: &str) -> &'static [&'static str] {
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

/// A method, the version of HTTP, fields and a body.
type Way = (&'static str, &'static str, &'static str, &'static str);

const fn get(fields: &'static str) -> Way {
    ("GET", "1.1", fields, "")
}

/// How every path is asked for. The first is what a page's version is remembered of.
const WAYS: [Way; 15] = [
    get(""),
    ("HEAD", "1.1", "", ""),
    get("Range: bytes=0-1\r\n"),
    get("Range: bytes=-3\r\n"),
    get("Range: bytes=999999-\r\n"),
    get("If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT\r\n"),
    get("If-Modified-Since: Thu, 01 Jan 1990 00:00:00 GMT\r\n"),
    get("If-None-Match: \"none\"\r\n"),
    get("If-Match: \"none\"\r\n"),
    get("Accept-Encoding: gzip\r\nX-Test: 1\r\n"),
    get("Cookie: a=b\r\nUser-Agent: test\r\n"),
    get("Authorization: Basic YWRhOnNlY3JldA==\r\n"),
    get("Authorization: Basic Ym9iOnNlY3JldA==\r\n"),
    get("Authorization: Basic YWRhOndyb25n\r\n"),
    ("POST", "1.1", "Content-Length: 3\r\n", "a=b"),
];

/// How the paths that a pair is about are asked for beside that.
const MORE: [Way; 32] = [
    ("GET", "1.0", "", ""),
    ("HEAD", "1.0", "Cookie: a=b\r\n", ""),
    ("POST", "1.0", "Content-Length: 3\r\n", "a=b"),
    ("PUT", "1.1", "Content-Length: 3\r\n", "a=b"),
    ("DELETE", "1.1", "", ""),
    ("PATCH", "1.1", "Content-Length: 3\r\n", "a=b"),
    ("OPTIONS", "1.1", "", ""),
    ("POST", "1.1", "Content-Length: 0\r\n", ""),
    ("POST", "1.1", "Content-Length: 3\r\nCookie: a=b\r\n", "a=b"),
    ("HEAD", "1.1", "Accept-Encoding: gzip\r\n", ""),
    ("HEAD", "1.1", "If-None-Match: {tag}\r\n", ""),
    ("HEAD", "1.1", "Range: bytes=0-1\r\n", ""),
    get("If-None-Match: {tag}\r\n"),
    get("If-None-Match: W/{weak}\r\n"),
    get("If-None-Match: \"x\", {tag}\r\n"),
    get("If-None-Match: *\r\n"),
    get("If-Match: {tag}\r\n"),
    get("If-Match: *\r\n"),
    get("If-Modified-Since: {date}\r\n"),
    get("If-None-Match: \"none\"\r\nIf-Modified-Since: {date}\r\n"),
    get("If-Unmodified-Since: {date}\r\n"),
    get("If-Unmodified-Since: Thu, 01 Jan 1990 00:00:00 GMT\r\n"),
    get("If-Range: {tag}\r\nRange: bytes=0-1\r\n"),
    get("If-Range: \"none\"\r\nRange: bytes=0-1\r\n"),
    get("Range: bytes=1-\r\n"),
    get("Range: lines=0-1\r\n"),
    get("Accept-Encoding: gzip;q=0\r\n"),
    get("Accept-Encoding: identity\r\n"),
    get("Cookie: a=b; c=\"d e\"\r\nX-Test: 1\r\n"),
    get("User-Agent: crawler bot\r\nAccept-Language: de\r\n"),
    get("Origin: https://app.example.org\r\n"),
    get("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n"),
];

/// How a pair's own paths are asked for where a proxy says who the client is.
const CHAINS: [Way; 6] = [
    get("X-Forwarded-For: 192.0.2.7, 203.0.113.9\r\n"),
    get("X-Forwarded-For: 192.0.2.7, 198.51.100.1\r\n"),
    get("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 198.51.100.1\r\n"),
    get("X-Forwarded-For: 198.51.100.1, 192.0.2.7, 203.0.113.9, 203.0.113.10\r\n"),
    get("X-Forwarded-For: 10.0.0.1, 203.0.113.9\r\n"),
    get("X-Forwarded-For: nobody\r\n"),
];

/// How they are asked for where text is compressed.
const CODED: [Way; 6] = [
    get("Accept-Encoding: gzip\r\nRange: bytes=0-1\r\n"),
    get("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n"),
    get("Accept-Encoding: gzip\r\nIf-None-Match: \"none\"\r\n"),
    get("Accept-Encoding: gzip\r\nIf-Modified-Since: {date}\r\n"),
    get("Accept-Encoding: x-gzip, deflate\r\n"),
    get("Accept-Encoding: gzip;q=0.5, identity;q=0.1\r\n"),
];

/// How a path that a pair is about is written beside that.
fn spellings(target: &str) -> Vec<String> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = if query.is_empty() {
        ""
    } else {
        &target[path.len()..]
    };
    let mut all = vec![format!("/{path}{query}"), format!("/x/..{path}{query}")];
    if let Some(letter) = path.chars().nth(1).filter(char::is_ascii_alphabetic) {
        let encoded = format!("/%{:02x}{}{query}", letter as u32, &path[2..]);
        all.extend([
            encoded
                .to_uppercase()
                .replace(&encoded[4..].to_uppercase(), &encoded[4..]),
            encoded,
        ]);
    }
    if query.is_empty() {
        all.extend(["?", "?a=b&c=%20", "?word"].map(|query| format!("{path}{query}")));
    }
    all
}

/// Whether a path is asked for with passwords: it may want one.
fn asks(page: &str, number: &str, target: &str) -> bool {
    let guarded = ["/private", "/intern"];
    target == "/"
        || guarded.iter().any(|path| target.starts_with(path))
        || matches!((page, number), ("fcgiwrap.md", "3"))
        || (matches!((page, number), ("suexec.md", "5") | ("fcgiwrap.md", "6"))
            && target.starts_with("/cgi-bin/"))
}

impl Asked {
    /// The requests of a pair; `has_files`: there are files at `/`.
    pub(super) fn all(page: &str, number: &str, has_files: bool) -> Vec<Self> {
        let everywhere = if has_files { &EVERYWHERE[..] } else { &[] };
        let own = paths(page, number);
        let mut all = Vec::new();
        for host in hosts(page, number) {
            for target in everywhere.iter().chain(own) {
                // A wrong password costs its client a second.
                let asks = asks(page, number, target);
                let ways = WAYS.iter().filter(|way| asks || !way.2.starts_with("Auth"));
                all.extend(ways.map(|way| Self::new(host, target, *way)));
            }
            for target in own {
                all.extend(MORE.map(|way| Self::new(host, target, way)));
                let special = match (page, number) {
                    ("apache.md", "15") => &CHAINS[..],
                    ("apache.md", "21") => &CODED[..],
                    _ => &[],
                };
                all.extend(special.iter().map(|way| Self::new(host, target, *way)));
                for spelling in spellings(target) {
                    let ways = [WAYS[0], WAYS[1], WAYS[14]];
                    all.extend(ways.map(|way| Self::new(host, &spelling, way)));
                }
            }
        }
        let mut met = BTreeSet::new();
        all.retain(|asked| met.insert(asked.clone()));
        all
    }

    fn new(host: &'static str, target: &str, (method, version, fields, body): Way) -> Self {
        Self {
            method,
            host,
            target: target.to_owned(),
            version,
            fields,
            body,
        }
    }

    /// Nothing but the path is asked for.
    pub(super) fn is_plain(&self) -> bool {
        (self.method, self.fields, self.version) == ("GET", "", "1.1")
    }
}
