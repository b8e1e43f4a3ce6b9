//! Checks the typed configuration, part three: the handlers of routes.

use std::{
    io::{self, Read},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use galgo_handlers::{cache::AnswerCache, modules::is_module, root};
use galgo_spawn::{glob::Glob, hanging::look_at, inspect, trusted_path};
use rustix::fs::Access;
use toml::Spanned;

use crate::{
    config::{Cgi, CgiRoot, Config, Files, GuestAccess, Handler, Respond},
    config_text::{
        config_error::{Checked, ConfigError, ConfigText},
        folder::{self, describe_unopened},
        host_names::RawHosts,
        raw::{
            self, Raw, RawRespond, RawRoute, Typed, first_place, flag_or_default, place,
            where_typed,
        },
    },
};

/// Largest file that a `respond` route keeps in memory, bytes.
const MAX_RESPOND: u64 = 16 << 20;

/// Checks of programs.
impl ConfigText<'_> {
    pub(crate) fn check_cgi(
        &self,
        route: &RawRoute,
        typed: &raw::Text,
        all: &[Raw],
        config: &Config,
    ) -> Checked<Cgi> {
        self.only_for_files(route, "cgi")?;
        self.no_index(route, "cgi")?;
        self.only_for_upstreams(route, "cgi")?;
        self.check_programs(route, typed, all, config)
    }

    /// Checks the programs in the folder of a `files` route, which `cgi_names` names.
    pub(crate) fn check_programs_among_files(
        &self,
        route: &RawRoute,
        all: &[Raw],
        config: &Config,
    ) -> Checked<Option<Arc<Cgi>>> {
        let Some(names) = &route.cgi_names else {
            return Ok(None);
        };
        let Some(typed) = &route.files else {
            return Err(self.error_at(
                names.span(),
                "is an option of `files` routes: a `cgi` route runs every program of its folder",
            ));
        };
        Ok(Some(Arc::new(
            self.check_programs(route, typed, all, config)?,
        )))
    }

    pub(crate) fn check_cgi_names(&self, typed: &Typed<Vec<raw::Text>>) -> Checked<Vec<Glob>> {
        let Some(typed) = typed else {
            return Ok(Vec::new());
        };
        if typed.get_ref().is_empty() {
            return Err(self.error_at(
                typed.span(),
                "names nothing: write it as in [\"*.cgi\"], or delete the key",
            ));
        }
        let glob = |name: &raw::Text| {
            let text = name.get_ref();
            let message =
                format!("{text:?} is not a pattern for file names: write it as in \"*.cgi\"");
            Glob::parse(text).ok_or_else(|| self.error_at(name.span(), message))
        };
        typed.get_ref().iter().map(glob).collect()
    }

    fn check_programs(
        &self,
        route: &RawRoute,
        typed: &raw::Text,
        all: &[Raw],
        config: &Config,
    ) -> Checked<Cgi> {
        let root = self.open_typed(typed, CgiRoot::open)?;
        let names = self.check_cgi_names(&route.cgi_names)?;
        let document_root = self
            .check_document_root(route, all)?
            .unwrap_or_else(|| root.folder().to_owned());
        let cgi = Cgi {
            root,
            names,
            document_root,
            env: self.check_env(route)?,
            load_env: self.check_load_env(route)?,
            interpreters: config.interpreters.clone(),
            sendfile: self.check_sendfile(route, config)?,
            options: self.check_options(&route.options(), &config.options)?,
            guest_access: self.check_guest_access(route)?,
            upgrade: flag_or_default(&route.upgrade, false),
            cache: self.check_answer_cache(route)?,
            remit: None,
            counts_for_user: false,
        };
        if let (Some(typed), CgiRoot::Program { .. }, true) =
            (&route.upgrade, &cgi.root, cgi.upgrade)
            && is_module(cgi.root.path().as_os_str().as_bytes())
        {
            return Err(self.error_at(
                typed.span(),
                "gives a program its client's connection, which a WebAssembly module cannot have: delete it",
            ));
        }
        // An authorizer and `env_rules` may each give variables of `env` other values.
        let authorized = route.authorizer.is_some() || route.env_rules.is_some();
        let remit = self.build_remit(&route.user, &route.group, &cgi, config, authorized)?;
        if remit.is_some() {
            let key = first_place!(route, user, sandbox);
            self.require_plain_path(route, key.unwrap_or_else(|| typed.span()))?;
        }
        let mut cgi = cgi;
        cgi.set_remit(remit, route.max_running.is_some());
        Ok(cgi)
    }

    fn check_answer_cache(&self, route: &RawRoute) -> Checked<Option<Arc<AnswerCache>>> {
        where_typed(&route.cache, |_| {
            let most = self.check_time(&route.cache, Duration::ZERO, 100, 3_600_000)?;
            Ok(Arc::new(AnswerCache::new(most)))
        })
    }

    /// Refuses a pattern in the path if a helper starts the programs. A helper knows their folder and `cgi_names`, so such a
    /// pattern would hold for requests only.
    fn require_plain_path(&self, route: &RawRoute, key: Range<usize>) -> Checked<()> {
        let pattern = |path: &raw::Text| path.get_ref().contains('*');
        self.refuse(
            route.path.as_ref().is_some_and(pattern).then_some(key),
            "needs a path without \"*\": write `files` and `cgi_names` = the pattern, or `cgi` = a folder of its own",
        )
    }

    /// Checks the access that modules of a route get: `preopen`, `preopen_rw`, `network`.
    fn check_guest_access(&self, route: &RawRoute) -> Checked<GuestAccess> {
        let mut folders: Vec<(String, PathBuf, bool)> = Vec::new();
        for (map, write) in [(&route.preopen, false), (&route.preopen_rw, true)] {
            for (guest, host) in map.iter().flat_map(|map| map.get_ref()) {
                let name = self.no_nul(guest)?;
                let fail = |message: &str| {
                    Err(self.keyless_error(guest.span(), format!("{name:?} {message}")))
                };
                if !name.starts_with('/') {
                    return fail("is not a path inside the module: begin it with \"/\"");
                }
                if folders.iter().any(|(other, ..)| *other == name) {
                    return fail("is opened twice: keep one of `preopen` and `preopen_rw`");
                }
                let open = |path: &Path| root::open_folder(path).map(|_| path.to_owned());
                folders.push((name, self.open_typed(host, open)?, write));
            }
        }
        Ok(GuestAccess {
            folders,
            network: flag_or_default(&route.network, false),
        })
    }

    /// Returns the folder of the `/` files route with the same hosts, else of the `/` files route without a host.
    pub(crate) fn check_document_root(
        &self,
        route: &RawRoute,
        all: &[Raw],
    ) -> Checked<Option<PathBuf>> {
        let host = |r: &RawRoute| {
            let names = r.host.iter().flat_map(RawHosts::list_hosts);
            let mut names: Vec<_> = names
                .map(|n| n.get_ref().trim_end_matches('.').to_ascii_lowercase())
                .collect();
            names.sort();
            names
        };
        let at_top = |r: &RawRoute| r.path.as_ref().is_some_and(|p| p.get_ref() == "/");
        let routes = || all.iter().map(Spanned::get_ref);
        let top = || routes().filter(|r| at_top(r) && r.files.is_some());
        let same = top().find(|r| host(r) == host(route));
        let found = same.or_else(|| top().find(|r| r.host.is_none()));
        found.map_or(Ok(None), |r| {
            where_typed(&r.files, |files| self.resolve_path(files))
        })
    }
}

