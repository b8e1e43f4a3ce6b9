//! The life of the server: bind, open logs, become the configured user, serve, drain.

mod handover;
mod inherited;
mod life;
mod limits;
mod notify;
pub(crate) mod owners;
mod pid_file;
mod program;
mod running;
mod signals;
mod socket_file;
mod sockets;
mod upgrade;
mod visible;

use std::{
    io,
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
};

use galgo_front::{
    event_loop::EventLoop,
    settings::Settings,
    shared::{Handed, Handle, Shared},
};
use galgo_handlers::{files, resources::Resources, upstream::WorkersThread, wasm};
use galgo_spawn::{
    Direct, Outside, Spawner,
    sandbox::{self, VisibleFiles},
};
use rustix::process::DumpableBehavior;
use tokio::{
    runtime::Runtime,
    sync::{mpsc, watch},
};

pub use inherited::{Inherited, Passed, Predecessor};
pub use life::End;
pub use program::Invocation;
pub use sockets::Bound;

use crate::{
    config::{self, Config},
    dispatch::Dispatch,
    lock::lock,
    log::{Level, Logs},
    phase::Phase,
    site::Site,
};
use life::{EndReason, Life};
use notify::Notify;
use owners::Spawning;
use pid_file::PidFile;
use running::{CertificateServices, RunningServer};
use signals::Signals;
use socket_file::SocketFile;
use sockets::{New, https_port};

/// A server that has bound its listeners and dropped its privileges, and has not yet read a byte from the network.
#[derive(Debug)]
pub struct ReadyServer {
    executes: bool,
    visible: Option<VisibleFiles>,
    site: Site,
    settings: Settings,
    new: New,
    logs: Logs,
    spawners: Vec<Direct>,
    outside: Arc<Outside>,
    spawning: Option<Spawning>,
    /// The workers of upstreams.
    workers: WorkersThread,
    certificates: CertificateServices,
    inherited: Inherited,
    program: Invocation,
    notify: Notify,
    pid_file: Option<PidFile>,
    runtime: Runtime,
    signals: Signals,
}

