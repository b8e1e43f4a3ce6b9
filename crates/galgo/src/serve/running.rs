//! The switch from one configuration to the next, including the first one.
//!
//! 1. bind and open everything new: a failure changes nothing  2. make a site of the configuration
//! 3. hand the site to the event loops: each answers its next request by it
//!
//! A request holds the site with which it began, by a counter of its own event loop. The last request drops the site, and
//! everything that no other site uses. Both sites share the objects that stay: equal routes are the same `Arc<Route>`, and
//! templates, permits and upstreams are found by their route.

use std::{io, path::PathBuf, sync::Arc};

use galgo_front::{
    front_settings::{Listen, Settings},
    shared_by_loops::{Handed, Shared},
    site::NewSite,
};
use galgo_handlers::{script, upstream::WorkersThread};
use galgo_io::tls::{Shown, TlsServer};
use galgo_proto::target::UrlPath;
use galgo_service::log::{Level, Logs, Reopening};
use galgo_spawn::{FileId, sandbox::VisibleFiles};
use tokio::sync::oneshot;

use super::{
    limits,
    owners::{SpawnerRead, Spawning},
    visible,
};
use crate::{
    certificates::{answers::Answers, keeper::Keeper, store::Store, work::CertificateWork},
    config::{Address, Config, Route, Speaks},
    dispatch::Dispatch,
    programs,
    site::Site,
    sockets::{
        handover::{Item, STORE},
        inherited::Inherited,
        listening::{Bound, New, https_port},
    },
};

/// The main thread's view of the running server.
#[derive(Debug)]
pub(super) struct RunningServer {
    pub(super) shared: Arc<Shared<Dispatch>>,
    /// The site that answers requests now.
    pub(super) site: Arc<Site>,
    /// The settings of connections with clients now.
    pub(super) settings: Arc<Settings>,
    pub(super) bound: Vec<Bound>,
    /// Inherited sockets, which a later configuration may name.
    pub(super) inherited: Inherited,
    pub(super) workers: WorkersThread,
    pub(super) certificates: CertificateServices,
    /// The spawner of programs of other users.
    pub(super) spawning: Option<Spawning>,
    /// This process may execute programs.
    pub(super) executes: bool,
    /// The files that this process sees; `None`: all that its user may.
    pub(super) visible: Option<VisibleFiles>,
}

/// The reason why a configuration is not used. Nothing has changed.
pub(super) enum NotTaken {
    /// The configuration is wrong, or needs a restart.
    Wrong(String),
    /// The configuration cannot be read here, or names files that this process has hidden from itself.
    Hidden(String),
}

impl From<String> for NotTaken {
    fn from(words: String) -> Self {
        Self::Wrong(words)
    }
}

/// Services for certificates while the server runs.
#[derive(Debug, Default)]
pub(super) struct CertificateServices {
    pub(super) store: Option<Arc<Store>>,
    pub(super) answers: Arc<Answers>,
    keeper: Option<Keeper>,
}

impl CertificateServices {
    /// Opens the folder of automatic certificates, if there are any.
    pub(super) fn open_store(
        &mut self,
        config: &Config,
        inherited: &mut Inherited,
    ) -> Result<(), String> {
        if let (Some(automatic), None) = (&config.tls.automatic, &self.store) {
            let store = match inherited.take_store(automatic) {
                Some(store) => store,
                None => Store::open(automatic, config.identity.as_ref())?,
            };
            self.store = Some(Arc::new(store));
        }
        Ok(())
    }

    /// Starts the thread for a site's certificates, if the site has any.
    fn prepare(&mut self, settings: &Settings, logs: &Logs) -> Result<(), String> {
        if settings.tls.is_some() && self.keeper.is_none() {
            let keeper = Keeper::start_thread(self.answers.clone(), logs.error.clone());
            let words = |e| format!("cannot start a thread for certificates: {e}");
            self.keeper = Some(keeper.map_err(words)?);
        }
        Ok(())
    }