/// Checks of files.
impl ConfigText<'_> {
    pub(crate) fn check_files(
        &self,
        route: &RawRoute,
        typed: &raw::Text,
        config: &Config,
    ) -> Checked<Files> {
        if route.cgi_names.is_none() {
            self.only_for_cgi(route, "files")?;
        }
        self.only_for_upstreams(route, "files")?;
        let mut files = self.open_files_folder(typed, config)?;
        if let Some(index) = &route.index {
            let names = index.get_ref().iter().map(|name| self.check_index(name));
            files.index = names.collect::<Checked<_>>()?;
        }
        files.cgi_names = self.check_cgi_names(&route.cgi_names)?;
        files.listing = flag_or_default(&route.listing, files.listing);
        files.precompressed = flag_or_default(&route.precompressed, files.precompressed);
        for (ending, media) in route.types.iter().flat_map(|map| map.get_ref()) {
            let name = ending.get_ref();
            let name = name.strip_prefix('.').unwrap_or(name);
            if name.is_empty() || name.contains('/') {
                return Err(
                    self.keyless_error(ending.span(), "types: write an extension as in \"wasm\"")
                );
            }
            let media = self.check_media_type(media)?;
            files.types.push((name.to_ascii_lowercase(), media));
        }
        if let Some(media) = &route.default_type {
            files.default_type = self.check_media_type(media)?;
        }
        Ok(files)
    }

    pub(crate) fn check_index(&self, name: &raw::Text) -> Checked<String> {
        let text = name.get_ref();
        if text.is_empty() || text.starts_with('.') || text.contains(['/', '\0']) {
            let message =
                format!("{text:?} is not the name of a file: write it as in \"index.html\"");
            return Err(self.error_at(name.span(), message));
        }
        Ok(text.clone())
    }
}