impl ReadyServer {
    /// Binds, or goes on with what is `inherited`; opens logs, and becomes the configured user. `program` is what may be
    /// started in the place of this process one day.
    pub fn prepare(
        config: Config,
        mut inherited: Inherited,
        program: Invocation,
    ) -> Result<Self, String> {
        close_memory()?;
        limits::allowed(&config)?;
        limits::raise_descriptors();
        // Early, while descriptor numbers are low: see `Direct`.
        let mut spawners = Direct::several(config.event_loops)
            .map_err(|e| format!("preparing to start programs: {e}"))?;
        spawners.iter_mut().for_each(|one| settle(one, &config));
        let workers = direct(&config).map_err(|e| format!("preparing to start workers: {e}"))?;
        let spawning = Spawning::start(&config, &program, &inherited.passed)?;
        // Before the server becomes a user that may not enter the folder it lies in.
        wasm::beside();
        // Before the server becomes a user that may not bind these ports.
        let new = New::bind(&config, &[], &mut inherited)?;
        prepare_cache(&config);
        let mut certificates = CertificateServices::default();
        certificates.open(&config, &mut inherited)?;
        let executes = Spawning::needs_execve(spawning.as_ref(), &config);
        // Before there are other threads, those of logs are the first: each has the domain of the one that starts it.
        let visible = visible::enter(&config, executes)?;
        let logs = Logs::open(&config.log, config.identity.as_ref())
            .map_err(|e| format!("cannot open a log: {e}"))?;
        give_up_rights(&config)?;
        let pid_file = config.pid_file.as_deref().map(PidFile::prepare);
        let pid_file = pid_file.transpose()?;
        let notify = Notify::find()?;
        let (mut site, settings) =
            running::site(config, None, &certificates, spawning.as_ref(), &logs)?;
        site.https_port = https_port(&site.config, new.bound.iter());
        let (runtime, signals) =
            Signals::watch().map_err(|e| format!("watching for signals: {e}"))?;
        let outside = match executes {
            true => confine()?,
            false => execute_nothing()?,
        };
        galgo_spawn::end_orphans();
        Ok(Self {
            executes,
            visible,
            site,
            settings,
            new,
            logs,
            spawners,
            workers: WorkersThread::new(workers, outside.clone()),
            outside,
            spawning,
            certificates,
            inherited,
            program,
            notify,
            pid_file,
            runtime,
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

    /// Serves until SIGTERM or SIGINT, or until another process takes over on SIGUSR2; then lets requests finish up to the
    /// grace. What `load` says is served from the next SIGHUP on.
    ///
    /// # Errors
    /// No threads; or the process that was to be replaced goes on.
    pub fn run(self, load: impl Fn() -> Result<Config, String>) -> Result<End, String> {
        let (phase, watch) = watch::channel(Phase::Serving);
        let (loops, given): (Vec<_>, Vec<_>) = self.spawners.iter().map(|_| Handle::new()).unzip();
        let mut running = RunningServer {
            shared: Arc::new(Shared::new(self.logs.clone(), loops, watch)),
            site: Arc::new(self.site),
            settings: Arc::new(self.settings),
            bound: Vec::new(),
            inherited: self.inherited,
            workers: self.workers,
            certificates: self.certificates,
            spawning: self.spawning,
            executes: self.executes,
            visible: self.visible,
        };
        let mut threads = Vec::new();
        let together = Together::of(self.spawners.len());
        for ((index, spawner), given) in self.spawners.into_iter().enumerate().zip(given) {
            let spawner = Spawner::new(spawner, self.outside.clone());
            let thread = thread(&running, index, spawner, given, together.clone());
            threads.push(thread.map_err(|e| e.to_string())?);
        }
        if let Some(predecessor) = running.inherited.predecessor.take() {
            predecessor.take_over()?;
        }
        running
            .inherited
            .unused()
            .iter()
            .for_each(SocketFile::remove);
        let first = running.begin(self.new)?;
        let mut life = Life {
            running,
            phase,
            notify: self.notify,
            pid_file: self.pid_file,
            program: Arc::new(self.program),
            outside: self.outside,
        };
        let mut signals = self.signals;
        let (end, why) = self.runtime.block_on(async {
            let why = life.serve(&mut signals, load, first).await;
            (life.drain(why, &mut signals, threads).await, why)
        });
        if !matches!(why, EndReason::HandedOver(_)) {
            life.running.bound.iter().for_each(Bound::remove);
        }
        // After the last request.
        match (why, life.running.spawning.take()) {
            (EndReason::HandedOver(_), Some(spawning)) => spawning.let_go(),
            (_, spawning) => drop(spawning),
        }
        drop(life);
        self.logs.flush();
        match why {
            EndReason::SpawnerEnded => Err(SPAWNER_ENDED.into()),
            EndReason::Told | EndReason::HandedOver(_) => Ok(end),
        }
    }
}

/// Makes the folder of compiled modules, while root can.
fn prepare_cache(config: &Config) {
    let becomes = config.identity.as_ref();
    let cache = wasm::cache_folder(config.cache.as_deref(), becomes);
    wasm::prepare_cache(&cache, becomes);
}

/// Becomes the configured user, and keeps nothing that programs could inherit.
fn give_up_rights(config: &Config) -> Result<(), String> {
    if let Some(identity) = &config.identity {
        become_user(identity)?;
        // With the user the kernel sets it anew, to `fs.suid_dumpable`.
        close_memory()?;
    }
    // What a service manager gives (to bind low ports) is the server's alone: programs would inherit the
    // ambient set over execve, capabilities(7). Threads inherit the absence of it.
    rustix::thread::clear_ambient_capability_set()
        .map_err(|e| format!("cannot keep capabilities from programs: {e}"))
}

/// From here on no other process of the same user may look into this one, ptrace(2) and /proc/PID/mem among others; nor is its
/// core dumped.
fn close_memory() -> Result<(), String> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| format!("cannot close the server's memory to its programs: {e}"))
}

/// Why a server ends without a signal.
const SPAWNER_ENDED: &str = "the process that starts programs of other users has ended, and with it this server: start it again";

/// Confines this thread and all that it starts to what programs are confined to by `sandbox = "standard"`, for they inherit
/// it. What starts the others.
pub(crate) fn confine() -> Result<Arc<Outside>, String> {
    let words = |e| format!("cannot confine programs: {e}");
    let outside = Outside::new().map_err(words)?;
    sandbox::confine().map_err(words)?;
    Ok(Arc::new(outside))
}

/// What starts the programs of one event loop.
pub(crate) fn direct(config: &Config) -> io::Result<Direct> {
    let mut direct = Direct::new()?;
    settle(&mut direct, config);
    Ok(direct)
}

fn settle(spawner: &mut Direct, config: &Config) {
    spawner.set_umask(Some(config.umask));
    // A server that is killed ends nothing any more, and no process would ever read what its programs have to say.
    spawner.set_orphaned(Some(rustix::process::Signal::KILL.as_raw()));
}

/// Runs the event loop of that index on a thread of its own.
fn thread(
    running: &RunningServer,
    index: usize,
    spawner: Spawner,
    given: mpsc::UnboundedReceiver<Handed<Dispatch>>,
    together: Arc<Together>,
) -> io::Result<JoinHandle<()>> {
    let shared = running.shared.clone();
    let (site, settings) = (running.site.clone(), running.settings.clone());
    let errors = shared.logs.error.clone();
    let owners = running.spawning.as_ref().map(|s| s.owners.clone());
    let run = move || {
        let resources = Resources::new(
            index,
            (spawner, owners),
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
    let name = format!("loop-{index}");
    std::thread::Builder::new().name(name).spawn(move || {
        let _last = ServingThread(together);
        galgo_spawn::leave_signals_to_others();
        if let Err(e) = run() {
            errors.write(Level::Error, "event loop", &e.to_string());
        }
    })
}

/// Threads that end together. With the end of a thread all processes it has started are killed
/// ([`Direct::set_orphaned`]), also children of its templates that another thread still serves.
#[derive(Debug)]
struct Together {
    left: Mutex<usize>,
    none_left: Condvar,
}

/// A thread that waits, where it ends, for the others.
struct ServingThread(Arc<Together>);

impl Together {
    fn of(count: usize) -> Arc<Self> {
        Arc::new(Self {
            left: Mutex::new(count),
            none_left: Condvar::new(),
        })
    }
}

impl Drop for ServingThread {
    fn drop(&mut self) {
        let mut left = lock(&self.0.left);
        *left = left.saturating_sub(1);
        self.0.none_left.notify_all();
        // Poisoned or not: no thread is left.
        drop(self.0.none_left.wait_while(left, |left| *left > 0));
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

/// The same for a server that starts no program itself: whoever gets it under control executes nothing in it, and there is no
/// thread that could.
fn execute_nothing() -> Result<Arc<Outside>, String> {
    let confined = sandbox::confine_and_execute_nothing();
    confined.map_err(|e| format!("cannot give up the right to execute programs: {e}"))?;
    Ok(Arc::new(Outside::absent()))
}
