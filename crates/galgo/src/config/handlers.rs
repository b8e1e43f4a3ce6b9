//! From what was typed to what is served, part three: what stands behind a route.

use std::{
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
};

use toml::Spanned;

use super::{
    check::flag,
    checked::{Cgi, CgiRoot, Config, Files, Handler, Respond, Sight},
    error::ConfigText,
    error::{Checked, ConfigError},
    folder::{self, unopened},
    raw::Raw,
    raw::{self, RawRespond, RawRoute},
};

/// Bytes of a file that a `respond` route keeps in memory.
const MAX_RESPOND: u64 = 16 << 20;

/// Programs.
impl ConfigText<'_> {
    pub(super) fn cgi(
        &self,
        route: &RawRoute,
        typed: &raw::Text,
        all: &[Raw],
        config: &Config,
    ) -> Checked<Cgi> {
        self.only_for_files(route, "cgi")?;
        self.no_index(route, "cgi")?;
        self.only_for_upstreams(route, "cgi")?;
        let path = self.path(typed)?;
        let root = CgiRoot::open(&path).map_err(|e| self.unopened(typed, &path, &e))?;
        let document_root = self
            .document_root(route, all)?
            .unwrap_or_else(|| root.folder().to_owned());
        Ok(Cgi {
            root,
            document_root,
            env: self.env(route)?,
            load_env: self.load_env(route)?,
            interpreters: config.interpreters.clone(),
            sendfile: self.sendfile(route, config)?,
            options: self.options(&route.options(), &config.options)?,
            sight: self.sight(route)?,
        })
    }

    /// What the modules of a route see: `preopen`, `preopen_rw`, `network`.
    fn sight(&self, route: &RawRoute) -> Checked<Sight> {
        let mut folders: Vec<(String, PathBuf, bool)> = Vec::new();
        for (map, write) in [(&route.preopen, false), (&route.preopen_rw, true)] {
            for (guest, host) in map.iter().flat_map(|map| map.get_ref()) {
                let name = self.no_nul(guest)?;
                let fail =
                    |message: &str| Err(self.bare(guest.span(), format!("{name:?} {message}")));
                if !name.starts_with('/') {
                    return fail("is no path inside a program: begin it with \"/\"");
                }
                if folders.iter().any(|(other, ..)| *other == name) {
                    return fail("is opened twice: keep one of `preopen` and `preopen_rw`");
                }
                let path = self.path(host)?;
                galgo_handlers::root::open(&path).map_err(|e| self.unopened(host, &path, &e))?;
                folders.push((name, path, write));
            }
        }
        Ok(Sight {
            folders,
            network: flag(&route.network, false),
        })
    }

    /// The folder of the `/` files route of the same host, else of any host.
    pub(super) fn document_root(&self, route: &RawRoute, all: &[Raw]) -> Checked<Option<PathBuf>> {
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

    pub(super) fn env(&self, route: &RawRoute) -> Checked<Vec<(String, String)>> {
        self.variables("env", &route.env, |name| {
            galgo_proto::vars::is_computed(name)
                .then_some("is computed for each request and cannot be set: delete it")
        })
    }

    /// Only what a template has not got: everything else it may read, for all requests have the same.
    fn load_env(&self, route: &RawRoute) -> Checked<Vec<(String, String)>> {
        self.variables("load_env", &route.load_env, |name| {
            (!galgo_proto::vars::is_of_request(name)).then_some(
                "is no variable of a request: what is the same for all of them belongs into `env`",
            )
        })
    }

    fn variables(
        &self,
        key: &str,
        map: &Option<Spanned<raw::Map>>,
        refused: impl Fn(&str) -> Option<&'static str>,
    ) -> Checked<Vec<(String, String)>> {
        let mut env = Vec::new();
        for (name, value) in map.iter().flat_map(|map| map.get_ref()) {
            let text = name.get_ref();
            let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            let digit_first = text.bytes().next().is_none_or(|b| b.is_ascii_digit());
            if digit_first || !text.bytes().all(letter) {
                let message = format!(
                    "{key}: {text:?} is not the name of a variable: letters, digits and \"_\""
                );
                return Err(self.bare(name.span(), message));
            }
            if let Some(why) = refused(text) {
                return Err(self.bare(name.span(), format!("{key}: {text} {why}")));
            }
            env.push((text.clone(), self.no_nul(value)?));
        }
        Ok(env)
    }
}

/// Files.
impl ConfigText<'_> {
    pub(super) fn files(
        &self,
        route: &RawRoute,
        typed: &raw::Text,
        config: &Config,
    ) -> Checked<Files> {
        self.only_for_cgi(route, "files")?;
        self.only_for_upstreams(route, "files")?;
        let path = self.path(typed)?;
        let mut files = Files::open(&path).map_err(|e| self.unopened(typed, &path, &e))?;
        files.interpreters = config.interpreters.clone();
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

    pub(super) fn index(&self, name: &raw::Text) -> Checked<String> {
        let text = name.get_ref();
        if text.is_empty() || text.starts_with('.') || text.contains(['/', '\0']) {
            let message =
                format!("{text:?} is not the name of a file: write it as in \"index.html\"");
            return Err(self.error(name.span(), message));
        }
        Ok(text.clone())
    }
}

/// Constant answers.
impl ConfigText<'_> {
    pub(super) fn respond(
        &self,
        route: &RawRoute,
        typed: &Spanned<RawRespond>,
    ) -> Checked<Handler> {
        self.only_for_cgi(route, "respond")?;
        self.only_for_upstreams(route, "respond")?;
        self.only_for_files(route, "respond")?;
        self.no_index(route, "respond")?;
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
}

/// What the three share.
impl ConfigText<'_> {
    /// Refuses the keys of `files` on a route of another kind.
    pub(super) fn only_for_files(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let span = |span: Option<Range<usize>>| span;
        let typed = span(r.listing.as_ref().map(Spanned::span))
            .or_else(|| r.precompressed.as_ref().map(Spanned::span))
            .or_else(|| r.types.as_ref().map(Spanned::span))
            .or_else(|| r.default_type.as_ref().map(Spanned::span))
            .or_else(|| r.headers.as_ref().map(Spanned::span));
        self.misplaced(typed, "files", kind)
    }

    /// Refuses `index` where there is no folder that could have one.
    fn no_index(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        self.misplaced(r.index.as_ref().map(Spanned::span), "files", kind)
    }

    /// Refuses the keys of `cgi` on a route of another kind.
    fn only_for_cgi(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let typed = [
            r.env.as_ref().map(Spanned::span),
            r.load_env.as_ref().map(Spanned::span),
            r.preopen.as_ref().map(Spanned::span),
            r.preopen_rw.as_ref().map(Spanned::span),
            r.network.as_ref().map(Spanned::span),
            r.sendfile.as_ref().map(Spanned::span),
            r.accel_redirect.as_ref().map(Spanned::span),
        ];
        let typed = typed.into_iter().flatten().next();
        self.misplaced(typed.or_else(|| r.options().any()), "cgi", kind)
    }

    pub(super) fn misplaced(
        &self,
        typed: Option<Range<usize>>,
        owner: &str,
        kind: &str,
    ) -> Checked<()> {
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

    pub(super) fn unopened(
        &self,
        typed: &raw::Text,
        path: &Path,
        error: &io::Error,
    ) -> ConfigError {
        self.error(typed.span(), unopened(path, error))
    }
}
