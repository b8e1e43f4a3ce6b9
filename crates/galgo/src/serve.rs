//! The life of the server: bind, open logs, become the configured user, serve, drain.

use std::{io, net::IpAddr, sync::Arc, thread::JoinHandle, time::Duration};

use galgo_spawn::{Direct, Spawner};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
};

use crate::{
    balance,
    config::{self, Address, Config, Listen, Route},
    listen::{self, Listener, SocketFile},
    log::{Level, Logs},
    upstream::{
        Upstream,
        workers::{Crew, Watch},
    },
    worker::{self, Asked, Handed, Peer, Phase, Server, Worker},
};

/// A server that has bound its listeners and dropped its privileges, and has not yet read a byte from the network.
#[derive(Debug)]
pub struct Ready {
    config: Config,
    listeners: Vec<Listener>,
    /// The same for the other workers that accept.
    more_listeners: Vec<Vec<Listener>>,
    logs: Logs,
    max_connections: usize,
    spawners: Vec<Direct>,
    upstreams: Vec<Asked>,
    /// Starts the workers of upstreams.
    crew_spawner: Direct,
    signals: Signals,
}

/// What the main thread waits for. Watched before anybody is told that the server is ready: a signal
/// that comes right then must not end it the hard way.
#[derive(Debug)]
struct Signals {
    runtime: Runtime,
    term: Signal,
    int: Signal,
    reopen: Signal,
}

impl Signals {
    fn watch() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let (term, int) = (SignalKind::terminate(), SignalKind::interrupt());
        let (term, int) = (signal(term)?, signal(int)?);
        let reopen = signal(SignalKind::user_defined1())?;
        drop(entered);
        Ok(Self {
            runtime,
            term,
            int,
            reopen,
        })
    }
}

/// How long a second signal may take.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum End {
    /// Every request was finished, or ended after the grace.
    Drained,
    /// A second signal came.
    AtOnce,
}

impl Ready {
    /// Binds, opens logs, and becomes the configured user.
    pub fn prepare(config: Config) -> Result<Self, String> {
        allowed(&config)?;
        let descriptors = raise_descriptors();
        // Early, while descriptor numbers are low: see `Direct`.
        let spawners = (0..config.workers)
            .map(|_| spawner(&config))
            .collect::<io::Result<_>>();
        let spawners = spawners.map_err(|e| format!("preparing to start programs: {e}"))?;
        let crew_spawner =
            spawner(&config).map_err(|e| format!("preparing to start workers: {e}"))?;
        let mut listeners = Vec::new();
        for listen in &config.listen {
            let bound = Listener::bind(listen, &config);
            listeners.push(bound.map_err(|e| cannot_listen(listen, &e))?);
        }
        // Before the server becomes a user that may not bind these ports.
        let more_listeners = (1..balance::accepting(config.workers))
            .map(|_| listeners.iter().map(Listener::another).collect())
            .collect::<io::Result<_>>()
            .map_err(|e| format!("cannot listen once for each event loop: {e}"))?;
        let logs = Logs::open(&config.log).map_err(|e| format!("cannot open a log: {e}"))?;
        crate::wasm::prepare_cache(&config);
        if let Some(identity) = &config.identity {
            become_user(identity)?;
        }
        // What a service manager gives (to bind low ports) is the server's alone: programs would inherit the
        // ambient set over execve, capabilities(7). Threads inherit the absence of it.
        rustix::thread::clear_ambient_capability_set()
            .map_err(|e| format!("cannot keep capabilities from programs: {e}"))?;
        let max_connections = max_connections(&config, descriptors)?;
        let upstreams = upstreams(&config).map_err(|e| {
            format!(
                "cannot make the sockets of workers in {}: {e}",
                std::env::temp_dir().display()
            )
        })?;
        let signals = Signals::watch().map_err(|e| format!("watching for signals: {e}"))?;
        galgo_spawn::reap_strangers();
        Ok(Self {
            config,
            listeners,
            more_listeners,
            logs,
            max_connections,
            spawners,
            upstreams,
            crew_spawner,
            signals,
        })
    }

    /// The bound listeners, with their real ports.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Connections at once.
    pub fn max_connections(&self) -> usize {
        self.max_connections
    }

