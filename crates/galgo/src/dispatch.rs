//! What answers a request: steps in one order, each of which may answer.
//!
//! 1. to HTTPS, where the site wants that  2. route  3. authorizer  4. a folder's missing slash  5. handler  6. fields of every
//!    response. A local redirect begins anew with the route of its own path.

use std::{rc::Rc, sync::Arc};

use galgo_front::settings::Settings;
use galgo_handlers::{
    application,
    context::{Answer, Context},
    files, program,
    resources::Resources,
    respond, script, status,
};
use galgo_proto::{
    fcgi::Role,
    h1::{ALLOW, Head, Method},
    target::Target,
};

use crate::{
    body::Response,
    fault::Fault,
    id::Id,
    link::Link,
    live,
    request::Request,
    route::{self, Handler, Match, Route},
    service::{Left, Service},
    site::Site,
};

/// Loop guard; RFC 3875, 6.2.2 sets none.
const MAX_LOCAL_REDIRECTS: usize = 10;

/// Answers the requests of one event loop by one site.
#[derive(Debug)]
pub struct Dispatch {
    /// What the handlers have of their event loop.
    pub resources: Rc<Resources>,
    /// What answers requests, and how.
    pub site: Arc<Site>,
    /// How clients are spoken with.
    pub settings: Arc<Settings>,
}

impl Dispatch {
    /// The event loop answers by another site from now on.
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

    /// The last step: fields that every response has.
    fn dressed(&self, link: &Link, mut response: Response) -> Response {
        if let (Some(hsts), Some(_)) = (&self.site.config.tls.hsts, &link.tls) {
            // RFC 6797, 7.2: only what came in TLS may say so.
            response.fields.push("Strict-Transport-Security", hsts);
        }
        response
    }

    fn context(&self) -> Context<'_> {
        Context {
            resources: &self.resources,
            shared: &self.site.shared,
        }
    }
}

