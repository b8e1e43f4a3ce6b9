//! The variables of a request: the same table for any sink.

use galgo_proto::{
    h1::Head,
    vars::{self, Dropped, Sink},
};
use galgo_service::{
    fault::Fault,
    log::{Level, LogSource},
    request::Request,
};

use crate::{program_settings::CgiOptions, shared::HandlersShared};

/// Values that routing and the route's configuration give.
pub(crate) struct ScriptVars<'a> {
    pub(crate) shared: &'a HandlersShared,
    pub(crate) script_name: &'a [u8],
    pub(crate) path_info: &'a [u8],
    pub(crate) path_translated: Option<&'a [u8]>,
    /// SCRIPT_FILENAME; empty if the path names no file.
    pub(crate) script_filename: &'a [u8],
    /// DOCUMENT_ROOT; empty if the route has none.
    pub(crate) document_root: &'a [u8],
    /// Variables set in addition.
    pub(crate) env: &'a [(String, String)],
    pub(crate) options: &'a CgiOptions,
    /// The body's length, if known.
    pub(crate) content_length: Option<u64>,
    /// The program may get the connection.
    pub(crate) upgrade: bool,
}

/// Puts the variables that every request of a route has into `sink`; `env` holds the route's own.
pub(crate) fn put_constants(
    shared: &HandlersShared,
    env: &[(String, String)],
    sink: &mut impl Sink,
) {
    put_server_variables(&shared.path, b"200", sink);
    for (name, value) in env {
        sink.put_variable(name.as_bytes(), value.as_bytes());
    }
}

/// Returns the variables that tell of the server alone, and so are the same for every request; `path`: the search
/// path.
pub fn server_constants(path: &str) -> Vec<(String, String)> {
    struct PairList(Vec<(String, String)>);
    impl Sink for PairList {
        fn put_variable(&mut self, name: &[u8], value: &[u8]) {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.0.push((text(name), text(value)));
        }
    }
    let mut pairs = PairList(Vec::new());
    put_server_variables(path, b"200", &mut pairs);
    // A request for an error page has another REDIRECT_STATUS.
    pairs.0.retain(|(name, _)| name != REDIRECT_STATUS);
    pairs.0
}

fn put_server_variables(path: &str, redirect_status: &[u8], sink: &mut impl Sink) {
    let server = vars::ServerVars {
        redirect_status,
        software: concat!("galgo/", env!("CARGO_PKG_VERSION")),
        path,
    };
    vars::put_server(&server, sink);
}

/// The status of the response whose error page is made.
pub const REDIRECT_STATUS: &str = "REDIRECT_STATUS";
/// The path that the client asked for, if another path answers.
pub const REDIRECT_URL: &str = "REDIRECT_URL";

/// Variables that an authorizer may set, although they are otherwise computed.
pub(crate) const USER: [&str; 2] = ["REMOTE_USER", "AUTH_TYPE"];

/// Puts all variables of a request into `sink`.
pub(crate) fn put_variables(
    request: &Request<'_>,
    head: &Head,
    known: &ScriptVars<'_>,
    sink: &mut impl Sink,
) -> Result<Dropped, Fault> {
    let granted = &request.granted;
    // An error page is made by a request for another path.
    let error = granted.iter().find(|(name, _)| name == REDIRECT_STATUS);
    let status = error.map_or(&b"200"[..], |(_, status)| status);
    put_server_variables(&known.shared.path, status, sink);
    let is_granted = |name: &str| granted.iter().any(|(n, _)| n == name);
    for (name, value) in known.env.iter().filter(|(name, _)| !is_granted(name)) {
        sink.put_variable(name.as_bytes(), value.as_bytes());
    }
    // Beside REDIRECT_URL, PHP takes the file that PATH_TRANSLATED names for its script, whatever SCRIPT_FILENAME says.
    let is_withheld =
        |name: &str| name == REDIRECT_STATUS || name == REDIRECT_URL && !known.path_info.is_empty();
    for (name, value) in granted.iter().filter(|(name, _)| !is_withheld(name)) {
        sink.put_variable(name.as_bytes(), value);
    }
    let link = request.link;
    let connection = link.connection_vars();
    vars::put_connection(&connection, sink);
    let id = request.id().to_base32();
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
        upgrade: known.upgrade,
    };
    vars::put_request(head, &connection, &script, sink)
        .map_err(|_| Fault::Client(400, "a header field that holds one value came twice"))
}

pub(crate) fn warn_shellshock(source: &LogSource) {
    source.write(
        Level::Warn,
        "a header field that begins with `() {` was dropped (drop_shellshock)",
    );
}

/// The sink for an authorizer. It omits SCRIPT_NAME, because an authorizer gets no script (FastCGI, 6.3). It sets
/// REQUEST_URI to the path that found the route, however the client spelled the path.
pub(crate) struct Judged<'s, S> {
    sink: &'s mut S,
    uri: String,
}

impl<'s, S> Judged<'s, S> {
    pub(crate) fn from_head(head: &Head, sink: &'s mut S) -> Self {
        let uri = head.target.canonical();
        Self { sink, uri }
    }
}

impl<S: Sink> Sink for Judged<'_, S> {
    fn put_variable(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"SCRIPT_NAME" => {}
            b"REQUEST_URI" => self.sink.put_variable(name, self.uri.as_bytes()),
            _ => self.sink.put_variable(name, value),
        }
    }
}
