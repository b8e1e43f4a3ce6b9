//! The worker process: receives runs and runs them, each on a thread of its own, as an instance of
//! its own.
//!
//! Threads wait for the next run on the server's socket itself, so a run is handed over once and
//! wakes one thread. The thread that takes one starts another where no other waits.

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

use rustix::process::Resource;
use wasmtime::{Engine, InstancePre, Linker, Module, component, component::Component};
use wasmtime_wasi::{WasiCtxBuilder, p2::bindings::CommandPre};
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use crate::{
    code::{self, Kind, Loaded},
    engine, limits,
    sandbox::{self, Sandbox},
    wire::{self, Ended, Key, Message, Profile, Setup},
};
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
    /// Threads that wait for a run, threads altogether, and how many there may be.
    waiting: AtomicUsize,
    threads: AtomicUsize,
    most: usize,
    /// Files, folders, sockets and other resources that one instance may hold.
    resources: usize,
    ticker: ticker::Ticker,
}

type Slot = Arc<OnceLock<Option<Arc<Program>>>>;

/// Serves the server's socket, standard input, until that is closed.
pub fn main() -> ExitCode {
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
    take(&worker, &socket);
    Ok(())
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

/// Takes runs from the socket until it is closed, which ends the process: whoever wanted the answers
/// is gone.
fn take(worker: &Arc<Worker>, socket: &Arc<OwnedFd>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS)
        .build()
    else {
        return say("a thread has no event loop");
    };
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
        if others == 0 {
            another(worker, socket);
        }
        match Message::decode(message) {
            Some(Message::Run(run)) => worker.run(&runtime, &run, fds),
            Some(Message::Load(key)) => drop(worker.program(&key)),
            Some(Message::Forget(key)) => worker.forget(&key),
            Some(Message::Setup(_)) | None => say("a message that makes no sense"),
        }
    }
}

fn another(worker: &Arc<Worker>, socket: &Arc<OwnedFd>) {
    if worker.threads.fetch_add(1, Ordering::SeqCst) >= worker.most {
        worker.threads.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let (theirs, socket) = (worker.clone(), socket.clone());
    let thread = thread::Builder::new().name("instance".into());
    if thread.spawn(move || take(&theirs, &socket)).is_err() {
        worker.threads.fetch_sub(1, Ordering::SeqCst);
    }
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

    fn run(
        self: &Arc<Self>,
        runtime: &tokio::runtime::Runtime,
        run: &wire::Run,
        fds: Vec<OwnedFd>,
    ) {
        let Ok([stdin, stdout, stderr, control]) = <[OwnedFd; 4]>::try_from(fds) else {
            return say("a run without its descriptors");
        };
        let Some(program) = self.program(&run.key) else {
            return wire::send_ended(&control, Ended::NoCode);
        };
        let _running = self.ticker.running();
        let streams = [stdin, stdout, stderr];
        runtime.block_on(run::run(self, &program, run, streams, control));
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
        let loaded = code.load(&self.engine).map_err(words)?;
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