    /// Gives a site's certificates to the thread, which `prepare` has started.
    fn look_after(&mut self, site: &Site, settings: &Settings) {
        let Some(tls) = &settings.tls else {
            self.keeper = None;
            return;
        };
        let plain = |l: &Listen| l.speaks == Speaks::Http && matches!(l.address, Address::Tcp(_));
        let work = CertificateWork {
            shown: tls.shown_certificates().clone(),
            files: site.config.tls.certificates.clone(),
            automatic: site.config.tls.automatic.clone(),
            store: self.store.clone(),
            http: settings.listen.iter().any(plain),
            required: site.config.tls.clients.as_ref().is_some_and(|c| c.required),
        };
        if let Some(keeper) = &self.keeper {
            keeper.replace_work(work);
        }
    }
}

/// Everything that a configuration needs, prepared before anything uses it.
#[derive(Debug)]
pub(super) struct NextSite {
    new: New,
    switch: Reopening,
    site: Site,
    settings: Settings,
    /// The changed settings that need a restart.
    fixed: Vec<&'static str>,
}

/// Resolves, with an error, when all event loops have the site.
pub(super) type Taken = oneshot::Receiver<()>;

/// Makes a site of a configuration, and the settings of the front. The site keeps the objects that it shares with the site
/// `before`.
///
/// # Errors
/// A sentence for the operator.
pub(super) fn build_site(
    config: Config,
    before: Option<(&Site, &Settings)>,
    certificates: &CertificateServices,
    spawning: Option<&Spawning>,
    logs: &Logs,
) -> Result<(Site, Settings), String> {
    let tls = build_tls(
        &config,
        before.and_then(|(_, before)| before.tls.as_ref()),
        certificates.store.as_deref(),
        logs,
    )?;
    let before = before.map(|(before, _)| before);
    let max_connections = limits::max_connections(&config, limits::raise_descriptors())?;
    let owners = spawning.map(|spawning| &spawning.owners);
    let site = Site::new(config, before, logs).with_upstreams(before, owners);
    let mut site = site.map_err(|e| {
        let folder = std::env::temp_dir();
        format!(
            "cannot create the sockets of workers in {}: {e}",
            folder.display()
        )
    })?;
    let automatic = site.config.tls.automatic.as_ref();
    site.answers = automatic.map(|_| certificates.answers.clone());
    site.shown = tls.as_ref().map(|tls| tls.shown_certificates().clone());
    let settings = site.front_settings(max_connections, tls);
    Ok((site, settings))
}

/// Makes the TLS settings of the listeners.
///
/// # Errors
/// A listener speaks TLS, and there is no certificate.
fn build_tls(
    config: &Config,
    before: Option<&TlsServer>,
    store: Option<&Store>,
    logs: &Logs,
) -> Result<Option<TlsServer>, String> {
    // The server read the key as root, and may be unable to read it now.
    if let (Some(before), Some(why)) = (before, &config.tls.unreadable) {
        let words =
            format!("{why}. The certificates that were read before stay in use until a restart");
        logs.error.write(Level::Warn, "reload", &words);
        return Ok(Some(before.clone()));
    }
    if let Some(why) = config.lacks_certificate() {
        return Err(why);
    }
    let (files, automatic) = (&config.tls.certificates, &config.tls.automatic);
    if files.is_empty() && automatic.is_none() {
        return Ok(None);
    }
    let hosts = automatic.as_ref().map_or(&[][..], |a| &a.hosts);
    let files = files.iter().map(|one| one.certificate.clone());
    let files: Vec<_> = files.collect();
    let shown = Shown::new(
        &files,
        hosts,
        before.map(|before| &**before.shown_certificates()),
    );
    for host in hosts
        .iter()
        .filter(|host| shown.automatic_certificate(host).is_none())
    {
        match store.map_or(Ok(None), |store| store.load_certificate(host)) {
            Ok(Some(certificate)) => shown.show_automatic(host, certificate),
            Ok(None) => {}
            Err(why) => logs.error.write(Level::Warn, "tls", &why),
        }
    }
    let clients = config.tls.clients.clone();
    TlsServer::new(Arc::new(shown), clients, before).map(Some)
}

impl RunningServer {
    /// Takes the new configuration, and prepares everything that may fail.
    pub(super) fn reload(&mut self, config: Result<Config, String>) -> Result<NextSite, NotTaken> {
        match (config, &self.visible) {
            (Ok(config), _) => self.prepare_next(config),
            // The file may be hidden from this process alone.
            (Err(words), Some(_)) => Err(NotTaken::Hidden(words)),
            (Err(words), None) => Err(words.into()),
        }
    }

