//! The sandbox of programs, and the users that programs run as.

use std::{io, path::PathBuf, sync::Arc};

use galgo_handlers::{variables::server_constants, wasm::module_terms};
use galgo_spawn::{
    Limits, Sandbox,
    identity::{current, effective_uid, resolve_user},
    owners::{Layout, Remit, RunsAs, Terms, are_delegated},
    sandbox::{Confinement, Network, kernel},
    trusted_path::resolve,
};
use toml::Spanned;

use crate::{
    config::{Application, Cgi, CgiOptions, Config, StartMode, To},
    config_text::{
        config_error::{Checked, ConfigText},
        raw::{RawConfinement, RawOptions, RawSandbox, Text, Typed, each_typed, place},
        units::{Cpu, Time},
    },
};

/// The word for the owner of the program's file.
const OWNER: &str = "owner";

impl ConfigText<'_> {
    /// Checks `cpu`: seconds for each process, or percent of a processor for all processes together.
    pub(crate) fn check_cpu(
        &self,
        raw: &RawOptions,
        d: &Limits,
    ) -> Checked<(Option<u64>, Option<u32>)> {
        let Some(typed) = &raw.cpu else {
            return Ok((d.cpu, d.cpu_percent));
        };
        let at = || typed.span();
        match typed.get_ref().0 {
            None => Ok((None, None)),
            Some(Cpu::Time(Time(time))) if time.subsec_nanos() != 0 => {
                Err(self.error_at(at(), "must be whole seconds"))
            }
            Some(Cpu::Time(time)) => {
                let time =
                    self.check_within(at(), time, Time::from_secs(1), Time::from_secs(86_400))?;
                Ok((Some(time.0.as_secs()), None))
            }
            Some(Cpu::Percent(percent)) => {
                Ok((None, Some(self.check_number_at(at(), percent, 1, 100_000)?)))
            }
        }
    }

    /// Checks `sandbox`; with a strict sandbox, also returns the access that programs keep.
    pub(crate) fn check_sandbox(
        &self,
        raw: &RawOptions,
        d: &CgiOptions,
    ) -> Checked<(Sandbox, Option<Arc<Confinement>>)> {
        let (at, strict) = match &raw.sandbox {
            None => (None, d.strict.clone()),
            Some(typed) => match typed.get_ref() {
                RawSandbox::Table(table) => {
                    (Some(typed.span()), Some(self.check_confinement(table)?))
                }
                RawSandbox::Text(name) if name == "strict" => {
                    (Some(typed.span()), Some(Arc::default()))
                }
                RawSandbox::Text(name) => return Ok((self.check_sandbox_name(typed, name)?, None)),
            },
        };
        let Some(strict) = strict else {
            return Ok((d.sandbox, None));
        };
        // A program that may gain privileges may not be confined.
        if let Some(typed) = raw.no_new_privs.as_ref().filter(|on| !on.get_ref()) {
            let message = "a strict sandbox needs no_new_privs = true: delete this, or set sandbox = \"standard\"";
            return Err(self.error_at(typed.span(), message));
        }
        let lacks = raw.no_new_privs.is_none() && !d.no_new_privs;
        let message = "a strict sandbox needs no_new_privs = true: add it";
        self.refuse(at.filter(|_| lacks), message)?;
        // The first call looks at the kernel, while this process may still have root's rights.
        kernel();
        Ok((Sandbox::Standard, Some(strict)))
    }

    fn check_sandbox_name(&self, typed: &Spanned<RawSandbox>, name: &str) -> Checked<Sandbox> {
        let both = [Sandbox::Off, Sandbox::Standard];
        let named = both.into_iter().find(|s| s.config_name() == name);
        named.ok_or_else(|| {
            let message = format!(
                "{name:?} is not a sandbox: choose \"standard\", \"strict\", \"off\" or a table"
            );
            self.error_at(typed.span(), message)
        })
    }

    fn check_confinement(&self, raw: &RawConfinement) -> Checked<Arc<Confinement>> {
        let network = self.one_of(
            &raw.network,
            Network::None,
            &Network::NAMES,
            "is not a network: choose \"none\", \"loopback\", \"out\" or \"all\"",
        )?;
        Ok(Arc::new(Confinement {
            read: self.check_existing(&raw.read)?,
            write: self.check_existing(&raw.write)?,
            exec: self.check_existing(&raw.exec)?,
            network,
        }))
    }

    /// Returns paths after checking that they exist. If another account controls a missing path, it may appear later; until
    /// then, the programs' helper refuses to start them.
    fn check_existing(&self, list: &Typed<Vec<Text>>) -> Checked<Vec<PathBuf>> {
        each_typed(list, |typed| {
            let path = self.resolve_path(typed)?;
            match resolve(&path) {
                // The process that starts the programs may have access where this process has none.
                Err(e) if e.kind() != io::ErrorKind::PermissionDenied => {
                    self.or_warn(Err::<(), _>(self.open_error(typed, &path, &e)))?;
                }
                _ => {}
            }
            Ok(path)
        })
    }

    /// Returns the terms under which a helper starts the programs of a route; `None` if the server starts them as its own
    /// user. `authorized`: an authorizer, or `env_rules`, may give the variables of `env` other values.
    pub(crate) fn build_remit(
        &self,
        user: &Typed<String>,
        group: &Typed<String>,
        cgi: &Cgi,
        config: &Config,
        authorized: bool,
    ) -> Checked<Option<Arc<Remit>>> {
        let Some(runs_as) = self.helped(user, group, &cgi.options, config)? else {
            return Ok(None);
        };
        let names = galgo_proto::vars::NAMES.iter().map(ToString::to_string);
        let mut constants = server_constants(&config.path);
        let mut variables: Vec<_> = names.chain(["REDIRECT_URL".to_owned()]).collect();
        let mut warm = Vec::new();
        if authorized {
            variables.extend(cgi.env.iter().map(|(name, _)| name.clone()));
            // A program that is loaded without a request gets the configured values.
            warm.extend(cgi.env.iter().cloned());
        } else {
            constants.extend(cgi.env.iter().cloned())
        }
        warm.extend(cgi.load_env.iter().cloned());
        let running = config.admission.running;
        let running = cgi.options.max_running.map_or(running, |m| m.min(running));
        let (path, limits) = (cgi.root.path(), &cgi.options.limits);
        let programs = (path, &cgi.names[..]);
        let modules = module_terms(programs, &runs_as, &cgi.guest_access, limits, running);
        Ok(Some(Arc::new(Remit::new(Terms {
            path: path.to_owned(),
            layout: Layout::Named,
            names: cgi.names.clone(),
            interpreters: cgi.interpreters.clone(),
            variables,
            constants,
            query_args: cgi.options.query_args,
            worker: None,
            warm: (cgi.options.start == StartMode::Warm).then_some(warm),
            modules: Some(modules),
            limits: cgi.options.limits,
            umask: config.umask,
            no_new_privs: cgi.options.no_new_privs,
            sandbox: cgi.options.sandbox,
            strict: cgi.options.strict.clone(),
            runs_as,
            groups: config.supplementary_groups.clone(),
        }))))
    }

    /// Returns the terms under which a helper starts the workers of an application; `None` if no helper does.
    pub(crate) fn build_worker_remit(
        &self,
        user: &Typed<String>,
        group: &Typed<String>,
        up: &Application,
        config: &Config,
    ) -> Checked<Option<Arc<Remit>>> {
        let To::Workers(workers) = &up.to else {
            return Ok(None);
        };
        let options = &up.options;
        let Some(runs_as) = self.helped(user, group, options, config)? else {
            return Ok(None);
        };
        let mut strict = options.strict.clone();
        // The worker may read the scripts that it is there to run.
        if let (Some(strict), Some(scripts)) = (&mut strict, &up.scripts) {
            Arc::make_mut(strict).read.push(scripts.folder().to_owned());
        }
        let path = ("PATH".to_owned(), config.path.clone());
        Ok(Some(Arc::new(Remit::new(Terms {
            path: workers.run.clone(),
            layout: Layout::Named,
            names: Vec::new(),
            interpreters: Arc::default(),
            variables: Vec::new(),
            constants: std::iter::once(path).chain(up.env.clone()).collect(),
            query_args: false,
            worker: Some(workers.args.clone()),
            warm: None,
            modules: None,
            limits: options.limits,
            umask: config.umask,
            no_new_privs: options.no_new_privs,
            sandbox: options.sandbox,
            strict,
            runs_as,
            groups: config.supplementary_groups.clone(),
        }))))
    }

    /// Returns the user of processes that only a helper can start; `None` if the server starts them.
    pub(crate) fn helped(
        &self,
        user: &Typed<String>,
        group: &Typed<String>,
        options: &CgiOptions,
        config: &Config,
    ) -> Checked<Option<RunsAs>> {
        let runs_as = match (user, group) {
            (None, None) => config.runs_as.clone(),
            (user, group) => self.runs_as(user, group, config)?,
        };
        // The first call looks at the control groups, while this process may still have root's rights.
        are_delegated();
        let own = || config.identity.clone().unwrap_or_else(current);
        let strict = options.strict.is_some();
        Ok(runs_as.or_else(|| strict.then(|| RunsAs::Server(own()))))
    }

    /// Returns the user that programs run as; `None` if no user is named, or the server's own user.
    pub(crate) fn runs_as(
        &self,
        user: &Typed<String>,
        group: &Typed<String>,
        config: &Config,
    ) -> Checked<Option<RunsAs>> {
        let Some(typed) = user else {
            self.refuse(place(group), "needs a `user` beside it")?;
            return Ok(None);
        };
        if typed.get_ref() == OWNER {
            return match group {
                None => Ok(Some(RunsAs::Owner {
                    min_uid: config.min_uid,
                    min_gid: config.min_gid,
                    server: config.identity.as_ref().map_or(0, |user| user.uid),
                })),
                Some(group) => {
                    let message = "an owner's programs run in the owner's own groups: delete it";
                    Err(self.error_at(group.span(), message))
                }
            };
        }
        let group = group.as_ref().map(|group| group.get_ref().as_str());
        let found = resolve_user(typed.get_ref(), group).map_err(|e| {
            self.error_at(typed.span(), format!("{e}: create it or correct the name"))
        })?;
        if found.uid == 0 {
            let message =
                "programs of a route with `user` never run as root: name a user without privileges";
            return Err(self.error_at(typed.span(), message));
        }
        if found.gid == 0 {
            let message = "programs of a route with `user` never run in the group of root: name another as `group`";
            return Err(self.error_at(typed.span(), message));
        }
        let is_own = match &config.identity {
            Some(own) => (own.uid, own.gid) == (found.uid, found.gid),
            None => effective_uid() == found.uid,
        };
        Ok((!is_own).then_some(RunsAs::User(found)))
    }
}
