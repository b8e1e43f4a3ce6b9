//! Checks the typed configuration, part two: routes.

use std::{cmp::Reverse, ops::Range, path::Path, sync::Arc};

use galgo_proto::hosts::Hosts;
use galgo_spawn::glob::Glob;
use galgo_spawn::trusted_path::others_part;
use toml::Spanned;

use crate::{
    config::{CgiRoot, Config, Handler, Placed, Protocol, RateLimit, Respond, Route},
    config_check::{exposure, logs, userdir},
    config_text::{
        config_error::{Checked, ConfigError, ConfigText},
        host_names::RawHosts,
        raw::{self, Raw, RawConfig, RawRoute, Typed, where_typed},
    },
};

const HANDLERS: &str = "`cgi`, `fastcgi`, `scgi`, `files`, `respond`";

/// Checks and opens the routes and puts them into `config`, in the order to try them. If `all_read` is false, some included
/// file could not be used: errors that its routes might fix are then not reported.
pub(crate) fn fill_routes(
    text: &ConfigText<'_>,
    raw: &RawConfig,
    all_read: bool,
    config: &mut Config,
) -> Checked<()> {
    let conventional = match (&raw.route, &raw.userdir, &raw.include, &raw.sites) {
        (None, None, None, None) => conventional_routes(text),
        _ => Vec::new(),
    };
    let routes = raw.route.as_ref();
    let routes = routes.map_or(&conventional, |routes| routes.get_ref());
    let mut placed = place_routes(text, raw, routes, config)?;
    if !all_read {
        return Ok(());
    }
    // The folders of homes and hosts may come later: who removes a folder must not keep the server from starting.
    if placed.is_empty() && raw.sites.is_none() && raw.userdir.is_none() {
        return Err(text.file_error(config.warnings.first().map_or(NO_ROUTE, String::as_str)));
    }
    sort_routes(&mut placed);
    check_distinct(text, &placed)?;
    let env_files = routes.iter().filter_map(|route| {
        let typed = route.get_ref().env_file.as_ref()?;
        Some((typed, route.span()))
    });
    let env_files =
        env_files.map(|(typed, route)| Ok((text.resolve_path(typed)?, typed.span(), route)));
    let env_files = env_files.collect::<Checked<Vec<_>>>()?;
    // If programs, files or secrets of another account are exposed, only that account's route is to blame: close it and go on.
    while let Err((at, error)) = exposure::check_routes(text, &placed)
        .and_then(|()| exposure::check_host_folders(text, raw, config, &placed))
        .and_then(|()| exposure::check_secrets(text, &placed, &env_files, config.sites.as_ref()))
    {
        match (error.closes, placed.get_mut(at)) {
            (Some(status), Some((route, _))) => {
                text.warn_of_closed(&error, status);
                let path = std::mem::take(&mut route.path);
                *route = Route {
                    host: route.host.take(),
                    names: route.names.take(),
                    ..Route::new(path, empty_response(status))
                };
            }
            _ => return Err(error),
        }
    }
    config.log.own = logs::collect_own_logs(&placed);
    let routes = placed.into_iter().map(|(route, _)| Arc::new(route));
    config.routes = routes.collect();
    Ok(())
}

/// Checks and opens the routes, including the routes to homes. Reports all errors at once.
fn place_routes(
    text: &ConfigText<'_>,
    raw: &RawConfig,
    routes: &[Raw],
    config: &mut Config,
) -> Checked<Vec<Placed>> {
    let mut placed = Vec::new();
    let mut wrong = Vec::new();
    for route in routes {
        let mut warnings = Vec::new();
        match text.check_route(route, routes, config, &mut warnings) {
            Ok(checked) => placed.push((checked, route.span())),
            Err(e) => match text.closed_route(route.get_ref(), e) {
                Ok(closed) => placed.push((closed, route.span())),
                Err(e) => wrong.push(e),
            },
        }
        // Two routes may name the same file.
        warnings.retain(|warning| !config.warnings.contains(warning));
        config.warnings.extend(warnings);
    }
    if let Some(userdir) = &raw.userdir {
        match userdir::add_home_routes(text, userdir, config, &mut placed) {
            Ok(userdir) => config.userdir = Some(userdir),
            Err(e) => wrong.push(e),
        }
    }
    ConfigError::join_errors(wrong).map_or(Ok(placed), Err)
}

