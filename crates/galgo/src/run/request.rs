//! The request that the arguments describe, made of the bytes that a client would send.

use std::{ffi::OsStr, io::Read, net::SocketAddr, os::unix::ffi::OsStrExt, path::Path, rc::Rc};

use galgo_proto::{h1::Head, hosts::Hosts};
use galgo_service::link::Link;
use galgo_spawn::words;

use crate::{
    command::found::first_tcp,
    config::{Config, Route},
    programs,
    run::{args::RunArgs, program_route::ProgramPlace},
};

/// A request that is in memory as a whole.
#[derive(Debug)]
pub(super) struct LocalRequest {
    pub(super) head: Rc<Head>,
    pub(super) body: Vec<u8>,
    pub(super) link: Link,
}

/// Makes the request. The server's own parser refuses a request that no client could send.
pub(super) fn build_request(args: &RunArgs, place: &ProgramPlace) -> Result<LocalRequest, String> {
    let body = args.data.as_deref().map(read_data).transpose()?;
    let method = match (&args.method, &body) {
        (Some(method), _) => method,
        (None, Some(_)) => "POST",
        (None, None) => "GET",
    };
    let (config, route) = (&place.config, &place.route.route);
    let asked = [method, &request_target(args, place)];
    compose_request(config, route, asked, &args.headers, body)
}

/// Makes a request from a method, a target and typed fields. Adds the fields that a request must have.
pub(super) fn compose_request(
    config: &Config,
    route: &Route,
    [method, target]: [&str; 2],
    fields: &[(String, String)],
    body: Option<Vec<u8>>,
) -> Result<LocalRequest, String> {
    let local = local_address(config);
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    let mut add = |name: &str, value: &str| {
        text.extend([name, ": ", value, "\r\n"]);
    };
    let typed = |name: &str| fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !typed("host") {
        // A host that the route answers on.
        let hosts = route.host.as_ref();
        let host = hosts.map_or_else(|| "localhost".to_owned(), Hosts::example);
        add("Host", &format!("{host}:{}", local.port()));
    }
    for (name, value) in fields {
        add(name, value);
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
    let head = Head::parse(text.as_bytes(), &config.http.head_limits()).map_err(|e| {
        format!(
            "the server would refuse this request with {}: {}",
            e.status, e.why
        )
    })?;
    Ok(LocalRequest {
        head: Rc::new(head),
        body: body.unwrap_or_default(),
        // The client is on this machine.
        link: Link::between(Some(([127, 0, 0, 1], 0).into()), Some(local)),
    })
}

fn read_data(typed: &OsStr) -> Result<Vec<u8>, String> {
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
    read.map_err(|e| format!("the request body: {}: {e}", words::escape_path(file)))
}

/// Returns the encoded path of the program with PATH_INFO, and the query as typed.
fn request_target(args: &RunArgs, place: &ProgramPlace) -> String {
    let mut path = place.route.url.clone();
    if let Some(info) = &args.path_info {
        if !info.starts_with('/') && !info.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(info.as_bytes());
    }
    let mut target = programs::percent_encode(&path);
    if let Some(query) = &args.query {
        target.push('?');
        target.push_str(query);
    }
    target
}

/// The port if none is configured, or if the kernel is to choose it at the start.
const PORT: u16 = 8080;

/// Returns the first TCP address of the site.
fn local_address(config: &Config) -> SocketAddr {
    let tcp = first_tcp(&config.listen);
    let mut local = tcp.map_or_else(|| ([127, 0, 0, 1], PORT).into(), |(at, _)| at);
    if local.port() == 0 {
        local.set_port(PORT);
    }
    local
}
