//! WebAssembly programs: the server's interface to `galgo_wasm`.
//!
//! A separate program, `galgo-wasm`, compiles and runs modules. If it is not beside galgo, modules are refused.

mod account_workers;
mod cache;

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use galgo_io::sock::Sock;
use galgo_service::{
    admission::Permit,
    fault::{Fault, is_shortage},
    log::{ErrorLog, Level},
};
use galgo_spawn::{
    Exit, FileId, Limits,
    glob::Glob,
    owners::{Layout, ModuleTerms, Owners, Remit, RunsAs},
    words,
};
use galgo_wasm::{
    Beside, KILLED, ModuleFault, NoCode, Runtime, RuntimeSettings, StartFault,
    host::version,
    runtime,
    wire::{self, Message, ModuleDigest, Profile, RunOutcome, UserSetup},
};

use crate::wasm::account_workers::{OwnWorker, OwnWorkers};
use crate::{
    guest_access::GuestAccess,
    program_settings::Cgi,
    resources::Resources,
    script::FoundProgram,
    upstream::{exchange::InstanceLease, idle_pool::UpstreamIdlePool},
};
pub use cache::{doubt as cache_doubt, folder as cache_folder, prepare as prepare_cache};

/// Limit for the linear memory of an instance if `memory` is not set: no module gets all of the machine's memory.
const MEMORY: u64 = 256 << 20;
/// Extra instances, for those still being cleared away while as many as may run do.
const SPARE: usize = 16;
/// Pause before another try at a worker that takes no more, or that is being started.
const PAUSE: Duration = Duration::from_millis(2);
/// Time to wait for the start of a worker, even if requests must not wait in a queue.
const STARTS: Duration = Duration::from_secs(1);

/// Limit for idle connections to a worker of one route and user: there may be many workers.
const OWN_IDLE: usize = 16;

/// Limit for workers of a user that end one after the other before one takes a request: each costs a process.
const WORKERS: u32 = 3;
const LOST: &str = "the wasm worker of the program's user ends right after each start: see the log";

/// Messages for modules whose worker told the reason on standard error.
const DENIED: &str = "the module may not be run as its user: the line of the log above says why";
const BAD: &str = "the module cannot be run: the line of the log above says why";

/// The fault for missing resources; the next request may find them.
const SHORT: Fault =
    Fault::Busy("no thread, process or descriptor is left for a WebAssembly module");
const NONE_TAKEN: Fault = Fault::Busy("the wasm worker took no program within queue_wait");

/// Finds `galgo-wasm`. Call this before the server becomes another user, because that user may not enter the folders on the way
/// there.
pub fn beside() -> &'static Arc<Beside> {
    static BESIDE: OnceLock<Arc<Beside>> = OnceLock::new();
    BESIDE.get_or_init(|| Arc::new(Beside::next_to_executable()))
}

/// Tells in words why no module can be run at this moment.
pub fn missing() -> Option<String> {
    beside().explain_missing()
}

/// Checks a module as a request for it would: compiles it, and throws the code away.
///
/// # Errors
/// A sentence about the module's fault.
pub fn examine(module: &Path) -> Result<(), String> {
    runtime::examine(beside(), module)
}

/// Runs modules; the worker starts with the first module.
#[derive(Debug)]
pub struct Wasm {
    runtime: Arc<Runtime>,
    needs: Needs,
    /// Idle connections to the worker.
    idle: Arc<UpstreamIdlePool>,
    /// Workers of routes whose modules run as other users.
    own: Arc<OwnWorkers>,
}

/// The worker that runs a module.
#[derive(Debug, Clone, Copy)]
pub enum ModuleCode {
    /// The server's worker, which has this code.
    Shared(ModuleDigest),
    /// The worker of the route and this user, which compiles the module itself.
    Own(u32),
}

