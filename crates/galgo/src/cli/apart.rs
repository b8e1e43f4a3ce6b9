//! What keeps programs apart from each other and from the server, and where nothing does.

use crate::config::{Config, Handler, Route, To};

/// A sentence for each gap, for the start of the server and for `galgo check`.
pub(super) fn gaps(config: &Config) -> Vec<String> {
    let root = galgo_spawn::identity::effective_uid() == 0 && config.identity.is_none();
    // Short of descriptors or memory: the start of the server says so itself.
    if !galgo_spawn::keeps_apart().unwrap_or(true) {
        return vec![
            "this kernel cannot keep programs apart (Landlock's scopes, Linux 6.12): they can signal and kill the server and \
             each other, and look into each other"
                .into(),
        ];
    }
    let open = config.routes.iter().filter(|r| !root && gains(r));
    open.map(|route| {
        format!(
            "{}: its programs are not kept apart, for that takes no_new_privs = true or root: they can signal and kill the \
             server and each other, and look into each other",
            route.path
        )
    })
    .collect()
}

/// Whether processes of a route may gain privileges.
fn gains(route: &Route) -> bool {
    let of_workers = |to: &To| matches!(to, To::Workers(_));
    match &route.handler {
        Handler::Cgi(cgi) if !cgi.options.no_new_privs => true,
        _ => route
            .upstreams()
            .any(|up| of_workers(&up.to) && !up.options.no_new_privs),
    }
}
