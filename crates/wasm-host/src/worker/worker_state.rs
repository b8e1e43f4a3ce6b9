//! The state that the threads of a worker share: the programs, and the means to run them.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicUsize},
};

use galgo_wasm::{
    code::{self, Code, ModuleKind},
    wire::{self, ModuleDigest, Profile, WorkerSetup},
};
use wasmtime::{Engine, Linker, component};
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use crate::{
    engine, limits, load,
    say::log_as_worker,
    worker::{
        account_modules::Own,
        linker::{LinkedProgram, component_linker, module_linker},
        state::InstanceState,
        ticker::Ticker,
    },
};
use galgo_spawn::lock::lock;

/// Limit of instances at once, whatever the server says: each instance reserves 6 GiB of address
/// space.
const INSTANCES_MOST: u64 = 4096;

/// The source of code.
pub(super) enum CodeSource {
    /// This folder; code is found by its name.
    Cache(PathBuf),
    /// A keeper; code is found by the path of its module.
    Keeper(Own),
}

pub(super) struct Worker {
    pub(super) engine: Engine,
    tag: String,
    pub(super) source: CodeSource,
    profiles: Vec<Profile>,
    modules: Linker<InstanceState>,
    components: component::Linker<InstanceState>,
    programs: Mutex<HashMap<ModuleDigest, ProgramCell>>,
    /// Threads that wait for a connection, all threads, and the limit of threads.
    pub(super) waiting: AtomicUsize,
    pub(super) threads: AtomicUsize,
    pub(super) most: usize,
    /// Number of threads that hang.
    pub(super) hung: AtomicUsize,
    /// Files, folders, sockets and other resources that one instance may hold.
    pub(super) resources: usize,
    pub(super) ticker: Ticker,
}

type ProgramCell = Arc<OnceLock<Option<Arc<LinkedProgram>>>>;

impl Worker {
    pub(super) fn new(setup: &WorkerSetup, source: CodeSource) -> Result<Self, String> {
        let instances = setup.instances.clamp(1, INSTANCES_MOST);
        let words = |e: wasmtime::Error| format!("starting wasmtime: {e:#}");
        let engine = engine::create_pooled(u32::try_from(instances).unwrap_or(1)).map_err(words)?;
        Ok(Self {
            tag: engine::compatibility_tag(&engine),
            source,
            profiles: setup.profiles.clone(),
            modules: module_linker(&engine).map_err(words)?,
            components: component_linker(&engine).map_err(words)?,
            programs: Mutex::default(),
            waiting: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            hung: AtomicUsize::new(0),
            most: usize::try_from(instances).unwrap_or(1),
            resources: limits::raise_descriptor_limit(instances),
            ticker: Ticker::default(),
            engine,
        })
    }

    /// Returns the profile of the run's instances.
    pub(super) fn profile(&self, run: &wire::Run) -> Option<&Profile> {
        self.profiles.get(usize::try_from(run.profile).ok()?)
    }

    /// Returns a program by its name: the first request loads it, while other requests wait.
    pub(super) fn program(&self, key: &ModuleDigest) -> Option<Arc<LinkedProgram>> {
        let slot = lock(&self.programs).entry(*key).or_default().clone();
        let found = slot.get_or_init(|| {
            let loaded = self.load_program(key);
            loaded.map_err(|why| log_as_worker(&why)).ok().map(Arc::new)
        });
        if found.is_none() {
            self.forget_program(key); // the next load may succeed
        }
        found.clone()
    }

    pub(super) fn forget_program(&self, key: &ModuleDigest) {
        lock(&self.programs).remove(key);
    }

    fn load_program(&self, key: &ModuleDigest) -> Result<LinkedProgram, String> {
        let CodeSource::Cache(cache) = &self.source else {
            return Err("there is no cache".into());
        };
        let code = code::read_entry(cache, key, &self.tag);
        self.link_code(&code.ok_or("code in the cache is gone or has been changed")?)
    }

    /// Links code, so that it is ready to run.
    pub(super) fn link_code(&self, code: &Code) -> Result<LinkedProgram, String> {
        let module = || load::load_module(&self.engine, code);
        let component = || load::load_component(&self.engine, code);
        let component = || self.components.instantiate_pre(&component()?);
        let linked = match code.kind() {
            ModuleKind::Command => module()
                .and_then(|module| self.modules.instantiate_pre(&module))
                .map(LinkedProgram::Command),
            ModuleKind::Component => component()
                .and_then(CommandPre::new)
                .map(LinkedProgram::Component),
            ModuleKind::Http => component().and_then(ProxyPre::new).map(LinkedProgram::Http),
        };
        linked.map_err(|e| format!("loading code: {e:#}"))
    }
}
