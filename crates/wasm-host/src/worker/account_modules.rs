//! A user's own modules: found by their path, checked for each request, and compiled by the keeper.

use std::{
    collections::HashMap,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, TryLockError},
};

use galgo_spawn::{FileId, lock::lock};
use galgo_wasm::{
    code::{self, Code},
    wire::{self, CodeReply, Message, Run, RunOutcome, UserSetup},
};

use crate::{say::log_as_worker, worker::linker::LinkedProgram};

/// Limit of remembered modules: beyond it all are forgotten, and compiled again on request.
const MOST: usize = 1000;

/// The reason why a module does not run.
pub(super) struct NotFound {
    pub(super) ended: RunOutcome,
    /// The reason in words; may be empty.
    pub(super) why: String,
}

impl NotFound {
    pub(super) fn new(ended: RunOutcome, why: String) -> Self {
        Self { ended, why }
    }
}

/// A program that may run, or the reason why not.
pub(super) type ProgramResult = Result<Arc<LinkedProgram>, NotFound>;

/// The state of a worker for a user's own modules.
pub(super) struct Own {
    setup: UserSetup,
    /// The socket to the keeper, locked for each compilation: other modules wait until the current one is compiled.
    keeper: Mutex<OwnedFd>,
    modules: Mutex<HashMap<PathBuf, OwnModule>>,
}

#[derive(Default)]
struct OwnModule {
    /// The program that serves requests, and the version of the file that it was made from.
    program: Option<(FileId, Arc<LinkedProgram>)>,
    /// The version of the file that is no program, and why.
    bad: Option<(FileId, String)>,
}

impl Own {
    pub(super) fn new(setup: UserSetup, keeper: OwnedFd) -> Self {
        Self {
            setup,
            keeper: Mutex::new(keeper),
            modules: Mutex::default(),
        }
    }

    /// Lowers the limits of a run to the configured ones, whatever the server has asked for.
    pub(super) fn clamp_limits(&self, run: &mut Run) {
        run.profile = 0;
        run.memory = run.memory.min(self.setup.memory);
        run.cpu = match (run.cpu, self.setup.cpu) {
            (0, most) => most,
            (asked, 0) => asked,
            (asked, most) => asked.min(most),
        };
    }

    /// Returns the program of a module as its file is now. The previous program serves while another request has a new file
    /// compiled, or if the new file is no program.
    pub(super) fn program(
        &self,
        module: &Path,
        link: impl Fn(&Code) -> Result<LinkedProgram, String>,
    ) -> ProgramResult {
        let real = self.setup.may_run(module);
        let denied = |why| NotFound::new(RunOutcome::Denied, why);
        let real = real.map_err(|e| denied(e.to_string()))?;
        let stat = rustix::fs::stat(&real);
        let id = FileId::from_stat(&stat.map_err(|e| denied(format!("{}: {e}", real.display())))?);
        if let Some(known) = self.known_result(&real, id) {
            return known;
        }
        let keeper = match self.keeper.try_lock() {
            Ok(keeper) => keeper,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => match self.serving_program(&real) {
                Some(before) => return Ok(before),
                None => lock(&self.keeper),
            },
        };
        // Another request may have had the module compiled meanwhile.
        if let Some(known) = self.known_result(&real, id) {
            return known;
        }
        let made = request_code(&keeper, module).and_then(|code| {
            let linked = link(&code);
            let bad = |why| NotFound::new(RunOutcome::Bad, why);
            linked.map(Arc::new).map_err(bad)
        });
        self.remember(real, id, made)
    }

    /// Returns the program or the failure for the current version of the file, if it is known.
    fn known_result(&self, real: &Path, id: FileId) -> Option<ProgramResult> {
        let modules = lock(&self.modules);
        let OwnModule { program, bad } = modules.get(real)?;
        match (program, bad) {
            (Some((of, program)), _) if *of == id => Some(Ok(program.clone())),
            (Some((_, before)), Some((of, _))) if *of == id => Some(Ok(before.clone())),
            (None, Some((of, why))) if *of == id => {
                Some(Err(NotFound::new(RunOutcome::Bad, why.clone())))
            }
            _ => None,
        }
    }

    /// Returns the program that serves, whatever version of the file it was made from.
    fn serving_program(&self, real: &Path) -> Option<Arc<LinkedProgram>> {
        let modules = lock(&self.modules);
        let (_, program) = modules.get(real)?.program.as_ref()?;
        Some(program.clone())
    }

    fn remember(&self, real: PathBuf, id: FileId, made: ProgramResult) -> ProgramResult {
        let mut modules = lock(&self.modules);
        if modules.len() >= MOST {
            modules.clear();
        }
        let shown = real.display().to_string();
        let module = modules.entry(real).or_default();
        match made {
            Ok(program) => {
                module.program = Some((id, program.clone()));
                Ok(program)
            }
            Err(NotFound {
                ended: RunOutcome::Bad,
                why,
            }) => {
                let why = format!("{shown}: the module cannot be run: {why}");
                module.bad = Some((id, why.clone()));
                match &module.program {
                    Some((_, before)) => {
                        log_as_worker(&why);
                        Ok(before.clone())
                    }
                    None => Err(NotFound::new(RunOutcome::Bad, why)),
                }
            }
            Err(other) => Err(other),
        }
    }
}

/// Asks the keeper for the code of a module.
fn request_code(keeper: &OwnedFd, module: &Path) -> Result<Code, NotFound> {
    let ours = |why| NotFound::new(RunOutcome::NoThread, why);
    let wanted = Message::Wanted(module.as_os_str().as_bytes().to_vec());
    let sent = wire::send_message(keeper, &wanted.encode(), &[]);
    sent.map_err(|e| ours(format!("the keeper is not reached: {e}")))?;
    let mut buffer = Vec::new();
    let received = wire::receive_message(keeper, &mut buffer);
    let received = received.map_err(|e| ours(format!("the keeper does not answer: {e}")))?;
    // The worker ends with its keeper.
    let Some((message, mut fds)) = received else {
        return Err(ours("the keeper has ended".into()));
    };
    match (Message::decode(message), fds.pop()) {
        (Some(Message::Found(CodeReply::Code(key))), Some(code)) => {
            code::read_sealed_entry(code, &key)
                .ok_or_else(|| ours("the keeper sent invalid code".into()))
        }
        (Some(Message::Found(CodeReply::Denied(why))), _) => {
            Err(NotFound::new(RunOutcome::Denied, why))
        }
        (Some(Message::Found(CodeReply::Bad(why))), _) => Err(NotFound::new(RunOutcome::Bad, why)),
        (Some(Message::Found(CodeReply::Short)), _) => Err(ours(String::new())),
        _ => Err(ours("the keeper sent an invalid message".into())),
    }
}
