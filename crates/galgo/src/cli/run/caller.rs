//! Calls handlers with requests, without a server.

use std::{cell::RefCell, rc::Rc};

use galgo_handlers::{
    context::Context,
    program::{ProgramContext, ProgramStarters},
    resources::{Resources, null},
    shared::HandlersShared,
};
use galgo_proto::h1::Head;
use galgo_service::{
    client::Client,
    id::Ids,
    link::Link,
    log::{Logs, access::AccessEntry},
    phase::Phase,
    request::Request,
};
use galgo_spawn::{Spawner, sandbox::Prepared};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
};

use crate::{
    config::{Config, LogTo},
    site,
};

/// Makes the event loop of a command.
pub(super) fn event_loop() -> Result<Runtime, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| format!("starting the event loop: {e}"))
}

/// Makes requests and calls handlers with them.
pub(super) struct Caller {
    pub(super) config: Config,
    pub(super) shared: HandlersShared,
    pub(super) starters: ProgramStarters,
    resources: Rc<Resources>,
    ids: Ids,
    pub(super) logs: Logs,
    /// Templates are released once this announces that no more requests follow.
    pub(super) phase: watch::Sender<Phase>,
}

impl Caller {
    /// Makes a caller whose handlers log to `errors` and keep no access log. `prepared` is the strict sandbox of the programs,
    /// if there is one. This process enters that sandbox, too.
    pub(super) fn new(
        mut config: Config,
        errors: LogTo,
        prepared: Option<Prepared>,
    ) -> Result<Self, String> {
        config.log.access = None;
        config.log.error = errors;
        let logs = Logs::open(&config.log, None).map_err(|e| format!("cannot write a log: {e}"))?;
        let preparing = |e| format!("preparing to start programs: {e}");
        let mut direct = crate::serve::direct(&config).map_err(preparing)?;
        let outside = crate::serve::confine()?;
        if let Some(prepared) = prepared {
            let confined = prepared.confine();
            confined.map_err(|e| format!("cannot confine the program: {e}"))?;
            direct.set_ruleset(prepared.ruleset);
        }
        let spawner = Spawner::new(direct, outside);
        let null = null().map_err(preparing)?;
        let (phase, serving) = watch::channel(Phase::Serving);
        let (errors, templates) = (logs.error.clone(), config.templates.clone());
        Ok(Self {
            shared: site::shared(&config, None),
            starters: site::starters(&config, None, &logs, false),
            resources: Resources::new(0, (spawner, None), null, errors, templates, serving),
            ids: Ids::new(),
            logs,
            phase,
            config,
        })
    }

    pub(super) fn context(&self) -> ProgramContext<'_> {
        ProgramContext {
            common: Context {
                resources: &self.resources,
                shared: &self.shared,
            },
            starters: &self.starters,
        }
    }

    pub(super) fn request<'r>(
        &self,
        head: Rc<Head>,
        link: &'r Link,
        client: &'r mut dyn Client,
    ) -> Request<'r> {
        let entry = AccessEntry::new(self.ids.next(), link.remote.clone(), Some(head.clone()));
        Request {
            last: true,
            ..Request::new(head, link, client, Rc::new(RefCell::new(entry)))
        }
    }
}