/// Returns a handler that answers with `status` and no body.
pub(crate) fn empty_response(status: u16) -> Handler {
    Handler::Respond(Respond {
        status,
        content_type: None,
        headers: Vec::new(),
        body: Arc::from([]),
    })
}

/// Returns the routes of a folder without a file ([`Config::from_convention`]), as if they had been typed. A file that says nothing
/// about routes gets them, too.
fn conventional_routes(text: &ConfigText<'_>) -> Vec<Raw> {
    fn as_typed<T>(value: T) -> Option<Spanned<T>> {
        Some(Spanned::new(0..0, value))
    }
    let present = |name: &str| {
        text.source_folder(&(0..0))
            .join(name)
            .symlink_metadata()
            .is_ok()
    };
    let programs = present("cgi-bin").then(|| RawRoute {
        path: as_typed("/cgi-bin/".into()),
        cgi: as_typed("cgi-bin".into()),
        ..RawRoute::default()
    });
    let files = present("public").then(|| RawRoute {
        path: as_typed("/".into()),
        files: as_typed("public".into()),
        ..RawRoute::default()
    });
    let routes = programs.into_iter().chain(files);
    routes.map(|route| Spanned::new(0..0, route)).collect()
}

/// The error about `root` alone: nginx has a `root` with another meaning.
const ROOT_ALONE: &str = "is the folder of an application's scripts, beside `fastcgi` or `scgi`: for files write files = \"public\"";

const NO_ROUTE: &str = "there is no route: add a [[route]] with `path` and one of `cgi`, `fastcgi`, `scgi`, `files`, `respond`";

/// Checks that no two routes have the same path and host.
fn check_distinct(text: &ConfigText<'_>, routes: &[Placed]) -> Checked<()> {
    let pairs = routes.iter().enumerate().flat_map(|(at, a)| {
        // After sorting, routes with the same path are neighbours.
        let others = routes.iter().skip(at + 1);
        let same = others.take_while(move |(b, _)| b.path == a.0.path);
        same.map(move |b| (a, b))
    });
    for ((a, at_a), (b, at_b)) in pairs {
        let Some(host) = shared_host(a, b) else {
            continue;
        };
        let path = &a.path;
        let names = a.names.as_ref().map_or("", Glob::as_str);
        let message = match host {
            "" => format!("another route has the path \"{path}{names}\" already: delete one"),
            host => format!(
                "another route has the path \"{path}{names}\" and the host {host:?} already: delete one"
            ),
        };
        // If the routes come from two files, blame the file that another account can change.
        let blame = |at: &&Range<usize>| (text.is_in_others_file(at), at.start);
        let later = [at_a, at_b].into_iter().max_by_key(blame).unwrap_or(at_b);
        return Err(text.keyless_error(later.clone(), message));
    }
    Ok(())
}

/// Returns a host that two routes with the same path both name; empty if both answer on every host.
fn shared_host<'r>(a: &'r Route, b: &Route) -> Option<&'r str> {
    if (&a.path, &a.names) != (&b.path, &b.names) {
        return None;
    }
    match (&a.host, &b.host) {
        (None, None) => Some(""),
        (Some(a), Some(b)) => a.names().find(|name| b.names().any(|other| other == *name)),
        _ => None,
    }
}

/// Sorts routes into the order to try them: the longest path first, and a pattern for names before the whole folder. Among
/// equal paths, routes with a host come first, and hosts without wildcards before wildcards.
fn sort_routes(routes: &mut [Placed]) {
    routes.sort_by(|(a, _), (b, _)| {
        let path = |r: &Route| (Reverse(r.path.len()), r.path.clone());
        let names = |r: &Route| (r.names.is_none(), r.names.clone());
        let wide = |r: &Route| r.host.as_ref().is_none_or(Hosts::has_wildcard);
        let host = |r: &Route| (r.host.is_none(), wide(r), r.host.clone());
        (path(a), names(a), host(a)).cmp(&(path(b), names(b), host(b)))
    });
}

