//! Calls handlers with requests, without a server.

use std::{cell::RefCell, future::pending, io, rc::Rc, sync::Arc};

use galgo_handlers::{
    program::ProgramContext,
    resources::{Resources, open_null},
};
use galgo_io::tick;
use galgo_proto::h1::Head;
use galgo_service::{
    client::Client,
    id::Ids,
    link::Link,
    log::{Logs, access::AccessEntry},
    phase::Phase,
    request::Request,
};
use galgo_spawn::{Spawner, owners::Owners, sandbox::Prepared};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    task::LocalSet,
};

use crate::{
    config::{Config, LogTo},
    dispatch::Dispatch,
    site::Site,
};

/// Makes the event loop of a command.
pub(super) fn event_loop() -> Result<Runtime, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| format!("cannot start the event loop: {e}"))
}

/// Makes requests and calls handlers with them.
pub(crate) struct Caller {
    pub(crate) dispatch: Dispatch,
    ids: Ids,
    pub(super) logs: Logs,
    /// Templates are released once this announces that no more requests follow.
    pub(super) phase: watch::Sender<Phase>,
}

/// What starts the programs of a command: the command itself, and helpers.
pub(super) type ProgramSources = (Spawner, Option<Arc<Owners>>);

/// Prepares to start the programs of a command. `prepared` is their strict sandbox, if there is one. This process enters that
/// sandbox, too.
pub(super) fn confined_spawner(
    config: &Config,
    prepared: Option<Prepared>,
) -> Result<Spawner, String> {
    let mut direct = crate::serve::direct(config).map_err(preparing)?;
    let outside = crate::serve::confine()?;
    if let Some(prepared) = prepared {
        let confined = prepared.confine();
        confined.map_err(|e| format!("cannot confine the program: {e}"))?;
        direct.set_ruleset(prepared.ruleset);
    }
    Ok(Spawner::new(direct, outside))
}

fn preparing(e: io::Error) -> String {
    format!("cannot prepare to start programs: {e}")
}

impl Caller {
    /// Makes a caller whose handlers log to `errors` and keep no access log. `spawner` makes the spawners of its programs.
    pub(super) fn new(
        mut config: Config,
        errors: LogTo,
        spawner: impl FnOnce(&Config) -> Result<ProgramSources, String>,
    ) -> Result<Self, String> {
        config.log.access = None;
        config.log.own.clear();
        config.log.error = errors;
        let logs = Logs::open(&config.log, None).map_err(|e| format!("cannot write a log: {e}"))?;
        let spawner = spawner(&config)?;
        let null = open_null().map_err(preparing)?;
        let (phase, serving) = watch::channel(Phase::Serving);
        let (errors, templates) = (logs.error.clone(), config.templates.clone());
        let site = Site::for_command(config, &logs);
        Ok(Self {
            dispatch: Dispatch {
                resources: Resources::new(0, spawner, null, errors, templates, serving),
                settings: Arc::new(site.front_settings(1, None)),
                site: Arc::new(site),
                trace: None,
            },
            ids: Ids::new(),
            logs,
            phase,
        })
    }

    pub(super) fn context(&self) -> ProgramContext<'_> {
        self.dispatch.program_context()
    }

    pub(crate) fn request<'r>(
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

/// A caller that logs nothing, with an event loop that runs while a request is answered.
pub(crate) struct BlockingCaller {
    runtime: Runtime,
    local: LocalSet,
    pub(crate) caller: Caller,
}

impl BlockingCaller {
    /// Makes a caller that starts no program.
    pub(crate) fn new(config: Config) -> Result<Self, String> {
        Self::with_spawner(config, |_| {
            Ok((Spawner::direct().map_err(preparing)?, None))
        })
    }

    pub(super) fn with_spawner(
        config: Config,
        spawner: impl FnOnce(&Config) -> Result<ProgramSources, String>,
    ) -> Result<Self, String> {
        let (runtime, local) = (event_loop()?, LocalSet::new());
        let entered = runtime.enter();
        let caller = Caller::new(config, LogTo::File("/dev/null".into()), spawner)?;
        drop(entered);
        Ok(Self {
            runtime,
            local,
            caller,
        })
    }

    /// Runs the event loop until `future` is ready.
    pub(crate) fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        let _entered = self.runtime.enter();
        self.local.block_on(&self.runtime, async {
            tokio::select! {
                done = future => done,
                () = tick::run_clock() => pending().await, // never: it drives the clocks
            }
        })
    }
}
