//! The way of a request from the first rewrite to the handler of a route.

use std::{cell::Cell, rc::Rc};

use galgo_handlers::{
    beneath, blocking, files, status,
    steps::{
        Steps, redirect,
        rewrite::{Rewrites, Rewritten},
        tries::{Tried, Tries},
    },
    variables::{REDIRECT_STATUS, REDIRECT_URL},
};
use galgo_proto::{
    h1::{ALLOW, Head},
    target::Target,
};
use galgo_service::{
    body::Response,
    fault::Fault,
    request::{Named, Request},
};

use crate::{
    admit::{admit_client, enter_route, redirect_to_https},
    config::Sites,
    handle::{Dispatch, Unanswered, answer_by_program, call_handler, change_head},
    live,
    route::{self, Handler, Match},
    trace::Trace,
    waits::{host_by_thread, host_folder, tried_by_thread},
};

/// Guard against endless redirects; RFC 3875, 6.2.2 sets no limit.
pub(crate) const MAX_LOCAL_REDIRECTS: usize = 10;

impl Unanswered {
    /// Returns the fault of a request that has followed all the redirects that it may.
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::LocalRedirect(_) | Self::OtherTarget(_) => Fault::Script(format!(
                "more than {MAX_LOCAL_REDIRECTS} local redirects in a row: the programs, or paths of `try`, redirect to each other"
            )),
        }
    }
}

/// A request on its way through the steps.
pub(crate) struct Passage<'a> {
    dispatch: &'a Dispatch,
    /// The steps of the route that was asked last.
    pub(crate) steps: Cell<Option<&'a Steps>>,
    /// The status whose error page is being looked for.
    page_of: Option<u16>,
    /// `try` has found the current path already: the handler need not look for it again.
    is_found: Cell<bool>,
}

impl<'a> Passage<'a> {
    pub(crate) fn new(dispatch: &'a Dispatch, page_of: Option<u16>) -> Self {
        Self {
            dispatch,
            steps: Cell::new(None),
            page_of,
            is_found: Cell::new(false),
        }
    }
}

/// Answers a request that needs no route. `None`: the request needs one, at the path of `head`, which may be rewritten.
// Inlined: see `enter_route`.
#[inline(always)]
pub(crate) fn answer_before_route(
    cx: &Passage<'_>,
    request: &mut Request<'_>,
    head: &mut Rc<Head>,
) -> Option<Response> {
    if request.head.target.path() == b"*" {
        // OPTIONS for the server as a whole (RFC 9110, 9.3.7).
        return Some(Response::new(204).with_field("Allow", ALLOW));
    }
    let site = &cx.dispatch.site;
    if let Some(answers) = &site.answers
        && let Some(proof) = answers.answer_challenge(request)
    {
        return Some(proof);
    }
    if let Some(response) = redirect_to_https(site, request) {
        let note = |trace: &Trace| trace.note_response("redirect_to_https", &response);
        cx.dispatch.note(note);
        return Some(response);
    }
    // A front server that names a file has done its own rewrites already.
    if request.named.is_some() {
        return None;
    }
    rewrite(cx, site.config.rewrites.as_ref()?, request, head)
}

/// Answers at the path of `head`, and follows local redirects and tried paths from there, at most `left`.
pub(crate) async fn answer_and_follow<'a>(
    cx: &Passage<'a>,
    request: &mut Request<'_>,
    mut head: Rc<Head>,
    mut left: usize,
) -> Result<Response, Unanswered> {
    loop {
        let answered = match request.named.take() {
            None => answer_by_route(cx, request, &head).await,
            // Boxed, because nearly no request needs this future.
            Some(named) => Box::pin(answer_with_named(cx, request, &head, *named)).await,
        };
        match answered {
            Err(Unanswered::LocalRedirect(location)) if left > 0 => {
                head = Rc::new(redirect::local_request(&head, &location)?);
                reset_variables(cx, request, &head);
                if let Some(rules) = &cx.dispatch.site.config.rewrites
                    && let Some(response) = rewrite(cx, rules, request, &mut head)
                {
                    return Ok(response);
                }
            }
            Err(Unanswered::OtherTarget(target)) if left > 0 => {
                cx.dispatch.note(|trace| trace.note_target("then", &target));
                head = replace_target(&head, *target);
                reset_variables(cx, request, &head);
            }
            answered => return answered,
        }
        left -= 1;
    }
}

