//! From host and path to a route, and from the file that a front server names to a program.

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
use galgo_proto::{glob::Glob, hosts::Hosts};
use galgo_service::{admission::ConcurrencyLimit, fault::Fault, log::own::OwnLog, request::Named};
use galgo_spawn::owners::Remit;

/// A route: what answers under a path.
#[derive(Debug, PartialEq)]
pub struct Route {
    /// Hosts it is limited to.
    pub host: Option<Hosts>,
    /// Path it answers: a prefix where it ends in `/`, otherwise this path and what is below it (`/path/…`).
    pub path: String,
    /// Only names right below the path that fit, and what is below those.
    pub names: Option<Glob>,
    /// The program that is asked first whether the request may be answered; `None`: none.
    pub authorizer: Option<Authorizer>,
    /// What stands before and after the handler; `None`: nothing.
    pub steps: Option<Box<Steps>>,
    /// Programs in a folder of files; `None`: there are none.
    pub among_files: Option<Arc<Cgi>>,
    /// How often an address may ask; `None`: as often as it likes.
    pub rate_limit: Option<RateLimit>,
    /// Where its requests are logged; `None`: in the server's access log.
    pub log: Option<Arc<OwnLog>>,
    /// What answers.
    pub handler: Handler,
}

impl fmt::Display for Route {
    /// `git.example.org/cgi-bin/`; of several hosts the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_ref().map_or("", Hosts::first);
        let names = self.names.as_ref().map_or("", Glob::as_str);
        write!(f, "{host}{}{names}", self.path)
    }
}

/// Who says whether a request may be answered.
#[derive(Debug, PartialEq)]
pub enum Authorizer {
    /// A FastCGI application.
    Application(Box<Application>),
    /// A program.
    Program(Arc<Cgi>),
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
    /// A route on every host, without steps.
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

    /// Whether what is right below the path is of the route. `rest` is what is below the path, without a leading slash.
    pub fn answers_name(&self, rest: &[u8]) -> bool {
        let Some(glob) = &self.names else {
            return true;
        };
        let name = rest.split(|&b| b == b'/').next().unwrap_or_default();
        glob.fits(name)
    }

    /// Its programs, also those in a folder of files.
    pub fn programs(&self) -> Option<&Arc<Cgi>> {
        match &self.handler {
            Handler::Cgi(cgi) => Some(cgi),
            _ => self.among_files.as_ref(),
        }
    }

    /// The applications that it asks.
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

    /// What helpers start for it.
    pub fn remits(&self) -> impl Iterator<Item = &Arc<Remit>> {
        let of_programs = self.programs().and_then(|cgi| cgi.remit.as_ref());
        let of_workers = self.upstreams().filter_map(|up| up.remit.as_ref());
        let of_judge = self.judge().and_then(|cgi| cgi.remit.as_ref());
        of_programs.into_iter().chain(of_judge).chain(of_workers)
    }

    /// Whether the server itself starts programs or workers of it: no helper does.
    pub fn starts_here(&self) -> bool {
        let mut programs = self.programs().into_iter().chain(self.judge());
        let is_started = |up: &Application| matches!(up.to, To::Workers(_));
        programs.any(|cgi| cgi.remit.is_none())
            || self
                .upstreams()
                .any(|up| is_started(up) && up.remit.is_none())
    }

    /// The program that is asked first.
    pub fn judge(&self) -> Option<&Arc<Cgi>> {
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
    /// The path is that of a folder without its last slash: answer 301 to the same path with it.
    pub slash_missing: bool,
    /// Permits for its programs, where those are not known by the route.
    pub limit: Option<&'c Arc<ConcurrencyLimit>>,
}

/// Finds the route for a clean path. `host` is the request's host, with or without a port, in any
/// letter case; empty where there is none.
///
/// Among the routes whose host is the request's, or which have none, the longest path wins; of equal
/// paths the one that names the host most closely. A path that ends in `/` answers everything below it and, without the
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
        limit: None,
    })
}

/// Whether another route than `own` answers for the file `name` in the folder at `path`, which ends in `/` and is below
/// `own`. Nothing is allocated where no route begins there: that is so of nearly every folder.
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
    let found = find(routes, host, &whole).map(|found| found.route);
    // Of the folder of a host it may be the route behind that, which answers neither.
    found
        .filter(begins)
        .is_some_and(|route| !Arc::ptr_eq(route, own))
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
    routes: impl Iterator<Item = &'c Route> + Clone,
    host: &str,
    path: &[u8],
) -> Option<(usize, RouteMatch)> {
    let mut slashless = None;
    for (index, route) in routes.clone().enumerate() {
        let Some(fit) = fit(route, host) else {
            continue;
        };
        match kind(route, path) {
            // `/docs` typed as a path of its own is nearer to `/docs` than the folder `/docs/` is.
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

/// Behind a route with a wildcard may stand one with the same path that names the host more closely.
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
        match fit(other, host) {
            Some(fit) if fit > best.0 => best = (fit, index + at),
            _ => {}
        }
    }
    best.1
}

/// How closely the route names that host; `None`: it is not one of its hosts.
fn fit(route: &Route, host: &str) -> Option<usize> {
    match &route.host {
        None => Some(0),
        Some(hosts) => hosts.fit(name(host)),
    }
}

fn kind(route: &Route, path: &[u8]) -> Option<RouteMatch> {
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
#[derive(Debug)]
pub struct Owned<'c, 'p> {
    /// The route.
    pub route: &'c Arc<Route>,
    /// What is below its path, without a leading slash; what is below its folder, where the request has another path.
    pub rest: Vec<u8>,
    /// The program.
    pub found: Result<(&'c Arc<Cgi>, FoundProgram<'p>), Fault>,
}

/// Finds the program that a front server names by its file, in a folder of a `cgi` route of this host, or as its one
/// program: the innermost folder counts. `path` is the request's. `None`: no route has such a folder.
pub fn named<'c, 'p>(
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
        let answers = fit(route, host).is_some() && route.answers_name(name);
        // Of equal folders the one that is asked for by its path: its rules are meant.
        let asked = kind(route, path) == Some(RouteMatch::Below);
        answers.then_some(((own.len(), asked), route, cgi, inside))
    };
    let ((_, asked), route, cgi, below) = routes
        .iter()
        .filter_map(owns)
        // Else the route that is tried first.
        .reduce(|a, b| if b.0 > a.0 { b } else { a })?;
    let rest = if asked {
        path.get(route.path.len()..).unwrap_or_default()
    } else {
        below
    };
    let found = script::inside(cgi, &route.path, below, named);
    Some(Owned {
        route,
        rest: rest.strip_prefix(b"/").unwrap_or(rest).to_vec(),
        found: found.map(|found| (cgi, found)),
    })
}

#[cfg(test)]
mod tests;