impl ConfigText<'_> {
    /// Returns a route that answers in place of a route that another account's file or folder keeps from being used.
    ///
    /// # Errors
    /// `error`, if the operator is to blame.
    fn closed_route(&self, raw: &RawRoute, error: ConfigError) -> Checked<Route> {
        let programs = raw.cgi.as_ref().or(raw.root.as_ref());
        let is_file = |path: &Path| CgiRoot::open(path).is_ok_and(|root| root.folder() != path);
        let error = match programs.map(|typed| self.resolve_path(typed)).transpose()? {
            // Another account may have put a file in the place of a folder.
            Some(path) if error.closes.is_none() && is_file(&path) => {
                self.mark_owner(error, &path, 403)
            }
            _ => error,
        };
        let (Some(status), Some(path)) = (error.closes, &raw.path) else {
            return Err(error);
        };
        let (path, names) = self.check_url_path(path)?;
        self.warn_of_closed(&error, status);
        Ok(Route {
            host: self.check_hosts(&raw.host)?,
            names,
            ..Route::new(path, empty_response(status))
        })
    }

    fn check_route(
        &self,
        raw: &Raw,
        all: &[Raw],
        config: &Config,
        warnings: &mut Vec<String>,
    ) -> Checked<Route> {
        let route = raw.get_ref();
        let host = self.check_hosts(&route.host)?;
        let handler = self.check_handler(raw, all, config)?;
        let Some(path) = &route.path else {
            return Err(
                self.keyless_error(raw.span(), "this route has no `path`: add path = \"/…\"")
            );
        };
        let (own, names) = self.check_url_path(path)?;
        if names.is_some() && !adjust_last_slash("/a/".into(), &handler).ends_with('/') {
            return Err(self.error_at(
                path.span(),
                "\"*\" matches names in a folder, but this route is one program: write a path without \"*\"",
            ));
        }
        if let Some(files) = route.files.as_ref().filter(|_| names.is_none()) {
            self.is_no_file(path, &own, files)?;
        }
        Ok(Route {
            host,
            path: adjust_last_slash(own, &handler),
            names,
            among_files: self.check_programs_among_files(route, all, config)?,
            authorizer: where_typed(&route.authorizer, |to| self.check_authorizer(to, config))?,
            steps: self.check_steps(route, config, warnings)?,
            rate_limit: self
                .check_rate_limit(&route.rate_limit, config.rate_limit)?
                .map(RateLimit::new),
            log: self.check_own_log(route, config)?,
            handler,
        })
    }

    fn check_handler(&self, raw: &Raw, all: &[Raw], config: &Config) -> Checked<Handler> {
        let route = raw.get_ref();
        let cgi = |cgi: &_| self.check_cgi(route, cgi, all, config).map(Arc::new);
        let upstream = |protocol, to: &_| {
            let app = self.check_upstream(route, protocol, to, all, config)?;
            Ok(Handler::Upstream(Arc::new(app)))
        };
        let files = |files: &_| self.check_files(route, files, config).map(Handler::Files);
        let handlers = [
            where_typed(&route.cgi, cgi)?.map(Handler::Cgi),
            where_typed(&route.fastcgi, |to| upstream(Protocol::Fastcgi, to))?,
            where_typed(&route.scgi, |to| upstream(Protocol::Scgi, to))?,
            where_typed(&route.files, files)?,
            where_typed(&route.respond, |respond| self.check_respond(route, respond))?,
        ];
        let mut handlers = handlers.into_iter().flatten();
        let fail = |what| {
            let message = format!("this route has {what} one of {HANDLERS}");
            Err(self.keyless_error(raw.span(), message))
        };
        match (handlers.next(), handlers.next()) {
            (Some(handler), None) => Ok(handler),
            (None, _) => {
                if let Some(handler) = self.redirect_only_handler(route) {
                    return Ok(handler);
                }
                self.refuse(route.root.as_ref().map(Spanned::span), ROOT_ALONE)?;
                fail("no handler: add")
            }
            (Some(_), Some(_)) => fail("more than one handler: keep"),
        }
    }

    pub(crate) fn check_hosts(&self, typed: &Typed<RawHosts>) -> Checked<Option<Hosts>> {
        let Some(typed) = typed else {
            return Ok(None);
        };
        let names = RawHosts::list_hosts(typed);
        let names = names.iter().map(|name| self.check_host(name));
        let hosts = Hosts::new(names.collect::<Checked<_>>()?);
        let none = || self.error_at(typed.span(), "names no host: add one, or delete the key");
        hosts.map(Some).ok_or_else(none)
    }

    /// Checks a host and returns it as requests have it: lower case, no port.
    fn check_host(&self, typed: &raw::Text) -> Checked<String> {
        let host = typed.get_ref();
        let port = host.rsplit_once(':').is_some_and(|(name, port)| {
            !name.contains(':') | name.ends_with(']') && port.bytes().all(|b| b.is_ascii_digit())
        });
        if port {
            return Err(self.error_at(
                typed.span(),
                "a host is written without a port: delete the port",
            ));
        }
        let literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let address = literal.is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
        let name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let plain = host.strip_prefix("*.").unwrap_or(host);
        let good = !plain.is_empty() && !plain.starts_with('.') && plain.bytes().all(name);
        if !address && !good {
            let message = format!(
                "{host:?} is not a host name: write it as in \"git.example.org\" or \"*.example.org\""
            );
            return Err(self.error_at(typed.span(), message));
        }
        Ok(host.trim_end_matches('.').to_ascii_lowercase())
    }

    /// Refuses the path of a file for a folder: settings that are meant for that file would not hold for it.
    fn is_no_file(&self, typed: &raw::Text, own: &str, files: &raw::Text) -> Checked<()> {
        let name = &own[own.rfind('/').map_or(0, |at| at + 1)..];
        let file = self.resolve_path(files)?.join(name);
        if name.is_empty() || others_part(&file).is_some() || !file.is_file() {
            return Ok(());
        }
        let message = format!(
            "{own:?} is a file, and `files` serves a folder: write \"{own}*\" for that name in it, or \"{own}/\" for another folder"
        );
        Err(self.error_at(typed.span(), message))
    }

    /// Checks the path of a route, which is compared with the decoded path of a request.
    ///
    /// If the last segment of the path has a `*`, this segment is a pattern for names.
    fn check_url_path(&self, typed: &raw::Text) -> Checked<(String, Option<Glob>)> {
        let path = typed.get_ref();
        let fail = |message: &str| Err(self.error_at(typed.span(), format!("{path:?} {message}")));
        if !path.starts_with('/') {
            return fail("does not begin with \"/\"");
        }
        if path.contains("//") {
            return fail("holds an empty segment: write one \"/\"");
        }
        if path.split('/').any(|name| matches!(name, "." | "..")) {
            return fail(
                "holds a segment \".\" or \"..\", which matches no request: write the path without it",
            );
        }
        if path.contains(['?', '#', '%']) || path.contains(|c: char| c.is_control()) {
            return fail(
                "holds \"?\", \"#\", \"%\" or a control character: write the decoded path",
            );
        }
        let Some(star) = path.find('*') else {
            return Ok((path.clone(), None));
        };
        let last = path.rfind('/').map_or(0, |at| at + 1);
        match Glob::parse(&path[last..]) {
            Some(names) if last <= star => Ok((path[..last].to_owned(), Some(names))),
            _ => fail("has a \"*\" before its last segment: write it as in \"/app/*.cgi\""),
        }
    }
}

/// Adds or removes the last slash, as the handler needs it. A folder is a prefix; a program is not, because SCRIPT_NAME does
/// not end in a slash.
fn adjust_last_slash(mut path: String, handler: &Handler) -> String {
    let folder = match handler {
        Handler::Cgi(cgi) => matches!(cgi.root, CgiRoot::Folder { .. }),
        Handler::Upstream(up) => match &up.scripts {
            Some(root) => matches!(root, CgiRoot::Folder { .. }),
            None => return path,
        },
        Handler::Files(_) => true,
        Handler::Respond(_) => return path,
    };
    if folder && !path.ends_with('/') {
        path.push('/');
    }
    if !folder && path.len() > 1 && path.ends_with('/') {
        path.pop();
    }
    path
}
