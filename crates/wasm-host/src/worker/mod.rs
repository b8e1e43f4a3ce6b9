//! The worker process: takes connections, serves each on a thread of its own, and runs each request on it as an
//! instance of its own.
//!
//! Threads wait for the next connection on the server's socket itself. The thread that takes one starts another
//! where no other waits. The server keeps connections, so that a thread mostly waits for its next request on its own.

mod connection;
mod environ;
mod http;
mod run;
mod state;
mod stdio;
mod ticker;

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use galgo_wasm::{
    code::{self, Kind},
    wire::{self, Ended, Key, Message, Profile, Setup},
};
use rustix::process::Resource;
use wasmtime::{Engine, InstancePre, Linker, Module, component, component::Component};
use wasmtime_wasi::{WasiCtxBuilder, p2::bindings::CommandPre};
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use crate::{
    engine, limits,
    load::{Loaded, load},
    sandbox::{self, Sandbox},
};
use connection::Connection;
use state::State;

/// Instances at once, whatever the server says: each has 6 GiB of address space set aside.
const INSTANCES_MOST: u64 = 4096;

/// Threads that do the file operations of one instance, which does one at a time; another where one is
/// stuck.
const FILE_THREADS: usize = 4;

/// A program that needs only its memory.
enum Program {
    Command(InstancePre<State>),
    Component(CommandPre<State>),
    Http(ProxyPre<State>),
}

/// What the threads share.
struct Worker {
    engine: Engine,
    tag: String,
    cache: PathBuf,
    profiles: Vec<Profile>,
    modules: Linker<State>,
    components: component::Linker<State>,
    programs: Mutex<HashMap<Key, Slot>>,
    /// Threads that wait for a connection, threads altogether, and how many there may be.
    waiting: AtomicUsize,
    threads: AtomicUsize,
    most: usize,
    /// Files, folders, sockets and other resources that one instance may hold.
    resources: usize,
    ticker: ticker::Ticker,
}

type Slot = Arc<OnceLock<Option<Arc<Program>>>>;

/// Serves the server's socket, standard input, until that is closed.
pub(crate) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&why);
            ExitCode::FAILURE
        }
    }
}

fn say(words: &str) {
    let line = format!("galgo: wasm worker: {words}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

fn serve() -> Result<(), String> {
    let socket = rustix::io::dup(rustix::stdio::stdin()).map_err(|e| e.to_string())?;
    let socket = Arc::new(socket);
    let mut message = Vec::new();
    let first = wire::receive(&*socket, &mut message).map_err(|e| e.to_string())?;
    let Some((first, _)) = first else {
        return Ok(());
    };
    let Some(Message::Setup(setup)) = Message::decode(first) else {
        return Err("the first message is not what it should be".into());
    };
    // What a dead worker held in memory is nobody's to read.
    limits::lower(&[(Resource::Core, 0)])?;
    let worker = Arc::new(Worker::new(&setup)?);
    if let Some(warning) = confine(&setup)? {
        say(warning);
    }
    worker.ticker.start(worker.engine.clone());
    worker.threads.store(1, Ordering::Relaxed);
    let runtime = event_loop().map_err(|e| format!("a thread has no event loop: {e}"))?;
    wire::send_message(&*socket, wire::READY, &[]).map_err(|e| e.to_string())?;
    take(&worker, &socket, &runtime);
    Ok(())
}

/// What a thread waits with for its guest.
fn event_loop() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS)
        .build()
}

fn confine(setup: &Setup) -> Result<Option<&'static str>, String> {
    use std::os::unix::ffi::OsStrExt;
    let path = |bytes: &[u8]| sandbox::folder(std::ffi::OsStr::from_bytes(bytes).as_ref());
    let mut left = Sandbox {
        read: vec![path(&setup.cache)],
        network: setup.profiles.iter().any(|p| p.network),
        ..Sandbox::default()
    };
    if left.network {
        left.read.push("/etc".into()); // names of machines
    }
    for (_, host, write) in setup.profiles.iter().flat_map(|p| &p.folders) {
        let to = if *write {
            &mut left.write
        } else {
            &mut left.read
        };
        to.push(path(host));
    }
    left.enter()
}

/// Takes connections from the socket until it is closed, which ends the process: whoever wanted the answers
/// is gone.
fn take(worker: &Arc<Worker>, socket: &Arc<OwnedFd>, runtime: &tokio::runtime::Runtime) {
    let mut bytes = Vec::new();
    loop {
        worker.waiting.fetch_add(1, Ordering::SeqCst);
        let received = wire::receive(&**socket, &mut bytes);
        let others = worker.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        let (message, fds) = match received {
            Ok(Some(received)) => received,
            Ok(None) => std::process::exit(0),
            Err(e) => {
                say(&format!("receiving: {e}"));
                continue;
            }
        };
        let attended = others > 0 || another(worker, socket);
        match Message::decode(message) {
            // A thread that serves a connection comes back when that is closed. The next ones would wait for it.
            Some(Message::Connect) if !attended => fds.into_iter().for_each(refuse),
            Some(Message::Connect) => fds.into_iter().for_each(|fd| worker.serve(runtime, fd)),
            Some(Message::Load(key)) => drop(worker.program(&key)),
            Some(Message::Forget(key)) => worker.forget(&key),
            Some(Message::Setup(_)) | None => say("a message that makes no sense"),
        }
    }
}

