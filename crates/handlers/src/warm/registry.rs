//! The registry of the programs of all routes that are started warm.

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use galgo_service::log::ErrorLog;
use galgo_spawn::{FileId, template::FileWatch};

use super::bounds::{TemplateShare, TemplateUsage};
use crate::{
    program_settings::Cgi,
    script::FoundProgram,
    template_settings::TemplateSettings,
    trial,
    warm::warm_program::{About, WarmProgram},
};

/// The programs that are started warm, shared by all event loops.
#[derive(Debug)]
pub struct Warm {
    /// Programs by route, user and file. The file is the interpreter if all its scripts share a template. A program holds on to
    /// its route's address, so that no other route gets it. Written with the first request for a program, and when routes are
    /// gone.
    programs: RwLock<Programs>,
    /// `None` if the system gives no inotify: then every start is cold.
    pub(super) watch: Option<FileWatch<WarmProgram>>,
    pub(super) bounds: Arc<TemplateUsage>,
    /// [`TemplateSettings::wait`] as it was at the start. Tests ask for waiting in the environment.
    pub(super) waits: bool,
    /// Factor by which waits are longer than usual. With it, a test of warm starts also holds on a machine that stands still
    /// for a while.
    stretch: u32,
}

/// Returns the identity of the program's file. If many scripts share a template, only inotify tells that its file has changed.
pub(super) fn version(script: &FoundProgram<'_>) -> FileId {
    if script.shares_template() {
        FileId::default()
    } else {
        script.id.without_change_time()
    }
}

type Programs = HashMap<ProgramKey, Arc<WarmProgram>>;
/// The second number is the user's; 0 if the server starts the program itself.
type ProgramKey = (usize, u32, CString);

fn key(cgi: &Arc<Cgi>, owner: u32, file: CString) -> ProgramKey {
    let user = cgi
        .remit
        .as_ref()
        .map_or(0, |remit| remit.user_for_owner(owner));
    (Arc::as_ptr(cgi) as usize, user, file)
}

impl Warm {
    /// Creates a registry without templates.
    pub fn new(waits: bool) -> Self {
        let test = trial::read_switch("GALGO_TEST_WAIT_FOR_TEMPLATES").is_some();
        Self {
            programs: RwLock::default(),
            watch: FileWatch::new().ok(),
            bounds: Arc::default(),
            waits: waits || test,
            stretch: if test { 60 } else { 1 },
        }
    }

    /// Returns how long to wait for an event that usually takes no longer than `usual`.
    pub fn patience(&self, usual: Duration) -> Duration {
        usual * self.stretch
    }

    /// Returns the entry of a program, or of its interpreter if scripts share a template.
    pub(super) fn program(
        &self,
        log: &ErrorLog,
        cgi: &Arc<Cgi>,
        script: &FoundProgram<'_>,
    ) -> Arc<WarmProgram> {
        let key = key(cgi, script.owner, script.template_file());
        if let Some(known) = self.known().get(&key) {
            return known.clone();
        }
        let name = key.2.to_string_lossy().into_owned();
        let make = || Arc::new(WarmProgram::new(cgi, name, version(script), log.clone()));
        self.known_mut().entry(key).or_insert_with(make).clone()
    }

    /// Returns the state of a file's template ([`FoundProgram::template_file`]), for programs that `owner` owns. `None` if no
    /// request has asked for it.
    pub fn about(&self, cgi: &Arc<Cgi>, owner: u32, file: &CStr) -> Option<About> {
        let key = key(cgi, owner, file.to_owned());
        let program = self.known().get(&key)?.clone();
        Some(program.about())
    }

    /// Forgets the programs of routes that are gone. Their keepers drop the templates.
    pub fn forget_gone(&self) {
        let mut programs = self.known_mut();
        let gone = programs.extract_if(|_, program| program.is_gone());
        let gone: Vec<_> = gone.collect();
        drop(programs);
        gone.iter()
            .for_each(|(_, program)| program.wake.notify_one());
    }

    /// Drops templates whose files have changed since the previous call. The kernel notes a change before the system call that
    /// makes it returns, so the events read here are up to date. Returns false if the changes cannot be told now, or ever.
    pub(super) fn look(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.for_each_changed(WarmProgram::retire_changed))
    }

    fn known(&self) -> RwLockReadGuard<'_, Programs> {
        self.programs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Programs> {
        let programs = self.programs.write();
        programs.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more template. If `program` has none yet, the program that was not requested for the longest time
    /// gives up its templates. `None` if all others were requested more recently than `program`.
    pub(super) fn room(
        &self,
        program: &Arc<WarmProgram>,
        limits: &TemplateSettings,
    ) -> Option<TemplateShare> {
        while self.bounds.is_full(limits) {
            if program.has_templates() {
                return None;
            }
            let programs = self.known();
            let others = programs.values().filter(|p| !Arc::ptr_eq(p, program));
            let oldest = others
                .filter(|p| p.has_templates())
                .min_by_key(|p| p.used());
            let oldest = oldest.filter(|p| p.used() < program.used()).cloned()?;
            drop(programs);
            oldest.let_go();
        }
        Some(TemplateShare::of(&self.bounds))
    }
}
