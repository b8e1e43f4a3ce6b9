//! The steps that a request passes through. Their order is fixed, and each step may answer:
//!
//! 1. proofs for a certificate authority  2. redirect to HTTPS, if the site asks for it  3. rewrites  4. route  5. its rate limit
//! 6. its redirect, and questions of browsers for other origins  7. access  8. passwords  9. authorizer, variables by rules
//! 10. a folder's missing slash  11. paths to try  12. fields of the request  13. handler  14. the page of an error
//! 15. fields of every response  16. its content coding
//!
//! A local redirect starts again at step 3, a tried path and an error's page at step 4. Each is then a request to the route
//! of its own path, and no rule of that route is skipped.

use std::{cell::Cell, mem, rc::Rc, sync::Arc};

use galgo_front::settings::Settings;
use galgo_handlers::{
    beneath, files, status,
    steps::{
        Steps,
        errors::{self, Errors},
        redirect,
        rewrite::Rewritten,
        tries::Tried,
    },
    variables::REDIRECT_STATUS,
    waiting,
};
use galgo_proto::{
    h1::{ALLOW, Head},
    target::Target,
};

pub use crate::handle::Dispatch;
use galgo_service::{
    body::Response,
    fault::Fault,
    id::Id,
    link::Link,
    log::Level,
    request::{Named, Request},
    service::{Left, Service},
};

use crate::{
    admit::{let_in, limit_rate, log_to, to_https},
    config::Sites,
    handle::{Instead, by_program, changed_for_handler, handle, is_file, said},
    live,
    route::{self, Handler, Route},
    site::Site,
    waits::{host_by_thread, host_folder, tried_by_thread},
};

/// Guard against endless redirects; RFC 3875, 6.2.2 sets no limit.
const MAX_LOCAL_REDIRECTS: usize = 10;

impl Dispatch {
    /// Returns a dispatcher that takes over from this one and answers by another site.
    pub fn succeeded_by(&self, site: Arc<Site>, settings: Arc<Settings>) -> Self {
        let config = &site.config;
        self.resources
            .configure(config.umask, config.templates.clone());
        files::forget();
        Self {
            resources: self.resources.clone(),
            site,
            settings,
        }
    }

    /// Runs the last steps: the fields of the route, the fields of every response, and the response's coding.
    fn change_response(
        &self,
        request: &Request<'_>,
        steps: Option<&Steps>,
        response: &mut Response,
    ) {
        if let Some(steps) = steps {
            steps.change_response(&request.head, response);
            let plain = mem::replace(response, Response::new(0));
            *response = steps.coded(self.context(), request, plain);
        }
        // Lifetimes and rules of fields depend on the type of the unchanged content, which the client already has (RFC 9110,
        // 15.4.5).
        if response.status == 304 {
            response.fields.remove(&["content-type"]);
        }
        self.add_hsts(request.link, response);
    }

    fn add_hsts(&self, link: &Link, response: &mut Response) {
        if let (Some(hsts), Some(_)) = (&self.site.config.tls.hsts, &link.tls) {
            // RFC 6797, 7.2: only a response over TLS may carry this field.
            response.fields.push("Strict-Transport-Security", hsts);
        }
    }

    /// Returns the path of a response's error page, if the response is an error and has a page.
    fn page<'a>(&'a self, steps: Option<&'a Steps>, response: &Response) -> Option<&'a str> {
        let own = steps.and_then(|steps| steps.errors.as_ref());
        let pages: Option<&Errors> = own.or(self.site.config.errors.as_ref());
        pages?.page(response)
    }

