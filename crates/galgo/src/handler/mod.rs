//! What answers a request; one file each.

mod authorizer;
pub mod cgi;
pub mod files;
mod handover;
mod live;
pub mod reasons;
mod reply;
pub mod respond;
pub mod spool;
pub mod status;
pub mod upstream;
mod variables;

use std::rc::Rc;

use galgo_proto::{
    h1::{ALLOW, Head, Method},
    target::Target,
};

use crate::{
    body::Response,
    config::Handler,
    fault::Fault,
    id::Id,
    link::Link,
    request::Request,
    resources::Resources,
    route::{self, Refusal},
    service::{Left, Service},
    site::Site,
};

/// Loop guard; RFC 3875, 6.2.2 sets none.
const MAX_LOCAL_REDIRECTS: usize = 10;

/// What every handler may use: what its event loop has, and the site that the request began with.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// What its event loop has.
    pub resources: &'a Rc<Resources>,
    /// What answers requests, and how.
    pub site: &'a Site,
}

impl Service for Context<'_> {
    async fn call(&self, request: &mut Request<'_>) -> Result<Response, Left> {
        let fault = match dispatch(*self, request).await {
            Ok(response) => return Ok(response),
            Err(fault) => fault,
        };
        status::report(self.resources, request, &fault);
        if let Fault::Gone(_) = fault {
            return Err(Left);
        }
        request.last = matches!(fault, Fault::Client(..));
        request.refused = matches!(fault, Fault::Busy(_));
        Ok(status::failed(self.site, request, &fault))
    }

    fn cut(&self, request: &Request<'_>, fault: &Fault) {
        status::report(self.resources, request, fault);
    }

    fn refuse(&self, link: &Link, id: Id, fault: &Fault) -> Response {
        self.resources.note(link, id, b"", fault);
        let mut response = status::unread(self.site, link, fault, &id.text());
        if response.status == 405 {
            response.fields.push("Allow", ALLOW);
        }
        response
    }
}

/// What a program wants to be done.
#[derive(Debug)]
pub enum Answer {
    /// Send this.
    Response(Response),
    /// Answer this path and query instead (RFC 3875, 6.2.2).
    Local(String),
}

/// Finds what answers a request and has it answered, over local redirects if need be.
async fn dispatch(cx: Context<'_>, request: &mut Request<'_>) -> Result<Response, Fault> {
    if request.head.target.path() == b"*" {
        // OPTIONS: the server as a whole is asked (RFC 9110, 9.3.7).
        return Ok(Response::new(204).with("Allow", ALLOW));
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

/// Answers the request as it came: where a front server names the program's file, by that.
async fn first(
    cx: Context<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
) -> Result<Answer, Fault> {
    let Some(named) = request.named.take() else {
        return answer(cx, request, head).await;
    };
    let site = cx.site;
    if let Some((route, found)) = route::named(&site.config.routes, &head.host, &named) {
        if let Some(authorizer) = &route.authorizer
            && let Some(denied) =
                Box::pin(upstream::authorize(cx, request, head, route, authorizer)).await?
        {
            return Ok(denied);
        }
        site.admission.refuse_if_full(request.peer())?;
        let (cgi, script) = found.map_err(refused)?;
        return Box::pin(cgi::answer(cx, request, head, route, cgi, script)).await;
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
    cx: Context<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
) -> Result<Answer, Fault> {
    let path = head.target.path();
    let site = cx.site;
    let found = route::find(&site.config.routes, &head.host, path);
    let Some(found) = found else {
        let page = Box::pin(live::answer(site, request, head)).await;
        return page.map(Answer::Response).ok_or(Fault::NotFound);
    };
    // What was granted before a local redirect was for another path.
    request.granted.clear();
    // Before anything is looked for, so that nothing is told of what is there. Boxed: requests of other
    // routes need no room for it.
    if let Some(authorizer) = &found.route.authorizer
        && let Some(denied) = Box::pin(upstream::authorize(
            cx,
            request,
            head,
            found.route,
            authorizer,
        ))
        .await?
    {
        return Ok(denied);
    }
    if found.slash_missing {
        return Ok(Answer::Response(match &found.route.handler {
            Handler::Files(files) => files::slash_missing(files, head),
            _ => files::to_slash(head),
        }));
    }
    match &found.route.handler {
        Handler::Cgi(cgi) => {
            // Whoever is turned away must not cost those who are served: no program is looked for.
            site.admission.refuse_if_full(request.peer())?;
            let path = head.target.url_path();
            let script = route::program(cgi, &found.route.path, path).map_err(refused)?;
            // Boxed, as below: a file's request need not make room for what a program's keeps.
            Box::pin(cgi::answer(cx, request, head, found.route, cgi, script)).await
        }
        Handler::Upstream(up) => Box::pin(upstream::answer(cx, request, head, &found, up)).await,
        Handler::Files(files) => {
            let (response, cause) = files::answer(files, head, found.rest).response().await;
            let mut response = status::dress(cx, request, response, cause);
            files::add_to_error(files, &mut response);
            Ok(Answer::Response(response))
        }
        Handler::Respond(respond) => Ok(Answer::Response(respond::answer(respond))),
    }
}

pub(crate) fn refused(refusal: Refusal) -> Fault {
    match refusal {
        Refusal::NotFound => Fault::NotFound,
        Refusal::Forbidden(why) => Fault::Refused(why),
        Refusal::Busy => Fault::Busy("no descriptor or memory is left to look for a program"),
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