/// Checks of constant answers.
impl ConfigText<'_> {
    pub(crate) fn check_respond(
        &self,
        route: &RawRoute,
        typed: &Spanned<RawRespond>,
    ) -> Checked<Handler> {
        self.only_for_cgi(route, "respond")?;
        self.only_for_upstreams(route, "respond")?;
        self.only_for_files(route, "respond")?;
        self.no_index(route, "respond")?;
        let raw = typed.get_ref();
        let status = self.check_status(raw)?;
        let (body, guess) = match (&raw.body, &raw.file) {
            (None, None) => (Vec::new(), None),
            (Some(body), None) => {
                let guess = "text/plain; charset=utf-8".to_owned();
                (body.get_ref().clone().into_bytes(), Some(guess))
            }
            (None, Some(file)) => {
                let guess = mime_guess::from_path(file.get_ref()).first_or_octet_stream();
                (self.check_constant(file)?, Some(guess.to_string()))
            }
            (Some(_), Some(file)) => {
                return Err(self.error_at(file.span(), "conflicts with `body`: keep one of them"));
            }
        };
        if matches!(status, 204 | 304) && !body.is_empty() {
            let message = format!("a response with status {status} has no body: delete it");
            return Err(self.keyless_error(typed.span(), message));
        }
        let media = where_typed(&raw.r#type, |media| self.check_media_type(media))?;
        Ok(Handler::Respond(Respond {
            status,
            content_type: media.or(guess),
            headers: self.check_headers(&raw.headers)?,
            body: body.into(),
        }))
    }

    fn check_status(&self, raw: &RawRespond) -> Checked<u16> {
        let Some(typed) = &raw.status else {
            return Ok(200);
        };
        let status = u16::try_from(typed.get_ref().0).ok();
        let message = "is not a final status: 200 to 599";
        status
            .filter(|s| (200..=599).contains(s))
            .ok_or_else(|| self.error_at(typed.span(), message))
    }

    fn check_constant(&self, typed: &raw::Text) -> Checked<Vec<u8>> {
        let path = self.resolve_file(typed)?;
        let read = || -> io::Result<Vec<u8>> {
            let mut body = Vec::new();
            let file = trusted_path::read(&path)?;
            look_at(&path, || file.take(MAX_RESPOND + 1).read_to_end(&mut body))?;
            Ok(body)
        };
        let body = read().map_err(|e| self.open_error(typed, &path, &e))?;
        if body.len() as u64 > MAX_RESPOND {
            let message = "is larger than 16M, and would be kept in memory: serve it with `files`";
            let error = self.error_at(typed.span(), message);
            return Err(self.mark_owner(error, &path, 403));
        }
        Ok(body)
    }
}

/// Checks shared by the three kinds of routes.
impl ConfigText<'_> {
    /// Refuses the keys of `files` on a route of another kind.
    pub(crate) fn only_for_files(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let place = first_place!(r, listing, precompressed, types, default_type, r#try);
        self.misplaced(place, "files", kind)
    }

    /// Refuses `index` on a route without a folder.
    fn no_index(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        self.misplaced(place(&r.index), "files", kind)
    }

    /// Refuses the keys of `cgi` on a route of another kind.
    fn only_for_cgi(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let place = first_place!(
            r,
            user,
            group,
            env,
            env_rules,
            pass_env,
            env_file,
            load_env,
            preopen,
            preopen_rw,
            network,
            upgrade,
            cache,
            sendfile,
            accel_redirect
        );
        self.misplaced(place.or_else(|| r.option_typed()), "cgi", kind)
    }

    pub(crate) fn misplaced(
        &self,
        place: Option<Range<usize>>,
        owner: &str,
        kind: &str,
    ) -> Checked<()> {
        let message =
            format!("is an option of `{owner}` routes, and this is a `{kind}` route: delete it");
        self.refuse(place, message)
    }

    /// Returns the path of a file, and notes that the file is read with the configuration.
    pub(crate) fn resolve_file(&self, typed: &raw::Text) -> Checked<PathBuf> {
        let path = self.resolve_path(typed)?;
        self.note_read_file(path.clone());
        Ok(path)
    }

    pub(crate) fn resolve_path(&self, typed: &raw::Text) -> Checked<PathBuf> {
        if typed.get_ref().is_empty() {
            return Err(self.error_at(
                typed.span(),
                "is empty: write \".\" for the folder of this file",
            ));
        }
        Ok(folder::make_absolute(
            self.source_folder(&typed.span()),
            &self.no_nul(typed)?,
        ))
    }

    /// Opens a typed path with `open`.
    pub(crate) fn open_typed<T>(
        &self,
        typed: &raw::Text,
        open: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Checked<T> {
        let path = self.resolve_path(typed)?;
        open(&path).map_err(|e| self.open_error(typed, &path, &e))
    }

    /// Refuses a path that holds no program. If this process starts the program, also refuses a file that it may not execute.
    pub(crate) fn require_program(
        &self,
        at: Range<usize>,
        path: &Path,
        starts: bool,
    ) -> Checked<()> {
        let looked = look_at(path, || {
            let is_executable = !starts || inspect::can_access(path, Access::EXEC_OK);
            Ok((path.metadata()?.is_file(), is_executable))
        });
        let what = match looked.unwrap_or_default() {
            (false, _) => "is not a program here: install it or correct the path",
            (true, false) => "is not executable: chmod +x it or correct the path",
            (true, true) => return Ok(()),
        };
        let error = self.error_at(at, format!("{} {what}", path.display()));
        Err(self.mark_owner(error, path, 403))
    }

    pub(crate) fn open_error(
        &self,
        typed: &raw::Text,
        path: &Path,
        error: &io::Error,
    ) -> ConfigError {
        let status = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => 404,
            io::ErrorKind::TimedOut => 503,
            _ => 403,
        };
        let error = self.error_at(typed.span(), describe_unopened(path, error));
        self.mark_owner(error, path, status)
    }
}
