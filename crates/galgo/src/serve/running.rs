//! From one configuration to the next, the first included.
//!
//! 1. bind and open what is new: what fails leaves everything as it is  2. make a site of it
//! 3. hand it to the event loops, each of which answers its next request by it

use std::{path::PathBuf, sync::Arc};

use galgo_front::{
    settings::Settings,
    shared::{Handed, Shared},
    site::NewSite,
};
use galgo_handlers::{script, upstream::WorkersThread};
use galgo_io::tls::{Certificates, Server};
use galgo_proto::target::UrlPath;
use galgo_spawn::FileId;
use tokio::sync::oneshot;

use super::{
    limits,
    sockets::{Bound, New, https_port},
};
use crate::{
    cli::programs,
    config::{Address, Config, Handler, Route},
    dispatch::Dispatch,
    log::{Level, Logs},
    site::Site,
};

/// What the main thread knows of the server that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) shared: Arc<Shared<Dispatch>>,
    /// What answers requests now.
    pub(super) site: Arc<Site>,
    /// How clients are spoken with now.
    pub(super) settings: Arc<Settings>,
    pub(super) bound: Vec<Bound>,
    pub(super) workers: WorkersThread,
}

/// Resolves, with an error, when all event loops have the site.
pub(super) type Taken = oneshot::Receiver<()>;

/// Makes a site of a configuration, and the settings of the front; what the site has in common with the one `before` goes
/// on.
///
/// # Errors
/// In words.
pub(super) fn site(
    config: Config,
    before: Option<(&Site, &Settings)>,
    logs: &Logs,
) -> Result<(Site, Settings), String> {
    let tls = tls(
        &config,
        before.and_then(|(_, before)| before.tls.as_ref()),
        logs,
    )?;
    let before = before.map(|(before, _)| before);
    let max_connections = limits::max_connections(&config, limits::raise_descriptors())?;
    let site = Site::new(config, before, logs).with_upstreams(before);
    let site = site.map_err(|e| {
        let folder = std::env::temp_dir();
        format!(
            "cannot make the sockets of workers in {}: {e}",
            folder.display()
        )
    })?;
    let config = &site.config;
    let each = match config.http.max_connections_per_client {
        0 => max_connections.div_ceil(2),
        each => each,
    };
    let settings = Settings {
        listen: config.listen.clone(),
        http: config.http.clone(),
        trusted: config.trusted.clone(),
        max_connections: (max_connections, each),
        shutdown_grace: config.shutdown_grace,
        tls,
        access_log: config.log.access.as_ref().map(|_| config.log.format),
    };
    Ok((site, settings))
}

/// What is agreed upon with clients in TLS.
///
/// # Errors
/// A listener speaks TLS, and there is no certificate.
fn tls(config: &Config, before: Option<&Server>, logs: &Logs) -> Result<Option<Server>, String> {
    // The server was root when it read the key, and may not read it any more.
    if let (Some(before), Some(why)) = (before, &config.tls.unreadable) {
        let words =
            format!("{why}. The certificates that were read before stay in use until a restart");
        logs.error.write(Level::Warn, "reload", &words);
        return Ok(Some(before.clone()));
    }
    match config.lacks_certificate() {
        Some(why) => Err(why),
        None => {
            let certificates = Certificates::new(&config.tls.certificates);
            certificates.map(|c| Server::new(c, before)).transpose()
        }
    }
}

impl Running {
    /// Reads the configuration again. `None`: it cannot be used, and nothing has changed.
    pub(super) fn reload(&mut self, load: impl Fn() -> Result<Config, String>) -> Option<Taken> {
        let log = self.shared.logs.error.clone();
        match load().and_then(|config| self.succeed(config)) {
            Ok(taken) => Some(taken),
            Err(words) => {
                log.write(Level::Error, "reload", &words);
                let stays = "the configuration of before stays in use";
                log.write(Level::Warn, "reload", stays);
                None
            }
        }
    }

    /// Puts `config` in the place of what there is.
    fn succeed(&mut self, mut config: Config) -> Result<Taken, String> {
        let logs = self.shared.logs.clone();
        let fixed = keep_fixed(&mut config, &self.site.config);
        limits::allowed(&config)?;
        let new = New::bind(&config, &self.bound)?;
        let switch = logs.prepare(&self.site.config.log, &config.log);
        let switch = switch.map_err(|e| format!("cannot open a log: {e}"))?;
        let before = (&*self.site, &*self.settings);
        let (mut site, settings) = site(config, Some(before), &logs)?;
        site.https_port = https_port(&site.config, self.bound.iter().chain(&new.bound));
        self.prepare(&site)?;
        let before = std::mem::replace(&mut self.site, Arc::new(site));
        self.settings = Arc::new(settings);
        logs.switch(switch);
        self.site.shared.admission.settle();
        let taken = self.hand_out(new, Some(&before));
        before.succeeded_by(&self.site);
        for setting in fixed {
            let words =
                format!("a change of `{setting}` takes a restart: what was set before stays");
            logs.error.write(Level::Warn, "reload", &words);
        }
        for warning in &self.site.config.warnings {
            logs.error.write(Level::Warn, "reload", warning);
        }
        Ok(taken)
    }