    /// Prepares the site that is to replace the current one.
    fn prepare_next(&mut self, mut config: Config) -> Result<NextSite, NotTaken> {
        let logs = self.shared.logs.clone();
        let fixed = keep_fixed(&mut config, &self.site.config);
        limits::allowed(&config)?;
        Spawning::suffices(self.spawning.as_ref(), &config)?;
        if let Some(path) = config.starts_here()
            && !self.executes
        {
            return Err(format!(
                "{path}: restart galgo to start its programs: this process gave up the right to execute programs, because every route had a `user` or a strict sandbox"
            ).into());
        }
        let visible = self.visible.as_ref();
        if let Some(path) = visible.and_then(|visible| visible::hidden(visible, &config)) {
            return Err(NotTaken::Hidden(format!(
                "{}: this process can open only the paths that were configured when it started",
                path.display()
            )));
        }
        let new = New::bind_new_addresses(&config, &self.bound, &mut self.inherited)?;
        let switch = logs.open_changed_logs(&self.site.config.log, &config.log);
        let switch = switch.map_err(|e| format!("cannot open a log: {e}"))?;
        let before = (&*self.site, &*self.settings);
        self.certificates.open_store(&config, &mut self.inherited)?;
        let spawning = self.spawning.as_ref();
        let made = build_site(config, Some(before), &self.certificates, spawning, &logs);
        let (mut site, settings) = made?;
        site.https_port = https_port(&site.config, self.bound.iter().chain(&new.bound));
        self.prepare(&site, &settings)?;
        Ok(NextSite {
            new,
            switch,
            site,
            settings,
            fixed,
        })
    }

    /// Makes the spawner read the configuration before the server uses `next`. This is the last step that may fail, because the
    /// spawner assumes that the server uses the configuration that the spawner has read. `None`: the spawner need not read it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn has_spawner_read(&self, next: &NextSite) -> Result<Option<SpawnerRead>, String> {
        Spawning::reload(self.spawning.as_ref(), &next.site.config)
    }

    /// Replaces the current site by `next`.
    pub(super) fn replace_site(&mut self, next: NextSite) -> Taken {
        let NextSite {
            mut new,
            switch,
            site,
            settings,
            fixed,
        } = next;
        let logs = self.shared.logs.clone();
        let before = std::mem::replace(&mut self.site, Arc::new(site));
        self.settings = Arc::new(settings);
        logs.switch_targets(switch);
        self.certificates.look_after(&self.site, &self.settings);
        self.site.shared.admission.apply_settings();
        let left_out = std::mem::take(&mut new.left_out);
        let taken = self.hand_out(new, Some(&before));
        before.succeeded_by(&self.site);
        for setting in fixed {
            let words = format!("`{setting}` has changed: restart galgo to use the new value");
            logs.error.write(Level::Warn, "reload", &words);
        }
        for warning in self.site.config.warnings.iter().chain(&left_out) {
            logs.error.write(Level::Warn, "reload", warning);
        }
        taken
    }

    /// Starts the threads that a site needs besides the event loops.
    fn prepare(&mut self, site: &Site, settings: &Settings) -> Result<(), String> {
        if site.has_workers() {
            let prepared = self.workers.prepare();
            prepared.map_err(|e| format!("cannot start a thread for workers: {e}"))?;
        }
        self.certificates.prepare(settings, &self.shared.logs)
    }

    /// Prepares everything that may fail for the first configuration.
    pub(super) fn prepare_first(&mut self) -> Result<(), String> {
        let (site, settings) = (self.site.clone(), self.settings.clone());
        self.prepare(&site, &settings)
    }

    /// Serves the first configuration: once another process has let go, nothing may fail any more.
    pub(super) fn serve_first(&mut self, new: New) -> Taken {
        self.certificates.look_after(&self.site, &self.settings);
        self.hand_out(new, None)
    }

    /// Hands the site to the event loops.
    fn hand_out(&mut self, new: New, before: Option<&Site>) -> Taken {
        let (bound, queues) = new.into_parts();
        let config = &self.site.config;
        let own = config.routes.iter().filter_map(|route| route.log.as_ref());
        own.for_each(|log| self.shared.logs.connect_route_log(log));
        let removed = self.bound.extract_if(.., |one| !is_named(config, one));
        // First of all, so that no client finds a socket by its file while that is being closed.
        removed.for_each(|one| one.remove());
        self.bound.extend(bound);
        for pool in self.site.worker_pools(before, &self.shared.logs.error) {
            self.workers.start_workers(pool);
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
            let _ = event_loop.send_message(Handed::Site(new));
        }
        let ahead = self.site.clone();
        let compile = std::thread::Builder::new().name("modules".into());
        // Without the thread, each module is compiled when a request asks for it.
        let _ = compile.spawn(move || ahead.starters.wasm.prepare(modules(&ahead.config)));
        taken
    }

    /// Returns the items that let another process listen at the same addresses.
    ///
    /// # Errors
    /// A sentence: there are no descriptors left.
    pub(super) fn prepare_handover(&self) -> Result<Vec<Item>, String> {
        let bound = self.bound.iter().map(Bound::prepare_handover);
        let store = self.certificates.store.iter().map(|store| {
            let (path, folder) = store.prepare_handover()?;
            Ok(vec![(STORE, path, folder)])
        });
        let items = std::iter::once(self.inherited.passed.prepare_handover()).chain(bound);
        let items = items.chain(store).collect::<io::Result<Vec<_>>>();
        let items = items.map_err(|e| format!("cannot hand over the listeners: {e}"))?;
        Ok(items.into_iter().flatten().collect())
    }

    /// Drops the listeners: each closes when its event loops have closed it.
    pub(super) fn let_go(&mut self) {
        self.inherited = Inherited::default();
        self.bound.iter_mut().for_each(Bound::let_go);
    }

    /// Called when all event loops answer by the site.
    pub(super) fn finish_switch(&self) {
        self.site.starters.warm.forget_gone();
        let words = "reloaded the configuration: requests use it from now on";
        self.shared.logs.error.write(Level::Info, "reload", words);
    }
}

