//! The life of the server: bind, open logs, become the configured user, serve, drain.

mod limits;
mod running;
mod socket_file;
mod sockets;

use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use galgo_front::{
    event_loop::EventLoop,
    settings::Settings,
    shared::{Handed, Handle, Shared},
};
use galgo_handlers::{files, resources::Resources, upstream::WorkersThread, wasm};
use galgo_spawn::{Direct, Spawner};
use rustix::{
    fs::{Mode, OFlags},
    process::DumpableBehavior,
};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
};

pub use sockets::Bound;

use crate::{
    config::{self, Config},
    dispatch::Dispatch,
    log::{Level, Logs},
    phase::Phase,
    site::Site,
};
use running::{Running, Taken};
use sockets::{New, https_port};

/// A server that has bound its listeners and dropped its privileges, and has not yet read a byte from the network.
#[derive(Debug)]
pub struct Ready {
    site: Site,
    settings: Settings,
    new: New,
    logs: Logs,
    spawners: Vec<Direct>,
    /// The workers of upstreams.
    workers: WorkersThread,
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
    reload: Signal,
    /// SIGHUP may be the end of a terminal, too: that ends the server.
    terminal: bool,
}

/// Whether this process has a terminal that is still there.
fn terminal() -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}

/// Whether whoever started us had us ignore SIGHUP, as nohup(1) does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (rustix::process::Signal::HUP.as_raw() - 1) != 0)
}

impl Signals {
    fn watch() -> io::Result<Self> {
        let terminal = terminal() && !ignores_hangup();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let (term, int) = (SignalKind::terminate(), SignalKind::interrupt());
        let (term, int) = (signal(term)?, signal(int)?);
        let reopen = signal(SignalKind::user_defined1())?;
        let reload = signal(SignalKind::hangup())?;
        drop(entered);
        Ok(Self {
            runtime,
            term,
            int,
            reopen,
            reload,
            terminal,
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
        close_memory()?;
        limits::allowed(&config)?;
        limits::raise_descriptors();
        // Early, while descriptor numbers are low: see `Direct`.
        let mut spawners = Direct::several(config.workers)
            .map_err(|e| format!("preparing to start programs: {e}"))?;
        spawners.iter_mut().for_each(|one| settle(one, &config));
        let workers = spawner(&config).map_err(|e| format!("preparing to start workers: {e}"))?;
        // Before the server becomes a user that may not enter the folder it lies in.
        wasm::beside();
        // Before the server becomes a user that may not bind these ports.
        let new = New::bind(&config, &[])?;
        let logs = Logs::open(&config.log, config.identity.as_ref())
            .map_err(|e| format!("cannot open a log: {e}"))?;
        let becomes = config.identity.as_ref();
        let cache = wasm::cache_folder(config.cache.as_deref(), becomes);
        wasm::prepare_cache(&cache, becomes);
        if let Some(identity) = &config.identity {
            become_user(identity)?;
            // With the user the kernel sets it anew, to `fs.suid_dumpable`.
            close_memory()?;
        }
        // What a service manager gives (to bind low ports) is the server's alone: programs would inherit the
        // ambient set over execve, capabilities(7). Threads inherit the absence of it.
        rustix::thread::clear_ambient_capability_set()
            .map_err(|e| format!("cannot keep capabilities from programs: {e}"))?;
        let (mut site, settings) = running::site(config, None, &logs)?;
        site.https_port = https_port(&site.config, new.bound.iter());
        let signals = Signals::watch().map_err(|e| format!("watching for signals: {e}"))?;
        galgo_spawn::reap_strangers();
        Ok(Self {
            site,
            settings,
            new,
            logs,
            spawners,
            workers: WorkersThread::new(workers),
            signals,
        })
    }

    /// What is listened on, with the real ports.
    pub fn bound(&self) -> &[Bound] {
        &self.new.bound
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.site.config
    }

    /// Serves until SIGTERM or SIGINT, then lets requests finish up to the grace. What `load` says is served
    /// from the next SIGHUP on.
    pub fn run(self, load: impl Fn() -> Result<Config, String>) -> Result<End, String> {
        let Self {
            site,
            settings,
            new,
            logs,
            spawners,
            workers,
            signals,
        } = self;
        let io = |e: io::Error| e.to_string();
        let (phase, watch) = watch::channel(Phase::Serving);
        let (loops, given): (Vec<_>, Vec<_>) = spawners.iter().map(|_| Handle::new()).unzip();
        let mut running = Running {
            shared: Arc::new(Shared::new(logs.clone(), loops, watch)),
            site: Arc::new(site),
            settings: Arc::new(settings),
            bound: Vec::new(),
            workers,
        };
        // It is not waited for: clients are in the queue of a listener meanwhile.
        drop(running.begin(new)?);
        let mut threads = Vec::new();
        let together = Together::of(spawners.len());
        for ((index, spawner), given) in spawners.into_iter().enumerate().zip(given) {
            let thread = thread(&running, index, spawner, given, together.clone());
            threads.push(thread.map_err(io)?);
        }
        let end = wait_for_signals(signals, &mut running, load, &phase, threads);
        running.bound.iter().for_each(Bound::remove);
        // After the last request.
        drop(running);
        logs.flush();
        Ok(end)
    }
}

/// From here on no other process of the same user may look into this one, ptrace(2) and /proc/PID/mem among others; nor is its
/// core dumped.
fn close_memory() -> Result<(), String> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| format!("cannot close the server's memory to its programs: {e}"))
}

