//! The objects made from one reading of the configuration. Requests that began with a site end with it, while later requests
//! begin with the next site. The last of its requests drops the site, and with it the programs that only this site used.

use std::{io, sync::Arc};

use galgo_front::front_settings::Settings;
use galgo_handlers::{
    application_settings::Application,
    guest_access::GuestAccess,
    program::ProgramStarters,
    shared::{HandlersShared, OncePerProgram},
    upstream::{Upstream, WorkerPool},
    warm::Warm,
    wasm::{self, Needs, Wasm},
};
use galgo_io::tls::{Shown, TlsServer};
use galgo_proto::fcgi::Role;
use galgo_service::{
    admission::{Admission, ConcurrencyLimit},
    fault::Fault,
    log::{ErrorLog, Logs},
    spool::Spool,
};
use galgo_spawn::owners::Owners;

use crate::{
    certificates::answers::Answers,
    config::{Address, Config, Listen, Route, Speaks},
    hosts::HostFolders,
    owner_limits::OwnerLimits,
};

/// A configuration, with everything that was opened and started for it.
#[derive(Debug)]
pub struct Site {
    /// The configuration.
    pub config: Config,
    /// State that the handlers of all event loops share.
    pub shared: HandlersShared,
    /// The starters of programs and modules.
    pub starters: ProgramStarters,
    /// The port of the first listener that speaks TLS.
    pub https_port: Option<u16>,
    /// The certificates that listeners show to clients; `None`: no listener speaks TLS.
    pub shown: Option<Arc<Shown>>,
    /// Proofs that hosts are ours; `None`: no authority asks for proofs.
    pub answers: Option<Arc<Answers>>,
    /// Folders of hosts that requests have named.
    pub hosts: HostFolders,
    /// Permits of routes with their own limit.
    route_limits: Vec<(Arc<Route>, Arc<ConcurrencyLimit>)>,
    /// Permits of users, for routes without a limit of their own.
    pub(crate) owner_limits: Arc<OwnerLimits>,
    /// Persistent programs: applications and workers.
    upstreams: Vec<UpstreamUse>,
}

/// A persistent program, with the route and the role that use it.
#[derive(Debug)]
struct UpstreamUse {
    /// The route whose requests go to the program.
    route: Arc<Route>,
    /// The role of those requests.
    role: Role,
    /// The program.
    upstream: Arc<Upstream>,
}

impl UpstreamUse {
    fn config(&self) -> Option<&Application> {
        self.route.upstreams().find(|up| up.role == self.role)
    }
}

impl Site {
    /// Makes a site of a configuration. Objects that are the same as in the site `before` are kept: if a route did not change,
    /// its users stay logged in. No application has a connection yet.
    pub fn new(mut config: Config, before: Option<&Self>, logs: &Logs) -> Self {
        if let Some(before) = before {
            keep_routes(&mut config, &before.config);
        }
        let limit = |route: &Arc<Route>| {
            let most = route.programs()?.options.max_running?;
            let kept = before.and_then(|before| before.limit_of(route)).cloned();
            let limit = kept.unwrap_or_else(|| Arc::new(ConcurrencyLimit::new(most)));
            Some((route.clone(), limit))
        };
        Self {
            owner_limits: OwnerLimits::new(
                config.options.max_running,
                before.map(|before| &before.owner_limits),
            ),
            route_limits: config.routes.iter().filter_map(limit).collect(),
            shared: shared(&config, before.map(|before| &before.shared)),
            starters: starters(&config, before.map(|before| &before.starters), logs, true),
            hosts: HostFolders::default(),
            https_port: None,
            shown: None,
            answers: None,
            upstreams: Vec::new(),
            config,
        }
    }

    /// Makes the site of a command, which binds no listener and has no helpers.
    pub fn for_command(config: Config, logs: &Logs) -> Self {
        let https_port = |listen: &Listen| match listen.address {
            Address::Tcp(at) if listen.speaks == Speaks::Https => Some(at.port()),
            _ => None,
        };
        Self {
            starters: starters(&config, None, logs, false),
            https_port: config.listen.iter().find_map(https_port),
            ..Self::new(config, None, logs)
        }
    }

    /// Makes the upstreams of persistent programs; `owners` start the programs that run as other users.
    ///
    /// # Errors
    /// The sockets of workers could not be made.
    pub fn with_upstreams(
        mut self,
        before: Option<&Self>,
        owners: Option<&Arc<Owners>>,
    ) -> io::Result<Self> {
        let queue = &self.config.admission;
        let before = before.filter(|before| before.shared.admission.has_same_queue(queue));
        for route in &self.config.routes {
            for up in route.upstreams() {
                let kept = before.and_then(|before| before.find_upstream(route, up.role));
                self.upstreams.push(UpstreamUse {
                    route: route.clone(),
                    role: up.role,
                    upstream: match kept {
                        Some(kept) => kept.clone(),
                        None => Arc::new(Upstream::new(up, queue, owners)?),
                    },
                });
            }
        }
        Ok(self)
    }

