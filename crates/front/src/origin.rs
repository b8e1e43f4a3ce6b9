//! Who asks, where a trusted proxy passes a request on.

use std::rc::Rc;

use galgo_proto::{
    forwarded::{Trusted, Unreadable},
    h1::Head,
    target::Authority,
};
use galgo_service::{fault::Fault, link::Link, log::Level};

use crate::{event_loop::EventLoop, site::SiteService};

/// What trusted proxies say of the client whose request came over `link`: it asked that host, over the link returned. `None`:
/// they say nothing.
///
/// # Errors
/// What they say cannot be read.
pub(crate) fn origin(
    event_loop: &EventLoop<impl SiteService>,
    trusted: &Trusted,
    link: &Link,
    head: &mut Rc<Head>,
) -> Result<Option<Link>, Fault> {
    // A proxy that may name clients by the PROXY protocol has to be listed, too, to be believed in what it passes on.
    if link.announced_by.is_some_and(|peer| !trusted.covers(peer)) {
        return Ok(None);
    }
    let origin = trusted.origin(&head.fields, link.remote_ip);
    let origin = origin.map_err(|Unreadable(field)| {
        let words = format!("a trusted proxy wrote a {field} that cannot be read");
        let errors = &event_loop.shared.logs.error;
        errors.write(Level::Warn, &link.remote, &words);
        Fault::Client(
            400,
            "what a trusted proxy says of the client cannot be read",
        )
    })?;
    let Some(origin) = origin else {
        return Ok(None);
    };
    let behind = link.behind(&origin);
    if let Some(Authority { host, port }) = origin.host {
        let head = Rc::make_mut(head);
        (head.host, head.port) = (host, port);
    }
    Ok(Some(behind))
}
