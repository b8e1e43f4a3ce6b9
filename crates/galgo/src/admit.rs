//! Access to a route: its rate limit, its access rules and passwords, and its authorizer.

use std::{rc::Rc, sync::Arc};

use galgo_handlers::{application, context::Answer, program};
use galgo_proto::{fcgi::Role, h1::Head};
use galgo_service::{body::Response, fault::Fault, request::Request};

use crate::{
    handle::{Dispatch, Unanswered, require_response},
    route::{Authorizer, Route},
    site::Site,
};

/// Redirects a client that asks without TLS to the same path of a TLS listener. The status is 308, which keeps the method
/// (RFC 9110, 15.4.9), or 307 until there is a certificate. A request that another server passes on is not redirected: it
/// has been in TLS already, or that server decides.
pub(crate) fn redirect_to_https(site: &Site, request: &Request<'_>) -> Option<Response> {
    let (link, head) = (request.link, &request.head);
    if !site.config.tls.redirect || link.https || link.passed_on || head.host.is_empty() {
        return None;
    }
    let port = match site.https_port? {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let to = format!("https://{}{port}{}", head.host, head.target.request_uri());
    // A browser must not remember a redirect to a host that has no certificate yet.
    let shown = site.shown.as_ref();
    let usable = shown.is_none_or(|shown| shown.has_certificate(&head.host));
    let status = if usable { 308 } else { 307 };
    Some(Response::new(status).with_field("Location", to))
}

/// Sets the log of a request that enters a route, and refuses an address that exceeds the route's rate limit. If several
/// routes on the way of a request have their own logs, the first counts.
// Inlined because each request passes here: the calls of such functions cost 0.7 % of a constant answer.
#[inline(always)]
pub(crate) fn enter_route(
    dispatch: &Dispatch,
    request: &Request<'_>,
    route: &Route,
) -> Result<(), Fault> {
    if let Some(trace) = &dispatch.trace {
        trace.note_route(&dispatch.site.config, route);
        return Ok(());
    }
    if let Some(log) = &route.log {
        let mut entry = request.entry.borrow_mut();
        entry.log.get_or_insert_with(|| log.clone());
    }
    match &route.rate_limit {
        Some(limit) => limit.admit_request(request.peer(), request.began),
        None => Ok(()),
    }
}

/// Runs the steps from access to the authorizer, before anything is looked for: a client that is refused learns nothing
/// about the files. `rest` is the path below the route. `Ok(None)`: the client may go on.
pub(crate) async fn admit_client(
    dispatch: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    route: &Arc<Route>,
    rest: &[u8],
) -> Result<Option<Response>, Unanswered> {
    let link = request.link;
    if let Some(steps) = &route.steps {
        if let Some(response) = steps.early_response(link, head, rest) {
            dispatch.note(|trace| trace.note_early(&response));
            return Ok(Some(response));
        }
        let mut decision = steps.decide_access(link, &head.method);
        if let Some(trace) = &dispatch.trace {
            decision = trace.note_access(steps, decision, (link, head));
        }
        let context = dispatch.context();
        if let Some(denied) = steps
            .admit_request(context, request, head, decision)
            .await?
        {
            return Ok(Some(denied));
        }
    }
    let denied = authorize(dispatch, request, head, route).await?;
    if let (None, Some(steps)) = (&denied, &route.steps) {
        dispatch.note(|trace| trace.note_variables(steps, link, head));
        steps.grant_variables(request, head);
    }
    denied.map(require_response).transpose()
}

/// Asks the authorizer of a route, if it has one. `Ok(None)`: the request may be answered.
async fn authorize(
    dispatch: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    route: &Arc<Route>,
) -> Result<Option<Answer>, Fault> {
    if let (Some(trace), Some(_)) = (&dispatch.trace, &route.authorizer) {
        trace.note_authorizer(route);
        return Ok(None);
    }
    let context = dispatch.context();
    match &route.authorizer {
        None => Ok(None),
        Some(Authorizer::Application(up)) => {
            let asked = (&**up, dispatch.site.upstream(route, Role::AUTHORIZER)?);
            Box::pin(application::authorize(context, request, head, asked)).await
        }
        Some(Authorizer::Program(cgi)) => {
            // A client that will be turned away must not use resources of the clients that are served.
            let admission = &dispatch.site.shared.admission;
            admission.refuse_if_full(request.peer())?;
            let programs = dispatch.program_context();
            Box::pin(program::authorizer::authorize(programs, request, head, cgi)).await
        }
    }
}
