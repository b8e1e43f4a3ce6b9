//! The dispatcher of one event loop, and the call into a route's handler.

use std::{rc::Rc, sync::Arc};

use galgo_front::front_settings::Settings;
use galgo_handlers::{
    application, blocking,
    context::{Answer, Context},
    files::{self, FileAnswer},
    program::{self, ProgramContext},
    resources::Resources,
    respond::{self, Respond},
    script::{self, AmongFiles, FoundProgram, UpstreamPath, UpstreamScript},
    status,
    steps::redirect,
};
use galgo_proto::{h1::Head, target::Target};
use galgo_service::{admission::ConcurrencyLimit, body::Response, fault::Fault, request::Request};

use crate::{
    config::{Cgi, Files},
    route::{self, Handler, Match, Route},
    site::Site,
    trace::Trace,
};

/// The dispatcher of one event loop: answers its requests by one site.
#[derive(Debug)]
pub struct Dispatch {
    /// Resources of the event loop, which the handlers use.
    pub resources: Rc<Resources>,
    /// The site: its routes, and its shared state.
    pub site: Arc<Site>,
    /// The settings of connections with clients.
    pub settings: Arc<Settings>,
    /// The trace of the only request; `None`: requests are not traced.
    pub(crate) trace: Option<Box<Trace>>,
}

/// Keeps code that only traced requests run away from the code of all others.
#[cold]
#[inline(never)]
fn out_of_line(run: impl FnOnce()) {
    run();
}

impl Dispatch {
    /// Returns a dispatcher that traces its only request.
    pub(crate) fn to_trace(&self) -> Self {
        Self {
            resources: self.resources.clone(),
            site: self.site.clone(),
            settings: self.settings.clone(),
            trace: Some(Box::default()),
        }
    }

    /// Notes a step if the request is traced.
    pub(crate) fn note(&self, note: impl FnOnce(&Trace)) {
        if let Some(trace) = &self.trace {
            out_of_line(|| note(trace));
        }
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            resources: &self.resources,
            shared: &self.site.shared,
        }
    }

    pub(crate) fn program_context(&self) -> ProgramContext<'_> {
        ProgramContext {
            common: self.context(),
            starters: &self.site.starters,
        }
    }
}

/// The reason why a request has no response, or not yet.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The request fails.
    Fault(Fault),
    /// Answer this path and query instead, by GET (RFC 3875, 6.2.2).
    LocalRedirect(String),
    /// Answer the same request at this target.
    OtherTarget(Box<Target>),
}

