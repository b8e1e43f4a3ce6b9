//! Routes that long-running programs answer: FastCGI and SCGI.

use std::{os::unix::ffi::OsStrExt, path::Component, sync::Arc, time::Duration};

use galgo_handlers::modules::is_module;
use galgo_io::address::check_socket_path;
use galgo_proto::fcgi::Role;
use galgo_spawn::trusted_path::resolve;
use toml::Spanned;

use crate::{
    config::{
        Address, Application, Cgi, CgiOptions, CgiRoot, Config, Listen, Protocol, Speaks, To,
        Workers,
    },
    config_text::{
        config_error::{Checked, ConfigText},
        folder,
        raw::{self, Raw, RawRoute, RawTo, RawWorkers, first_place, place, where_typed},
    },
    route::Authorizer,
};

/// Default number of workers.
const WORKERS: usize = 4;
/// Default number of requests after which a worker is replaced.
const MAX_REQUESTS: usize = 1000;
/// Default index script of a folder of scripts.
const INDEX: &str = "index.php";
/// Default extension of scripts: what php-fpm runs by default (`security.limit_extensions` of php-fpm.conf).
const ENDING: &str = ".php";
/// Stands for every extension.
const ANY: &str = "*";
/// Default time limit for making a connection.
const CONNECT: Duration = Duration::from_secs(5);

const NO_FOLDER: &str = "needs a folder of scripts: add `root`, or delete it";

