//! The worker processes of one route.

use std::sync::{Arc, Weak};

use galgo_service::log::ErrorLog;
use galgo_spawn::owners::Remit;
use tokio::sync::watch;

use super::{lease::Upstream, slots::WorkerSlots};
use crate::{application_settings::Application, program_settings::CgiOptions};

/// Settings to start the workers of one route.
#[derive(Debug)]
pub struct WorkerPool {
    /// The upstream; dropped when no further request can come.
    pub(super) upstream: Weak<Upstream>,
    pub(super) slots: Arc<WorkerSlots>,
    pub(super) renew: watch::Receiver<()>,
    /// Grant for a helper, if the workers run as another user than the server, or in a sandbox that only a helper can make.
    pub(super) remit: Option<Arc<Remit>>,
    pub(super) options: CgiOptions,
    pub(super) env: Vec<(String, String)>,
    pub(super) path: String,
    pub(super) umask: u32,
    pub(super) log: ErrorLog,
}

impl WorkerPool {
    /// Returns the pool of `upstream`, with the settings of `up` and this PATH and umask; `None` if the upstream has no workers.
    pub fn from_upstream(
        upstream: &Arc<Upstream>,
        up: &Application,
        (path, umask): (&str, u32),
        log: &ErrorLog,
    ) -> Option<Self> {
        let (slots, renew) = upstream.worker_slots()?;
        Some(Self {
            upstream: Arc::downgrade(upstream),
            slots: slots.clone(),
            renew,
            remit: up.remit.clone(),
            options: up.options.clone(),
            env: up.env.clone(),
            path: path.to_owned(),
            umask,
            log: log.clone(),
        })
    }
}