/// Settings that the worker gets once, at its start.
#[derive(Debug, PartialEq)]
pub struct Needs {
    /// The folder of compiled code.
    pub cache: PathBuf,
    /// Limit for programs that run at the same time.
    pub running: usize,
    /// Guest access of modules, without duplicates.
    pub profiles: Vec<GuestAccess>,
}

impl Wasm {
    /// Returns a runner with these settings; this is `before` itself if its settings are the same.
    pub fn next(needs: Needs, log: &ErrorLog, before: Option<&Arc<Self>>) -> Arc<Self> {
        if let Some(same) = before.filter(|before| before.needs == needs) {
            return same.clone();
        }
        let errors = log.clone();
        let settings = RuntimeSettings {
            beside: beside().clone(),
            cache: needs.cache.clone(),
            instances: needs.running + SPARE,
            profiles: needs.profiles.iter().map(profile).collect(),
            say: Box::new(move |words| errors.write(Level::Error, "wasm", words)),
        };
        Arc::new(Self {
            runtime: Runtime::new(settings),
            needs,
            idle: Arc::default(),
            own: before.map_or_else(Arc::default, |before| before.own.clone()),
        })
    }

    /// Returns the code of a module; waits if it has to be compiled first.
    ///
    /// # Errors
    /// The reason why the file is not a program.
    pub async fn code(&self, script: &FoundProgram<'_>) -> Result<ModuleDigest, Fault> {
        let file = Path::new(OsStr::from_bytes(script.script_filename.as_bytes()));
        let code = self.runtime.code(file, script.id).await;
        code.map_err(|NoCode { words: why, whose }| match whose {
            ModuleFault::Module | ModuleFault::Ours => {
                Fault::Script(format!("the module cannot be run: {why}"))
            }
            ModuleFault::Host => Fault::Refused(format!("{}: {why}", words::escape_path(file))),
            ModuleFault::Shortage => SHORT,
        })
    }

