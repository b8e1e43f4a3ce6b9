//! Programs: a process, or an instance of a module, for each request.
//!
//! 1. take in the body, where it goes to a file, else what comes first of it  2. wait for a permit  3. start
//! 4. its response: see `reply`

pub mod authorizer;
pub mod cached;
mod context;
mod instance;
mod owned;
mod start;

use std::{rc::Rc, sync::Arc};

use galgo_proto::{
    fields::lists,
    h1::{BodyLen, Head},
};
use galgo_service::{
    admission::{ConcurrencyLimit, Permit},
    fault::Fault,
    log::LogSource,
    request::Request,
};
use galgo_spawn::Priority;

use crate::{
    backend::Backend,
    body_spool,
    context::Answer,
    program_settings::Cgi,
    relay::process::at_start,
    reply::{self, Answering},
    script::FoundProgram,
};
pub use context::{ProgramContext, ProgramStarters};

/// Answers a request by running `script`; `limit` is its route's own concurrency limit.
pub async fn answer(
    cx: ProgramContext<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    cgi: &Arc<Cgi>,
    limit: Option<&Arc<ConcurrencyLimit>>,
    script: FoundProgram<'_>,
) -> Result<Answer, Fault> {
    request.client.limit(cgi.options.max_body)?;
    let upgrades = cgi.upgrade && asks_to_upgrade(request, head, &script);
    // A local redirect's request has no body, whatever the one before it had.
    let mut run = ProgramRun {
        limit,
        upgrades,
        ..ProgramRun::new(cx, request, head, cgi, script)
    };
    let file = if !upgrades && cgi.options.receives_first(head.body) {
        let patience = cgi.options.idle_timeout;
        Some(body_spool::store(&cx.shared.spool, run.request, patience).await?)
    } else {
        if head.body != BodyLen::None {
            run.request.client.ahead().await?;
        }
        None
    };
    let module = run.module().await?;
    let backend = match module {
        Some(code) => Backend::Exchange(run.instance(file, code).await?),
        None => {
            let permit = run.permit().await?;
            Backend::Program(Box::new(run.start(file, permit).await?))
        }
    };
    let mut answering = Answering {
        cx: cx.common,
        source: run.source(),
        nph: run.script.nph,
        upgrades: run.upgrades,
        options: &cgi.options,
        sendfile: &cgi.sendfile,
        head,
        request: run.request,
    };
    answering.reply(backend).await
}

/// Loads a program's template ahead of a request, where it is to start warm, and waits for it. Whether there is one.
pub async fn load(
    cx: ProgramContext<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    cgi: &Arc<Cgi>,
    script: FoundProgram<'_>,
) -> bool {
    if script.module {
        return false;
    }
    let run = ProgramRun::new(cx, request, head, cgi, script);
    run.template().await
}

struct ProgramRun<'a, 'r, 'c> {
    cx: ProgramContext<'a>,
    request: &'a mut Request<'r>,
    head: &'a Rc<Head>,
    cgi: &'c Arc<Cgi>,
    limit: Option<&'c Arc<ConcurrencyLimit>>,
    script: FoundProgram<'a>,
    /// The client asks for another protocol on its connection, which the program may be given.
    upgrades: bool,
    /// It says whether the request may be answered, and answers it not.
    judges: bool,
    /// How the program stands to those of others.
    priority: Priority,
}

/// Whether the client asks for another protocol on its connection (RFC 9110, 7.8), and a process can have that. Modules
/// have records where a process has pipes.
fn asks_to_upgrade(request: &Request<'_>, head: &Head, script: &FoundProgram<'_>) -> bool {
    let asks = head.fields.has("upgrade") && lists(&head.fields, "connection", "upgrade");
    asks && !script.module && request.client.can_upgrade()
}

impl<'a, 'r, 'c> ProgramRun<'a, 'r, 'c> {
    fn new(
        cx: ProgramContext<'a>,
        request: &'a mut Request<'r>,
        head: &'a Rc<Head>,
        cgi: &'c Arc<Cgi>,
        script: FoundProgram<'a>,
    ) -> Self {
        Self {
            cx,
            request,
            head,
            cgi,
            limit: None,
            script,
            upgrades: false,
            judges: false,
            priority: Priority::Normal,
        }
    }

    /// Waits for a permit to run a program; a client that leaves meanwhile is noticed.
    async fn permit(&mut self) -> Result<Permit, Fault> {
        let admission = &self.cx.shared.admission;
        let admit = admission.admit(self.request.peer(), self.limit);
        let permit = reply::wait_for(self.request, admit).await?;
        self.request.has_permit(permit.holding());
        self.priority = at_start(&permit);
        Ok(permit)
    }

    fn source(&self) -> LogSource {
        let name = String::from_utf8_lossy(self.script.script_name);
        LogSource::new(self.cx.resources.errors.clone(), self.request.id(), &name)
    }
}