    /// Serves until SIGTERM or SIGINT, then lets requests finish up to the grace.
    pub fn run(self) -> io::Result<End> {
        let Self {
            config,
            listeners,
            more_listeners,
            logs,
            max_connections,
            spawners,
            upstreams,
            crew_spawner,
            signals,
        } = self;
        let grace = config.shutdown_grace;
        let _ballast = ballast();
        let (phase, watch) = watch::channel(Phase::Serving);
        let (peers, given): (Vec<_>, Vec<_>) = (0..config.workers).map(|_| Peer::new()).unzip();
        let socket_files: Vec<_> = listeners.iter().filter_map(Listener::socket_file).collect();
        let crews = crews(&upstreams, &config, &logs);
        let watch_workers = match crews.is_empty() {
            true => None,
            false => Some(Watch::start(crews, crew_spawner)?),
        };
        let server = Arc::new(Server::new(
            config,
            logs.clone(),
            max_connections,
            peers,
            watch,
            upstreams,
        ));
        let mut threads = Vec::new();
        let mut queues = vec![listeners];
        queues.extend(more_listeners);
        // The first workers accept, each from its own; the others share those of one, to help it.
        let accepting = queues.len();
        for helper in accepting..spawners.len() {
            let shared = queues[helper % accepting].iter().map(Listener::shared);
            queues.push(shared.collect::<io::Result<_>>()?);
        }
        for (((index, spawner), given), own) in
            spawners.into_iter().enumerate().zip(given).zip(queues)
        {
            let spawner = Spawner::Direct(spawner);
            threads.push(thread(server.clone(), index, spawner, own, given, grace)?);
        }
        let ahead = server.clone();
        let compile = std::thread::Builder::new().name("modules".into());
        // Without the thread each is compiled when it is asked for.
        let _ = compile.spawn(move || ahead.wasm.prepare(&ahead.config));
        let end = wait_for_signals(signals, &logs, &phase, threads);
        // After the last request.
        drop(watch_workers);
        socket_files.iter().for_each(SocketFile::remove);
        logs.flush();
        end
    }
}

fn upstreams(config: &Config) -> io::Result<Vec<Asked>> {
    let all = config
        .routes
        .iter()
        .flat_map(|route| route.upstreams().map(move |up| (route, up)));
    let asked = |(route, up): (&Arc<Route>, &config::Upstream)| {
        Ok(Asked {
            route: route.clone(),
            role: up.role,
            upstream: Arc::new(Upstream::new(up, &config.admission)?),
        })
    };
    all.map(asked).collect()
}

/// The workers that upstreams have of their own.
fn crews(upstreams: &[Asked], config: &Config, logs: &Logs) -> Vec<Crew> {
    let crew = |asked: &Asked| {
        let up = asked.route.upstreams().find(|up| up.role == asked.role)?;
        Crew::of(&asked.upstream, up, &config.path, &logs.error)
    };
    upstreams.iter().filter_map(crew).collect()
}

/// What starts the programs of one worker.
pub(crate) fn spawner(config: &Config) -> io::Result<Direct> {
    let mut direct = Direct::new()?;
    direct.set_umask(Some(config.umask));
    Ok(direct)
}

fn thread(
    server: Arc<Server>,
    index: usize,
    spawner: Spawner,
    listeners: Vec<Listener>,
    given: mpsc::UnboundedReceiver<Handed>,
    grace: Duration,
) -> io::Result<JoinHandle<()>> {
    let name = format!("worker-{index}");
    std::thread::Builder::new().name(name).spawn(move || {
        let errors = server.logs.error.clone();
        let tasks = |worker: std::rc::Rc<Worker>| {
            let accepts = index < worker.server.accepting;
            for listener in listeners {
                let worker = worker.clone();
                match accepts {
                    true => tokio::task::spawn_local(listen::accept(worker, listener)),
                    false => tokio::task::spawn_local(listen::help(worker, listener)),
                };
            }
            tokio::task::spawn_local(listen::take(worker.clone(), given));
        };
        let ran = Worker::new(server, index, spawner)
            .and_then(|worker| worker::run(&worker, tasks, grace));
        if let Err(e) = ran {
            errors.write(Level::Error, "worker", &e.to_string());
        }
    })
}

/// Serves on the main thread what signals ask for, until all workers have ended.
fn wait_for_signals(
    signals: Signals,
    logs: &Logs,
    phase: &watch::Sender<Phase>,
    threads: Vec<JoinHandle<()>>,
) -> io::Result<End> {
    let Signals {
        runtime,
        mut term,
        mut int,
        mut reopen,
    } = signals;
    runtime.block_on(async {
        loop {
            tokio::select! {
                _ = reopen.recv() => logs.reopen(),
                () = either(&mut term, &mut int) => break,
            }
        }
        phase.send_replace(Phase::Draining);
        let (ended, mut all_ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            for thread in threads {
                let _ = thread.join();
            }
            let _ = ended.send(());
        });
        tokio::select! {
            _ = &mut all_ended => return Ok(End::Drained),
            () = either(&mut term, &mut int) => {}
        }
        // Workers end the programs that still run; one that is stuck in the kernel is not waited for.
        phase.send_replace(Phase::Ending);
        let _ = tokio::time::timeout(AT_ONCE, all_ended).await;
        Ok(End::AtOnce)
    })
}

