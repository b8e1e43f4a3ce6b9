//! Who may come in, by the steps and the authorizer of a route.

use std::{rc::Rc, sync::Arc};

use galgo_handlers::{application, context::Answer, program};
use galgo_proto::{fcgi::Role, h1::Head};

use crate::{
    fault::Fault,
    handle::Dispatch,
    request::Request,
    route::{Authorizer, Route},
};

/// Who may come in, where a route has steps or an authorizer. `Ok(None)`: the request may be answered.
pub(crate) async fn admit(
    dispatch: &Dispatch,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    route: &Arc<Route>,
) -> Result<Option<Answer>, Fault> {
    if let Some(steps) = &route.steps
        && let Some(denied) = steps.admit(dispatch.context(), request, head).await?
    {
        return Ok(Some(Answer::Response(denied)));
    }
    let denied = authorize(dispatch, request, head, route).await?;
    if let (None, Some(steps)) = (&denied, &route.steps) {
        steps.grant(request, head);
    }
    Ok(denied)
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
            let asked = (&**up, dispatch.site.upstream(route, Role::Authorizer)?);
            Box::pin(application::authorize(context, request, head, asked)).await
        }
        Some(Authorizer::Program(cgi)) => {
            // Whoever is turned away must not cost those who are served.
            let admission = &dispatch.site.shared.admission;
            admission.refuse_if_full(request.peer())?;
            Box::pin(program::authorizer::authorize(context, request, head, cgi)).await
        }
    }
}
