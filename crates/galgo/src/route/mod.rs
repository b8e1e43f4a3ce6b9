//! Finds the route for a host and a path, and the program for the file that a front server names.

use std::{fmt, os::unix::ffi::OsStrExt, sync::Arc};

use galgo_handlers::{
    application_settings::{Application, To},
    files::Files,
    program_settings::Cgi,
    rate_limit::RateLimit,
    respond::Respond,
    root::CgiRoot,
    script::{self, FoundProgram},
    steps::Steps,
};
use galgo_proto::hosts::Hosts;
use galgo_service::{
    admission::ConcurrencyLimit, fault::Fault, log::route_logs::OwnLog, request::Named,
};
use galgo_spawn::glob::Glob;
use galgo_spawn::owners::Remit;

/// A route: the handler for a path, and the steps around it.
#[derive(Debug, PartialEq)]
pub struct Route {
    /// The hosts that the route is limited to.
    pub host: Option<Hosts>,
    /// The path that the route answers. A path that ends in `/` is a prefix; any other path stands for itself and
    /// everything below it (`/path/…`).
    pub path: String,
    /// Limits the route to names right below the path that match, and everything below them.
    pub names: Option<Glob>,
    /// The authorizer that decides first whether the request may be answered; `None`: no authorizer.
    pub authorizer: Option<Authorizer>,
    /// The steps before and after the handler; `None`: no steps.
    pub steps: Option<Box<Steps>>,
    /// Programs in a folder of files; `None`: there are no programs.
    pub among_files: Option<Arc<Cgi>>,
    /// The rate limit of each address; `None`: no limit.
    pub rate_limit: Option<RateLimit>,
    /// The log of the route's requests; `None`: the server's access log.
    pub log: Option<Arc<OwnLog>>,
    /// The handler.
    pub handler: Handler,
}

impl fmt::Display for Route {
    /// Writes `git.example.org/cgi-bin/`; if there are several hosts, the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_ref().map_or("", Hosts::first_name);
        let names = self.names.as_ref().map_or("", Glob::as_str);
        write!(f, "{host}{}{names}", self.path)
    }
}

/// The program or application that decides whether a request may be answered.
#[derive(Debug, PartialEq)]
pub enum Authorizer {
    /// A FastCGI application.
    Application(Box<Application>),
    /// A program.
    Program(Arc<Cgi>),
}

/// The handler of a route's requests.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Handler {
    Cgi(Arc<Cgi>),
    Upstream(Arc<Application>),
    Files(Files),
    Respond(Respond),
}

impl Route {
    /// Returns a route on every host, without steps.
    pub fn new(path: impl Into<String>, handler: Handler) -> Self {
        Self {
            host: None,
            path: path.into(),
            names: None,
            authorizer: None,
            rate_limit: None,
            log: None,
            steps: None,
            among_files: None,
            handler,
        }
    }

    /// Whether the route answers a name right below its path. `rest` is the part of the path below the route, without a
    /// leading slash.
    pub fn answers_name(&self, rest: &[u8]) -> bool {
        let Some(glob) = &self.names else {
            return true;
        };
        let name = rest.split(|&b| b == b'/').next().unwrap_or_default();
        glob.matches_name(name)
    }

    /// Returns the route's programs, including programs in a folder of files.
    pub fn programs(&self) -> Option<&Arc<Cgi>> {
        match &self.handler {
            Handler::Cgi(cgi) => Some(cgi),
            _ => self.among_files.as_ref(),
        }
    }

    /// Returns the applications that the route asks.
    pub fn upstreams(&self) -> impl Iterator<Item = &Application> {
        let handler = match &self.handler {
            Handler::Upstream(up) => Some(&**up),
            Handler::Cgi(_) | Handler::Files(_) | Handler::Respond(_) => None,
        };
        let authorizer = match &self.authorizer {
            Some(Authorizer::Application(up)) => Some(&**up),
            _ => None,
        };
        authorizer.into_iter().chain(handler)
    }

    /// Returns the remits of the programs and workers that helpers start for the route.
    pub fn remits(&self) -> impl Iterator<Item = &Arc<Remit>> {
        let of_programs = self.programs().and_then(|cgi| cgi.remit.as_ref());
        let of_workers = self.upstreams().filter_map(|up| up.remit.as_ref());
        let of_judge = self.authorizer_program().and_then(|cgi| cgi.remit.as_ref());
        of_programs.into_iter().chain(of_judge).chain(of_workers)
    }

