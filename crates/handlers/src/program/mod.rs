//! Programs: a process, or an instance of a module, for each request.
//!
//! 1. Take in the body if it goes to a file, else its beginning
//! 2. Wait for a permit
//! 3. Start the program
//! 4. Relay its response: see `reply`

pub mod authorizer;
pub mod cached;
mod context;
mod instance;
mod owned;
mod start;

use std::{fmt::Debug, rc::Rc, sync::Arc};

use galgo_proto::{
    fields::lists_token,
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
    backend::Backend, before_reply, body_spool, context::Answer, program_settings::Cgi,
    relay::process::at_start, reply::Answering, script::FoundProgram,
};
pub use context::{ProgramContext, ProgramStarters};

/// Answers a request by running `script`; `limit` is its route's own concurrency limit. `carried` is dropped when the program has
/// ended, which may be after its response or its client.
pub async fn answer(
    cx: ProgramContext<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    cgi: &Arc<Cgi>,
    limit: Option<&Arc<ConcurrencyLimit>>,
    script: FoundProgram<'_>,
    carried: Option<Rc<dyn Debug>>,
) -> Result<Answer, Fault> {
    request.client.limit_body(cgi.options.max_body)?;
    let upgrades = cgi.upgrade && asks_to_upgrade(request, head, &script);
    // The request of a local redirect has no body, even if the original request had one.
    let mut run = ProgramRun {
        limit,
        upgrades,
        carried,
        ..ProgramRun::new(cx, request, head, cgi, script)
    };
    let file = if !upgrades && cgi.options.receives_first(head.body) {
        let patience = cgi.options.idle_timeout;
        Some(body_spool::store_body(&cx.shared.spool, run.request, patience).await?)
    } else {
        if head.body != BodyLen::None {
            run.request.client.wait_until_body_ready().await?;
        }
        None
    };
    let module = run.module_code().await?;
    let backend = match module {
        Some(code) => Backend::Exchange(run.answering_instance(file, code).await?),
        None => {
            let permit = run.acquire_permit().await?;
            Backend::Program(Box::new(run.start_program(file, permit).await?))
        }
    };
    let mut answering = Answering {
        cx: cx.common,
        source: run.log_source(),
        nph: run.script.nph,
        upgrades: run.upgrades,
        options: &cgi.options,
        sendfile: &cgi.sendfile,
        head,
        request: run.request,
    };
    answering.read_reply(backend).await
}

/// Loads a program's template ahead of a request, if the program is to start warm, and waits for the template. Returns
/// whether there is a template.
pub async fn load_template(
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
    run.load_template().await
}

struct ProgramRun<'a, 'r, 'c> {
    cx: ProgramContext<'a>,
    request: &'a mut Request<'r>,
    head: &'a Rc<Head>,
    cgi: &'c Arc<Cgi>,
    limit: Option<&'c Arc<ConcurrencyLimit>>,
    script: FoundProgram<'a>,
    /// The client asks for another protocol on its connection, and the program may get that connection.
    upgrades: bool,
    /// The program only decides whether the request may be answered.
    judges: bool,
    /// The program's priority compared to other programs.
    priority: Priority,
    /// See [`answer`].
    carried: Option<Rc<dyn Debug>>,
}

/// Returns whether the client asks for another protocol on its connection (RFC 9110, 7.8), and a process can get that
/// connection. Modules cannot, because they have records instead of pipes.
fn asks_to_upgrade(request: &Request<'_>, head: &Head, script: &FoundProgram<'_>) -> bool {
    let asks =
        head.fields.has_field("upgrade") && lists_token(&head.fields, "connection", "upgrade");
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
            carried: None,
        }
    }

    /// Waits for a permit to run a program, and notices a client that leaves meanwhile.
    async fn acquire_permit(&mut self) -> Result<Permit, Fault> {
        let admission = &self.cx.shared.admission;
        let admit = admission.admit(self.request.peer(), self.limit);
        let permit = before_reply::wait_for(self.request, admit).await?;
        self.request.note_permit(permit.holding());
        self.priority = at_start(&permit);
        Ok(permit)
    }

    fn log_source(&self) -> LogSource {
        let name = String::from_utf8_lossy(self.script.script_name);
        LogSource::new(self.cx.resources.errors.clone(), self.request.id(), &name)
    }
}
