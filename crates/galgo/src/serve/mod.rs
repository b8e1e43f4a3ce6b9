//! The life of the server: bind, open logs, become the configured user, serve, drain.

mod event_loops;
mod invocation;
mod life;
mod limits;
pub(crate) mod owners;
mod pid_file;
mod running;
mod signals;
mod upgrade;
mod visible;

use std::{io, sync::Arc, time::Duration};

use galgo_front::shared_by_loops::{Handle, Shared};
use galgo_handlers::{upstream::WorkersThread, wasm};
use galgo_service::{
    log::{Level, Logs},
    phase::Phase,
};
use galgo_spawn::{
    Direct, Outside, guard,
    identity::{IdentityError, is_root, user_name_of},
    sandbox,
};
use rustix::process::DumpableBehavior;
use tokio::{runtime::Runtime, sync::watch};

pub use crate::serve::invocation::Invocation;
pub(crate) use crate::serve::invocation::OWN;
pub use crate::sockets::inherited::{Inherited, Passed, Predecessor};
pub use crate::sockets::listening::Bound;
pub use life::End;

use crate::config::{self, Config};
use crate::notify::Notify;
use crate::reading::Load;
use crate::sockets::{
    listening::{New, https_port},
    socket_file::SocketFile,
};
use event_loops::EventLoops;
use life::{EndReason, Life};
use owners::Spawning;
use pid_file::PidFile;
use running::{CertificateServices, RunningServer};
use signals::Signals;

/// A server that has bound its listeners, dropped its privileges and started its event loops, but has not yet read a byte from
/// the network.
#[derive(Debug)]
pub struct ReadyServer {
    life: Life,
    new: New,
    event_loops: EventLoops,
    runtime: Runtime,
    signals: Signals,
}

impl ReadyServer {
    /// Binds, or uses the `inherited` sockets; opens logs, and becomes the configured user. `program` may replace this process
    /// one day.
    pub fn prepare(
        config: Config,
        mut inherited: Inherited,
        program: Invocation,
    ) -> Result<Self, String> {
        prepare_process(&config)?;
        // Early, while descriptor numbers are low: see `Direct`.
        let (spawners, workers) = spawners(&config)?;
        let spawning = Spawning::start_spawner(&config, &program, &inherited.passed)?;
        let spawner = spawning.as_ref().map(Spawning::process);
        // If the kernel refuses a guard, that shows here. Then no process ends the leftover programs of a killed server.
        let guard = guard::start_guard(spawner);
        let (new, certificates) = open_resources(&config, &mut inherited)?;
        let executes = Spawning::needs_execve(spawning.as_ref(), &config);
        // Before the log threads, which are the first other threads: a thread inherits the domain of the thread that starts it.
        let visible = visible::enter_domain(&config, executes)?;
        let logs = open_logs(&config)?;
        give_up_rights(&config, guard.is_ok(), &logs)?;
        let pid_file = config.pid_file.as_deref().map(PidFile::prepare);
        let (pid_file, notify) = (pid_file.transpose()?, Notify::from_environment()?);
        let (mut site, settings) =
            running::build_site(config, None, &certificates, spawning.as_ref(), &logs)?;
        site.https_port = https_port(&site.config, new.bound.iter());
        let (runtime, signals) = watch_signals()?;
        let outside = confine_server(executes)?;
        galgo_spawn::end_orphans();
        keep_guard(guard, &logs);
        let (phase, watch) = watch::channel(Phase::Serving);
        let (loops, given): (Vec<_>, Vec<_>) = spawners.iter().map(|_| Handle::new()).unzip();
        let mut running = RunningServer {
            shared: Arc::new(Shared::new(logs, loops, watch)),
            site: Arc::new(site),
            settings: Arc::new(settings),
            bound: Vec::new(),
            inherited,
            workers: WorkersThread::new(workers, outside.clone()),
            certificates,
            spawning,
            executes,
            visible,
        };
        running.prepare_first()?;
        let given = spawners.into_iter().zip(given);
        let event_loops = event_loops::start_event_loops(&running, given, &outside)?;
        Ok(Self {
            life: Life {
                running,
                phase,
                notify,
                pid_file,
                program: Arc::new(program),
                outside,
            },
            new,
            event_loops,
            runtime,
            signals,
        })
    }