/// Starts a thread that waits for connections, unless there are as many as there may be. False: none can be made.
fn another(worker: &Arc<Worker>, socket: &Arc<OwnedFd>) -> bool {
    if worker.threads.fetch_add(1, Ordering::SeqCst) >= worker.most {
        worker.threads.fetch_sub(1, Ordering::SeqCst);
        return true;
    }
    let (theirs, socket) = (worker.clone(), socket.clone());
    let thread = thread::Builder::new().name("instance".into());
    let started = event_loop().and_then(|runtime| {
        thread.spawn(move || {
            let _own = Thread(&theirs.threads);
            take(&theirs, &socket, &runtime);
        })
    });
    if started.is_err() {
        worker.threads.fetch_sub(1, Ordering::SeqCst);
    }
    started.is_ok()
}

/// Counted among the threads until it ends, by a panic, too.
struct Thread<'w>(&'w AtomicUsize);

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Tells the server that a connection is not served, for want of a thread.
fn refuse(fd: OwnedFd) {
    let connection = Connection::new(fd);
    connection.end(Ended::NoThread);
    connection.push();
}

impl Worker {
    fn new(setup: &Setup) -> Result<Self, String> {
        use std::os::unix::ffi::OsStrExt;
        let instances = setup.instances.clamp(1, INSTANCES_MOST);
        let words = |e: wasmtime::Error| format!("starting wasmtime: {e:#}");
        let engine = engine::pooled(u32::try_from(instances).unwrap_or(1)).map_err(words)?;
        Ok(Self {
            tag: engine::tag(&engine),
            cache: std::ffi::OsStr::from_bytes(&setup.cache).into(),
            profiles: setup.profiles.clone(),
            modules: module_linker(&engine).map_err(words)?,
            components: component_linker(&engine).map_err(words)?,
            programs: Mutex::default(),
            waiting: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            most: usize::try_from(instances).unwrap_or(1),
            resources: limits::descriptors(instances),
            ticker: ticker::Ticker::default(),
            engine,
        })
    }

    /// Answers the requests of a connection, until the server closes it.
    fn serve(&self, runtime: &tokio::runtime::Runtime, fd: OwnedFd) {
        let connection = Arc::new(Connection::new(fd));
        // Whoever still holds it belongs to the request before: nobody else is answered on it then.
        while Arc::strong_count(&connection) == 1
            && let Some(request) = connection.request()
        {
            let _running = self.ticker.running();
            let done = match self.program(&request.run.key) {
                Some(program) => run::run(self, &program, &request, &connection, runtime),
                None => run::end(&connection, Ended::NoCode, runtime),
            };
            if !done {
                return;
            }
        }
    }

    /// What the instances of a run may see.
    fn profile(&self, run: &wire::Run) -> Option<&Profile> {
        self.profiles.get(usize::try_from(run.profile).ok()?)
    }

    /// A program by its name: loaded by whoever asks first, while others who ask wait.
    fn program(&self, key: &Key) -> Option<Arc<Program>> {
        let slot = self.slots().entry(*key).or_default().clone();
        let found = slot.get_or_init(|| {
            let loaded = self.load(key);
            loaded.map_err(|why| say(&why)).ok().map(Arc::new)
        });
        if found.is_none() {
            self.forget(key); // it may be there the next time
        }
        found.clone()
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Slot>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, key: &Key) {
        self.slots().remove(key);
    }

    fn load(&self, key: &Key) -> Result<Program, String> {
        let code = code::read(&self.cache, key, &self.tag);
        let code = code.ok_or("code in the cache is gone or has been changed")?;
        let words = |e: wasmtime::Error| format!("loading code: {e:#}");
        let loaded = load(&code, &self.engine).map_err(words)?;
        let pre = |c: &Component| self.components.instantiate_pre(c);
        Ok(match &loaded {
            Loaded::Module(m) => Program::Command(self.modules.instantiate_pre(m).map_err(words)?),
            Loaded::Component(c) => {
                Program::Component(pre(c).and_then(CommandPre::new).map_err(words)?)
            }
            Loaded::Http(c) => Program::Http(pre(c).and_then(ProxyPre::new).map_err(words)?),
        })
    }
}

fn module_linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p1::add_to_linker_async(&mut linker, State::preview1)?;
    environ::add_to_linker(&mut linker)?;
    Ok(linker)
}

fn component_linker(engine: &Engine) -> wasmtime::Result<component::Linker<State>> {
    let mut linker = component::Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    Ok(linker)
}

/// Whether a module is a command and everything it imports is there.
pub(crate) fn check_module(engine: &Engine, module: &Module) -> wasmtime::Result<()> {
    if module.get_export("_start").is_none() {
        return Err(wasmtime::Error::msg(
            "it exports no `_start`, so it is no program: build it as a command, not as a library (reactor)",
        ));
    }
    let mut offered = Linker::new(engine);
    wasmtime_wasi::p1::add_to_linker_async(&mut offered, |context| context)?;
    let mut store = wasmtime::Store::new(engine, WasiCtxBuilder::new().build_p1());
    let unknown: Vec<_> = module
        .imports()
        .filter(|import| offered.get_by_import(&mut store, import).is_none())
        .map(|import| format!("{}.{}", import.module(), import.name()))
        .collect();
    if !unknown.is_empty() {
        let list = unknown.join(", ");
        return Err(wasmtime::Error::msg(format!(
            "it imports what galgo does not offer: {list}"
        )));
    }
    let linker = module_linker(engine)?;
    linker.instantiate_pre(module).map(drop)
}

/// What a component is; everything it imports is there.
pub(crate) fn component_kind(engine: &Engine, component: &Component) -> wasmtime::Result<Kind> {
    let pre = component_linker(engine)?.instantiate_pre(component)?;
    if ProxyPre::new(pre.clone()).is_ok() {
        return Ok(Kind::Http);
    }
    CommandPre::new(pre).map(|_| Kind::Component).map_err(|_| {
        wasmtime::Error::msg(
            "this component exports neither wasi:cli/run nor wasi:http/incoming-handler, so it is no program",
        )
    })
}
