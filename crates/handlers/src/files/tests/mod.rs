mod conditions;
mod listings;
mod paths;
mod siblings;

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
use galgo_service::body::{Body, BodyPart};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    thread::CapabilitySet,
};
use tempfile::TempDir;

use super::*;
use crate::files::send_file::SMALL;

const SECRET: &[u8] = b"root:x:0:0 this must never be served";

/// A temporary folder with `www`, the route's folder, and `secret` beside it.
struct Site {
    top: TempDir,
    files: Files,
}

fn site() -> Site {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("www");
    fs::create_dir(&path).unwrap();
    fs::write(top.path().join("secret"), SECRET).unwrap();
    let files = Files {
        fd: crate::root::open_folder(&path).unwrap(),
        path,
        index: vec!["index.html".into(), "index.htm".into()],
        listing: false,
        precompressed: true,
        types: Vec::new(),
        default_type: "application/octet-stream".into(),
        cgi_names: Vec::new(),
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
        let rest = head.target.path().strip_prefix(b"/").unwrap_or(b"");
        answer(&self.files, &head, rest)
    }

    fn get(&self, target: &str) -> Response {
        self.ask(Method::Get, target, &[])
    }

    fn get_with(&self, target: &str, name: &str, value: &str) -> Response {
        self.ask(Method::Get, target, &[(name, value)])
    }
}

fn answer(files: &Files, head: &Head, rest: &[u8]) -> Response {
    runtime()
        .block_on(super::answer(files, head, rest, |_| false).response(std::future::ready(())))
        .unwrap()
        .0
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap()
}

/// Makes a head as the parser would, without the parser's checks: the checks under test must suffice alone.
fn head(method: Method, raw: &str, pairs: &[(&str, &str)]) -> Head {
    let query_at = raw.find('?').map(|at| at + 1);
    let mut fields = Fields::new();
    pairs.iter().for_each(|(n, v)| fields.push(n, v));
    Head {
        method,
        target: Target::from_decoded(raw.into(), query_at, decode(raw.split('?').next().unwrap())),
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

/// Returns the bytes that would be sent.
fn bytes(body: &Body) -> Vec<u8> {
    let piece = |p: &galgo_service::body::FilePart| {
        let file = fs::File::from(p.file.try_clone().unwrap());
        let mut buf = vec![0; usize::try_from(p.len).unwrap()];
        file.read_exact_at(&mut buf, p.offset).unwrap();
        buf
    };
    match body {
        Body::Empty => Vec::new(),
        Body::Stream(_) => unreachable!("files are no programs"),
        Body::Bytes(b) => b.clone(),
        Body::Shared(b) => b.to_vec(),
        Body::File(p) => piece(p),
        Body::Parts(list) => list
            .iter()
            .flat_map(|p| match p {
                BodyPart::Bytes(b) => b.clone(),
                BodyPart::File(p) => piece(p),
            })
            .collect(),
    }
}

fn field<'a>(response: &'a Response, name: &'a str) -> &'a str {
    let value = response.fields.first_value(name).unwrap_or_default();
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
    for method in ["PUT", "DELETE", "PATCH", "PROPFIND"] {
        let r = site.ask(Method::Other(method.into()), "/a", &[]);
        assert_eq!((r.status, field(&r, "Allow")), (405, ALLOW), "{method}");
    }
    assert_eq!(site.ask(Method::Post, "/a", &[]).status, 405);
    for method in ["get", "FROB"] {
        let r = site.ask(Method::Other(method.into()), "/a", &[]);
        assert_eq!((r.status, field(&r, "Allow")), (501, ""), "{method}");
    }
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
        assert!(!r.fields.has_field(name), "{name}");
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
