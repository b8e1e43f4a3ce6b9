//! The requests that both servers get.

use std::{collections::BTreeSet, fmt};

use super::paths::{hosts, paths};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    pub(super) method: &'static str,
    pub(super) host: &'static str,
    pub(super) target: String,
    /// Version of HTTP.
    pub(super) version: &'static str,
    /// Header fields. `{tag}`, `{weak}` and `{date}` stand for the validators that the server itself has given.
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

/// Paths for every site with files.
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

/// A method, the version of HTTP, fields and a body.
type Way = (&'static str, &'static str, &'static str, &'static str);

const fn get(fields: &'static str) -> Way {
    ("GET", "1.1", fields, "")
}

/// Requests for every path. The answer to the first one gives the version of a page.
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

/// Additional requests for the paths that a pair is about.
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

/// Additional requests if a proxy names the client.
const CHAINS: [Way; 6] = [
    get("X-Forwarded-For: 192.0.2.7, 203.0.113.9\r\n"),
    get("X-Forwarded-For: 192.0.2.7, 198.51.100.1\r\n"),
    get("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 198.51.100.1\r\n"),
    get("X-Forwarded-For: 198.51.100.1, 192.0.2.7, 203.0.113.9, 203.0.113.10\r\n"),
    get("X-Forwarded-For: 10.0.0.1, 203.0.113.9\r\n"),
    get("X-Forwarded-For: nobody\r\n"),
];

/// Additional requests if programs may take over connections. The programs answer as usual. None of them reads to
/// the end of its input, which would not come.
const UPGRADES: [Way; 4] = [
    get("Connection: Upgrade\r\nUpgrade: other\r\n"),
    get("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"),
    get("Upgrade: websocket\r\n"),
    (
        "HEAD",
        "1.1",
        "Connection: Upgrade\r\nUpgrade: other\r\n",
        "",
    ),
];

/// Additional requests if text is compressed.
const CODED: [Way; 6] = [
    get("Accept-Encoding: gzip\r\nRange: bytes=0-1\r\n"),
    get("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n"),
    get("Accept-Encoding: gzip\r\nIf-None-Match: \"none\"\r\n"),
    get("Accept-Encoding: gzip\r\nIf-Modified-Since: {date}\r\n"),
    get("Accept-Encoding: x-gzip, deflate\r\n"),
    get("Accept-Encoding: gzip;q=0.5, identity;q=0.1\r\n"),
];

/// Returns other spellings of a path that a pair is about.
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

/// Whether to send passwords for a path, because it may demand one.
fn asks(page: &str, number: &str, target: &str) -> bool {
    let guarded = ["/private", "/intern"];
    target == "/"
        || guarded.iter().any(|path| target.starts_with(path))
        || matches!((page, number), ("fcgiwrap.md", "3"))
        || (matches!((page, number), ("suexec.md", "5") | ("fcgiwrap.md", "6"))
            && target.starts_with("/cgi-bin/"))
}

impl Asked {
    /// Returns the requests of a pair. `has_files`: there are files at `/`.
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
                    ("lighttpd.md", "26") => &UPGRADES[..],
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

    /// Whether the request asks for nothing but the path.
    pub(super) fn is_plain(&self) -> bool {
        (self.method, self.fields, self.version) == ("GET", "", "1.1")
    }
}