/// Forgets the granted variables, because they were for another path. Programs learn which path the client asked for, and for
/// which error they make the page.
pub(crate) fn reset_variables(cx: &Passage<'_>, request: &mut Request<'_>, head: &Head) {
    request.granted.clear();
    let asked = request.head.target.path();
    if asked != head.target.path() {
        let asked = asked.to_vec();
        request.granted.push((REDIRECT_URL.to_owned(), asked));
    }
    if let Some(status) = cx.page_of {
        let status = status.to_string().into_bytes();
        request.granted.push((REDIRECT_STATUS.to_owned(), status));
    }
}

fn replace_target(head: &Head, target: Target) -> Rc<Head> {
    Rc::new(Head {
        target,
        ..head.clone()
    })
}

/// Applies the first rule that fits: it changes the head, or answers.
fn rewrite(
    cx: &Passage<'_>,
    rules: &Rewrites,
    request: &mut Request<'_>,
    head: &mut Rc<Head>,
) -> Option<Response> {
    match rules.answer(request.link, head)? {
        Rewritten::Response(response) => {
            let note = |trace: &Trace| trace.note_response("rewrite", &response);
            cx.dispatch.note(note);
            return Some(response);
        }
        Rewritten::Target(target) => {
            cx.dispatch
                .note(|trace| trace.note_target("rewrite", &target));
            *head = replace_target(head, target);
        }
    }
    reset_variables(cx, request, head);
    None
}

/// Answers a request with the file that a front server names.
async fn answer_with_named<'a>(
    cx: &Passage<'a>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    named: Named,
) -> Result<Response, Unanswered> {
    let site = &*cx.dispatch.site;
    let (routes, path) = (&site.config.routes, head.target.path());
    let owned =
        blocking::search(|| Ok(route::find_named_program(routes, &head.host, path, &named)))
            .await?;
    if let Some(owned) = owned {
        let route = owned.route;
        cx.steps.set(route.steps.as_deref());
        enter_route(cx.dispatch, request, route)?;
        if let Some(response) = admit_client(cx.dispatch, request, head, route, &owned.rest).await?
        {
            return Ok(response);
        }
        let changed = change_head(cx.dispatch, route, head);
        let head = changed.as_ref().unwrap_or(head);
        site.shared.admission.refuse_if_full(request.peer())?;
        let (cgi, script) = owned.found?;
        let limit = site.limit_of(route);
        return answer_by_program(cx.dispatch, request, head, cgi, limit, script).await;
    }
    let found = route::find_route(routes, &head.host, path);
    let programs = found.is_some_and(|f| matches!(f.route.handler, Handler::Cgi(_)));
    let answered = answer_by_route(cx, request, head).await;
    let is_missing = match &answered {
        Ok(response) => response.status == 404,
        Err(unanswered) => matches!(unanswered, Unanswered::Fault(Fault::NotFound)),
    };
    match named.file {
        Some(file) if is_missing && !programs => Err(Fault::Refused(format!(
            "the front server asks for the file {:?}, which no folder of a `cgi` route contains",
            String::from_utf8_lossy(&file)
        ))
        .into()),
        _ => answered,
    }
}

