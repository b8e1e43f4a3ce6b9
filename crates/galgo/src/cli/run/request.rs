//! The request that the arguments describe, made of the bytes a client would send.

use std::{ffi::OsStr, io::Read, net::SocketAddr, os::unix::ffi::OsStrExt, path::Path, rc::Rc};

use galgo_proto::{h1::Head, hosts::Hosts};
use galgo_spawn::words;

use super::{args::RunArgs, site::ProgramPlace};
use crate::{
    cli::programs,
    config::{Address, Config, Route},
    link::Link,
};

/// A request that needs no reading.
#[derive(Debug)]
pub(super) struct LocalRequest {
    pub(super) head: Rc<Head>,
    pub(super) body: Vec<u8>,
    pub(super) link: Link,
}

/// Makes the request; the server's own parser refuses what no client could send.
pub(super) fn make(args: &RunArgs, place: &ProgramPlace) -> Result<LocalRequest, String> {
    let body = args.data.as_deref().map(data).transpose()?;
    let local = local(&place.config);
    let target = target(args, place);
    let method = match (&args.method, &body) {
        (Some(method), _) => method,
        (None, Some(_)) => "POST",
        (None, None) => "GET",
    };
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    let mut add = |name: &str, value: &str| {
        text.extend([name, ": ", value, "\r\n"]);
    };
    let typed = |name: &str| {
        args.headers
            .iter()
            .any(|f| f.name.eq_ignore_ascii_case(name))
    };
    if !typed("host") {
        let host = host(&place.route.route);
        add("Host", &format!("{host}:{}", local.port()));
    }
    for field in &args.headers {
        add(&field.name, &field.value);
    }
    if let Some(body) = &body {
        if !typed("content-type") {
            add("Content-Type", "application/x-www-form-urlencoded");
        }
        if !typed("content-length") && !typed("transfer-encoding") {
            add("Content-Length", &body.len().to_string());
        }
    }
    text.push_str("\r\n");
    parsed(&text, &place.config, body.unwrap_or_default(), local)
}

/// A request with nothing but what it must have.
pub(super) fn plain(
    config: &Config,
    route: &Route,
    url: &[u8],
    method: &str,
    body: &[u8],
) -> Result<LocalRequest, String> {
    let (local, path) = (local(config), programs::encoded(url));
    let host = host(route);
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}:{}\r\n",
        local.port()
    );
    if !body.is_empty() {
        let kind = "application/x-www-form-urlencoded";
        let length = body.len();
        text.push_str(&format!(
            "Content-Type: {kind}\r\nContent-Length: {length}\r\n"
        ));
    }
    text.push_str("\r\n");
    parsed(&text, config, body.to_vec(), local)
}

/// A host that the route answers on.
fn host(route: &Route) -> String {
    let hosts = route.host.as_ref();
    hosts.map_or_else(|| "localhost".to_owned(), Hosts::example)
}

fn parsed(
    text: &str,
    config: &Config,
    body: Vec<u8>,
    local: SocketAddr,
) -> Result<LocalRequest, String> {
    let limits = config.http.head_limits();
    let head = Head::parse(text.as_bytes(), &limits).map_err(|e| {
        format!(
            "the server would refuse this request with {}: {}",
            e.status, e.why
        )
    })?;
    Ok(LocalRequest {
        head: Rc::new(head),
        body,
        link: link(local),
    })
}

fn data(typed: &OsStr) -> Result<Vec<u8>, String> {
    let Some(file) = typed.as_bytes().strip_prefix(b"@") else {
        return Ok(typed.as_bytes().to_owned());
    };
    let file = Path::new(OsStr::from_bytes(file));
    let read = if file == Path::new("-") {
        let mut all = Vec::new();
        std::io::stdin().read_to_end(&mut all).map(|_| all)
    } else {
        std::fs::read(file)
    };
    read.map_err(|e| format!("the request body: {}: {e}", words::path(file)))
}

/// The path of the program and what follows it, encoded; then the query as typed.
fn target(args: &RunArgs, place: &ProgramPlace) -> String {
    let mut path = place.route.url.clone();
    if let Some(info) = &args.path_info {
        if !info.starts_with('/') && !info.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(info.as_bytes());
    }
    let mut target = programs::encoded(&path);
    if let Some(query) = &args.query {
        target.push('?');
        target.push_str(query);
    }
    target
}

/// The port where none is configured, or one that the kernel is to choose at the start.
const PORT: u16 = 8080;

/// The first TCP address of the site.
fn local(config: &Config) -> SocketAddr {
    let tcp = config.listen.iter().find_map(|l| match l.address {
        Address::Tcp(at) => Some(at),
        Address::Unix(_) => None,
    });
    let mut local = tcp.unwrap_or_else(|| ([127, 0, 0, 1], PORT).into());
    if local.port() == 0 {
        local.set_port(PORT);
    }
    local
}

/// A client on this machine.
fn link(local: SocketAddr) -> Link {
    Link::between(Some(([127, 0, 0, 1], 0).into()), Some(local))
}