    /// Puts the page that answers at `path` into an error; returns the error unchanged if that fails.
    async fn with_page(
        &self,
        request: &mut Request<'_>,
        error: Response,
        path: &str,
        fault: Option<Fault>,
    ) -> Response {
        let shown = !matches!(fault, None | Some(Fault::NotFound));
        let page = redirect::local(&request.head, path).ok();
        let head = page.and_then(|page| errors::request(&request.head, page, error.status));
        let Some(head) = head else {
            return error;
        };
        // A developer sees the cause instead.
        if shown && status::shows_cause(&self.site.shared, request) {
            return error;
        }
        let full = matches!(
            fault,
            Some(Fault::Busy(_) | Fault::Stalled(_) | Fault::TooMany(_))
        );
        if full && !is_file(&self.site.config.routes, &head) {
            // The server refused this request because it is full; the page must not add load.
            return error;
        }
        let outcome = request.entry.borrow().outcome;
        let page = self.answer_page(request, head, error.status, full).await;
        request.entry.borrow_mut().outcome = outcome;
        let (error, why) = match page {
            Ok(page) => match errors::with_page(error, page) {
                Ok(whole) => return whole,
                Err((error, status)) => (error, format!("it is answered with {status}")),
            },
            // Clients that ask too often must not fill the log either.
            Err(None | Some(Fault::TooMany(_))) => return error,
            Err(Some(fault)) => (error, fault.to_string()),
        };
        let words = format!("no page for the status {}: {path}: {why}", error.status);
        let about = format!("[{}]", &*request.id().text());
        self.resources.errors.write(Level::Warn, &about, &words);
        error
    }

    /// Returns the answer of an error's page. `Err(None)`: the page leads to another path, and there is no room to look
    /// there.
    async fn answer_page(
        &self,
        request: &mut Request<'_>,
        head: Head,
        status: u16,
        full: bool,
    ) -> Result<Response, Option<Fault>> {
        let asked = Passage {
            page_of: Some(status),
            ..Passage::new(self)
        };
        let head = Rc::new(head);
        begin_again(&asked, request, &head);
        match answer(&asked, request, &head).await {
            Ok(page) => Ok(page),
            Err(Instead::Fault(fault)) => Err(Some(fault)),
            Err(_) if full => Err(None),
            Err(instead) => follow(&asked, request, head, instead).await.map_err(Some),
        }
    }
}

impl galgo_front::site::SiteService for Dispatch {
    fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Service for Dispatch {
    async fn call(&self, request: &mut Request<'_>) -> Result<Response, Left> {
        let asked = Passage::new(self);
        let (response, fault) = match dispatch(&asked, request).await {
            Ok(response) => (response, None),
            Err(fault) => {
                status::report(&self.resources, request, &fault);
                if let Fault::Gone(_) = fault {
                    return Err(Left);
                }
                request.last = matches!(fault, Fault::Client(..));
                request.refused = matches!(
                    fault,
                    Fault::Busy(_) | Fault::Stalled(_) | Fault::TooMany(_)
                );
                let failed = status::failed(&self.site.shared, request, &fault);
                (failed, Some(fault))
            }
        };
        let steps = asked.steps.get();
        let mut response = match self.page(steps, &response) {
            // Boxed, so that the future of a successful request stays small.
            Some(page) => Box::pin(self.with_page(request, response, page, fault)).await,
            None => response,
        };
        self.change_response(request, steps, &mut response);
        Ok(response)
    }

    fn cut(&self, request: &Request<'_>, fault: &Fault) {
        status::report(&self.resources, request, fault);
    }

    fn refuse(&self, link: &Link, id: Id, fault: &Fault) -> Response {
        self.resources.note(link, id, b"", fault);
        let mut response = status::unread(&self.site.shared, link, fault, &id.text());
        if response.status == 405 {
            response.fields.push("Allow", ALLOW);
        }
        self.add_hsts(link, &mut response);
        response
    }
}

/// A request on its way through the steps.
struct Passage<'a> {
    dispatch: &'a Dispatch,
    /// The steps of the route that was asked last.
    steps: Cell<Option<&'a Steps>>,
    /// The status whose error page is being looked for.
    page_of: Option<u16>,
    /// `try` has found the current path already: the handler need not look for it again.
    found: Cell<bool>,
}

impl<'a> Passage<'a> {
    fn new(dispatch: &'a Dispatch) -> Self {
        Self {
            dispatch,
            steps: Cell::new(None),
            page_of: None,
            found: Cell::new(false),
        }
    }
}

