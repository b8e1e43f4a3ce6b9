//! Programs that decide whether a request may be answered. The program runs as a request of its own, before the
//! actual request.

use std::{ops::RangeInclusive, rc::Rc, sync::Arc};

use galgo_proto::{
    h1::{BodyLen, Head},
    target::UrlPath,
};
use galgo_service::{client::Bodiless, fault::Fault, log::LogSource, request::Request};

use super::{ProgramRun, context::ProgramContext};
use crate::{
    backend::Backend,
    blocking,
    context::Answer,
    program_settings::Cgi,
    reply::Answering,
    script::{self, FoundProgram},
};

/// Statuses that let a request in.
const GRANTS: RangeInclusive<u16> = 200..=299;

/// Runs the authorizer of a route. `Ok(None)`: the request may be answered.
///
/// # Errors
/// The authorizer could not be run, or has answered wrongly. The request is then refused.
pub async fn authorize(
    cx: ProgramContext<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    cgi: &Arc<Cgi>,
) -> Result<Option<Answer>, Fault> {
    // An authorizer is one program, without a path that leads to it.
    let path = UrlPath::from_clean(b"");
    let script = blocking::search(|| script::find_program(cgi, "", path)).await?;
    // The body is for the handler that answers.
    let head = Rc::new(Head {
        body: BodyLen::None,
        ..Head::clone(head)
    });
    let mut client = Bodiless(&mut *request.client);
    let mut asked = Request {
        began: request.began,
        granted: std::mem::take(&mut request.granted),
        ..Request::new(
            request.head.clone(),
            request.link,
            &mut client,
            request.entry.clone(),
        )
    };
    let judged = run_authorizer(cx, &mut asked, &head, cgi, script).await;
    request.granted = asked.granted;
    request.stderr = asked.stderr;
    judged
}

async fn run_authorizer(
    cx: ProgramContext<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    cgi: &Arc<Cgi>,
    script: FoundProgram<'_>,
) -> Result<Option<Answer>, Fault> {
    let source = LogSource::new(cx.resources.errors.clone(), request.id(), "authorizer");
    let mut run = ProgramRun {
        judges: true,
        ..ProgramRun::new(cx, request, head, cgi, script)
    };
    let permit = run.acquire_permit().await?;
    let program = run.start_program(None, permit).await?;
    let mut answering = Answering {
        cx: cx.common,
        source,
        nph: false,
        upgrades: false,
        options: &cgi.options,
        sendfile: &cgi.sendfile,
        head,
        request: run.request,
    };
    let backend = Backend::Program(Box::new(program));
    answering.judge_reply(backend, GRANTS).await
}