    /// Whether the server itself starts programs or workers of the route, without a helper.
    pub fn starts_here(&self) -> bool {
        let mut programs = self.programs().into_iter().chain(self.authorizer_program());
        let is_started = |up: &Application| matches!(up.to, To::Workers(_));
        programs.any(|cgi| cgi.remit.is_none())
            || self
                .upstreams()
                .any(|up| is_started(up) && up.remit.is_none())
    }

    /// Returns the program that decides first whether a request may be answered.
    pub fn authorizer_program(&self) -> Option<&Arc<Cgi>> {
        match &self.authorizer {
            Some(Authorizer::Program(cgi)) => Some(cgi),
            _ => None,
        }
    }
}

/// The route that answers a request.
#[derive(Debug, Clone, Copy)]
pub struct Match<'c, 'p> {
    /// The route.
    pub route: &'c Arc<Route>,
    /// The clean path below the route, without a leading slash.
    pub rest: &'p [u8],
    /// The path is that of a folder without its last slash: answer with 301 to the path with the slash.
    pub slash_missing: bool,
    /// Permits for the route's programs, if the route itself does not hold them.
    pub limit: Option<&'c Arc<ConcurrencyLimit>>,
}

/// Finds the route for a clean path. `host` is the request's host, with or without a port, in any letter case; empty if
/// there is none.
///
/// Routes count if they name the request's host or no host. The longest path wins; among equal paths, the route that
/// names the host most closely. A path that ends in `/` answers everything below it and, without the slash, a redirect
/// to itself. Any other path answers itself and everything below it.
pub fn find_route<'c, 'p>(
    routes: &'c [Arc<Route>],
    host: &str,
    path: &'p [u8],
) -> Option<Match<'c, 'p>> {
    let (index, kind) = find_index(routes.iter().map(Arc::as_ref), host, path)?;
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
        limit: None,
    })
}

/// Whether another route than `own` answers for the file `name` in the folder at `path`, which ends in `/` and is below
/// `own`. For nearly every folder no other route begins there, and then nothing is allocated.
pub fn leads_on(
    routes: &[Arc<Route>],
    host: &str,
    own: &Arc<Route>,
    (path, name): (&[u8], &str),
) -> bool {
    let begins = |route: &&Arc<Route>| {
        let Some(rest) = route.path.as_bytes().strip_prefix(path) else {
            return false;
        };
        let rest = rest.strip_suffix(b"/").unwrap_or(rest);
        if rest.is_empty() {
            route.names.is_some() && route.answers_name(name.as_bytes())
        } else {
            name.as_bytes().starts_with(rest)
        }
    };
    if !routes.iter().any(|route| begins(&route)) {
        return false;
    }
    let whole = [path, name.as_bytes()].concat();
    let found = find_route(routes, host, &whole).map(|found| found.route);
    // In the folder of a host, `find_route` may return a route behind that folder, which answers for neither.
    found
        .filter(begins)
        .is_some_and(|route| !Arc::ptr_eq(route, own))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteMatch {
    /// The path is the route's own or below it.
    Below,
    /// The path is the route's without its last slash.
    Slashless,
}

/// Returns the index of the route that answers; `routes` come in the order of the configuration.
pub(crate) fn find_index<'c>(
    routes: impl Iterator<Item = &'c Route> + Clone,
    host: &str,
    path: &[u8],
) -> Option<(usize, RouteMatch)> {
    let mut slashless = None;
    for (index, route) in routes.clone().enumerate() {
        let Some(fit) = host_closeness(route, host) else {
            continue;
        };
        match match_path(route, path) {
            // If the request is for `/docs`, a route at `/docs` is nearer than the folder `/docs/`.
            Some(RouteMatch::Below) if slashless.is_none() || route.path.as_bytes() == path => {
                let index = closest(routes, host, (index, route, fit));
                return Some((index, RouteMatch::Below));
            }
            Some(RouteMatch::Slashless) if slashless.is_none() => {
                slashless = Some((index, route, fit));
            }
            _ => {}
        }
    }
    let index = closest(routes, host, slashless?);
    Some((index, RouteMatch::Slashless))
}