/// What starts the programs of one event loop.
pub(crate) fn spawner(config: &Config) -> io::Result<Direct> {
    let mut direct = Direct::new()?;
    settle(&mut direct, config);
    Ok(direct)
}

fn settle(spawner: &mut Direct, config: &Config) {
    spawner.set_umask(Some(config.umask));
    // A server that is killed ends nothing any more, and nobody would ever read what its programs have to say.
    spawner.set_orphaned(Some(rustix::process::Signal::KILL.as_raw()));
}

/// Runs the event loop of that index on a thread of its own.
fn thread(
    running: &Running,
    index: usize,
    spawner: Direct,
    given: mpsc::UnboundedReceiver<Handed<Dispatch>>,
    together: Arc<Together>,
) -> io::Result<JoinHandle<()>> {
    let shared = running.shared.clone();
    let (site, settings) = (running.site.clone(), running.settings.clone());
    let errors = shared.logs.error.clone();
    let run = move || {
        let resources = Resources::new(
            index,
            Spawner::Direct(spawner),
            shared.logs.error.clone(),
            site.config.templates.clone(),
            shared.phase.clone(),
        )?;
        let site = Dispatch {
            resources,
            site,
            settings,
        };
        let event_loop = EventLoop::new(shared, index, site);
        galgo_front::run::run(&event_loop, given, files::close_open())
    };
    let name = format!("worker-{index}");
    std::thread::Builder::new().name(name).spawn(move || {
        let _last = ServingThread(together);
        if let Err(e) = run() {
            errors.write(Level::Error, "worker", &e.to_string());
        }
    })
}

/// Threads that end together. With the end of a thread all processes it has started are killed
/// ([`Direct::set_orphaned`]), also children of its templates that another thread still serves.
#[derive(Debug)]
struct Together {
    left: Mutex<usize>,
    nobody: Condvar,
}

/// A thread that waits, where it ends, for the others.
struct ServingThread(Arc<Together>);

impl Together {
    fn of(count: usize) -> Arc<Self> {
        Arc::new(Self {
            left: Mutex::new(count),
            nobody: Condvar::new(),
        })
    }
}

impl Drop for ServingThread {
    fn drop(&mut self) {
        let left = self.0.left.lock();
        let mut left = left.unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(1);
        self.0.nobody.notify_all();
        // Poisoned or not: nobody is left.
        drop(self.0.nobody.wait_while(left, |left| *left > 0));
    }
}

/// Serves on the main thread what signals ask for, until all event loops have ended.
fn wait_for_signals(
    signals: Signals,
    running: &mut Running,
    load: impl Fn() -> Result<Config, String>,
    phase: &watch::Sender<Phase>,
    threads: Vec<JoinHandle<()>>,
) -> End {
    let Signals {
        runtime,
        mut term,
        mut int,
        mut reopen,
        mut reload,
        terminal: had,
    } = signals;
    runtime.block_on(async {
        let mut taken = None;
        loop {
            tokio::select! {
                _ = reopen.recv() => running.shared.logs.reopen(),
                // One after the other: the next one waits until this one is everywhere.
                _ = reload.recv(), if taken.is_none() => match had && !terminal() {
                    true => break,
                    false => taken = running.reload(&load),
                },
                () = all_taken(&mut taken) => running.taken(),
                () = either(&mut term, &mut int) => break,
            }
        }
        phase.send_replace(Phase::Draining);
        running.site.close();
        let (ended, mut all_ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            for thread in threads {
                let _ = thread.join();
            }
            let _ = ended.send(());
        });
        tokio::select! {
            _ = &mut all_ended => return End::Drained,
            () = either(&mut term, &mut int) => {}
        }
        // Event loops end the programs that still run; one that is stuck in the kernel is not waited for.
        phase.send_replace(Phase::Ending);
        let _ = tokio::time::timeout(AT_ONCE, all_ended).await;
        End::AtOnce
    })
}

async fn all_taken(taken: &mut Option<Taken>) {
    match taken {
        Some(all) => {
            let _ = all.await;
            *taken = None;
        }
        None => std::future::pending().await,
    }
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
