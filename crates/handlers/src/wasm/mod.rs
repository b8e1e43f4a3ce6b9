//! WebAssembly programs: the server's interface to `galgo_wasm`.
//!
//! A separate program, `galgo-wasm`, compiles and runs modules. If it is not beside galgo, modules are refused.

mod lease;
mod start;
mod terms;
mod worker;

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use galgo_io::off_loop::off_loop;
use galgo_service::{
    fault::Fault,
    log::{ErrorLog, Level},
    phase::Phase,
};
use galgo_spawn::{
    FileId,
    owners::{Owners, Remit},
    words,
};
pub use galgo_wasm::cache::{
    doubt as cache_doubt, folder as cache_folder, prepare as prepare_cache,
};
use galgo_wasm::{Compiler, CompilerSettings, ModuleFault, NoCode, compiler, wire};

use crate::{
    guest_access::GuestAccess, program_settings::Cgi, resources::Resources, script::FoundProgram,
};
pub use lease::{ModuleCode, ModuleLease};
use start::{SHORT, WorkerStarter};
pub use start::{beside, missing};
use terms::{MEMORY, SPARE, profile};
pub use terms::{module_terms, module_terms_of_host};
pub use worker::ModuleWorker;
use worker::{WorkerPlace, WorkerPlaces};

/// Checks a module as a request for it would: compiles it, and throws the code away.
///
/// # Errors
/// A sentence about the module's fault.
pub fn examine(module: &Path) -> Result<(), String> {
    compiler::examine(beside(), module)
}

/// Runs modules; a worker starts with its first module.
#[derive(Debug)]
pub struct Wasm {
    compiler: Arc<Compiler>,
    needs: Needs,
    /// The worker of the server's own user, for all routes.
    own: Arc<WorkerPlace>,
    /// The workers of other users, and of strict sandboxes.
    places: Arc<WorkerPlaces>,
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
        let compiler = Compiler::new(CompilerSettings {
            beside: beside().clone(),
            cache: needs.cache.clone(),
            say: Box::new(move |words| errors.write(Level::Error, "wasm", words)),
        });
        let places = before.map_or_else(Arc::default, |before| before.places.clone());
        let profiles = needs.profiles.iter().map(profile).collect();
        let own = WorkerStarter::Server(compiler.clone(), needs.running + SPARE, profiles);
        let own = places.new_place(own);
        let worker = Arc::downgrade(&own);
        compiler.on_change(move |change| {
            worker
                .upgrade()
                .iter()
                .for_each(|own| own.tell_worker(change));
        });
        Arc::new(Self {
            compiler,
            needs,
            own,
            places,
        })
    }

    /// Returns a module that runs as another user, or in a strict sandbox: in the worker of its route and this user.
    pub fn user_code(&self, owners: &Arc<Owners>, remit: &Arc<Remit>, uid: u32) -> ModuleCode {
        let place = self.places.user_place(owners, remit, uid);
        ModuleCode { place, key: None }
    }

    /// Returns the code of a module that runs as the server's own user; waits if it has to be compiled first.
    ///
    /// # Errors
    /// The reason why the file is not a program.
    pub async fn code(&self, script: &FoundProgram<'_>) -> Result<ModuleCode, Fault> {
        let file = Path::new(OsStr::from_bytes(script.script_filename.as_bytes()));
        let code = self.compiler.code(file, script.id).await;
        let code = code.map(|key| ModuleCode {
            place: self.own.clone(),
            key: Some(key),
        });
        code.map_err(|NoCode { words: why, whose }| match whose {
            ModuleFault::Module | ModuleFault::Ours => {
                Fault::Script(format!("the module cannot be run: {why}"))
            }
            ModuleFault::Host | ModuleFault::Denied => {
                Fault::Refused(format!("{}: {why}", words::escape_path(file)))
            }
            ModuleFault::Shortage => SHORT,
        })
    }

    /// Encodes the settings of a run for the worker: the value of the variable without a name.
    pub fn run(&self, code: &ModuleCode, cgi: &Cgi, script: &FoundProgram<'_>) -> Vec<u8> {
        let limits = &cgi.options.limits;
        let guest_access = self
            .needs
            .profiles
            .iter()
            .position(|p| *p == cgi.guest_access);
        let module = match code.key {
            Some(_) => Vec::new(),
            None => script.script_filename.to_bytes().to_vec(),
        };
        let run = wire::Run {
            key: code.key.unwrap_or_default(),
            profile: guest_access.map_or(u64::MAX, |place| place as u64),
            memory: limits.memory.unwrap_or(MEMORY),
            cpu: limits.cpu.unwrap_or(0),
            name: script.script_name.to_vec(),
            module,
        };
        run.encode()
    }

    /// Lets each worker end with its last request, because no further request can come.
    pub fn close(&self) {
        self.places.end();
        self.own.forget_worker();
    }

    /// Has `modules` compiled, and their worker started, before the first request; only the first event loop does this. If that is
    /// impossible, the log says so once. Without a thread to look for modules, each is compiled when a request asks for it.
    pub fn prepare(
        self: &Arc<Self>,
        resources: &Rc<Resources>,
        modules: impl FnOnce() -> Vec<(PathBuf, FileId)> + Send + 'static,
    ) {
        if resources.index != 0 {
            return;
        }
        let (wasm, resources) = (self.clone(), resources.clone());
        tokio::task::spawn_local(async move {
            let mut phase = resources.phase.clone();
            // A folder that hangs must not keep the event loop from its end.
            let found = tokio::select! {
                found = off_loop("modules", modules) => found.unwrap_or_default(),
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => return,
            };
            for (file, id) in &found {
                if let Err(why) = wasm.compiler.prepare(file, *id) {
                    let words = format!("{}: {why}", words::escape_path(file));
                    return wasm.compiler.say(&words);
                }
            }
            if !found.is_empty() {
                // The first request says what is wrong.
                let _ = wasm.own.start_worker(&resources).await;
            }
        });
    }
}

/// Returns how many descriptors modules may take while `running` programs run, apart from the programs' own. Idle connections,
/// the worker and compilations take them.
pub fn descriptors(running: usize) -> usize {
    const COMPILES: usize = 2 * 8;
    2 * (running + SPARE) + COMPILES
}