impl<F: Into<Fault>> From<F> for Unanswered {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// Returns the response, or the local redirect to follow.
pub(crate) fn require_response(answer: Answer) -> Result<Response, Unanswered> {
    match answer {
        Answer::Response(response) => Ok(response),
        Answer::Local(location) => Err(Unanswered::LocalRedirect(location)),
    }
}

/// Calls the handler of the route. A future that is larger than a file's is boxed.
pub(crate) async fn call_handler(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    found: &Match<'_, '_>,
) -> Result<Response, Unanswered> {
    let Match { route, rest, .. } = *found;
    match &route.handler {
        Handler::Cgi(cgi) => {
            // Before a program is looked for: a client that is turned away must cost the others nothing.
            cx.site.shared.admission.refuse_if_full(request.peer())?;
            cx.note(|trace| trace.begin("program"));
            let find = || script::find_program(cgi, &route.path, head.target.url_path());
            let script = blocking::search(find).await?;
            let limit = found.limit.or_else(|| cx.site.limit_of(route));
            Box::pin(answer_by_program(cx, request, head, cgi, limit, script)).await
        }
        Handler::Upstream(up) => {
            cx.note(|trace| trace.begin("application"));
            let find = || script::find_script(up, &route.path, head.target.url_path());
            let script = match blocking::search(find).await? {
                UpstreamPath::Script(script) => script,
                UpstreamPath::Folder => return Ok(files::redirect_to_slash(head)),
            };
            let index = index_name(&script, head.target.path());
            if let Some(index) = index.filter(|index| is_index_elsewhere(cx, head, route, index)) {
                return Err(lead_to_index(head, index));
            }
            if let Some(trace) = &cx.trace {
                return Ok(trace.answer_for_application(&cx.site.config, up, &script)?);
            }
            let asked = (&**up, cx.site.upstream(route, up.role)?);
            let answer = application::answer(cx.context(), request, head, script, asked);
            require_response(Box::pin(answer).await?)
        }
        Handler::Files(files) => {
            if let Some(cgi) = &route.among_files {
                let place = (route, files, cgi);
                let answer = answer_among_files(cx, request, head, place, found.limit);
                if let Some(response) = Box::pin(answer).await? {
                    return Ok(response);
                }
            }
            let elsewhere = |name: &str| is_index_elsewhere(cx, head, route, name);
            let answer = files::answer(files, head, rest, elsewhere);
            // Matched here so that the answer is no part of the future that waits.
            let later = match answer.into_immediate() {
                Ok(Ok(answer)) => return Ok(complete_answer(cx, request, answer)),
                Ok(Err(index)) => return Err(lead_to_index(head, index)),
                Err(later) => later,
            };
            Box::pin(answer_later(cx, request, head, (route, files, rest), later)).await
        }
        Handler::Respond(respond) => answer_constantly(route, respond),
    }
}

/// Answers from memory. A route that redirects answers nothing else.
fn answer_constantly(route: &Route, respond: &Respond) -> Result<Response, Unanswered> {
    let redirects = route.steps.as_ref().is_some_and(|s| s.redirect.is_some());
    if redirects {
        return Err(Fault::NotFound.into());
    }
    Ok(respond::answer(respond))
}

/// Answers with a list, once its client has room for it, or with a file whose file system may hang.
async fn answer_later(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Head,
    (route, files, rest): (&Arc<Route>, &Files, &[u8]),
    later: FileAnswer<'_>,
) -> Result<Response, Unanswered> {
    match later.response(request.client.wait_for_room()).await {
        Ok(answer) => return Ok(complete_answer(cx, request, answer)),
        Err(Some(index)) => return Err(lead_to_index(head, index)),
        Err(None) => {}
    }
    let elsewhere = |name: &str| is_index_elsewhere(cx, head, route, name);
    let asked = (files, head, rest);
    match files::waits::answer(cx.context(), request, asked, elsewhere).await? {
        Ok(answer) => Ok(complete_answer(cx, request, answer)),
        Err(index) => Err(lead_to_index(head, &index)),
    }
}

/// Gives the answer of a folder of files its page, if it is a refusal. The error log gets the cause.
fn complete_answer(
    cx: &Dispatch,
    request: &Request<'_>,
    (response, cause): (Response, Option<&'static str>),
) -> Response {
    if let Some(cause) = cause {
        cx.note(|trace| trace.note("file", cause));
    }
    status::add_page(cx.context(), request, response, cause)
}

/// Returns the head as the route's handler is to see it, if it differs.
// Inlined: see `enter_route`.
#[inline(always)]
pub(crate) fn change_head(cx: &Dispatch, route: &Route, head: &Rc<Head>) -> Option<Rc<Head>> {
    let changed = route.steps.as_deref()?.change_request(head)?;
    cx.note(|trace| trace.note("request_headers", "are changed"));
    Some(Rc::new(changed))
}

/// Whether a file answers the request without a program.
pub(crate) fn is_file(routes: &[Arc<Route>], head: &Head) -> bool {
    let found = route::find_route(routes, &head.host, head.target.path());
    found.is_some_and(|Match { route, rest, .. }| {
        let mut names = rest.split(|&b| b == b'/');
        let programs = route.programs();
        let program = programs.is_some_and(|cgi| names.any(|name| cgi.is_program(name)));
        matches!(route.handler, Handler::Files(_))
            && !program
            && route.authorizer_program().is_none()
    })
}

/// Whether another route answers for this index file of the requested folder, so that its rules must apply.
fn is_index_elsewhere(cx: &Dispatch, head: &Head, route: &Arc<Route>, index: &str) -> bool {
    let file = (head.target.path(), index);
    route::leads_on(&cx.site.config.routes, &head.host, route, file)
}

/// Leads the request to an index file of the requested folder.
fn lead_to_index(head: &Head, index: &str) -> Unanswered {
    lead_to(head, [head.target.path(), index.as_bytes()].concat())
}

/// Leads the request to this decoded path.
fn lead_to(head: &Head, path: Vec<u8>) -> Unanswered {
    match redirect::target_at(&head.target, path, None) {
        Some(target) => Unanswered::OtherTarget(Box::new(target)),
        // No client could ask for such a path.
        None => Fault::NotFound.into(),
    }
}

/// Returns the name of the script, if it is an index file of the folder at `path`.
fn index_name<'s>(script: &'s UpstreamScript<'_>, path: &[u8]) -> Option<&'s str> {
    let name = script.script_name.strip_prefix(path)?;
    str::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// Runs `script`, or answers with the stored output of another request, if the route allows that. `limit` is the route's own
/// concurrency limit.
pub(crate) async fn answer_by_program(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    cgi: &Arc<Cgi>,
    limit: Option<&Arc<ConcurrencyLimit>>,
    script: FoundProgram<'_>,
) -> Result<Response, Unanswered> {
    if let Some(trace) = &cx.trace {
        return Ok(trace.answer_for_program(&cx.site.config, cgi, &script)?);
    }
    let own = match limit {
        None => cx.site.owner_limits.find_limit(cgi, &script),
        Some(_) => None,
    };
    let limit = limit.or(own.as_ref());
    let context = cx.program_context();
    let answer = match &cgi.cache {
        Some(cache) if !script.nph => {
            let shared = (cgi, cache);
            let answer = program::cached::answer(context, request, head, shared, limit, script);
            Box::pin(answer).await?
        }
        _ => program::answer(context, request, head, cgi, limit, script, None).await?,
    };
    require_response(answer)
}

/// Answers by a program in a folder of files. `Ok(None)`: the request means no program.
async fn answer_among_files(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    (route, files, cgi): (&Arc<Route>, &Files, &Arc<Cgi>),
    limit: Option<&Arc<ConcurrencyLimit>>,
) -> Result<Option<Response>, Unanswered> {
    cx.note(|trace| trace.begin("program"));
    let find =
        || script::find_program_in_files(cgi, &files.index, &route.path, head.target.url_path());
    let script = match blocking::search(find).await? {
        AmongFiles::File => return Ok(None),
        AmongFiles::Index(path) => return Err(lead_to(head, path)),
        AmongFiles::Program(script) => script,
    };
    cx.site.shared.admission.refuse_if_full(request.peer())?;
    let limit = limit.or_else(|| cx.site.limit_of(route));
    let response = answer_by_program(cx, request, head, cgi, limit, script).await?;
    Ok(Some(response))
}