async fn either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}

/// Becomes a user for good. Root's alone to do; to others the words say so.
pub(crate) fn become_user(identity: &config::Identity) -> Result<(), String> {
    let uid = galgo_spawn::identity::effective_uid();
    if uid != 0 && uid != identity.uid {
        return Err(
            "cannot become the configured user: only root can. Start with sudo, or leave `user` and --user away"
                .into(),
        );
    }
    identity
        .assume()
        .map_err(|e| format!("cannot become the configured user: {e}"))
}

/// Memory that a benchmark wants the server to hold, to show that starting programs does not depend on it:
/// GALGO_BENCH_BALLAST, bytes.
fn ballast() -> Vec<u8> {
    let wanted = std::env::var("GALGO_BENCH_BALLAST").ok();
    let bytes = wanted.and_then(|b| b.parse().ok()).unwrap_or(0);
    // Not zeros: those would be pages that are not there.
    vec![1; bytes]
}

/// Root without a user to become serves this machine only.
fn allowed(config: &Config) -> Result<(), String> {
    if galgo_spawn::identity::effective_uid() != 0 || config.identity.is_some() {
        return Ok(());
    }
    let open = config.listen.iter().find(|l| match &l.address {
        Address::Tcp(at) => !loopback(at.ip()),
        Address::Unix(_) => false,
    });
    match open {
        Some(listen) => Err(format!(
            "refusing to listen on {listen} as root: programs would run as root for everybody. \
             Name the user to run as: `user = \"www-data\"` in the configuration, or --user www-data"
        )),
        None => Ok(()),
    }
}

/// Whether only this machine reaches `ip`.
pub fn loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Why nothing can be bound there, and what to do.
fn cannot_listen(listen: &Listen, e: &io::Error) -> String {
    let unix = matches!(listen.address, Address::Unix(_));
    let why = match (e.kind(), unix) {
        (io::ErrorKind::AddrInUse, false) => {
            "another program listens there already. Stop it (ss -ltnp shows which), \
             or choose another port with --listen; port 0 takes a free one"
        }
        (io::ErrorKind::AddrInUse, true) => {
            "another program listens there already, or the file is no socket"
        }
        (io::ErrorKind::PermissionDenied, false) => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE. Choose a port such as 8080, \
             or start with sudo and --user"
        }
        (io::ErrorKind::PermissionDenied, true) => "this user may not create a file in that folder",
        (io::ErrorKind::NotFound, true) => "its folder does not exist: create it",
        (io::ErrorKind::AddrNotAvailable, _) => {
            "this machine has no such address (ip addr shows those it has)"
        }
        _ => return format!("cannot listen on {listen}: {e}"),
    };
    format!("cannot listen on {listen}: {why}")
}

/// The most descriptors worth having.
const DESCRIPTORS: u64 = 1 << 20;

/// Raises the soft limit of descriptors to the hard one; programs get theirs from `open_files`.
fn raise_descriptors() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    let wanted = Rlimit {
        current: Some(most),
        maximum: now.maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => most,
        Err(_) => now.current.unwrap_or(DESCRIPTORS),
    }
}

/// Connections such that every one that is accepted finds the descriptors its request may need:
/// its socket, one open file, and the pipes of the programs that may run and the files of those that wait.
fn max_connections(config: &Config, descriptors: u64) -> Result<usize, String> {
    const PER_PROGRAM: usize = 10;
    const PER_WORKER: usize = 16 + crate::handler::files::OPEN;
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    let reserved = 64
        + config.workers * (PER_WORKER + 2 * config.listen.len())
        + config.admission.running * PER_PROGRAM
        + config.admission.queue
        + config.routes.iter().map(|r| of_upstream(r)).sum::<usize>();
    let possible = descriptors.saturating_sub(reserved) / 2;
    let wanted = config.http.max_connections;
    if possible == 0 || wanted > possible {
        return Err(format!(
            "{descriptors} descriptors are too few for {wanted} connections and {} programs: \
             raise the limit (ulimit -n, LimitNOFILE=), or lower max_connections, max_running or queue",
            config.admission.running
        ));
    }
    Ok(if wanted == 0 { possible } else { wanted })
}

/// Descriptors that the requests and workers of a route to an upstream may need: connections, those that are
/// kept, files of bodies, sockets and pipes of workers.
fn of_upstream(route: &Route) -> usize {
    route.upstreams().map(|up| 5 * up.running + up.keep).sum()
}
