//! Redirects: the client is sent elsewhere.

use galgo_proto::{
    h1::{BodyLen, Head, Method},
    target::Target,
};
use galgo_service::{body::Response, fault::Fault, link::Link};

use super::template::{TargetTemplate, Values};

/// Describes where a route sends its clients.
#[derive(Debug, PartialEq)]
pub struct Redirect {
    /// URI to send clients to.
    pub to: TargetTemplate,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `true`: only requests that came by TLS; `false`: only requests that did not.
    pub https: Option<bool>,
    /// Only requests to this port.
    pub port: Option<u16>,
}

impl Redirect {
    /// Returns the redirect if its conditions hold. `rest` is the path below the route.
    pub fn answer(&self, link: &Link, head: &Head, rest: &[u8]) -> Option<Response> {
        let scheme = self.https.is_none_or(|https| https == link.https);
        let port = self.port.is_none_or(|port| port == link.port);
        let values = Values {
            target: &head.target,
            rest,
            host: &head.host,
            groups: Vec::new(),
        };
        (scheme && port).then(|| redirect_to(self.status, &self.to, &values))
    }
}

/// Returns a redirect to the URI that a template makes.
pub(super) fn redirect_to(status: u16, template: &TargetTemplate, values: &Values<'_>) -> Response {
    Response::new(status).with_field("Location", template.expand_uri(values))
}

/// Returns the target of the same request at another path. `None`: no client could ask for that path.
pub(super) fn moved_target(
    target: &Target,
    template: &TargetTemplate,
    values: &Values<'_>,
) -> Option<Target> {
    let (path, query) = template.expand_path_and_query(values);
    target_at(target, path, query)
}

/// Returns the target of the same request at another decoded path. The query stays if `query` is `None`.
pub fn target_at(target: &Target, path: Vec<u8>, query: Option<String>) -> Option<Target> {
    /// Limit for targets that galgo makes itself.
    const LONGEST: usize = 128 << 10;
    let query = query.as_deref().unwrap_or(target.query()).as_bytes();
    let uri = target.request_uri().as_bytes();
    Target::from_gateway(Some(uri), path, Some(query), LONGEST, false).ok()
}

/// Returns the request that a local redirect stands for: GET (or HEAD) of its path, without a body.
///
/// # Errors
/// The location is not a path, which is the program's fault.
pub fn local_request(head: &Head, location: &str) -> Result<Head, Fault> {
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
    let about_body = ["content-type", "content-length", "transfer-encoding"];
    head.fields.remove(&about_body);
    head.body = BodyLen::None;
    Ok(head)
}
