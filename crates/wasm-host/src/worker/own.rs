//! A user's own modules: found by their path, checked for each request, and compiled by the keeper.

use std::{
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    sync::{Arc, Mutex},
};

use galgo_spawn::{FileId, lock::lock};
use galgo_wasm::{
    ModuleFault, Modules, NoCode,
    code::{self, Code},
    wire::{self, Message, Run, UserModules},
};

use super::linker::LinkedProgram;
use crate::say::log_as_worker;

/// The state of a worker for a user's own modules.
pub(super) struct Own {
    terms: UserModules,
    /// The socket to the keeper, locked for each compilation: other modules wait until the current one is compiled.
    keeper: Mutex<OwnedFd>,
    modules: Mutex<Modules<Arc<LinkedProgram>>>,
}

impl Own {
    pub(super) fn new(terms: UserModules, keeper: OwnedFd) -> Self {
        Self {
            terms,
            keeper: Mutex::new(keeper),
            modules: Mutex::default(),
        }
    }

    /// Lowers the limits of a run to the configured ones, whatever the server has asked for.
    pub(super) fn clamp_limits(&self, run: &mut Run) {
        run.profile = 0;
        run.memory = run.memory.min(self.terms.memory);
        run.cpu = match (run.cpu, self.terms.cpu) {
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
    ) -> Result<Arc<LinkedProgram>, NoCode> {
        let denied = |why| NoCode::new(ModuleFault::Denied, why);
        let real = self.terms.may_run(module);
        let real = real.map_err(|e| denied(e.to_string()))?;
        let stat = rustix::fs::stat(&real);
        let id = FileId::from_stat(&stat.map_err(|e| denied(format!("{}: {e}", real.display())))?);
        let (found, begins) = {
            let mut modules = lock(&self.modules);
            let (found, begins) = modules.find(&real, id);
            (found.ok_or_else(|| modules.wait(&real)), begins)
        };
        if begins {
            let bad = |why: String| {
                let shown = real.display();
                format!("{shown}: the module cannot be run: {why}")
            };
            let made = request_code(&lock(&self.keeper), module).and_then(|code| {
                let linked = link(&code).map(Arc::new);
                linked.map_err(|why| NoCode::new(ModuleFault::Module, why))
            });
            let made = made.map_err(|wrong| match wrong.whose {
                ModuleFault::Module => NoCode::new(wrong.whose, bad(wrong.words)),
                _ => wrong,
            });
            lock(&self.modules).done(&real, id, &made);
            return made.or_else(|wrong| match found {
                Ok(before) => {
                    log_as_worker(&wrong.words);
                    before
                }
                Err(_) => Err(wrong),
            });
        }
        let given_up = |_| {
            Err(NoCode::new(
                ModuleFault::Ours,
                "its compilation was given up",
            ))
        };
        found.unwrap_or_else(|pending| pending.blocking_recv().unwrap_or_else(given_up))
    }
}

/// Asks the keeper for the code of a module.
fn request_code(keeper: &OwnedFd, module: &Path) -> Result<Code, NoCode> {
    let ours = |why: String| NoCode::new(ModuleFault::Ours, why);
    let wanted = Message::Wanted(module.as_os_str().as_bytes().to_vec());
    let sent = wire::send_message(keeper, &wanted.encode(), &[]);
    sent.map_err(|e| ours(format!("the keeper is not reached: {e}")))?;
    let mut buffer = Vec::new();
    let received = wire::receive_message(keeper, &mut buffer);
    let received = received.map_err(|e| ours(format!("the keeper does not answer: {e}")))?;
    // The worker ends with its keeper.
    let (message, mut fds) = received.ok_or_else(|| ours("the keeper has ended".into()))?;
    let Some(Message::Found(found)) = Message::decode(message) else {
        return Err(ours("the keeper sent an invalid message".into()));
    };
    let (key, code) = (found?, fds.pop());
    code.and_then(|code| code::read_sealed_entry(code, &key))
        .ok_or_else(|| ours("the keeper sent invalid code".into()))
}