/// Finds the handler of a request and returns its answer, over local redirects if need be.
async fn dispatch<'a>(cx: &Passage<'a>, request: &mut Request<'_>) -> Result<Response, Fault> {
    if request.head.target.path() == b"*" {
        // OPTIONS for the server as a whole (RFC 9110, 9.3.7).
        return Ok(Response::new(204).with("Allow", ALLOW));
    }
    if let Some(answers) = &cx.dispatch.site.answers
        && let Some(proof) = answers.to(request)
    {
        return Ok(proof);
    }
    if let Some(response) = to_https(&cx.dispatch.site, request) {
        return Ok(response);
    }
    let mut head = request.head.clone();
    // A front server that names a file has done its own rewrites already.
    if request.named.is_none()
        && let Some(response) = rewrite(cx, request, &mut head)
    {
        return Ok(response);
    }
    let instead = {
        let answered = match request.named.take() {
            None => answer(cx, request, &head).await,
            // Boxed, here and below, because nearly no request needs this future.
            Some(named) => Box::pin(meant(cx, request, &head, *named)).await,
        };
        match answered {
            Ok(response) => return Ok(response),
            Err(Instead::Fault(fault)) => return Err(fault),
            Err(instead) => Box::new(instead),
        }
    };
    Box::pin(follow(cx, request, head, *instead)).await
}

/// Follows local redirects and tried paths until there is an answer.
async fn follow<'a>(
    cx: &Passage<'a>,
    request: &mut Request<'_>,
    mut head: Rc<Head>,
    mut instead: Instead,
) -> Result<Response, Fault> {
    for _ in 0..MAX_LOCAL_REDIRECTS {
        match instead {
            Instead::Fault(fault) => return Err(fault),
            Instead::Local(location) => {
                head = Rc::new(redirect::local(&head, &location)?);
                begin_again(cx, request, &head);
                if let Some(response) = rewrite(cx, request, &mut head) {
                    return Ok(response);
                }
            }
            Instead::Again(target) => {
                head = at(&head, *target);
                begin_again(cx, request, &head);
            }
        }
        instead = match answer(cx, request, &head).await {
            Ok(response) => return Ok(response),
            Err(instead) => instead,
        };
    }
    if let Instead::Fault(fault) = instead {
        return Err(fault);
    }
    Err(Fault::Script(format!(
        "more than {MAX_LOCAL_REDIRECTS} local redirects in a row: the programs, or paths of `try`, lead to each other"
    )))
}

/// Forgets the granted variables, because they were for another path. Programs learn which path the client asked for, and for
/// which error they make the page.
fn begin_again(cx: &Passage<'_>, request: &mut Request<'_>, head: &Head) {
    request.granted.clear();
    let asked = request.head.target.path();
    if asked != head.target.path() {
        let asked = asked.to_vec();
        request.granted.push(("REDIRECT_URL".to_owned(), asked));
    }
    if let Some(status) = cx.page_of {
        let status = status.to_string().into_bytes();
        request.granted.push((REDIRECT_STATUS.to_owned(), status));
    }
}

fn at(head: &Head, target: Target) -> Rc<Head> {
    Rc::new(Head {
        target,
        ..head.clone()
    })
}

/// Applies the first rule that fits: it changes the head, or answers.
fn rewrite(cx: &Passage<'_>, request: &mut Request<'_>, head: &mut Rc<Head>) -> Option<Response> {
    let rules = cx.dispatch.site.config.rewrites.as_ref()?;
    match rules.answer(request.link, head)? {
        Rewritten::Response(response) => return Some(response),
        Rewritten::Target(target) => *head = at(head, target),
    }
    begin_again(cx, request, head);
    None
}

