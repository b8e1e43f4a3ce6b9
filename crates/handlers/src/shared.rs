//! What one reading of the configuration has made for all handlers and event loops.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use galgo_service::{admission::Admission, lock::lock, spool::Spool};

use crate::password_gate::Gate;

/// Shared by the handlers of all event loops.
#[derive(Debug)]
pub struct HandlersShared {
    /// PATH of programs.
    pub path: String,
    /// Show the cause of a failed program to developers.
    pub shows_causes: bool,
    /// How long a request waits for a permit (`queue_wait`).
    pub queue_wait: Duration,
    /// Permits for running programs.
    pub admission: Admission,
    /// Where bytes wait until they are read.
    pub spool: Arc<Spool>,
    /// How many passwords are verified at once.
    pub gate: Arc<Gate>,
    /// Programs whose documents have no type.
    pub untyped: OncePerProgram,
}

/// Programs of which something has been said.
#[derive(Debug, Default)]
pub struct OncePerProgram(Mutex<BTreeSet<String>>);

impl OncePerProgram {
    /// As many programs are remembered; of others nothing is said. A folder of links to itself has endless names.
    const MOST: usize = 1000;

    /// Whether nothing has been said of `script` yet.
    pub fn is_new(&self, script: &str) -> bool {
        let mut said = lock(&self.0);
        !said.contains(script) && said.len() < Self::MOST && said.insert(script.to_owned())
    }
}
