//! Data that one reading of the configuration has made for all handlers and event loops.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use galgo_service::{admission::Admission, lock::lock, spool::Spool};

use crate::password_gate::Gate;

/// Data shared by the handlers of all event loops.
#[derive(Debug)]
pub struct HandlersShared {
    /// PATH of programs.
    pub path: String,
    /// Show the cause of a failed program to developers.
    pub shows_causes: bool,
    /// Time limit for waiting for a permit (`queue_wait`).
    pub queue_wait: Duration,
    /// Permits for running programs.
    pub admission: Admission,
    /// Holds bytes until they are read.
    pub spool: Arc<Spool>,
    /// Limits how many passwords are verified at once.
    pub gate: Arc<Gate>,
    /// Programs whose documents have no type.
    pub untyped: OncePerProgram,
}

/// Programs that a message was logged about.
#[derive(Debug, Default)]
pub struct OncePerProgram(Mutex<BTreeSet<String>>);

impl OncePerProgram {
    /// Limit of the remembered programs. Beyond it, nothing is logged. A folder of links to itself has endless
    /// names.
    const MOST: usize = 1000;

    /// Returns whether nothing was logged about `script` yet.
    pub fn is_new(&self, script: &str) -> bool {
        let mut said = lock(&self.0);
        !said.contains(script) && said.len() < Self::MOST && said.insert(script.to_owned())
    }
}