/// Answers by the route of the path, from its rate limit to its handler.
async fn answer_by_route<'a>(
    cx: &Passage<'a>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
) -> Result<Response, Unanswered> {
    let site = &*cx.dispatch.site;
    let is_found = cx.is_found.take();
    // Boxed, because most servers have no such folder.
    if let Some(sites) = &site.config.sites
        && let Some(response) = Box::pin(answer_by_host(cx, request, head, sites)).await?
    {
        return Ok(response);
    }
    let found = route::find_route(&site.config.routes, &head.host, head.target.path());
    let Some(found) = found else {
        cx.steps.set(None);
        cx.dispatch
            .note(|trace| trace.note("route", "none matches"));
        let page = Box::pin(live::answer(site, request, head)).await;
        return page.ok_or_else(|| Fault::NotFound.into());
    };
    let steps = found.route.steps.as_deref();
    cx.steps.set(steps);
    enter_route(cx.dispatch, request, found.route)?;
    if (steps.is_some() || found.route.authorizer.is_some())
        && let Some(response) = Box::pin(admit_client(
            cx.dispatch,
            request,
            head,
            found.route,
            found.rest,
        ))
        .await?
    {
        return Ok(response);
    }
    if found.slash_missing {
        return Ok(files::redirect_to_slash(head));
    }
    if let Some(tries) = steps.and_then(|steps| steps.tries.as_ref())
        && !is_found
        && let Some(response) = try_paths(cx, request, head, &found, tries).await?
    {
        return Ok(response);
    }
    let changed = change_head(cx.dispatch, found.route, head);
    let head = changed.as_ref().unwrap_or(head);
    call_handler(cx.dispatch, request, head, &found).await
}

/// Tries the paths of a route. `Ok(None)`: its handler answers.
async fn try_paths(
    cx: &Passage<'_>,
    request: &Request<'_>,
    head: &Head,
    found: &Match<'_, '_>,
    tries: &Tries,
) -> Result<Option<Response>, Unanswered> {
    let Handler::Files(files) = &found.route.handler else {
        return Ok(None);
    };
    let place = (files, found.route.among_files.as_deref());
    let decided = tries.decide(place, head, &found.route.path, found.rest);
    let tried = if let Ok(tried) = decided {
        tried
    } else {
        Box::pin(tried_by_thread(head, found, files)).await?
    };
    let (target, is_found) = match tried {
        Tried::AsItIs => return Ok(None),
        Tried::Status(status) => {
            let note = |trace: &Trace| trace.note("try", "none of its paths exists");
            cx.dispatch.note(note);
            let (context, response) = (cx.dispatch.context(), Response::new(status));
            return Ok(Some(status::add_page(context, request, response, None)));
        }
        Tried::Found(target) => (target, true),
        Tried::Again(target) => (target, false),
    };
    cx.dispatch
        .note(|trace| trace.note("try", "its path answers"));
    cx.is_found.set(is_found);
    Err(Unanswered::OtherTarget(target))
}

/// Answers from the folder of the host, if that is nearer than the configured routes. `Ok(None)`: it is not.
async fn answer_by_host<'a>(
    cx: &Passage<'a>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    sites: &Sites,
) -> Result<Option<Response>, Unanswered> {
    let (site, path) = (&cx.dispatch.site, head.target.path());
    cx.dispatch.note(|trace| trace.begin("sites"));
    beneath::forget_refused();
    let host = host_folder(site, sites, &head.host, request.began);
    let host = if host.is_ok() || !beneath::has_refused() {
        host
    } else {
        drop(host);
        Box::pin(host_by_thread(site, sites, &head.host, request.began)).await?
    };
    let Some(host) = host.map_err(Fault::Refused)? else {
        return Ok(None);
    };
    let configured = route::find_route(&site.config.routes, &head.host, path);
    let Some(own) = host.find_route(&head.host, path, configured.as_ref()) else {
        return Ok(None);
    };
    cx.steps.set(None);
    enter_route(cx.dispatch, request, own.route)?;
    if own.slash_missing {
        return Ok(Some(files::redirect_to_slash(head)));
    }
    call_handler(cx.dispatch, request, head, &own)
        .await
        .map(Some)
}
