//! galgo behind a web server that speaks FastCGI or SCGI, and requests of a hostile front.

mod ends;
mod hostile;
mod requests;
mod steps;

use std::{
    io::Read,
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use crate::harness::{
    Test,
    child::pattern,
    encode, list, new_site, skip,
    upstream::{Application, ended, hear, say, stdout},
    watch::Watch,
};
use galgo_testkit::{Client, Server, Site, eventually};

/// Returns the tests of this module and of its submodules.
pub fn tests() -> Vec<Test> {
    [
        requests::tests(),
        steps::tests(),
        ends::tests(),
        hostile::tests(),
    ]
    .concat()
}

const BEGIN: u8 = 1;
const ABORT: u8 = 2;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let [a, b] = id.to_be_bytes();
    let [c, d] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = [1, kind, a, b, c, d, padding, 0];
    [&head[..], content, &vec![b'p'; padding.into()]].concat()
}

fn begin(id: u16, keep: bool) -> Vec<u8> {
    record(BEGIN, id, &[0, 1, keep.into(), 0, 0, 0, 0, 0], 0)
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in pairs {
        for text in [name, value] {
            match u8::try_from(text.len()) {
                Ok(n) if n < 128 => out.push(n),
                _ => out.extend((text.len() as u32 | 1 << 31).to_be_bytes()),
            }
        }
        out.extend(name.bytes().chain(value.bytes()));
    }
    out
}

/// Returns the variables of a request for `target`, and those in `more`.
fn params<'a>(method: &'a str, target: &'a str, more: &[(&'a str, &'a str)]) -> Vec<u8> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let usual = [
        ("REQUEST_METHOD", method),
        ("SCRIPT_NAME", path),
        ("QUERY_STRING", query),
        ("REQUEST_URI", target),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REMOTE_ADDR", "203.0.113.7"),
        ("REMOTE_PORT", "4711"),
        ("SERVER_ADDR", "192.0.2.1"),
        ("SERVER_PORT", "443"),
        ("HTTP_HOST", "www.example.org"),
        ("HTTPS", "on"),
    ];
    let usual = usual
        .iter()
        .filter(|(n, _)| more.iter().all(|(m, _)| m != n));
    let all: Vec<_> = usual.chain(more).copied().collect();
    pairs(&all)
}

/// Returns the records of a whole request.
fn request(id: u16, keep: bool, params: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = begin(id, keep);
    for piece in params.chunks(60_000) {
        out.extend(record(PARAMS, id, piece, 3));
    }
    out.extend(record(PARAMS, id, b"", 0));
    for piece in body.chunks(0xffff) {
        out.extend(record(STDIN, id, piece, 255));
    }
    out.extend(record(STDIN, id, b"", 7));
    out
}

/// Starts the site with both listeners, and returns their sockets, too.
fn serve(site: Site) -> (Server, PathBuf, PathBuf) {
    let (fcgi, scgi) = (site.path("f"), site.path("s"));
    let listen =
        [("fastcgi", &fcgi), ("scgi", &scgi)].map(|(p, s)| format!("{p}+unix:{}", s.display()));
    let arguments = ["-l", "127.0.0.1:0", "-l", &listen[0], "-l", &listen[1]];
    (site.arguments(&arguments).start(), fcgi, scgi)
}

struct Front(Client<UnixStream>);

/// A response: its output on STDOUT, and the end of the request (`None`: there was no end).
#[derive(Debug)]
struct Reply {
    head: String,
    body: Vec<u8>,
    end: Option<(u32, u8)>,
    records: usize,
}

impl Front {
    fn connect(path: &Path) -> Self {
        Self(Client::unix(path))
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.send(bytes);
    }

    fn record(&mut self) -> Option<(u8, u16, Vec<u8>)> {
        let mut next = |n: usize| Some(self.0.take(n)).filter(|bytes| bytes.len() == n);
        let head = next(8)?;
        assert_eq!(head[0], 1);
        let content = next(u16::from_be_bytes([head[4], head[5]]).into())?;
        next(head[6].into())?;
        Some((head[1], u16::from_be_bytes([head[2], head[3]]), content))
    }

    fn reply(&mut self, id: u16) -> Reply {
        let (mut all, mut end, mut records) = (Vec::new(), None, 0);
        while let Some((kind, of, content)) = self.record() {
            assert_eq!(of, id);
            match kind {
                STDOUT => all.extend(content),
                END => {
                    end = Some((
                        u32::from_be_bytes(content[..4].try_into().unwrap()),
                        content[4],
                    ));
                    break;
                }
                other => panic!("a record of type {other}"),
            }
            records += 1;
        }
        let at = all
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .map_or(all.len(), |at| at + 4);
        let body = all.split_off(at);
        Reply {
            head: String::from_utf8(all).unwrap(),
            body,
            end,
            records,
        }
    }

    /// Checks that the connection ends without another byte.
    fn closed(&mut self) {
        let rest = self.0.rest();
        assert!(rest.is_empty(), "{}", rest.escape_ascii());
    }
}

impl Reply {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

const DONE: Option<(u32, u8)> = Some((0, 0));

fn scgi_head(method: &str, target: &str, length: &str) -> Vec<u8> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = [
        ("CONTENT_LENGTH", length),
        ("SCGI", "1"),
        ("REQUEST_METHOD", method),
        ("SCRIPT_NAME", path),
        ("QUERY_STRING", query),
        ("REQUEST_URI", target),
        ("REMOTE_ADDR", "203.0.113.8"),
    ];
    let headers: String = pairs.iter().map(|(n, v)| format!("{n}\0{v}\0")).collect();
    format!("{}:{headers},", headers.len()).into_bytes()
}
