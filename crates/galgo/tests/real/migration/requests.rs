//! What both sides are asked, and what of their answers is compared.

use std::{fmt, net::SocketAddr};

use galgo_testkit::{Client, Reply};

/// A request.
pub(super) struct Asked {
    pub(super) method: &'static str,
    pub(super) host: &'static str,
    pub(super) target: String,
    pub(super) fields: &'static str,
    pub(super) body: &'static str,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields.trim_end().replace("\r\n", ", ");
        write!(f, "{} {}{} [{fields}]", self.method, self.host, self.target)
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
        ("fcgiwrap.md", "3") => &["/", "/x/y/", "/a%20b?q=1"],
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
        ("suexec.md", "4") => &["/", "/x/y?a=b", "/static/index.html", "/static/none"],
        ("suexec.md", _) => &[
            "/cgi-bin/app",
            "/cgi-bin/none",
            "/cgi-bin/writable",
            "/cgi-bin/strange",
            "/cgi-bin/setuid",
            "/cgi-bin/open/app",
        ],
        (_, "1") => &["/sub/", "/sub/index.html", "/sub/a.thing"],
        (_, "2") => PROGRAMS,
        ("apache.md", "3") => &["/old/x", "/blog/2026/a"],
        (_, "3") => &["/old", "/away/x", "/gone", "/blog/2026/a", "/blog/x/a"],
        (_, "4") => &["/private/a.txt", "/private/none"],
        ("apache.md", "5") => &["/sub/a.png", "/sub/none"],
        (_, "5") => &["/private/a.txt", "/sub/a.thing"],
        ("apache.md", "6") => &["/x/y/z"],
        (_, "6") => &["/private/a.txt", "/x/y/z"],
        (_, "7") => &["/app/x", "/x/y/", "/sub/index.html"],
        ("apache.md", "8") => &["/article/5", "/list?page=3", "/article/x"],
        ("apache.md", "9") => PROGRAMS,
        ("apache.md", "10") => &["/intern/a.txt", "/intern/none"],
        (_, "9") => &["/sub/a.thing"],
        (_, "10") => &["/app.cgi", "/app.cgi/x/y?a=b", "/pic.png", "/none.cgi"],
        _ => &[],
    }
}

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
        ("suexec.md", "2") => &["a.example", "b.example"],
        ("lighttpd.md", "9") => &["a.example", "b.example", "other"],
        _ => &["localhost"],
    }
}

/// Methods, fields and bodies of requests.
const WAYS: [(&str, &str, &str); 15] = [
    ("GET", "", ""),
    ("HEAD", "", ""),
    ("GET", "Range: bytes=0-1\r\n", ""),
    ("GET", "Range: bytes=-3\r\n", ""),
    ("GET", "Range: bytes=999999-\r\n", ""),
    (
        "GET",
        "If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT\r\n",
        "",
    ),
    (
        "GET",
        "If-Modified-Since: Thu, 01 Jan 1990 00:00:00 GMT\r\n",
        "",
    ),
    ("GET", "If-None-Match: \"none\"\r\n", ""),
    ("GET", "If-Match: \"none\"\r\n", ""),
    ("GET", "Accept-Encoding: gzip\r\nX-Test: 1\r\n", ""),
    ("GET", "Cookie: a=b\r\nUser-Agent: test\r\n", ""),
    ("GET", "Authorization: Basic YWRhOnNlY3JldA==\r\n", ""),
    ("GET", "Authorization: Basic Ym9iOnNlY3JldA==\r\n", ""),
    ("GET", "Authorization: Basic YWRhOndyb25n\r\n", ""),
    ("POST", "Content-Length: 3\r\n", "a=b"),
];

/// Whether a path is asked for with passwords: it may want one.
fn asks(page: &str, number: &str, target: &str) -> bool {
    let guarded = ["/private", "/intern"];
    target == "/"
        || guarded.iter().any(|path| target.starts_with(path))
        || matches!((page, number), ("fcgiwrap.md", "3"))
        || (matches!((page, number), ("suexec.md", "5")) && target.starts_with("/cgi-bin/"))
}