    /// Connects to the worker for one run of this code, on behalf of the event loop `home`. If no worker is available, waits for
    /// up to `wait`. `None`: the code has meanwhile been removed, along with the cache.
    ///
    /// # Errors
    /// No connection can be made.
    pub async fn connect(
        &self,
        code: ModuleDigest,
        permit: Permit,
        home: usize,
        wait: Duration,
    ) -> Result<Option<(Sock, ModuleLease)>, Fault> {
        let began = Instant::now();
        let wait = wait.max(STARTS);
        let mut waited = false;
        loop {
            match self.at_once(code, home) {
                Ok(_) if waited && !self.runtime.has(&code) => return Ok(None),
                Ok((sock, lease)) => {
                    let lease = ModuleLease {
                        lease: ModuleWorker::Shared(lease),
                        home,
                        idle: self.idle.clone(),
                        most: self.needs.running + SPARE,
                        permit,
                    };
                    return Ok(Some((sock, lease)));
                }
                Err(StartFault::Busy) if began.elapsed() < wait => {
                    waited = true;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(StartFault::Busy) => return Err(NONE_TAKEN),
                Err(StartFault::Failed(e)) if is_shortage(&e) => {
                    return Err(Fault::Busy("no descriptors are left for another instance"));
                }
                Err(StartFault::Short) => return Err(SHORT),
                Err(StartFault::Failed(e)) => {
                    return Err(Fault::Internal(format!("starting an instance: {e}")));
                }
            }
        }
    }

    /// Connects to the worker that runs a route's modules as the user `uid`, for one run.
    ///
    /// # Errors
    /// No connection can be made.
    pub async fn connect_as_user(
        &self,
        resources: &Resources,
        (owners, remit, uid): (&Arc<Owners>, &Arc<Remit>, u32),
        permit: Permit,
        wait: Duration,
    ) -> Result<(Sock, ModuleLease), Fault> {
        if let Some(why) = missing() {
            return Err(Fault::Refused(why));
        }
        let (began, wait) = (Instant::now(), wait.max(STARTS));
        let home = resources.index;
        let mut lost = 0;
        loop {
            let worker = self.own.worker(resources, owners, remit, uid).await?;
            worker.is_used();
            match account_workers::sock(&worker, home) {
                Ok(sock) => {
                    let lease = ModuleLease {
                        home,
                        idle: worker.idle.clone(),
                        most: OWN_IDLE,
                        lease: ModuleWorker::Own(worker),
                        permit,
                    };
                    return Ok((sock, lease));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if is_shortage(&e) => return Err(SHORT),
                // The worker has ended.
                Err(_) => {
                    self.own.lost(&worker);
                    lost += 1;
                    if lost >= WORKERS {
                        return Err(Fault::Script(LOST.into()));
                    }
                }
            }
            if began.elapsed() >= wait {
                return Err(NONE_TAKEN);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until requests no longer go to this worker, which left a request unread: a process that ends closes its connections
    /// before its pidfd reports the end. The wait is short, because the worker may have had another reason.
    pub async fn replaced(&self, worker: usize) {
        let began = Instant::now();
        while self.runtime.is_up(worker) && began.elapsed() < STARTS {
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn at_once(
        &self,
        code: ModuleDigest,
        home: usize,
    ) -> Result<(Sock, galgo_wasm::WorkerLease), StartFault> {
        let lease = self.runtime.lease(code)?;
        let sock = match self.idle.take_connection(home, Some(lease.worker())) {
            Some(sock) => sock,
            None => Sock::for_requests(lease.connect()?),
        };
        Ok((sock, lease))
    }

    /// Encodes the settings of a run for the worker: the value of the variable without a name.
    pub fn run(&self, code: ModuleCode, cgi: &Cgi, script: &FoundProgram<'_>) -> Vec<u8> {
        let limits = &cgi.options.limits;
        let guest_access = self
            .needs
            .profiles
            .iter()
            .position(|p| *p == cgi.guest_access);
        let (key, module) = match code {
            ModuleCode::Shared(key) => (key, Vec::new()),
            ModuleCode::Own(_) => (
                ModuleDigest::default(),
                script.script_filename.to_bytes().to_vec(),
            ),
        };
        let run = wire::Run {
            key,
            profile: guest_access.map_or(u64::MAX, |place| place as u64),
            memory: limits.memory.unwrap_or(MEMORY),
            cpu: limits.cpu.unwrap_or(0),
            name: script.script_name.to_vec(),
            module,
        };
        run.encode()
    }

    /// Keeps no more connections, because no further request can come.
    pub fn close(&self) {
        self.idle.close_for_good();
        self.own.end();
    }

    /// Compiles these modules before the first request. If that is impossible, the log says so once.
    pub fn prepare(&self, modules: impl Iterator<Item = (PathBuf, FileId)>) {
        for (file, id) in modules {
            if let Err(why) = self.runtime.prepare(&file, id) {
                return self
                    .runtime
                    .say(&format!("{}: {why}", words::escape_path(&file)));
            }
        }
    }
}

/// A lease on one connection to the worker, for one request.
#[derive(Debug)]
pub struct ModuleLease {
    lease: ModuleWorker,
    /// Event loop of the request.
    home: usize,
    idle: Arc<UpstreamIdlePool>,
    /// Limit for idle connections.
    most: usize,
    /// Permit, given back when the instance has ended.
    permit: Permit,
}

#[derive(Debug)]
enum ModuleWorker {
    Shared(galgo_wasm::WorkerLease),
    Own(Arc<OwnWorker>),
}

impl ModuleLease {
    /// Returns the number of the worker.
    pub fn worker(&self) -> usize {
        match &self.lease {
            ModuleWorker::Shared(lease) => lease.worker(),
            ModuleWorker::Own(worker) => worker.number,
        }
    }
}

impl InstanceLease for ModuleLease {
    fn exit_length(&self) -> usize {
        wire::ENDED
    }

    fn decode_exit(&self, more: &[u8]) -> Result<Exit, Fault> {
        let exit = match &self.lease {
            ModuleWorker::Shared(lease) => lease.ended(more).map_err(|_short| SHORT)?,
            ModuleWorker::Own(worker) => {
                worker.is_used();
                match RunOutcome::decode(more) {
                    Some(RunOutcome::Exit(exit)) => exit,
                    Some(RunOutcome::NoThread) => return Err(SHORT),
                    Some(RunOutcome::Denied) => return Err(Fault::Refused(DENIED.into())),
                    Some(RunOutcome::Bad) => return Err(Fault::Script(BAD.into())),
                    Some(RunOutcome::NoCode) | None => KILLED,
                }
            }
        };
        self.permit.record_cpu_time(exit.user + exit.system);
        Ok(exit)
    }

    fn exit_without_report(&self) -> Exit {
        let lost = match &self.lease {
            ModuleWorker::Shared(lease) => lease.has_lost_its_worker(),
            ModuleWorker::Own(worker) => worker.has_ended(),
        };
        if lost {
            // Connections to a dead worker are useless.
            self.idle.close_slot(self.worker());
        }
        KILLED
    }

    fn report_stuck(&self) {
        match &self.lease {
            ModuleWorker::Shared(lease) => lease.stuck(),
            ModuleWorker::Own(worker) => worker.give_up(),
        }
        self.idle.close_slot(self.worker());
    }

    fn give_back(self: Box<Self>, conn: Sock) {
        let worker = Some(self.worker());
        self.idle
            .keep_connection(conn, self.home, worker, self.most);
        drop(self.permit);
    }
}

/// Returns how many descriptors modules may take while `running` programs run, apart from the programs' own. Idle connections,
/// the worker and compilations take them.
pub fn descriptors(running: usize) -> usize {
    const COMPILES: usize = 2 * 8;
    2 * (running + SPARE) + COMPILES
}

/// Returns the terms for the worker of a route's own modules, if these run as another user or in a strict sandbox. `running` is
/// the limit for programs at the same time.
pub fn module_terms(
    (root, names): (&Path, &[Glob]),
    runs_as: &RunsAs,
    guest_access: &GuestAccess,
    limits: &Limits,
    running: usize,
) -> ModuleTerms {
    let setup = UserSetup {
        root: root.as_os_str().as_bytes().to_vec(),
        layout: Layout::Named,
        names: names.to_vec(),
        owner: runs_as.owned_by(),
        instances: (running + SPARE) as u64,
        profile: profile(guest_access),
        memory: limits.memory.unwrap_or(MEMORY),
        cpu: limits.cpu.unwrap_or(0),
    };
    let folders = |writes: bool| {
        let folders = guest_access
            .folders
            .iter()
            .filter(move |(.., w)| *w == writes);
        folders.map(|(_, host, _)| host.clone()).collect()
    };
    ModuleTerms {
        build: version(),
        setup: Message::Own(setup).encode(),
        read: folders(false),
        write: folders(true),
    }
}

/// Returns the terms for modules of one host, in the folder `root`. `of_hosts` are the terms for all hosts.
pub fn module_terms_of_host(of_hosts: &ModuleTerms, root: &Path) -> ModuleTerms {
    let setup = match Message::decode(&of_hosts.setup) {
        Some(Message::Own(setup)) => Message::Own(UserSetup {
            root: root.as_os_str().as_bytes().to_vec(),
            layout: Layout::Host,
            ..setup
        })
        .encode(),
        // INVARIANT: [`module_terms`] has made it. A worker without settings runs nothing.
        _ => Vec::new(),
    };
    ModuleTerms {
        setup,
        ..of_hosts.clone()
    }
}

/// Converts guest access to the form that the worker gets.
fn profile(guest_access: &GuestAccess) -> Profile {
    let folders = guest_access.folders.iter().map(|(guest, host, write)| {
        let host = host.as_os_str().as_bytes().to_vec();
        (guest.clone(), host, *write)
    });
    Profile {
        folders: folders.collect(),
        network: guest_access.network,
    }
}