impl galgo_front::site::Site for Dispatch {
    fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Service for Dispatch {
    async fn call(&self, request: &mut Request<'_>) -> Result<Response, Left> {
        let fault = match dispatch(self, request).await {
            Ok(response) => return Ok(self.dressed(request.link, response)),
            Err(fault) => fault,
        };
        status::report(&self.resources, request, &fault);
        if let Fault::Gone(_) = fault {
            return Err(Left);
        }
        request.last = matches!(fault, Fault::Client(..));
        request.refused = matches!(fault, Fault::Busy(_));
        let failed = status::failed(&self.site.shared, request, &fault);
        Ok(self.dressed(request.link, failed))
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
        self.dressed(link, response)
    }
}

/// Finds what answers a request and has it answered, over local redirects if need be.
async fn dispatch(cx: &Dispatch, request: &mut Request<'_>) -> Result<Response, Fault> {
    if request.head.target.path() == b"*" {
        // OPTIONS: the server as a whole is asked (RFC 9110, 9.3.7).
        return Ok(Response::new(204).with("Allow", ALLOW));
    }
    if let Some(response) = to_https(cx, request) {
        return Ok(response);
    }
    let mut head = request.head.clone();
    let mut answered = first(cx, request, &head).await?;
    for _ in 0..MAX_LOCAL_REDIRECTS {
        match answered {
            Answer::Response(response) => return Ok(response),
            Answer::Local(location) => head = Rc::new(redirected(&head, &location)?),
        }
        answered = answer(cx, request, &head).await?;
    }
    if let Answer::Response(response) = answered {
        return Ok(response);
    }
    Err(Fault::Script(format!(
        "more than {MAX_LOCAL_REDIRECTS} local redirects in a row: the programs redirect to each other"
    )))
}

/// Sends a client that asks in the plain to the same path of a listener that speaks TLS (308: the method stays, RFC 9110,
/// 15.4.9). What another server passes on has been in TLS, or is that server's to decide.
fn to_https(cx: &Dispatch, request: &Request<'_>) -> Option<Response> {
    let (link, head) = (request.link, &request.head);
    if !cx.site.config.tls.redirect || link.https || link.passed_on || head.host.is_empty() {
        return None;
    }
    let port = match cx.site.https_port? {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let to = format!("https://{}{port}{}", head.host, head.target.uri());
    Some(Response::new(308).with("Location", to))
}

/// Answers the request as it came: where a front server names the program's file, by that.
async fn first(cx: &Dispatch, request: &mut Request<'_>, head: &Rc<Head>) -> Result<Answer, Fault> {
    let Some(named) = request.named.take() else {
        return answer(cx, request, head).await;
    };
    let site = &*cx.site;
    if let Some((route, found)) = route::named(&site.config.routes, &head.host, &named) {
        if let Some(denied) = authorize(cx, request, head, route).await? {
            return Ok(denied);
        }
        site.shared.admission.refuse_if_full(request.peer())?;
        let (cgi, script) = found?;
        let places = site.places(route);
        let answer = program::answer(cx.context(), request, head, cgi, places, script);
        return Box::pin(answer).await;
    }
    let found = route::find(&site.config.routes, &head.host, head.target.path());
    let programs = found.is_some_and(|f| matches!(f.route.handler, Handler::Cgi(_)));
    let missing = |answer: &Answer| match answer {
        Answer::Response(r) => r.status == 404 && !programs,
        Answer::Local(_) => false,
    };
    match (answer(cx, request, head).await, named.file) {
        (Err(Fault::NotFound), Some(file)) if !programs => Err(outside(&file)),
        (Ok(answer), Some(file)) if missing(&answer) => Err(outside(&file)),
        (answered, _) => answered,
    }
}

/// Nothing answers, and the front server had named a file.
fn outside(file: &[u8]) -> Fault {
    Fault::Refused(format!(
        "the front server means the file {:?}, which lies in no folder of a `cgi` route",
        String::from_utf8_lossy(file)
    ))
}

async fn answer(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
) -> Result<Answer, Fault> {
    let path = head.target.path();
    let site = &*cx.site;
    let found = route::find(&site.config.routes, &head.host, path);
    let Some(found) = found else {
        let page = Box::pin(live::answer(site, request, head)).await;
        return page.map(Answer::Response).ok_or(Fault::NotFound);
    };
    // What was granted before a local redirect was for another path.
    request.granted.clear();
    // Before anything is looked for, so that nothing is told of what is there.
    if let Some(denied) = authorize(cx, request, head, found.route).await? {
        return Ok(denied);
    }
    if found.slash_missing {
        return Ok(Answer::Response(match &found.route.handler {
            Handler::Files(files) => files::slash_missing(files, head),
            _ => files::to_slash(head),
        }));
    }
    handle(cx, request, head, &found).await
}

/// Asks the authorizer of a route, where it has one. `Ok(None)`: the request may be answered.
async fn authorize(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    route: &Arc<Route>,
) -> Result<Option<Answer>, Fault> {
    let Some(authorizer) = &route.authorizer else {
        return Ok(None);
    };
    let asked = (authorizer, cx.site.upstream(route, Role::Authorizer)?);
    // Boxed: requests of other routes need no room for it.
    Box::pin(application::authorize(cx.context(), request, head, asked)).await
}

/// The last step: the handler of the route. What is larger than a file's request is boxed.
async fn handle(
    cx: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    found: &Match<'_, '_>,
) -> Result<Answer, Fault> {
    let Match { route, rest, .. } = *found;
    match &route.handler {
        Handler::Cgi(cgi) => {
            // Whoever is turned away must not cost those who are served: no program is looked for.
            cx.site.shared.admission.refuse_if_full(request.peer())?;
            let script = script::program(cgi, &route.path, head.target.url_path())?;
            let places = cx.site.places(route);
            let answer = program::answer(cx.context(), request, head, cgi, places, script);
            Box::pin(answer).await
        }
        Handler::Upstream(up) => {
            let asked = (&**up, cx.site.upstream(route, up.role)?);
            let answer = application::answer(cx.context(), request, head, &route.path, asked);
            Box::pin(answer).await
        }
        Handler::Files(files) => {
            let (response, cause) = files::answer(files, head, rest).response().await;
            let mut response = status::dress(cx.context(), request, response, cause);
            files::add_to_error(files, &mut response);
            Ok(Answer::Response(response))
        }
        Handler::Respond(respond) => Ok(Answer::Response(respond::answer(respond))),
    }
}

/// The request that a local redirect stands for: GET (or HEAD) of its path, without a body.
pub(crate) fn redirected(head: &Head, location: &str) -> Result<Head, Fault> {
    let target = Target::parse(location.as_bytes(), 16 << 10).map_err(|_| {
        Fault::Script("its local redirect (Location: /…) is not a valid path".into())
    })?;
    let method = match head.method {
        Method::Head => Method::Head,
        _ => Method::Get,
    };
    let mut head = Head {
        method,
        target,
        ..head.clone()
    };
    head.fields.retain(|name, _| {
        ![
            &b"content-type"[..],
            b"content-length",
            b"transfer-encoding",
        ]
        .iter()
        .any(|n| name.eq_ignore_ascii_case(n))
    });
    head.body = galgo_proto::h1::BodyLen::None;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request allocates it: a handler that needs more room is boxed where it is called.
    #[test]
    fn the_future_of_a_request_stays_small() {
        let size = galgo_front::future_size::<Dispatch>();
        assert!(size <= 1824, "{size} bytes");
    }
}