/// Looks for a later route with the same path that names the host more closely than a wildcard does.
fn closest<'c>(
    routes: impl Iterator<Item = &'c Route>,
    host: &str,
    (index, route, fits): (usize, &Route, usize),
) -> usize {
    if matches!(fits, 0 | Hosts::EXACT) {
        return index;
    }
    let same = |other: &&Route| (&other.path, &other.names) == (&route.path, &route.names);
    let mut best = (fits, index);
    for (at, other) in routes.skip(index).take_while(same).enumerate() {
        match host_closeness(other, host) {
            Some(fit) if fit > best.0 => best = (fit, index + at),
            _ => {}
        }
    }
    best.1
}

/// Returns how closely the route names that host; `None`: the host is not among its hosts.
fn host_closeness(route: &Route, host: &str) -> Option<usize> {
    match &route.host {
        None => Some(0),
        Some(hosts) => hosts.match_closeness(bare_host(host)),
    }
}

fn match_path(route: &Route, path: &[u8]) -> Option<RouteMatch> {
    let own = route.path.as_bytes();
    let folder = own.ends_with(b"/");
    match path.strip_prefix(own) {
        Some(rest) => {
            let below = folder || matches!(rest, [] | [b'/', ..]);
            (below && route.answers_name(rest)).then_some(RouteMatch::Below)
        }
        // A constant answer has no folder to be redirected into.
        None if folder
            && route.names.is_none()
            && !matches!(route.handler, Handler::Respond(_)) =>
        {
            (own.strip_suffix(b"/") == Some(path)).then_some(RouteMatch::Slashless)
        }
        None => None,
    }
}

/// Removes the port, and the dot at the end of a full name, from a host.
fn bare_host(host: &str) -> &str {
    let digits = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    let bare = match host.rsplit_once(':') {
        Some((bare, port)) if digits(port) && (bare.ends_with(']') || !bare.contains(':')) => bare,
        _ => host,
    };
    bare.strip_suffix('.').unwrap_or(bare)
}

/// A route, and the program in its folder.
#[derive(Debug)]
pub struct Owned<'c, 'p> {
    /// The route.
    pub route: &'c Arc<Route>,
    /// The part of the path below the route, without a leading slash. If the request has another path, the part below
    /// the route's folder.
    pub rest: Vec<u8>,
    /// The program.
    pub found: Result<(&'c Arc<Cgi>, FoundProgram<'p>), Fault>,
}

/// Finds the program whose file a front server names. The file must be in the folder of a `cgi` route of this host, or
/// be the only program of such a route; the innermost folder wins. `path` is the request's. `None`: no route has such a
/// folder.
pub fn find_named_program<'c, 'p>(
    routes: &'c [Arc<Route>],
    host: &str,
    path: &[u8],
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
        let cgi = route.programs()?;
        let own = cgi.root.path().as_os_str().as_bytes();
        let below = file.strip_prefix(own)?;
        let inside = match cgi.root {
            CgiRoot::Folder { .. } => below.strip_prefix(b"/")?,
            CgiRoot::Program { .. } if below.is_empty() || below.starts_with(b"/") => below,
            CgiRoot::Program { .. } => return None,
        };
        let name = inside.strip_prefix(b"/").unwrap_or(inside);
        let answers = host_closeness(route, host).is_some() && route.answers_name(name);
        // Among equal folders, the route that answers the request's path wins: its rules are meant.
        let asked = match_path(route, path) == Some(RouteMatch::Below);
        answers.then_some(((own.len(), asked), route, cgi, inside))
    };
    let ((_, asked), route, cgi, below) = routes
        .iter()
        .filter_map(owns)
        // Among equals, the first route wins.
        .reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    let rest = if asked {
        path.get(route.path.len()..).unwrap_or_default()
    } else {
        below
    };
    let found = script::find_program_below(cgi, &route.path, below, named);
    Some(Owned {
        route,
        rest: rest.strip_prefix(b"/").unwrap_or(rest).to_vec(),
        found: found.map(|found| (cgi, found)),
    })
}

#[cfg(test)]
mod tests;