    fn prepare(&mut self, site: &Site) -> Result<(), String> {
        match site.has_workers() {
            true => self
                .workers
                .prepare()
                .map_err(|e| format!("no thread for workers: {e}")),
            false => Ok(()),
        }
    }

    /// The first configuration.
    pub(super) fn begin(&mut self, new: New) -> Result<Taken, String> {
        self.prepare(&self.site.clone())?;
        Ok(self.hand_out(new, None))
    }

    /// Hands the site to the event loops.
    fn hand_out(&mut self, new: New, before: Option<&Site>) -> Taken {
        let (bound, queues) = new.take();
        let config = &self.site.config;
        let removed = self.bound.extract_if(.., |one| !is_named(config, one));
        // First of all, so that nobody comes by it while it is closed.
        removed.for_each(|one| one.remove());
        self.bound.extend(bound);
        for pool in self.site.worker_pools(before, &self.shared.logs.error) {
            self.workers.start(pool);
        }
        let (all, taken) = oneshot::channel();
        let all = Arc::new(all);
        for (event_loop, listeners) in self.shared.loops.iter().zip(queues) {
            let (site, settings) = (self.site.clone(), self.settings.clone());
            let new = NewSite {
                make: Box::new(|before: &Dispatch| before.succeeded_by(site, settings)),
                listeners,
                taken: all.clone(),
            };
            // An event loop that has ended answers no request.
            event_loop.hand(Handed::Site(new));
        }
        let ahead = self.site.clone();
        let compile = std::thread::Builder::new().name("modules".into());
        // Without the thread each is compiled when it is asked for.
        let _ = compile.spawn(move || ahead.shared.wasm.prepare(modules(&ahead.config)));
        taken
    }

    /// All event loops answer by the site.
    pub(super) fn taken(&self) {
        self.site.shared.warm.forget_gone();
        let words = "the configuration was read again: requests are answered by it from now on";
        self.shared.logs.error.write(Level::Info, "reload", words);
    }
}

/// The modules in the folders of programs. Takes as long as looking at the folders does.
fn modules(config: &Config) -> impl Iterator<Item = (PathBuf, FileId)> {
    let of_route = |route: &'_ Arc<Route>| match &route.handler {
        Handler::Cgi(cgi) => Some((route.clone(), cgi.clone())),
        _ => None,
    };
    let routes = config.routes.iter().filter_map(of_route);
    routes.flat_map(|(route, cgi)| {
        let files = programs::files(&cgi.root).into_iter();
        files.filter_map(move |file: PathBuf| {
            let url = programs::url(&route, &cgi, &file)?;
            let found = script::program(&cgi, &route.path, UrlPath::plain(&url)).ok()?;
            found.module.then_some((file, found.id))
        })
    })
}

fn is_named(config: &Config, bound: &Bound) -> bool {
    let mut listeners = config.listen.iter();
    listeners.any(|listen| listen.address == bound.asked)
}

/// Puts what cannot change while the server runs back as it was; returns the settings that would have.
fn keep_fixed(config: &mut Config, before: &Config) -> Vec<&'static str> {
    let unix = |config: &Config| {
        config
            .listen
            .iter()
            .any(|l| matches!(l.address, Address::Unix(_)))
    };
    let mut fixed = Vec::new();
    keep(&mut config.identity, &before.identity, "user", &mut fixed);
    keep(&mut config.workers, &before.workers, "workers", &mut fixed);
    if unix(before) {
        let (mode, group) = (&before.socket_mode, &before.socket_group);
        keep(&mut config.socket_mode, mode, "socket_mode", &mut fixed);
        keep(&mut config.socket_group, group, "socket_group", &mut fixed);
    }
    fixed
}

fn keep<T: Clone + PartialEq>(
    new: &mut T,
    old: &T,
    name: &'static str,
    kept: &mut Vec<&'static str>,
) {
    if new != old {
        new.clone_from(old);
        kept.push(name);
    }
}