impl Asked {
    /// The requests of a pair: each path on each host in each way; `has_files`: there are files at `/`.
    pub(super) fn all(page: &str, number: &str, has_files: bool) -> Vec<Self> {
        let everywhere = if has_files { &EVERYWHERE[..] } else { &[] };
        let mut all = Vec::new();
        for host in hosts(page, number) {
            for target in everywhere.iter().chain(paths(page, number)) {
                for (method, fields, body) in WAYS {
                    // A wrong password costs its client a second.
                    if fields.starts_with("Auth") && !asks(page, number, target) {
                        continue;
                    }
                    all.push(Self {
                        method,
                        host,
                        target: (*target).to_owned(),
                        fields,
                        body,
                    });
                }
            }
        }
        all
    }
}

/// What differs between two answers.
pub(super) struct Difference {
    pub(super) peer: &'static str,
    /// `status`, `type`, `body`, or the name of a field.
    pub(super) what: &'static str,
    /// The status of our answer.
    pub(super) status: u16,
    pub(super) ours: String,
    pub(super) theirs: String,
}

impl Difference {
    /// The statuses differ so.
    pub(super) fn is_status(&self, ours: &str, theirs: &[&str]) -> bool {
        self.what == "status" && self.ours == ours && theirs.contains(&&*self.theirs)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, theirs] =
            [&self.ours, &self.theirs].map(|text| text.chars().take(200).collect::<String>());
        write!(f, "{} {ours:?}, not {theirs:?}", self.what)
    }
}

/// The site's own page of an error.
pub(super) const ERROR_PAGE: &str = "nothing here\n";

/// What is compared of a response.
pub(super) struct Answer(Reply);

/// Fields that a client acts upon, where both sides have a say in them.
const FIELDS: [&str; 9] = [
    "location",
    "content-range",
    "www-authenticate",
    "cache-control",
    "x-robots-tag",
    "x-powered-by",
    "x-content-type-options",
    "access-control-allow-origin",
    "content-encoding",
];

impl Answer {
    pub(super) fn of(at: SocketAddr, asked: &Asked) -> Self {
        let Asked {
            method,
            host,
            target,
            fields,
            body,
        } = asked;
        let mut client = Client::connect(at);
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n{body}"
        ));
        Self(client.reply_to(method))
    }

    /// Whether what was to answer is not there, yet or any more.
    pub(super) fn is_unavailable(&self) -> bool {
        self.0.status == 503
    }

    /// What differs from the answer of the server that was before.
    pub(super) fn differs(
        &self,
        theirs: &Self,
        asked: &Asked,
        peer: &'static str,
    ) -> Vec<Difference> {
        let (ours, theirs) = (&self.0, &theirs.0);
        let mut pairs = vec![("status", ours.status.to_string(), theirs.status.to_string())];
        if ours.status == theirs.status {
            let field = |name| (name, value(ours, name, asked), value(theirs, name, asked));
            pairs.extend(FIELDS.map(field));
            let success = matches!(ours.status, 200 | 206);
            if success {
                pairs.push(("type", kind(ours), kind(theirs)));
            }
            let refused = matches!(ours.status, 403 | 404);
            let has_page = |reply: &Reply| reply.text() == ERROR_PAGE;
            if success || (refused && (has_page(ours) || has_page(theirs))) {
                pairs.push(("body", ours.text(), theirs.text()));
            }
        }
        let differing = pairs.into_iter().filter(|(_, ours, theirs)| ours != theirs);
        let difference = |(what, own, theirs)| Difference {
            peer,
            what,
            status: ours.status,
            ours: own,
            theirs,
        };
        differing.map(difference).collect()
    }
}

/// The media type, without its parameters.
fn kind(reply: &Reply) -> String {
    let kind = reply.field("content-type").unwrap_or("");
    kind.split(';').next().unwrap_or("").to_ascii_lowercase()
}

/// The values of a field, whatever the host of the server in it.
fn value(reply: &Reply, name: &str, asked: &Asked) -> String {
    let all = reply.fields(name).join(", ");
    let own = format!("http://{}/", asked.host);
    all.strip_prefix(&own)
        .map_or(all.clone(), |rest| format!("/{rest}"))
}