    /// Returns the addresses that the server listens on, with the real ports.
    pub fn bound_addresses(&self) -> &[Bound] {
        &self.new.bound
    }

    /// Returns the addresses that the server does not listen on, and why.
    pub fn left_out(&self) -> &[String] {
        &self.new.left_out
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.life.running.site.config
    }

    /// Serves until SIGTERM or SIGINT, or until another process takes over on SIGUSR2. Then waits for running requests, at most
    /// for the grace period. From the next SIGHUP on, the server uses the configuration that `load` returns.
    ///
    /// # Errors
    /// The process that this one was to replace goes on.
    pub fn run_until_signal(self, load: Arc<Load>) -> Result<End, String> {
        let (mut life, mut signals) = (self.life, self.signals);
        let running = &mut life.running;
        let logs = running.shared.logs.clone();
        if let Some(predecessor) = &running.inherited.predecessor {
            predecessor.take_over()?;
        }
        let unused = running.inherited.take_unused_files();
        unused.iter().for_each(SocketFile::remove);
        let first = running.serve_first(self.new);
        let (end, why) = self.runtime.block_on(async {
            let why = life.handle_signals(&mut signals, load, first).await;
            (
                life.drain_requests(&why, &mut signals, &self.event_loops)
                    .await,
                why,
            )
        });
        if end == End::Drained {
            self.event_loops.join_threads();
        }
        if !matches!(why, EndReason::HandedOver(..)) {
            life.running.bound.iter().for_each(Bound::remove);
        }
        // After the last request, and before helpers end the programs that they have started.
        life.running.workers.terminate_workers();
        match (&why, life.running.spawning.take()) {
            (EndReason::HandedOver(..), Some(spawning)) => spawning.let_go(),
            (_, spawning) => drop(spawning),
        }
        galgo_spawn::wait_until_unread(LEFT_OVER);
        drop(life);
        logs.flush();
        match why {
            EndReason::SpawnerEnded => Err(SPAWNER_ENDED.into()),
            EndReason::Told | EndReason::HandedOver(..) => Ok(end),
        }
    }
}

/// Binds, and opens files that the server's later user cannot open.
fn open_resources(
    config: &Config,
    inherited: &mut Inherited,
) -> Result<(New, CertificateServices), String> {
    // That user may be unable to enter the folder of the server's binary.
    wasm::beside();
    let new = New::bind_new_addresses(config, &[], inherited)?;
    // Root can create the folder of compiled modules.
    let becomes = config.identity.as_ref();
    let cache = wasm::cache_folder(config.cache.as_deref(), becomes);
    wasm::prepare_cache(&cache, becomes);
    let mut certificates = CertificateServices::default();
    certificates.open_store(config, inherited)?;
    Ok((new, certificates))
}

/// Becomes the configured user, and drops everything that programs could inherit. With a guard the server and its programs have
/// different user ids. Then the death of the server does not kill the programs (PR_SET_PDEATHSIG needs the same user).
fn give_up_rights(config: &Config, has_guard: bool, logs: &Logs) -> Result<(), String> {
    if let Some(identity) = &config.identity {
        become_by(identity, |identity| {
            if has_guard {
                identity.assume_apart()
            } else {
                identity.assume()
            }
        })?;
        // Threads of the logs take the user's rights, too.
        logs.flush();
        // A change of the user resets the flag to `fs.suid_dumpable`.
        close_memory()?;
    }
    // Capabilities from a service manager (to bind low ports) are for the server alone: programs would inherit the ambient set
    // over execve, capabilities(7). Threads inherit the empty set.
    rustix::thread::clear_ambient_capability_set()
        .map_err(|e| format!("cannot keep capabilities from programs: {e}"))
}

/// Prepares what must come before the first file is opened.
fn prepare_process(config: &Config) -> Result<(), String> {
    close_memory()?;
    limits::allowed(config)?;
    limits::raise_descriptors();
    Ok(())
}

