//! The worker process: takes connections, serves each on its own thread, and runs each request there in its own instance.
//!
//! Threads wait for the next connection on the server's socket itself. A thread that takes a connection starts another thread
//! if no other one waits. The server keeps connections, so a thread mostly waits for the next request on its own connection.

mod account_modules;
mod connection;
mod environ;
mod hooks;
mod http;
mod hung;
mod linker;
mod name_lookup;
mod run;
mod state;
mod stdio;
mod ticker;
mod worker_state;

use std::{
    ffi::OsStr,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use galgo_proto::fcgi::RecordType;
use galgo_spawn::{take_inherited, trusted_path::resolve};
use galgo_wasm::wire::{self, Message, RunOutcome, WorkerSetup};
use rustix::process::Resource;
use tokio::runtime::Runtime;

use crate::worker::account_modules::{NotFound, Own, ProgramResult};
use crate::worker::worker_state::{CodeSource, Worker};
use crate::{
    limits,
    sandbox::{self, WorkerSandbox},
    say::log_as_worker,
};
use connection::{RunRequest, ServerConnection};
use hung::event_loop;
pub(crate) use linker::{check_module, component_kind};
use run::Served;

/// Serves the server's socket, standard input, until it is closed, for a user's own modules. The keeper sends its setup over
/// descriptor 4.
///
/// # Errors
/// A sentence: the worker could not begin.
pub(crate) fn serve_own_modules() -> Result<(), String> {
    let keeper = take_inherited(2).map_err(|e| e.to_string())?.pop();
    let keeper = keeper.ok_or("there is no keeper")?;
    let mut message = Vec::new();
    let first = wire::receive_message(&keeper, &mut message).map_err(|e| e.to_string())?;
    let Some(Message::Own(setup)) = first.and_then(|(first, _)| Message::decode(first)) else {
        return Err("the first message is not what it should be".into());
    };
    let seen = WorkerSetup {
        cache: Vec::new(),
        instances: setup.instances,
        profiles: vec![setup.profile.clone()],
    };
    run_worker(seen, CodeSource::Keeper(Own::new(setup, keeper)))
}

/// Serves the server's socket, standard input, until it is closed.
///
/// # Errors
/// See [`serve_own`].
pub(crate) fn serve_cached_modules() -> Result<(), String> {
    let mut message = Vec::new();
    let socket = rustix::stdio::stdin();
    let first = wire::receive_message(socket, &mut message).map_err(|e| e.to_string())?;
    let Some((first, _)) = first else {
        return Ok(());
    };
    let Some(Message::Setup(setup)) = Message::decode(first) else {
        return Err("the first message is not a setup".into());
    };
    let cache = OsStr::from_bytes(&setup.cache).into();
    run_worker(setup, CodeSource::Cache(cache))
}

fn run_worker(mut setup: WorkerSetup, source: CodeSource) -> Result<(), String> {
    let held = hold_folders(&mut setup);
    let setup = &setup;
    let socket = rustix::io::dup(rustix::stdio::stdin()).map_err(|e| e.to_string())?;
    let socket = Arc::new(socket);
    // The memory of a dead worker must not be readable.
    limits::lower_limits(&[(Resource::Core, 0)])?;
    let worker = Arc::new(Worker::new(setup, source)?);
    if let Some(warning) = confine(setup)? {
        log_as_worker(warning);
    }
    worker.ticker.start_thread(worker.engine.clone());
    worker.threads.store(1, Ordering::Relaxed);
    let runtime = event_loop().map_err(|e| format!("a thread has no event loop: {e}"))?;
    wire::send_message(&*socket, wire::READY, &[]).map_err(|e| e.to_string())?;
    accept_connections(&worker, &socket, runtime);
    drop(held);
    Ok(())
}

/// The prefix of a path to a folder that this process holds open.
const HELD: &[u8] = b"/proc/self/fd/";

/// Opens the folders for guests once, and names them by their descriptors, because another account may replace one by a link
/// at any time. A folder that is missing or unusable keeps its name, and no guest enters it.
fn hold_folders(setup: &mut WorkerSetup) -> Vec<OwnedFd> {
    let mut held = Vec::new();
    for (_, host, _) in setup.profiles.iter_mut().flat_map(|p| &mut p.folders) {
        let path: &Path = OsStr::from_bytes(host).as_ref();
        match resolve(path) {
            Ok(found) => {
                *host = [HELD, found.file.as_raw_fd().to_string().as_bytes()].concat();
                held.push(found.file);
            }
            Err(e) => log_as_worker(&format!("{}: {e}", path.display())),
        }
    }
    held
}

fn confine(setup: &WorkerSetup) -> Result<Option<&'static str>, String> {
    let path = |bytes: &[u8]| sandbox::resolve_folder_links(OsStr::from_bytes(bytes).as_ref());
    let cache = Some(&setup.cache).filter(|cache| !cache.is_empty());
    let mut left = WorkerSandbox {
        read: cache.map(|cache| path(cache)).into_iter().collect(),
        network: setup.profiles.iter().any(|p| p.network),
        ..WorkerSandbox::default()
    };
    if left.network {
        left.read.push("/etc".into()); // names of machines
    }
    let folders = setup.profiles.iter().flat_map(|p| &p.folders);
    for (_, host, write) in folders.filter(|(_, host, _)| host.starts_with(HELD)) {
        let to = if *write {
            &mut left.write
        } else {
            &mut left.read
        };
        to.push(OsStr::from_bytes(host).into());
    }
    left.enter()
}

