//! Who may come in, by the steps and the authorizer of a route.

use std::{rc::Rc, sync::Arc};

use galgo_handlers::{application, context::Answer, program};
use galgo_proto::{fcgi::Role, h1::Head};
use galgo_service::{body::Response, fault::Fault, request::Request};

use crate::{
    handle::{Dispatch, Instead, said},
    route::{Authorizer, Route},
    site::Site,
};

/// Sends a client that asks without TLS to the same path of a listener that speaks TLS (308: the method stays, RFC 9110,
/// 15.4.9; 307 until there is a certificate). What another server passes on has been in TLS, or is that server's to decide.
pub(crate) fn to_https(site: &Site, request: &Request<'_>) -> Option<Response> {
    let (link, head) = (request.link, &request.head);
    if !site.config.tls.redirect || link.https || link.passed_on || head.host.is_empty() {
        return None;
    }
    let port = match site.https_port? {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let to = format!("https://{}{port}{}", head.host, head.target.uri());
    // No browser is to remember what cannot be used yet.
    let shown = site.shown.as_ref();
    let usable = shown.is_none_or(|shown| shown.has(&head.host));
    let status = if usable { 308 } else { 307 };
    Some(Response::new(status).with("Location", to))
}

/// The first route on a request's way that has a log of its own logs it.
pub(crate) fn log_to(request: &Request<'_>, route: &Route) {
    if let Some(log) = &route.log {
        let mut entry = request.entry.borrow_mut();
        entry.log.get_or_insert_with(|| log.clone());
    }
}

/// Refuses an address that asks more often than the route allows, where it has a limit.
pub(crate) fn limit_rate(request: &Request<'_>, route: &Route) -> Result<(), Fault> {
    match &route.rate_limit {
        Some(limit) => limit.ask(request.peer(), request.began),
        None => Ok(()),
    }
}

/// The steps up to the one that lets a request in: before anything is looked for, so that nothing is told of what is
/// there. `rest` is the path below the route. `Ok(None)`: it is let in.
pub(crate) async fn let_in(
    dispatch: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    route: &Arc<Route>,
    rest: &[u8],
) -> Result<Option<Response>, Instead> {
    if let Some(steps) = &route.steps {
        if let Some(response) = steps.early(request.link, head, rest) {
            return Ok(Some(response));
        }
        if let Some(denied) = steps.admit(dispatch.context(), request, head).await? {
            return Ok(Some(denied));
        }
    }
    let denied = authorize(dispatch, request, head, route).await?;
    if let (None, Some(steps)) = (&denied, &route.steps) {
        steps.grant(request, head);
    }
    denied.map(said).transpose()
}

/// Asks the authorizer of a route, where it has one. `Ok(None)`: the request may be answered.
async fn authorize(
    dispatch: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    route: &Arc<Route>,
) -> Result<Option<Answer>, Fault> {
    let context = dispatch.context();
    match &route.authorizer {
        None => Ok(None),
        Some(Authorizer::Application(up)) => {
            let asked = (&**up, dispatch.site.upstream(route, Role::AUTHORIZER)?);
            Box::pin(application::authorize(context, request, head, asked)).await
        }
        Some(Authorizer::Program(cgi)) => {
            // Whoever is turned away must not cost those who are served.
            let admission = &dispatch.site.shared.admission;
            admission.refuse_if_full(request.peer())?;
            let programs = dispatch.program_context();
            Box::pin(program::authorizer::authorize(programs, request, head, cgi)).await
        }
    }
}
