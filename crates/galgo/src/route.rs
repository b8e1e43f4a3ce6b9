//! From host and path to a route, and from the file that a front server names to a program.

use std::{os::unix::ffi::OsStrExt, sync::Arc};

use galgo_handlers::{
    files::Files,
    program::Cgi,
    respond::Respond,
    root::CgiRoot,
    script::{self, FoundProgram, Refusal},
    upstream::Application,
};

use crate::request::Named;

/// A route: what answers under a path.
#[derive(Debug, PartialEq)]
pub struct Route {
    /// Host it is limited to, lower case, no port.
    pub host: Option<String>,
    /// Path it answers: a prefix where it ends in `/`, otherwise this path and what is below it (`/path/…`).
    pub path: String,
    /// Who is asked first whether the request may be answered; `None`: nobody.
    pub authorizer: Option<Application>,
    /// What answers.
    pub handler: Handler,
}

/// What answers the requests of a route.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Handler {
    Cgi(Arc<Cgi>),
    Upstream(Arc<Application>),
    Files(Files),
    Respond(Respond),
}

impl Route {
    /// The applications that it asks.
    pub fn upstreams(&self) -> impl Iterator<Item = &Application> {
        let handler = match &self.handler {
            Handler::Upstream(up) => Some(&**up),
            Handler::Cgi(_) | Handler::Files(_) | Handler::Respond(_) => None,
        };
        self.authorizer.iter().chain(handler)
    }
}

/// The route that answers a request.
#[derive(Debug, Clone, Copy)]
pub struct Match<'c, 'p> {
    /// The route.
    pub route: &'c Arc<Route>,
    /// The clean path below the route, without a leading slash.
    pub rest: &'p [u8],
    /// The path is that of a folder without its last slash: answer 301 to the same path with it.
    pub slash_missing: bool,
}

/// Finds the route for a clean path. `host` is the request's host, with or without a port, in any
/// letter case; empty where there is none.
///
/// Among the routes whose host is the request's, or which have none, the longest path wins; of equal
/// paths the one with a host. A path that ends in `/` answers everything below it and, without the
/// slash, a redirect to itself; any other answers itself and everything below it.
pub fn find<'c, 'p>(routes: &'c [Arc<Route>], host: &str, path: &'p [u8]) -> Option<Match<'c, 'p>> {
    let (index, kind) = first(routes.iter().map(Arc::as_ref), host, path)?;
    let route = routes.get(index)?;
    let rest = path.get(route.path.len()..).unwrap_or_default();
    let rest = rest
        .strip_prefix(b"/")
        .filter(|_| !route.path.ends_with('/'))
        .unwrap_or(rest);
    Some(Match {
        route,
        rest,
        slash_missing: kind == RouteMatch::Slashless,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteMatch {
    /// The path is the route's or below it.
    Below,
    /// The path is the route's without its last slash.
    Slashless,
}

/// The index of the route that answers; `routes` come in the order of the configuration.
pub(crate) fn first<'c>(
    routes: impl IntoIterator<Item = &'c Route>,
    host: &str,
    path: &[u8],
) -> Option<(usize, RouteMatch)> {
    let mut slashless = None;
    for (index, route) in routes.into_iter().enumerate() {
        if !answers(route, host) {
            continue;
        }
        match kind(route, path) {
            // `/docs` typed as a path of its own is nearer to `/docs` than the folder `/docs/` is.
            Some(RouteMatch::Below) if slashless.is_none() || route.path.as_bytes() == path => {
                return Some((index, RouteMatch::Below));
            }
            Some(RouteMatch::Slashless) if slashless.is_none() => slashless = Some(index),
            _ => {}
        }
    }
    slashless.map(|index| (index, RouteMatch::Slashless))
}

/// Whether the route is one of that host's.
fn answers(route: &Route, host: &str) -> bool {
    let own = route.host.as_ref();
    own.is_none_or(|own| own.eq_ignore_ascii_case(name(host)))
}

fn kind(route: &Route, path: &[u8]) -> Option<RouteMatch> {
    let own = route.path.as_bytes();
    let folder = own.ends_with(b"/");
    match path.strip_prefix(own) {
        Some(rest) => (folder || matches!(rest, [] | [b'/', ..])).then_some(RouteMatch::Below),
        // A constant answer has no folder to be redirected into.
        None if folder && !matches!(route.handler, Handler::Respond(_)) => {
            (own.strip_suffix(b"/") == Some(path)).then_some(RouteMatch::Slashless)
        }
        None => None,
    }
}

/// The host without its port and without the dot of a full name.
fn name(host: &str) -> &str {
    let digits = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    let bare = match host.rsplit_once(':') {
        Some((bare, port)) if digits(port) && (bare.ends_with(']') || !bare.contains(':')) => bare,
        _ => host,
    };
    bare.strip_suffix('.').unwrap_or(bare)
}

/// A route, and the program in its folder.
pub type Owned<'c, 'p> = (
    &'c Arc<Route>,
    Result<(&'c Arc<Cgi>, FoundProgram<'p>), Refusal>,
);

/// Finds the program that a front server names by its file, in a folder of a `cgi` route of this host, or as its one
/// program: the innermost folder counts. `None`: no route has such a folder.
pub fn named<'c, 'p>(
    routes: &'c [Arc<Route>],
    host: &str,
    named: &'p Named,
) -> Option<Owned<'c, 'p>> {
    let file = match (&named.file, &named.document_root) {
        (Some(file), _) => file.clone(),
        (None, Some(root)) if !named.script_name.is_empty() => [
            root.strip_suffix(b"/").unwrap_or(root),
            &named.script_name[..],
        ]
        .concat(),
        _ => return None,
    };
    let owns = |route: &'c Arc<Route>| {
        let Handler::Cgi(cgi) = &route.handler else {
            return None;
        };
        let own = cgi.root.path().as_os_str().as_bytes();
        let below = file.strip_prefix(own)?;
        let inside = match cgi.root {
            CgiRoot::Folder { .. } => below.strip_prefix(b"/")?,
            CgiRoot::Program { .. } if below.is_empty() || below.starts_with(b"/") => below,
            CgiRoot::Program { .. } => return None,
        };
        answers(route, host).then_some((own.len(), route, cgi, inside))
    };
    let (_, route, cgi, below) = routes
        .iter()
        .filter_map(owns)
        // Of equal folders the route that is tried first.
        .reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    let found = script::inside(cgi, &route.path, below, named);
    Some((route, found.map(|found| (cgi, found))))
}

#[cfg(test)]
mod tests;
