//! The dispatcher of one event loop, and the call into a route's handler.

use std::{rc::Rc, sync::Arc};

use galgo_front::settings::Settings;
use galgo_handlers::{
    application,
    context::{Answer, Context},
    files::{self, FileAnswer},
    program::{self, ProgramContext},
    resources::Resources,
    respond::{self, Respond},
    script::{self, AmongFiles, FoundProgram, UpstreamPath, UpstreamScript},
    status,
    steps::redirect,
    waiting,
};
use galgo_proto::{h1::Head, target::Target};
use galgo_service::{admission::ConcurrencyLimit, body::Response, fault::Fault, request::Request};

use crate::{
    config::{Cgi, Files},
    route::{self, Handler, Match, Route},
    site::Site,
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
}

impl Dispatch {
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
#[allow(missing_docs)]
pub(crate) enum Instead {
    Fault(Fault),
    /// Answer this path and query instead, by GET (RFC 3875, 6.2.2).
    Local(String),
    /// Answer the same request at this target.
    Again(Box<Target>),
}

impl<F: Into<Fault>> From<F> for Instead {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// Turns the answer of a program or an application into a step's result.
pub(crate) fn said(answer: Answer) -> Result<Response, Instead> {
    match answer {
        Answer::Response(response) => Ok(response),
        Answer::Local(location) => Err(Instead::Local(location)),
    }
}

/// Calls the handler of the route. A future that is larger than a file's is boxed.
pub(crate) async fn handle(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    found: &Match<'_, '_>,
) -> Result<Response, Instead> {
    let Match { route, rest, .. } = *found;
    match &route.handler {
        Handler::Cgi(cgi) => {
            // Before a program is looked for: a client that is turned away must cost the others nothing.
            cx.site.shared.admission.refuse_if_full(request.peer())?;
            let path = head.target.url_path();
            let find = || script::program(cgi, &route.path, path);
            let script = if let Some(found) = waiting::at_once(find) {
                found?
            } else {
                Box::pin(waiting::found(find)).await?
            };
            let limit = found.limit.or_else(|| cx.site.limit_of(route));
            let answer = by_program(cx, request, head, cgi, limit, script);
            said(Box::pin(answer).await?)
        }
        Handler::Upstream(up) => {
            let path = head.target.url_path();
            let find = || script::script(up, &route.path, path);
            let found = if let Some(found) = waiting::at_once(find) {
                found?
            } else {
                Box::pin(waiting::found(find)).await?
            };
            let script = match found {
                UpstreamPath::Script(script) => script,
                UpstreamPath::Folder => return Ok(files::to_slash(head)),
            };
            at_own_index(cx, head, route, index_of(&script, path.clean))?;
            let asked = (&**up, cx.site.upstream(route, up.role)?);
            let answer = application::answer(cx.context(), request, head, script, asked);
            said(Box::pin(answer).await?)
        }
        Handler::Files(files) => {
            if let Some(cgi) = &route.among_files
                && let Some(answer) =
                    Box::pin(among(cx, request, head, route, (files, cgi))).await?
            {
                return said(answer);
            }
            let elsewhere = |name: &str| leads_on(cx, head, route, name);
            let answer = files::answer(files, head, rest, elsewhere);
            // Matched here so that the answer is no part of the future that waits.
            let later = match answer.at_once() {
                Ok(Ok((response, cause))) => {
                    return Ok(status::add_page(cx.context(), request, response, cause));
                }
                Ok(Err(index)) => return Err(again(head, index)),
                Err(later) => later,
            };
            Box::pin(answer_later(cx, request, head, (route, files, rest), later)).await
        }
        Handler::Respond(respond) => by_constant(route, respond),
    }
}

/// Leads the request on to the index of a folder, if another route answers the index.
fn at_own_index(
    cx: &Dispatch,
    head: &Head,
    route: &Arc<Route>,
    index: Option<&str>,
) -> Result<(), Instead> {
    match index.filter(|index| leads_on(cx, head, route, index)) {
        Some(index) => Err(again(head, index)),
        None => Ok(()),
    }
}

/// Answers from memory. A route that redirects answers nothing else.
fn by_constant(route: &Route, respond: &Respond) -> Result<Response, Instead> {
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
) -> Result<Response, Instead> {
    match later.response(request.client.room()).await {
        Ok((response, cause)) => {
            return Ok(status::add_page(cx.context(), request, response, cause));
        }
        Err(Some(index)) => return Err(again(head, index)),
        Err(None) => {}
    }
    let elsewhere = |name: &str| leads_on(cx, head, route, name);
    let asked = (files, head, rest);
    match files::waits::answer(cx.context(), request, asked, elsewhere).await? {
        Ok((response, cause)) => Ok(status::add_page(cx.context(), request, response, cause)),
        Err(index) => Err(again(head, &index)),
    }
}

/// Returns the head as the route's handler is to see it, if it differs.
pub(crate) fn changed_for_handler(route: &Route, head: &Rc<Head>) -> Option<Rc<Head>> {
    let steps = route.steps.as_deref();
    steps.and_then(|steps| steps.request(head)).map(Rc::new)
}

/// Whether a file answers the request without a program.
pub(crate) fn is_file(routes: &[Arc<Route>], head: &Head) -> bool {
    let found = route::find(routes, &head.host, head.target.path());
    found.is_some_and(|Match { route, rest, .. }| {
        let mut names = rest.split(|&b| b == b'/');
        let programs = route.programs();
        let program = programs.is_some_and(|cgi| names.any(|name| cgi.is_program(name)));
        matches!(route.handler, Handler::Files(_)) && !program && route.judge().is_none()
    })
}

/// Whether another route answers for this index file of the requested folder, so that its rules must apply.
fn leads_on(cx: &Dispatch, head: &Head, route: &Arc<Route>, index: &str) -> bool {
    let file = (head.target.path(), index);
    route::leads_on(&cx.site.config.routes, &head.host, route, file)
}

/// Starts again at the path of the requested folder's index file.
fn again(head: &Head, index: &str) -> Instead {
    match at_index(head, index) {
        Some(target) => Instead::Again(Box::new(target)),
        None => Fault::NotFound.into(),
    }
}

/// Returns the path of an index file of the requested folder. `None`: no client could ask for it.
pub(crate) fn at_index(head: &Head, index: &str) -> Option<Target> {
    let path = [head.target.path(), index.as_bytes()].concat();
    redirect::at(&head.target, path, None)
}

/// Returns the name of the script, if it is an index file of the folder at `path`.
pub(crate) fn index_of<'s>(script: &'s UpstreamScript<'_>, path: &[u8]) -> Option<&'s str> {
    let name = script.script_name.strip_prefix(path)?;
    str::from_utf8(name).ok().filter(|name| !name.is_empty())
}

/// Runs `script`, or answers with the stored output of another request, if the route allows that. `limit` is the route's own
/// concurrency limit.
pub(crate) async fn by_program(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    cgi: &Arc<Cgi>,
    limit: Option<&Arc<ConcurrencyLimit>>,
    script: FoundProgram<'_>,
) -> Result<Answer, Fault> {
    match &cgi.cache {
        Some(cache) if !script.nph => {
            let (context, shared) = (cx.program_context(), (cgi, cache));
            let answer = program::cached::answer(context, request, head, shared, limit, script);
            Box::pin(answer).await
        }
        _ => program::answer(cx.program_context(), request, head, cgi, limit, script).await,
    }
}

/// Answers by a program in a folder of files. `Ok(None)`: the request means no program.
async fn among(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    route: &Arc<Route>,
    (files, cgi): (&Files, &Arc<Cgi>),
) -> Result<Option<Answer>, Instead> {
    let path = head.target.url_path();
    let find = || script::among_files(cgi, &files.index, &route.path, path);
    let found = if let Some(found) = waiting::at_once(find) {
        found?
    } else {
        Box::pin(waiting::found(find)).await?
    };
    let script = match found {
        AmongFiles::File => return Ok(None),
        AmongFiles::Index(path) => {
            let target = redirect::at(&head.target, path, None).ok_or(Fault::NotFound)?;
            return Err(Instead::Again(Box::new(target)));
        }
        AmongFiles::Program(script) => script,
    };
    cx.site.shared.admission.refuse_if_full(request.peer())?;
    let limit = cx.site.limit_of(route);
    let answer = by_program(cx, request, head, cgi, limit, script).await?;
    Ok(Some(answer))
}
