//! From what was typed to what is served, part two: routes.

use std::{cmp::Reverse, sync::Arc};

use toml::Spanned;

use super::{
    checked::{CgiRoot, Config, Handler, Placed, Protocol, Route},
    cover,
    error::Checked,
    error::ConfigText,
    raw::{self, Raw, RawConfig, RawRoute},
    userdir,
};

const HANDLERS: &str = "`cgi`, `fastcgi`, `scgi`, `files`, `respond`";

/// Checks and opens the routes and puts them into `config`, in the order to try them.
pub(super) fn fill(text: &ConfigText<'_>, raw: &RawConfig, config: &mut Config) -> Checked<()> {
    let conventional = match (&raw.route, &raw.userdir) {
        (None, None) => conventional(text),
        _ => Vec::new(),
    };
    let routes = raw
        .route
        .as_ref()
        .map_or(&conventional[..], |routes| routes.get_ref());
    let mut placed = Vec::new();
    for route in routes {
        placed.push((text.route(route, routes, config)?, route.span()));
    }
    if let Some(userdir) = &raw.userdir {
        config.userdir = Some(userdir::fill(text, userdir, config, &mut placed)?);
    }
    if placed.is_empty() {
        return Err(text.whole(config.warnings.first().map_or(NO_ROUTE, String::as_str)));
    }
    sort(&mut placed);
    distinct(text, &placed)?;
    cover::check(text, &placed)?;
    config.routes = placed
        .into_iter()
        .map(|(route, _)| Arc::new(route))
        .collect();
    Ok(())
}

/// What a folder serves without a file ([`Config::convention`]), as if it had been typed: a file that says nothing of
/// routes leaves them as they are.
fn conventional(text: &ConfigText<'_>) -> Vec<Raw> {
    fn typed<T>(value: T) -> Option<Spanned<T>> {
        Some(Spanned::new(0..0, value))
    }
    let present = |name: &str| text.folder.join(name).symlink_metadata().is_ok();
    let programs = present("cgi-bin").then(|| RawRoute {
        path: typed("/cgi-bin/".into()),
        cgi: typed("cgi-bin".into()),
        ..RawRoute::default()
    });
    let files = present("public").then(|| RawRoute {
        path: typed("/".into()),
        files: typed("public".into()),
        ..RawRoute::default()
    });
    let routes = programs.into_iter().chain(files);
    routes.map(|route| Spanned::new(0..0, route)).collect()
}

const NO_ROUTE: &str = "there is no route: add a [[route]] with `path` and one of `cgi`, `fastcgi`, `scgi`, `files`, `respond`";

/// Two routes with the same host and path stand side by side once they are sorted.
fn distinct(text: &ConfigText<'_>, routes: &[Placed]) -> Checked<()> {
    for ((a, at_a), (b, at_b)) in routes.iter().zip(routes.iter().skip(1)) {
        if (&a.path, &a.host) != (&b.path, &b.host) {
            continue;
        }
        let host = a
            .host
            .as_ref()
            .map(|host| format!(" and the host {host:?}"));
        let message = format!(
            "another route has the path {:?}{} already: delete one",
            a.path,
            host.unwrap_or_default()
        );
        let later = if at_a.start > at_b.start { at_a } else { at_b };
        return Err(text.bare(later.clone(), message));
    }
    Ok(())
}

/// The order to try routes in: the longest path first; of equal paths the one with a host first.
fn sort(routes: &mut [Placed]) {
    routes.sort_by(|(a, _), (b, _)| {
        let key = |r: &Route| (Reverse(r.path.len()), r.host.is_none());
        (key(a), &a.path, &a.host).cmp(&(key(b), &b.path, &b.host))
    });
}

impl ConfigText<'_> {
    fn route(&self, raw: &Raw, all: &[Raw], config: &Config) -> Checked<Route> {
        let route = raw.get_ref();
        let host = route
            .host
            .as_ref()
            .map(|host| self.host(host))
            .transpose()?;
        let handler = self.handler(raw, all, config)?;
        let Some(path) = &route.path else {
            return Err(self.bare(raw.span(), "this route has no `path`: add path = \"/…\""));
        };
        let path = shape(self.url_path(path)?, &handler);
        let authorizer = route.authorizer.as_ref();
        Ok(Route {
            host,
            path,
            authorizer: authorizer
                .map(|to| self.authorizer(to, config))
                .transpose()?,
            handler,
        })
    }

    fn handler(&self, raw: &Raw, all: &[Raw], config: &Config) -> Checked<Handler> {
        let route = raw.get_ref();
        let upstream = |protocol, to| self.upstream(route, protocol, to, all, config);
        let mut handlers = Vec::new();
        if let Some(cgi) = &route.cgi {
            handlers.push(Handler::Cgi(Arc::new(self.cgi(route, cgi, all, config)?)));
        }
        if let Some(to) = &route.fastcgi {
            handlers.push(Handler::Upstream(Arc::new(upstream(
                Protocol::Fastcgi,
                to,
            )?)));
        }
        if let Some(to) = &route.scgi {
            handlers.push(Handler::Upstream(Arc::new(upstream(Protocol::Scgi, to)?)));
        }
        if let Some(files) = &route.files {
            handlers.push(Handler::Files(self.files(route, files, config)?));
        }
        if let Some(respond) = &route.respond {
            handlers.push(self.respond(route, respond)?);
        }
        let fail = |what| {
            let message = format!("this route has {what} one of {HANDLERS}");
            Err(self.bare(raw.span(), message))
        };
        match (handlers.pop(), handlers.len()) {
            (Some(handler), 0) => Ok(handler),
            (None, _) => fail("no handler: give it"),
            _ => fail("more than one handler: keep"),
        }
    }

    /// A host as it comes in requests: lower case, no port.
    fn host(&self, typed: &raw::Text) -> Checked<String> {
        let host = typed.get_ref();
        let port = host.rsplit_once(':').is_some_and(|(name, port)| {
            !name.contains(':') | name.ends_with(']') && port.bytes().all(|b| b.is_ascii_digit())
        });
        if port {
            return Err(self.error(typed.span(), "a host has no port here: delete it"));
        }
        let literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let address = literal.is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
        let name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let good = !host.is_empty() && !host.starts_with('.') && host.bytes().all(name);
        if !address && !good {
            let message =
                format!("{host:?} is not a host name: write it as in \"git.example.org\"");
            return Err(self.error(typed.span(), message));
        }
        Ok(host.trim_end_matches('.').to_ascii_lowercase())
    }

    /// The path of a route is compared with the decoded path of a request.
    fn url_path(&self, typed: &raw::Text) -> Checked<String> {
        let path = typed.get_ref();
        let fail = |message: &str| Err(self.error(typed.span(), format!("{path:?} {message}")));
        if !path.starts_with('/') {
            return fail("does not begin with \"/\"");
        }
        if path.contains("//") {
            return fail("holds an empty segment: write one \"/\"");
        }
        if path
            .split('/')
            .any(|segment| segment == "." || segment == "..")
        {
            return fail(
                "holds a dot segment, which no request is answered by: write the path without it",
            );
        }
        if path.contains(['?', '#', '%']) || path.contains(|c: char| c.is_control()) {
            return fail(
                "holds \"?\", \"#\", \"%\" or a control character: write the decoded path",
            );
        }
        Ok(path.clone())
    }
}

/// Gives a path the ending that its handler needs: a folder is a prefix, a program is not, for
/// SCRIPT_NAME ends in no slash.
fn shape(mut path: String, handler: &Handler) -> String {
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
