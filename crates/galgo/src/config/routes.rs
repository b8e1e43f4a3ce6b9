//! From what was typed to what is served, part two: routes.

use std::{
    cmp::Reverse,
    fmt::Display,
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use toml::Spanned;

use super::{
    Cgi, CgiRoot, Config, ConfigError, Files, Handler, Respond, Route,
    check::flag,
    cover,
    error::Text,
    folder,
    raw::{self, RawConfig, RawRespond, RawRoute},
    userdir,
};

type Checked<X> = Result<X, ConfigError>;
type Raw = Spanned<RawRoute>;

/// Bytes of a file that a `respond` route keeps in memory.
const MAX_RESPOND: u64 = 16 << 20;

/// A route and where it was typed.
pub(super) type Placed = (Route, Range<usize>);

/// Checks and opens the routes and puts them into `config`, in the order to try them.
pub(super) fn fill(text: &Text<'_>, raw: &RawConfig, config: &mut Config) -> Checked<()> {
    let routes = raw
        .route
        .as_ref()
        .map_or(&[][..], |routes| routes.get_ref());
    let mut placed = Vec::new();
    for route in routes {
        placed.push((text.route(route, routes, config)?, route.span()));
    }
    if let Some(userdir) = &raw.userdir {
        config.userdir = Some(userdir::fill(text, userdir, config, &mut placed)?);
    }
    if placed.is_empty() {
        return Err(text.whole(
            "there is no route: add a [[route]] with `path` and one of `cgi`, `files`, `respond`",
        ));
    }
    sort(&mut placed);
    for pair in placed.windows(2) {
        if pair[0].0.path == pair[1].0.path && pair[0].0.host == pair[1].0.host {
            let at = pair[0].1.start.max(pair[1].1.start);
            let at = if pair[0].1.start == at {
                &pair[0].1
            } else {
                &pair[1].1
            };
            let message = format!(
                "another route has the path {:?}{} already: delete one",
                pair[0].0.path,
                pair[0]
                    .0
                    .host
                    .as_ref()
                    .map(|host| format!(" and the host {host:?}"))
                    .unwrap_or_default()
            );
            return Err(text.bare(at.clone(), message));
        }
    }
    cover::check(text, &placed)?;
    config.routes = placed
        .into_iter()
        .map(|(route, _)| Arc::new(route))
        .collect();
    Ok(())
}

/// The order to try routes in: the longest path first; of equal paths the one with a host first.
fn sort(routes: &mut [Placed]) {
    routes.sort_by(|(a, _), (b, _)| {
        let key = |r: &Route| (Reverse(r.path.len()), r.host.is_none());
        (key(a), &a.path, &a.host).cmp(&(key(b), &b.path, &b.host))
    });
}

impl Text<'_> {
    fn route(&self, raw: &Raw, all: &[Raw], config: &Config) -> Checked<Route> {
        let route = raw.get_ref();
        let host = route
            .host
            .as_ref()
            .map(|host| self.host(host))
            .transpose()?;
        let handler = match (&route.cgi, &route.files, &route.respond) {
            (Some(cgi), None, None) => Handler::Cgi(self.cgi(route, cgi, all, config)?),
            (None, Some(files), None) => Handler::Files(self.files(route, files)?),
            (None, None, Some(respond)) => self.respond(route, respond)?,
            (None, None, None) => {
                let message = "this route has no handler: give it one of `cgi`, `files`, `respond`";
                return Err(self.bare(raw.span(), message));
            }
            _ => {
                let message =
                    "this route has more than one handler: keep one of `cgi`, `files`, `respond`";
                return Err(self.bare(raw.span(), message));
            }
        };
        let Some(path) = &route.path else {
            return Err(self.bare(raw.span(), "this route has no `path`: add path = \"/…\""));
        };
        let path = shape(self.url_path(path)?, &handler);
        Ok(Route {
            host,
            path,
            handler,
        })
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
            return fail("holds a dot segment, which no request has: write the path without it");
        }
        if path.contains(['?', '#', '%']) || path.contains(|c: char| c.is_control()) {
            return fail(
                "holds \"?\", \"#\", \"%\" or a control character: write the decoded path",
            );
        }
        Ok(path.clone())
    }

    fn cgi(
        &self,
        route: &RawRoute,
        typed: &raw::Text,
        all: &[Raw],
        config: &Config,
    ) -> Checked<Cgi> {
        self.only_for_files(route, "cgi")?;
        let path = self.path(typed)?;
        let root = CgiRoot::open(&path).map_err(|e| self.unopened(typed, &path, &e))?;
        let document_root = self
            .document_root(route, all)?
            .unwrap_or_else(|| root.folder().to_owned());
        Ok(Cgi {
            root,
            document_root,
            env: self.env(route)?,
            interpreters: config.interpreters.clone(),
            options: self.options(&route.options(), &config.options)?,
        })
    }

    /// The folder of the `/` files route of the same host, else of any host.
    fn document_root(&self, route: &RawRoute, all: &[Raw]) -> Checked<Option<PathBuf>> {
        let host = |r: &RawRoute| r.host.as_ref().map(|h| h.get_ref().to_ascii_lowercase());
        let at_top = |r: &&RawRoute| r.path.as_ref().is_some_and(|p| p.get_ref() == "/");
        let top = || {
            all.iter()
                .map(Spanned::get_ref)
                .filter(at_top)
                .filter(|r| r.files.is_some())
        };
        let same = top().find(|r| host(r) == host(route));
        let found = same.or_else(|| top().find(|r| r.host.is_none()));
        found
            .and_then(|r| r.files.as_ref())
            .map(|files| self.path(files))
            .transpose()
    }

    fn env(&self, route: &RawRoute) -> Checked<Vec<(String, String)>> {
        let mut env = Vec::new();
        for (name, value) in route.env.iter().flat_map(|map| map.get_ref()) {
            let text = name.get_ref();
            let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            let digit_first = text.bytes().next().is_none_or(|b| b.is_ascii_digit());
            if digit_first || !text.bytes().all(letter) {
                let message = format!(
                    "env: {text:?} is not the name of a variable: letters, digits and \"_\""
                );
                return Err(self.bare(name.span(), message));
            }
            if galgo_proto::vars::is_computed(text) {
                let message = format!(
                    "env: {text} is computed for each request and cannot be set: delete it"
                );
                return Err(self.bare(name.span(), message));
            }
            env.push((text.clone(), self.no_nul(value)?));
        }
        Ok(env)
    }

    fn files(&self, route: &RawRoute, typed: &raw::Text) -> Checked<Files> {
        self.only_for_cgi(route, "files")?;
        let path = self.path(typed)?;
        let mut files = Files::open(&path).map_err(|e| self.unopened(typed, &path, &e))?;
        if let Some(index) = &route.index {
            files.index = index
                .get_ref()
                .iter()
                .map(|name| self.index(name))
                .collect::<Checked<_>>()?;
        }
        files.listing = flag(&route.listing, files.listing);
        files.precompressed = flag(&route.precompressed, files.precompressed);
        for (ending, media) in route.types.iter().flat_map(|map| map.get_ref()) {
            let name = ending
                .get_ref()
                .strip_prefix('.')
                .unwrap_or(ending.get_ref());
            if name.is_empty() || name.contains('/') {
                return Err(self.bare(ending.span(), "types: an ending is written as in \"wasm\""));
            }
            files
                .types
                .push((name.to_ascii_lowercase(), self.media_type(media)?));
        }
        if let Some(media) = &route.default_type {
            files.default_type = self.media_type(media)?;
        }
        files.headers = self.headers(&route.headers)?;
        Ok(files)
    }

    fn index(&self, name: &raw::Text) -> Checked<String> {
        let text = name.get_ref();
        if text.is_empty() || text.starts_with('.') || text.contains(['/', '\0']) {
            let message =
                format!("{text:?} is not the name of a file: write it as in \"index.html\"");
            return Err(self.error(name.span(), message));
        }
        Ok(text.clone())
    }

    fn respond(&self, route: &RawRoute, typed: &Spanned<RawRespond>) -> Checked<Handler> {
        self.only_for_cgi(route, "respond")?;
        self.only_for_files(route, "respond")?;
        let raw = typed.get_ref();
        let status = self.status(raw)?;
        let (body, guess) = match (&raw.body, &raw.file) {
            (None, None) => (Vec::new(), None),
            (Some(body), None) => (
                body.get_ref().clone().into_bytes(),
                Some("text/plain; charset=utf-8".to_owned()),
            ),
            (None, Some(file)) => {
                let guess = mime_guess::from_path(file.get_ref()).first_or_octet_stream();
                (self.constant(file)?, Some(guess.to_string()))
            }
            (Some(_), Some(file)) => {
                return Err(self.error(file.span(), "stands beside `body`: keep one of them"));
            }
        };
        if matches!(status, 204 | 304) && !body.is_empty() {
            let message = format!("a response with status {status} has no body: delete it");
            return Err(self.bare(typed.span(), message));
        }
        let content_type = match &raw.r#type {
            Some(media) => Some(self.media_type(media)?),
            None => guess,
        };
        let headers = self.headers(&raw.headers)?;
        Ok(Handler::Respond(Respond {
            status,
            content_type,
            headers,
            body: body.into(),
        }))
    }

    fn status(&self, raw: &RawRespond) -> Checked<u16> {
        let Some(typed) = &raw.status else {
            return Ok(200);
        };
        let status = u16::try_from(typed.get_ref().0.0).ok();
        let message = "is not a final status: 200 to 599";
        status
            .filter(|s| (200..=599).contains(s))
            .ok_or_else(|| self.error(typed.span(), message))
    }

    fn constant(&self, typed: &raw::Text) -> Checked<Vec<u8>> {
        let path = self.path(typed)?;
        let read = || -> io::Result<Vec<u8>> {
            let mut body = Vec::new();
            std::fs::File::open(&path)?
                .take(MAX_RESPOND + 1)
                .read_to_end(&mut body)?;
            Ok(body)
        };
        let body = read().map_err(|e| self.unopened(typed, &path, &e))?;
        if body.len() as u64 > MAX_RESPOND {
            let message = "is larger than 16M, and would be kept in memory: serve it with `files`";
            return Err(self.error(typed.span(), message));
        }
        Ok(body)
    }

    /// A media type, as far as a field value can be spoilt by it.
    fn media_type(&self, typed: &raw::Text) -> Checked<String> {
        let text = typed.get_ref();
        let main = text.split(';').next().unwrap_or_default().trim_end();
        let good = main
            .split_once('/')
            .is_some_and(|(a, b)| token(a) && token(b));
        if !good || !field_value(text) {
            let message = format!("{text:?} is not a media type: write it as in \"text/html\"");
            return Err(self.error(typed.span(), message));
        }
        Ok(text.clone())
    }

    fn headers(&self, typed: &raw::Typed<raw::Map>) -> Checked<Vec<(String, String)>> {
        /// Computed for each response; RFC 9110 and 9112.
        const COMPUTED: [&str; 12] = [
            "connection",
            "content-encoding",
            "content-length",
            "content-range",
            "content-type",
            "date",
            "etag",
            "keep-alive",
            "last-modified",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ];
        let mut headers = Vec::new();
        for (name, value) in typed.iter().flat_map(|map| map.get_ref()) {
            let text = name.get_ref();
            if !token(text) {
                let message = format!("headers: {text:?} is not the name of a field");
                return Err(self.bare(name.span(), message));
            }
            if COMPUTED.contains(&text.to_ascii_lowercase().as_str()) {
                let message = format!("headers: {text} is computed for each response: delete it");
                return Err(self.bare(name.span(), message));
            }
            if !field_value(value.get_ref()) {
                let message =
                    "a field value holds visible ASCII and single spaces around words only";
                return Err(self.error(value.span(), message));
            }
            headers.push((text.clone(), value.get_ref().clone()));
        }
        Ok(headers)
    }

    /// Refuses the keys of `files` on a route of another kind.
    fn only_for_files(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let span = |span: Option<Range<usize>>| span;
        let typed = span(r.index.as_ref().map(Spanned::span))
            .or_else(|| r.listing.as_ref().map(Spanned::span))
            .or_else(|| r.precompressed.as_ref().map(Spanned::span))
            .or_else(|| r.types.as_ref().map(Spanned::span))
            .or_else(|| r.default_type.as_ref().map(Spanned::span))
            .or_else(|| r.headers.as_ref().map(Spanned::span));
        self.misplaced(typed, "files", kind)
    }

    /// Refuses the keys of `cgi` on a route of another kind.
    fn only_for_cgi(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let env = r.env.as_ref().map(Spanned::span);
        self.misplaced(env.or_else(|| r.options().any()), "cgi", kind)
    }

    fn misplaced(&self, typed: Option<Range<usize>>, owner: &str, kind: &str) -> Checked<()> {
        match typed {
            None => Ok(()),
            Some(at) => Err(self.error(
                at,
                format!(
                    "is an option of `{owner}` routes, and this is a `{kind}` route: delete it"
                ),
            )),
        }
    }

    pub(super) fn path(&self, typed: &raw::Text) -> Checked<PathBuf> {
        if typed.get_ref().is_empty() {
            return Err(self.error(
                typed.span(),
                "is empty: write \".\" for the folder of this file",
            ));
        }
        Ok(folder::absolute(&self.folder, &self.no_nul(typed)?))
    }

    fn unopened(&self, typed: &raw::Text, path: &Path, error: &io::Error) -> ConfigError {
        self.error(typed.span(), unopened(path, error))
    }
}

/// Why a folder or a file could not be opened, and what to do.
pub(super) fn unopened(path: &Path, error: &io::Error) -> impl Display {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{path} does not exist: create it or correct the path"),
        io::ErrorKind::NotADirectory => format!("{path} is not a folder: name one"),
        io::ErrorKind::IsADirectory => format!("{path} is a folder: name a file"),
        io::ErrorKind::PermissionDenied => {
            format!(
                "{path} may not be entered by this user: check the permissions on the way to it"
            )
        }
        _ => format!("{path}: {error}"),
    }
}

/// Gives a path the ending that its handler needs: a folder is a prefix, a program is not, for
/// SCRIPT_NAME ends in no slash.
fn shape(mut path: String, handler: &Handler) -> String {
    let folder = match handler {
        Handler::Cgi(cgi) => matches!(cgi.root, CgiRoot::Folder { .. }),
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

/// RFC 9110, 5.6.2.
fn token(text: &str) -> bool {
    let tchar = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(tchar)
}

/// RFC 9110, 5.5, without obs-text.
fn field_value(text: &str) -> bool {
    text.bytes()
        .all(|b| matches!(b, b' ' | b'\t' | 0x21..=0x7e))
        && text.trim_ascii() == text
}