/// Takes connections from the socket until the server closes it, which ends the process.
fn accept_connections(worker: &Arc<Worker>, socket: &Arc<OwnedFd>, mut runtime: Runtime) {
    let mut bytes = Vec::new();
    loop {
        worker.waiting.fetch_add(1, Ordering::SeqCst);
        let received = wire::receive_message(&**socket, &mut bytes);
        let others = worker.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        let (message, fds) = match received {
            Ok(Some(received)) => received,
            Ok(None) => std::process::exit(0),
            Err(e) => {
                log_as_worker(&format!("receiving: {e}"));
                continue;
            }
        };
        let attended = others > 0 || start_next_thread(worker, socket);
        match Message::decode(message) {
            // A thread that serves a connection returns when that is closed. Until then, the next connections would wait for
            // it.
            Some(Message::Connect) if !attended => fds.into_iter().for_each(refuse_connection),
            Some(Message::Connect) => {
                for fd in fds {
                    if worker.serve_connection(&runtime, fd) == Served::Cancelled {
                        hung::abandon_hanging(worker, &mut runtime);
                    }
                }
            }
            Some(Message::Load(key)) => drop(worker.program(&key)),
            Some(Message::Forget(key)) => worker.forget_program(&key),
            _ => log_as_worker("an invalid message"),
        }
    }
}

/// Starts a thread that waits for connections, unless the limit is reached. Returns false if no thread can be started.
fn start_next_thread(worker: &Arc<Worker>, socket: &Arc<OwnedFd>) -> bool {
    if worker.threads.fetch_add(1, Ordering::SeqCst) >= worker.most {
        worker.threads.fetch_sub(1, Ordering::SeqCst);
        return true;
    }
    let (theirs, socket) = (worker.clone(), socket.clone());
    let thread = thread::Builder::new().name("instance".into());
    let started = event_loop().and_then(|runtime| {
        thread.spawn(move || {
            let _own = Thread(&theirs.threads);
            accept_connections(&theirs, &socket, runtime);
        })
    });
    if started.is_err() {
        worker.threads.fetch_sub(1, Ordering::SeqCst);
    }
    started.is_ok()
}

/// Counts a thread until it ends, even by a panic.
struct Thread<'w>(&'w AtomicUsize);

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Tells the server that a connection is not served because there is no thread.
fn refuse_connection(fd: OwnedFd) {
    let connection = ServerConnection::new(fd);
    connection.end_answer(RunOutcome::NoThread);
    connection.push();
}

impl Worker {
    /// Answers the requests of a connection, until the server closes it.
    fn serve_connection(&self, runtime: &Runtime, fd: OwnedFd) -> Served {
        let connection = Arc::new(ServerConnection::new(fd));
        // If other code still holds the connection, that code belongs to the previous request: no other request is answered
        // on it then.
        while Arc::strong_count(&connection) == 1
            && let Some(mut request) = connection.receive_request()
        {
            let _running = self.ticker.mark_running();
            let served = match self.find_program(&mut request) {
                Ok(program) => run::run_instance(self, &program, &request, &connection, runtime),
                Err(NotFound { ended, why }) => {
                    if !why.is_empty() {
                        connection
                            .queue_output(RecordType::STDERR, format!("galgo: {why}\n").as_bytes());
                    }
                    run::send_outcome(&connection, ended, runtime)
                }
            };
            if served != Served::Heard {
                return served;
            }
        }
        Served::Heard
    }

    /// Returns the program of a request, whose limits may be lowered.
    fn find_program(&self, request: &mut RunRequest) -> ProgramResult {
        match &self.source {
            CodeSource::Cache(_) => {
                let gone = || NotFound::new(RunOutcome::NoCode, String::new());
                self.program(&request.run.key).ok_or_else(gone)
            }
            CodeSource::Keeper(own) => {
                own.clamp_limits(&mut request.run);
                let module = OsStr::from_bytes(&request.run.module);
                own.program(module.as_ref(), |code| self.link_code(code))
            }
        }
    }
}