    /// Makes the settings of connections with clients. `most`: connections at once; `tls`: `None` if no listener speaks TLS.
    pub fn front_settings(&self, most: usize, tls: Option<TlsServer>) -> Settings {
        let config = &self.config;
        let each = match config.http.max_connections_per_client {
            0 => most.div_ceil(2),
            each => each,
        };
        let mut programs = config.routes.iter().filter_map(|route| route.programs());
        Settings {
            listen: config.listen.clone(),
            http: config.http.clone(),
            trusted: config.trusted.clone(),
            max_connections: (most, each),
            spool: self.shared.spool.clone(),
            shutdown_grace: config.shutdown_grace,
            tls,
            upgrades: programs.any(|cgi| cgi.upgrade),
            access_log: config.log.access.as_ref().map(|_| config.log.format),
            own_logs: !config.log.own.is_empty(),
        }
    }

    /// Returns the workers that `before` has not started.
    pub fn worker_pools(&self, before: Option<&Self>, log: &ErrorLog) -> Vec<WorkerPool> {
        let new = |asked: &&UpstreamUse| {
            before.is_none_or(|before| !before.uses_upstream(&asked.upstream))
        };
        let new = self.upstreams.iter().filter(new);
        new.filter_map(|asked| {
            WorkerPool::from_upstream(
                &asked.upstream,
                asked.config()?,
                (&self.config.path, self.config.umask),
                log,
            )
        })
        .collect()
    }

    /// Whether the site has its own workers to start.
    pub fn has_workers(&self) -> bool {
        self.upstreams
            .iter()
            .any(|asked| asked.upstream.has_workers())
    }

    /// Hands over to `next`: restarts, one by one, workers that both sites use, and closes the idle connections of the others.
    pub fn succeeded_by(&self, next: &Self) {
        for asked in &self.upstreams {
            if next.uses_upstream(&asked.upstream) {
                asked.upstream.renew_workers()
            } else {
                asked.upstream.stop_keeping()
            }
        }
    }

    /// Closes idle connections, because no more requests come.
    pub fn close_idle(&self) {
        self.upstreams
            .iter()
            .for_each(|a| a.upstream.stop_keeping());
        self.starters.wasm.close();
    }

    fn uses_upstream(&self, upstream: &Arc<Upstream>) -> bool {
        self.upstreams
            .iter()
            .any(|asked| Arc::ptr_eq(&asked.upstream, upstream))
    }

    /// Returns the limit of a route's own programs at once.
    pub fn limit_of(&self, route: &Arc<Route>) -> Option<&Arc<ConcurrencyLimit>> {
        self.route_limits
            .iter()
            .find(|(r, _)| Arc::ptr_eq(r, route))
            .map(|(_, limit)| limit)
    }

    /// Returns the application of a route in this role.
    ///
    /// # Errors
    /// There is none, which is our own fault.
    pub fn upstream(&self, route: &Arc<Route>, role: Role) -> Result<&Arc<Upstream>, Fault> {
        let asked = self.find_upstream(route, role);
        asked.ok_or_else(|| Fault::Internal("a route has no upstream".into()))
    }

    fn find_upstream(&self, route: &Arc<Route>, role: Role) -> Option<&Arc<Upstream>> {
        let is = |asked: &&UpstreamUse| Arc::ptr_eq(&asked.route, route) && asked.role == role;
        self.upstreams.iter().find(is).map(|asked| &asked.upstream)
    }
}

/// Makes the state that handlers share; objects that are the same as `before` are kept.
fn shared(config: &Config, before: Option<&HandlersShared>) -> HandlersShared {
    let spool = Spool::new(&config.spool, before.map(|before| &*before.spool));
    HandlersShared {
        path: config.path.clone(),
        shows_causes: config.shows_causes(),
        queue_wait: config.admission.wait,
        admission: match before {
            Some(before) => before.admission.with_settings(&config.admission),
            None => Admission::new(&config.admission),
        },
        spool: Arc::new(spool),
        gate: before.map_or_else(Arc::default, |before| before.gate.clone()),
        untyped: OncePerProgram::default(),
    }
}

/// Makes the starters of programs and modules; objects that are the same as `before` are kept. `helpers`: a helper starts the
/// programs of routes that ask for one.
fn starters(
    config: &Config,
    before: Option<&ProgramStarters>,
    logs: &Logs,
    helpers: bool,
) -> ProgramStarters {
    let warm = before.map(|before| before.warm.clone());
    let needs = modules(config, helpers);
    ProgramStarters {
        warm: warm.unwrap_or_else(|| Arc::new(Warm::new(config.templates.wait))),
        wasm: Wasm::next(needs, &logs.error, before.map(|before| &before.wasm)),
    }
}

/// Returns the needs of the modules that this server runs. Workers of helpers run the other modules, each with its own profile.
fn modules(config: &Config, helpers: bool) -> Needs {
    let mut profiles: Vec<GuestAccess> = Vec::new();
    // Programs of hosts have the default profile.
    profiles.extend(config.sites.iter().map(|_| GuestAccess::default()));
    for route in &config.routes {
        if let Some(cgi) = route.programs()
            && !(helpers && cgi.remit.is_some())
            && !profiles.contains(&cgi.guest_access)
        {
            profiles.push(cgi.guest_access.clone());
        }
    }
    Needs {
        cache: wasm::cache_folder(config.cache.as_deref(), config.identity.as_ref()),
        running: config.admission.running,
        profiles,
    }
}

/// Replaces routes by equal routes of `before`.
fn keep_routes(config: &mut Config, before: &Config) {
    // Every program starts with these two settings.
    if (&config.path, config.umask) != (&before.path, before.umask) {
        return;
    }
    for route in &mut config.routes {
        if let Some(same) = before.routes.iter().find(|old| *old == route) {
            *route = same.clone();
        }
    }
}
