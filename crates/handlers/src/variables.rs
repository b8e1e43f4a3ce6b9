//! The variables of a request: the same table into any sink.

use galgo_proto::{
    h1::Head,
    vars::{self, Dropped, Sink},
};

use crate::{
    fault::Fault,
    log::{Level, Source},
    program::settings::CgiOptions,
    request::Request,
    shared::HandlersShared,
};

/// What routing and the route's configuration say.
pub(crate) struct ScriptVars<'a> {
    pub(crate) shared: &'a HandlersShared,
    pub(crate) script_name: &'a [u8],
    pub(crate) path_info: &'a [u8],
    pub(crate) path_translated: Option<&'a [u8]>,
    /// SCRIPT_FILENAME; empty where no file is meant.
    pub(crate) script_filename: &'a [u8],
    /// DOCUMENT_ROOT; empty where there is none.
    pub(crate) document_root: &'a [u8],
    /// Set in addition.
    pub(crate) env: &'a [(String, String)],
    pub(crate) options: &'a CgiOptions,
    /// What is known of the body's length.
    pub(crate) content_length: Option<u64>,
}

/// Puts the variables that every request of a route has into `sink`; `env` are its own.
pub(crate) fn constants(shared: &HandlersShared, env: &[(String, String)], sink: &mut impl Sink) {
    server(shared, sink);
    for (name, value) in env {
        sink.put(name.as_bytes(), value.as_bytes());
    }
}

fn server(shared: &HandlersShared, sink: &mut impl Sink) {
    let server = vars::Server {
        software: concat!("galgo/", env!("CARGO_PKG_VERSION")),
        path: &shared.path,
    };
    vars::server(&server, sink);
}

/// What an authorizer may say of a client, though it is computed otherwise.
pub(crate) const USER: [&str; 2] = ["REMOTE_USER", "AUTH_TYPE"];

/// Puts all variables of a request into `sink`.
pub(crate) fn put(
    request: &Request<'_>,
    head: &Head,
    known: &ScriptVars<'_>,
    sink: &mut impl Sink,
) -> Result<Dropped, Fault> {
    server(known.shared, sink);
    let granted = &request.granted;
    let is_granted = |name: &str| granted.iter().any(|(n, _)| n == name);
    for (name, value) in known.env.iter().filter(|(name, _)| !is_granted(name)) {
        sink.put(name.as_bytes(), value.as_bytes());
    }
    for (name, value) in granted {
        sink.put(name.as_bytes(), value);
    }
    let link = request.link;
    let connection = link.connection();
    vars::connection(&connection, sink);
    let id = request.id().text();
    let script = vars::Script {
        script_name: known.script_name,
        path_info: known.path_info,
        path_translated: known.path_translated,
        script_filename: known.script_filename,
        document_root: known.document_root,
        unique_id: &id,
        content_length: known.content_length,
        // The authorizer of the route is nearer than a front server.
        user: link
            .user
            .as_ref()
            .filter(|_| !USER.iter().any(|name| is_granted(name)))
            .map(|(user, scheme)| (&**user, &**scheme)),
        pass_authorization: known.options.pass_authorization,
        drop_shellshock: known.options.drop_shellshock,
    };
    vars::request(head, &connection, &script, sink)
        .map_err(|_| Fault::Client(400, "a header field that holds one value came twice"))
}

pub(crate) fn warn_shellshock(source: &Source) {
    source.write(
        Level::Warn,
        "a header field that begins with `() {` was dropped (drop_shellshock)",
    );
}