impl ConfigText<'_> {
    pub(crate) fn check_upstream(
        &self,
        route: &RawRoute,
        protocol: Protocol,
        typed: &Spanned<RawTo>,
        all: &[Raw],
        config: &Config,
    ) -> Checked<Application> {
        let kind = protocol.config_key();
        self.only_for_files(route, kind)?;
        self.never_for_upstreams(route, kind)?;
        let to = self.check_to(protocol, typed, route.user.is_some())?;
        let options = self.check_options(&route.options(), &config.options)?;
        match &to {
            To::Address(_) => self.only_for_processes(route, kind)?,
            To::Workers(_) => {
                let message = "is always the number of `workers` here: delete it";
                self.refuse(place(&route.max_running), message)?;
            }
        }
        let fresh = Application::new(protocol, to, options);
        let scripts = self.check_scripts(route)?;
        let endings = self.check_script_endings(route, scripts.as_ref())?;
        let app = Application {
            document_root: match self.check_document_root(route, all)? {
                Some(folder) => Some(folder),
                None => scripts.as_ref().map(|s| s.folder().to_owned()),
            },
            index: self.check_script_index(route, &endings)?,
            endings,
            scripts,
            env: self.check_env(route)?,
            sendfile: self.check_sendfile(route, config)?,
            connect_timeout: self.check_time(&route.connect_timeout, CONNECT, 1, 600_000)?,
            keep: match &fresh.to {
                To::Address(_) => self.check_number(&route.keep_connections, 0, 0, 10_000)?,
                // Each worker has a connection of its own. By default it is closed after each request: a program with threads
                // may wait for a new connection and never look at the kept one (libfcgi's FCGX_Accept_r).
                To::Workers(_) => {
                    self.check_number(&route.keep_connections, 0, 0, 1)? * fresh.running
                }
            },
            ..fresh
        };
        let remit = self.build_worker_remit(&route.user, &route.group, &app, config)?;
        Ok(Application { remit, ..app })
    }

    /// Checks `authorizer`: the application or program that is asked before the handler answers. The route's options apply to
    /// the handler, so the authorizer gets the options of `[defaults]`.
    pub(crate) fn check_authorizer(
        &self,
        typed: &Spanned<RawTo>,
        config: &Config,
    ) -> Checked<Authorizer> {
        let options = CgiOptions {
            // An authorizer is there to judge credentials.
            pass_authorization: true,
            ..config.options.clone()
        };
        if let RawTo::Table(table) = typed.get_ref()
            && let Some(program) = &table.cgi
        {
            let cgi = self.check_judge(program, table, options, config)?;
            return Ok(Authorizer::Program(Arc::new(cgi)));
        }
        let to = self.check_to(Protocol::Fastcgi, typed, false)?;
        let app = Application::new(Protocol::Fastcgi, to, options);
        Ok(Authorizer::Application(Box::new(Application {
            role: Role::AUTHORIZER,
            remit: self.build_worker_remit(&None, &None, &app, config)?,
            ..app
        })))
    }

    /// Checks an authorizer that is a program.
    fn check_judge(
        &self,
        program: &raw::Text,
        table: &RawWorkers,
        options: CgiOptions,
        config: &Config,
    ) -> Checked<Cgi> {
        self.refuse(
            first_place!(table, run, workers, max_requests),
            "is for FastCGI applications and conflicts with `cgi`: keep one of them",
        )?;
        let root = self.open_typed(program, CgiRoot::open)?;
        let fault = match &root {
            CgiRoot::Folder { .. } => Some("is a folder: name the program in it"),
            CgiRoot::Program { path, .. } if is_module(path.as_os_str().as_bytes()) => Some(
                "is a WebAssembly module, and an authorizer is a process: name another program",
            ),
            CgiRoot::Program { .. } => None,
        };
        if let Some(message) = fault {
            let error = self.error_at(program.span(), message);
            return Err(self.mark_owner(error, root.path(), 403));
        }
        let folder = root.folder().to_owned();
        let cgi = Cgi {
            interpreters: config.interpreters.clone(),
            options: CgiOptions {
                // `max_running` limits the programs of a route, not its authorizer.
                max_running: None,
                ..options
            },
            ..Cgi::new(root, folder)
        };
        let remit = self.build_remit(&None, &None, &cgi, config, false)?;
        Ok(Cgi { remit, ..cgi })
    }

    /// Checks the address or workers of an upstream. `as_user`: the workers run as a user that this process may not be.
    fn check_to(&self, protocol: Protocol, typed: &Spanned<RawTo>, as_user: bool) -> Checked<To> {
        match typed.get_ref() {
            RawTo::Text(text) => self.check_address(typed, text).map(To::Address),
            RawTo::Table(_) if protocol == Protocol::Scgi => {
                let message = "needs an address, because galgo starts only `fastcgi` programs";
                Err(self.error_at(typed.span(), message))
            }
            RawTo::Table(raw) => self.check_workers(typed, raw, as_user).map(To::Workers),
        }
    }

    fn check_scripts(&self, route: &RawRoute) -> Checked<Option<CgiRoot>> {
        where_typed(&route.root, |typed| {
            let path = self.resolve_path(typed)?;
            // php-fpm refuses paths with `..` in them, wherever they lead.
            let path = if path.components().any(|c| c == Component::ParentDir) {
                resolve(&path).map_or(path, |found| found.path)
            } else {
                path
            };
            CgiRoot::open(&path).map_err(|e| self.open_error(typed, &path, &e))
        })
    }

    /// Returns the extensions of scripts in a folder; empty without a folder.
    fn check_script_endings(
        &self,
        route: &RawRoute,
        scripts: Option<&CgiRoot>,
    ) -> Checked<Vec<String>> {
        let folder = matches!(scripts, Some(CgiRoot::Folder { .. }));
        match &route.scripts {
            None if folder => Ok(vec![ENDING.into()]),
            None => Ok(Vec::new()),
            Some(typed) if folder => typed
                .get_ref()
                .iter()
                .map(|e| self.check_ending(e))
                .collect(),
            Some(typed) => Err(self.error_at(typed.span(), NO_FOLDER)),
        }
    }

    fn check_ending(&self, typed: &raw::Text) -> Checked<String> {
        let text = typed.get_ref();
        if text == ANY {
            return Ok(String::new());
        }
        if text.len() < 2 || !text.starts_with('.') || text.contains(['/', '\0']) {
            let message = format!(
                "{text:?} is not a file extension: write it as in \".php\", or \"*\" for any"
            );
            return Err(self.error_at(typed.span(), message));
        }
        Ok(text.clone())
    }

    fn check_script_index(&self, route: &RawRoute, endings: &[String]) -> Checked<Vec<String>> {
        let is_script = |name: &str| endings.iter().any(|ending| name.ends_with(ending));
        let Some(names) = &route.index else {
            let index = is_script(INDEX).then(|| INDEX.to_owned());
            return Ok(index.into_iter().collect());
        };
        if endings.is_empty() {
            return Err(self.error_at(names.span(), NO_FOLDER));
        }
        let name = |typed: &raw::Text| {
            let name = self.check_index(typed)?;
            if is_script(&name) {
                Ok(name)
            } else {
                let message = format!("{name:?} is not a script: add its extension to `scripts`");
                Err(self.error_at(typed.span(), message))
            }
        };
        names.get_ref().iter().map(name).collect()
    }

    /// Checks the address of an upstream; a relative path starts at the folder of the file.
    fn check_address<T>(&self, typed: &Spanned<T>, text: &str) -> Checked<Address> {
        let wrong = |e: String| self.error_at(typed.span(), e);
        let listen: Listen = text.parse().map_err(wrong)?;
        match listen.address {
            _ if listen.speaks != Speaks::Http => {
                let message = "names a protocol of listeners: write the address alone";
                Err(self.error_at(typed.span(), message))
            }
            Address::Unix(path) => {
                let path = folder::make_absolute(
                    self.source_folder(&typed.span()),
                    &path.to_string_lossy(),
                );
                check_socket_path(&path).map_err(wrong)?;
                Ok(Address::Unix(path))
            }
            tcp @ Address::Tcp(_) => Ok(tcp),
        }
    }

    fn check_workers(
        &self,
        typed: &Spanned<RawTo>,
        raw: &RawWorkers,
        as_user: bool,
    ) -> Checked<Workers> {
        self.refuse(
            place(&raw.cgi),
            "works only in `authorizer`: here write `run` for a FastCGI program, or a `cgi` route for another program",
        )?;
        let Some(run) = &raw.run else {
            let message = "lacks `run`: name the program, as in run = [\"/usr/bin/php-cgi\"]";
            return Err(self.error_at(typed.span(), message));
        };
        let words = run.get_ref().iter().map(|word| self.no_nul(word));
        let words = words.collect::<Checked<Vec<_>>>()?;
        let Some(program) = words.first() else {
            return Err(self.error_at(run.span(), "is empty: name the program first"));
        };
        let path = folder::make_absolute(self.source_folder(&run.span()), program);
        // The helper of that user checks whether the user may execute the program.
        self.require_program(run.span(), &path, !as_user)?;
        let max_requests = self.check_number(&raw.max_requests, MAX_REQUESTS, 0, 1_000_000_000)?;
        Ok(Workers {
            run: path,
            args: words.into_iter().skip(1).collect(),
            count: self.check_number(&raw.workers, WORKERS, 1, 1000)?,
            max_requests: (max_requests > 0).then_some(max_requests),
        })
    }

    /// Refuses the keys of upstreams on a route of another kind.
    pub(crate) fn only_for_upstreams(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let place = first_place!(r, root, scripts, connect_timeout, keep_connections);
        self.misplaced(place, "fastcgi", kind)
    }

    fn never_for_upstreams(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let place = first_place!(
            r,
            query_args,
            run_to_completion,
            start,
            load_env,
            preopen,
            preopen_rw,
            network,
            upgrade,
            cache
        );
        self.misplaced(place, "cgi", kind)
    }

    /// Refuses options of processes on a route for which galgo starts none.
    fn only_for_processes(&self, r: &RawRoute, kind: &str) -> Checked<()> {
        let place = first_place!(
            r,
            user,
            group,
            kill_grace,
            cpu,
            memory,
            file_size,
            open_files,
            processes,
            no_new_privs,
            sandbox
        );
        let message = format!(
            "applies only to processes that galgo starts, but this `{kind}` route names an address: delete it"
        );
        self.refuse(place, message)
    }
}
