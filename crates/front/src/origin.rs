//! The client of a request that a trusted proxy passes on.

use std::rc::Rc;

use galgo_proto::{
    forwarded::{Trusted, Unreadable},
    h1::Head,
    target::Authority,
};
use galgo_service::{fault::Fault, link::Link, log::Level};

use crate::{event_loop::EventLoop, site::SiteService};

/// Reads the fields in which trusted proxies describe the client of a request that came over `link`. Returns the link to that
/// client, and stores the host that the client asked for in `head`. `None`: the proxies do not describe the client.
///
/// # Errors
/// The fields cannot be read.
pub(crate) fn resolve_origin(
    event_loop: &EventLoop<impl SiteService>,
    trusted: &Trusted,
    link: &Link,
    head: &mut Rc<Head>,
) -> Result<Option<Link>, Fault> {
    // A proxy that may name clients by the PROXY protocol must also be listed in `trusted` before its fields count.
    if link.announced_by.is_some_and(|peer| !trusted.covers(peer)) {
        return Ok(None);
    }
    let origin = trusted.forwarded_params(&head.fields, link.remote_ip);
    let origin = origin.map_err(|Unreadable(field)| {
        let words = format!("a trusted proxy sent a malformed {field} field");
        let errors = &event_loop.shared.logs.error;
        errors.write(Level::Warn, &link.remote, &words);
        Fault::Client(
            400,
            "a trusted proxy sent a malformed field about the client",
        )
    })?;
    let Some(origin) = origin else {
        return Ok(None);
    };
    let behind = link.behind_proxy(&origin);
    if let Some(Authority { host, port }) = origin.host {
        let head = Rc::make_mut(head);
        (head.host, head.port) = (host, port);
    }
    Ok(Some(behind))
}
