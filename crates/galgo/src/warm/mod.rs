//! Warm starts: programs kept loaded, stopped before their first line, and forked for each request; or
//! parked, for one request each.
//!
//! 1. `take`: a child for this request, or none: then the program is started cold, at once
//! 2. `program`: one program, and which of its templates is next; `state`: what is known of it, under its lock
//! 3. `live`: a loaded template or a parked process, its share of what is bounded
//! 4. `keeper`: loads, replaces and lets go of a program's templates, off the path of requests
//! 5. `learned`: the modules that children say they loaded
//! 6. `watch`: which files a template was made from, and whether one has changed

mod keeper;
mod learned;
mod live;
mod order;
mod program;
mod state;
mod take;
mod watch;

pub use take::{Born, Ready, child};

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use galgo_spawn::{EnvBlock, Limits};

use crate::{
    config::{Route, Templates},
    trial,
};
use program::Program;
use watch::Watch;

/// How a template is started: as a cold start of the same program would be, without a request.
#[derive(Debug)]
pub struct Setup {
    /// What to execute, and its arguments.
    pub args: Vec<CString>,
    /// The variables that every request has.
    pub env: EnvBlock,
    /// The working directory.
    pub dir: CString,
    /// The program's file.
    pub file: PathBuf,
    /// What runs the file, where it is not the kernel that finds out.
    pub interpreter: Option<PathBuf>,
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// How long it may take to its first line: where a cold start would be ended, there is nothing
    /// to be gained.
    pub patience: Duration,
}

/// How a program stands.
#[derive(Debug, Clone)]
pub struct About {
    /// Why it is not loaded, in words.
    pub obstacle: Option<String>,
    /// It cannot be loaded at all, as it is now.
    pub unfit: bool,
    /// Why it is parked, and not forked: it ..., in words.
    pub parked: Option<String>,
    /// Modules that are not loaded ahead of requests, for they do more than load, or fail.
    pub left: Vec<String>,
    /// It has all the templates it is to have, and they know what there is to know.
    pub settled: bool,
}

/// The programs that are started warm, shared by all workers.
#[derive(Debug)]
pub struct Warm {
    /// By route and file. A program holds on to its route's address, so that no other route gets it.
    /// Written to with the first request for a program, and when routes are gone.
    programs: RwLock<Programs>,
    /// `None` where the system gives no inotify: then every start is cold.
    watch: Option<Watch>,
    /// Templates that are loaded or being loaded.
    count: AtomicUsize,
    /// What they hold in memory, bytes.
    memory: AtomicU64,
    /// As [`Templates::wait`] at the start; tests ask for it in the environment.
    waits: bool,
    /// How much longer than usual is waited: what a test says of warm starts holds on a machine that stands still for
    /// a while, too.
    stretch: u32,
}

type Programs = HashMap<(usize, CString), Arc<Program>>;

impl Warm {
    /// No templates yet.
    pub fn new(waits: bool) -> Self {
        let test = trial::asked("GALGO_TEST_WAIT_FOR_TEMPLATES").is_some();
        Self {
            programs: RwLock::default(),
            watch: Watch::new().ok(),
            count: AtomicUsize::new(0),
            memory: AtomicU64::new(0),
            waits: waits || test,
            stretch: if test { 60 } else { 1 },
        }
    }

    /// How long to wait for what usually takes no longer than `usual`.
    pub fn patience(&self, usual: Duration) -> Duration {
        usual * self.stretch
    }

    /// How a program stands; `None` where it was not asked for.
    pub fn about(&self, route: &Arc<Route>, file: &CStr) -> Option<About> {
        let key = (Arc::as_ptr(route) as usize, file.to_owned());
        let program = self.known().get(&key)?.clone();
        Some(program.about())
    }

    /// Forgets the programs of routes that are gone; who keeps their templates does so, too.
    pub fn forget_gone(&self) {
        let mut programs = self
            .programs
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = programs
            .extract_if(|_, program| program.is_gone())
            .collect();
        drop(programs);
        gone.iter()
            .for_each(|(_, program)| program.wake.notify_one());
    }

    /// Lets go of templates whose files have changed since this was last asked. The kernel notes a
    /// change before the call that makes it returns, so what is read here is up to date. False where it cannot be said at
    /// this moment what has changed, or never can.
    fn look(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.look(Program::retire_changed))
    }

    fn known(&self) -> RwLockReadGuard<'_, Programs> {
        self.programs.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is bounded, and how near it is to its bounds, in words.
    fn held(&self, limits: &Templates) -> String {
        format!(
            "in all {} of {} templates, {} of {} MiB",
            self.count.load(Ordering::Relaxed),
            limits.count,
            self.memory.load(Ordering::Relaxed) >> 20,
            limits.memory >> 20,
        )
    }

    /// Makes room for one template more: for its first, the program that has not been asked for
    /// longest gives up its own. False where all were asked for more recently than `program`.
    fn room(&self, program: &Arc<Program>, limits: &Templates) -> bool {
        let full = || {
            self.count.load(Ordering::Relaxed) >= limits.count
                || self.memory.load(Ordering::Relaxed) >= limits.memory
        };
        while full() {
            if program.has_templates() {
                return false;
            }
            let programs = self.known();
            let others = programs.values().filter(|p| !Arc::ptr_eq(p, program));
            let oldest = others
                .filter(|p| p.has_templates())
                .min_by_key(|p| p.used());
            let Some(oldest) = oldest.filter(|p| p.used() < program.used()).cloned() else {
                return false;
            };
            drop(programs);
            oldest.let_go();
        }
        true
    }
}

/// A panic while a lock is held leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