/// Answers a request with the file that a front server names.
async fn meant<'a>(
    cx: &Passage<'a>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    named: Named,
) -> Result<Response, Instead> {
    let site = &*cx.dispatch.site;
    let path = head.target.path();
    let find = || Ok(route::named(&site.config.routes, &head.host, path, &named));
    let owned = if let Some(owned) = waiting::at_once(find) {
        owned?
    } else {
        Box::pin(waiting::found(find)).await?
    };
    if let Some(owned) = owned {
        let route = owned.route;
        enter(cx, request, route)?;
        if let Some(response) = let_in(cx.dispatch, request, head, route, &owned.rest).await? {
            return Ok(response);
        }
        let changed = changed_for_handler(route, head);
        let head = changed.as_ref().unwrap_or(head);
        site.shared.admission.refuse_if_full(request.peer())?;
        let (cgi, script) = owned.found?;
        let limit = site.limit_of(route);
        return said(by_program(cx.dispatch, request, head, cgi, limit, script).await?);
    }
    let found = route::find(&site.config.routes, &head.host, path);
    let programs = found.is_some_and(|f| matches!(f.route.handler, Handler::Cgi(_)));
    match (answer(cx, request, head).await, named.file) {
        (Err(Instead::Fault(Fault::NotFound)), Some(file)) if !programs => {
            Err(outside(&file).into())
        }
        (Ok(response), Some(file)) if response.status == 404 && !programs => {
            Err(outside(&file).into())
        }
        (answered, _) => answered,
    }
}

/// Returns the fault if nothing answers and the front server named a file.
fn outside(file: &[u8]) -> Fault {
    Fault::Refused(format!(
        "the front server means the file {:?}, which lies in no folder of a `cgi` route",
        String::from_utf8_lossy(file)
    ))
}

async fn answer<'a>(
    cx: &Passage<'a>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
) -> Result<Response, Instead> {
    let path = head.target.path();
    let site = &*cx.dispatch.site;
    let is_found = cx.found.take();
    // Boxed, because most servers have no such folder.
    if let Some(sites) = &site.config.sites
        && let Some(response) = Box::pin(of_host(cx, request, head, sites)).await?
    {
        return Ok(response);
    }
    let found = route::find(&site.config.routes, &head.host, path);
    let Some(found) = found else {
        cx.steps.set(None);
        let page = Box::pin(live::answer(site, request, head)).await;
        return page.ok_or_else(|| Fault::NotFound.into());
    };
    enter(cx, request, found.route)?;
    let steps = found.route.steps.as_deref();
    if (steps.is_some() || found.route.authorizer.is_some())
        && let Some(response) =
            Box::pin(let_in(cx.dispatch, request, head, found.route, found.rest)).await?
    {
        return Ok(response);
    }
    if found.slash_missing {
        return Ok(files::to_slash(head));
    }
    if let (Some(steps), Handler::Files(files)) = (steps, &found.route.handler)
        && let Some(tries) = &steps.tries
        && !is_found
    {
        let place = (files, found.route.among_files.as_deref());
        let decided = tries.decide(place, head, &found.route.path, found.rest);
        let tried = if let Ok(tried) = decided {
            tried
        } else {
            Box::pin(tried_by_thread(head, &found, files)).await?
        };
        match tried {
            Tried::AsItIs => {}
            Tried::Found(target) => {
                cx.found.set(true);
                return Err(Instead::Again(target));
            }
            Tried::Again(target) => return Err(Instead::Again(target)),
            Tried::Status(status) => {
                let (context, response) = (cx.dispatch.context(), Response::new(status));
                return Ok(status::add_page(context, request, response, None));
            }
        }
    }
    let changed = changed_for_handler(found.route, head);
    let head = changed.as_ref().unwrap_or(head);
    handle(cx.dispatch, request, head, &found).await
}

/// Enters a route: from now on the response passes the steps of that route.
fn enter<'a>(cx: &Passage<'a>, request: &Request<'_>, route: &'a Route) -> Result<(), Fault> {
    cx.steps.set(route.steps.as_deref());
    log_to(request, route);
    limit_rate(request, route)
}

/// Answers from the folder of the host, if that is nearer than the configured routes. `Ok(None)`: it is not.
async fn of_host<'a>(
    cx: &Passage<'a>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    sites: &Sites,
) -> Result<Option<Response>, Instead> {
    let (site, path) = (&cx.dispatch.site, head.target.path());
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
    let configured = route::find(&site.config.routes, &head.host, path);
    let Some(own) = host.find(&head.host, path, configured.as_ref()) else {
        return Ok(None);
    };
    cx.steps.set(None);
    limit_rate(request, own.route)?;
    if own.slash_missing {
        return Ok(Some(files::to_slash(head)));
    }
    handle(cx.dispatch, request, head, &own).await.map(Some)
}

#[cfg(test)]
mod tests;