/// Returns the modules in the folders of programs, which takes as long as reading the folders.
fn modules(config: &Config) -> impl Iterator<Item = (PathBuf, FileId)> {
    // Modules of other users are compiled by those users' own workers, when a request asks for them.
    let of_route = |route: &'_ Arc<Route>| {
        let cgi = route.programs().filter(|cgi| cgi.remit.is_none())?;
        Some((route.clone(), cgi.clone()))
    };
    let routes = config.routes.iter().filter_map(of_route);
    routes.flat_map(|(route, cgi)| {
        let files = programs::list_files(&cgi.root).into_iter();
        files.filter_map(move |file: PathBuf| {
            let url = programs::program_url(&route, &cgi, &file)?;
            let found = script::find_program(&cgi, &route.path, UrlPath::from_clean(&url)).ok()?;
            found.module.then_some((file, found.id))
        })
    })
}

fn is_named(config: &Config, bound: &Bound) -> bool {
    let mut listeners = config.listen.iter();
    listeners.any(|listen| listen.address == bound.asked)
}

/// Restores settings that cannot change while the server runs; returns the names of the changed ones.
fn keep_fixed(config: &mut Config, before: &Config) -> Vec<&'static str> {
    let mut fixed = Vec::new();
    if let (Some(now), Some(was)) = (&mut config.tls.automatic, &before.tls.automatic) {
        // The folder for automatic certificates was opened with the rights of the start.
        fixed.push(restore_setting(&mut now.state, &was.state, "state"));
        fixed.push(restore_setting(
            &mut now.authority,
            &was.authority,
            "authority",
        ));
    }
    fixed.extend([
        restore_setting(&mut config.identity, &before.identity, "user"),
        restore_setting(&mut config.event_loops, &before.event_loops, "workers"),
        restore_setting(&mut config.pid_file, &before.pid_file, "pid_file"),
    ]);
    let is_unix = |l: &Listen| matches!(l.address, Address::Unix(_));
    if before.listen.iter().any(is_unix) {
        let (mode, group) = (&before.socket_mode, &before.socket_group);
        fixed.push(restore_setting(
            &mut config.socket_mode,
            mode,
            "socket_mode",
        ));
        fixed.push(restore_setting(
            &mut config.socket_group,
            group,
            "socket_group",
        ));
    }
    fixed.into_iter().flatten().collect()
}

/// Restores a setting; returns its name if it had changed.
fn restore_setting<T: Clone + PartialEq>(
    new: &mut T,
    old: &T,
    name: &'static str,
) -> Option<&'static str> {
    let changes = new != old;
    new.clone_from(old);
    changes.then_some(name)
}