fn open_logs(config: &Config) -> Result<Logs, String> {
    let logs = Logs::open(&config.log, config.identity.as_ref());
    logs.map_err(|e| format!("cannot open a log: {e}"))
}

fn watch_signals() -> Result<(Runtime, Signals), String> {
    Signals::register().map_err(|e| format!("cannot watch for signals: {e}"))
}

/// Closes this process to other processes of the same user, among others for ptrace(2) and /proc/PID/mem. The kernel does not
/// dump its core either.
fn close_memory() -> Result<(), String> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| format!("cannot close the server's memory to its programs: {e}"))
}

/// Time that a server waits, before it ends, for processes that still read an incomplete body: they have been killed by then.
const LEFT_OVER: Duration = Duration::from_secs(5);

/// The reason to end without a signal.
const SPAWNER_ENDED: &str = "the spawner, which starts programs of other users, has ended, so this server ends too: start galgo again";

/// Starts another guard if this one ends. Without a guard galgo serves all the same, and logs a warning.
fn keep_guard(guard: std::io::Result<guard::StartedGuard>, logs: &Logs) {
    match guard {
        Ok(guard) => guard.restart_if_ended(),
        Err(e) => {
            let words = format!(
                "cannot start the guard process: {e}. If this server is killed, leftover processes keep running"
            );
            logs.error.write(Level::Warn, "start", &words);
        }
    }
}

/// Confines this thread, and everything it starts, as `sandbox = "standard"` does: programs inherit that. Returns the threads
/// outside, which start all other programs.
pub(crate) fn confine() -> Result<Arc<Outside>, String> {
    let words = |e| format!("cannot confine programs: {e}");
    let outside = Outside::new().map_err(words)?;
    sandbox::confine(sandbox::Ipc::Machine).map_err(words)?;
    Ok(Arc::new(outside))
}

/// Confines a server, and also forbids it to execute programs, unless `executes` is set. Then an attacker in control of the
/// server executes nothing, and no thread could.
fn confine_server(executes: bool) -> Result<Arc<Outside>, String> {
    if executes {
        return confine();
    }
    let confined = sandbox::confine_and_execute_nothing();
    confined.map_err(|e| format!("cannot give up the right to execute programs: {e}"))?;
    Ok(Arc::new(Outside::absent()))
}

/// Creates the spawner of each event loop, and the spawner of workers.
fn spawners(config: &Config) -> Result<(Vec<Direct>, Direct), String> {
    let words = |e| format!("cannot prepare to start programs: {e}");
    let mut spawners = Direct::for_threads(config.event_loops).map_err(words)?;
    spawners.iter_mut().for_each(|one| settle(one, config));
    Ok((spawners, direct(config).map_err(words)?))
}

/// Creates a spawner for one thread.
pub(crate) fn direct(config: &Config) -> io::Result<Direct> {
    let mut direct = Direct::new()?;
    settle(&mut direct, config);
    Ok(direct)
}

fn settle(spawner: &mut Direct, config: &Config) {
    spawner.set_umask(Some(config.umask));
    // A killed server ends no programs any more, and no process would ever read their output.
    spawner.set_orphaned(Some(rustix::process::Signal::KILL.as_raw()));
}

/// Becomes a user for good, and stays closed to other processes of that user. Only root can do that; the error tells other
/// users so.
pub(crate) fn become_user(identity: &config::Identity) -> Result<(), String> {
    become_by(identity, config::Identity::assume)?;
    close_memory()
}

fn become_by(
    identity: &config::Identity,
    assume: impl FnOnce(&config::Identity) -> Result<(), IdentityError>,
) -> Result<(), String> {
    let uid = galgo_spawn::identity::effective_uid();
    if !is_root() && uid != identity.uid {
        return Err(format!(
            "cannot become user {}: only root can. Start with sudo, or omit `user` and --user",
            user_name_of(identity.uid)
        ));
    }
    assume(identity).map_err(|e| format!("cannot become user {}: {e}", user_name_of(identity.uid)))
}
