//! The meta-variables of a request (RFC 3875, 4.1) in three stages, written into one [`Sink`]:
//! what the server knows, what the connection knows, what the request says.
//! CGI, FastCGI, SCGI and wasm are four sinks of the same table.

use crate::h1::Head;

/// Takes variables. The environment of a process is one sink, FastCGI params are another.
pub trait Sink {
    /// Takes one variable. `name` holds no `=` and no NUL, `value` no NUL.
    fn put(&mut self, name: &[u8], value: &[u8]);
}

/// What does not change while the server runs.
#[derive(Debug, Clone)]
pub struct Server<'a> {
    /// SERVER_SOFTWARE, `galgo/0.1.0`.
    pub software: &'a str,
    /// PATH of programs.
    pub path: &'a str,
}

/// What does not change during a connection.
#[derive(Debug, Clone, Copy)]
pub struct Connection<'a> {
    /// REMOTE_ADDR; empty for a Unix socket.
    pub remote_addr: &'a str,
    /// REMOTE_PORT; `None` for a Unix socket.
    pub remote_port: Option<u16>,
    /// SERVER_ADDR.
    pub server_addr: &'a str,
    /// The port listened on.
    pub server_port: u16,
    /// Whether the client spoke TLS: HTTPS=on, REQUEST_SCHEME=https.
    pub https: bool,
}

/// What routing found.
#[derive(Debug, Clone, Copy)]
pub struct Script<'a> {
    /// SCRIPT_NAME, the decoded path up to and including the program (`/cgi-bin/a.cgi`).
    pub script_name: &'a [u8],
    /// PATH_INFO, decoded; empty where there is none.
    pub path_info: &'a [u8],
    /// PATH_TRANSLATED; set only where there is a PATH_INFO.
    pub path_translated: Option<&'a [u8]>,
    /// SCRIPT_FILENAME, absolute.
    pub script_filename: &'a [u8],
    /// DOCUMENT_ROOT, absolute.
    pub document_root: &'a [u8],
    /// UNIQUE_ID, the request id.
    pub unique_id: &'a str,
    /// CONTENT_LENGTH: what is known of the body's length, never an invented 0.
    pub content_length: Option<u64>,
    /// REMOTE_USER and AUTH_TYPE from verified authentication.
    pub user: Option<(&'a str, &'a str)>,
    /// Pass the Authorization field (`pass_authorization`).
    pub pass_authorization: bool,
    /// Drop values that begin with `() {` (CVE-2014-6271).
    pub drop_shellshock: bool,
}

/// What was left out of the variables, for the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Fields with `_` in their name.
    pub underscore: u32,
    /// Values that begin with `() {`.
    pub shellshock: u32,
}

/// Two different field names became this one variable: 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ambiguous(pub String);

/// GATEWAY_INTERFACE, SERVER_SOFTWARE, PATH, REDIRECT_STATUS.
pub fn server(_s: &Server<'_>, _sink: &mut impl Sink) {
    todo!()
}

/// REMOTE_ADDR, REMOTE_HOST, REMOTE_PORT, SERVER_ADDR, SERVER_PORT, HTTPS, REQUEST_SCHEME.
pub fn connection(_c: &Connection<'_>, _sink: &mut impl Sink) {
    todo!()
}

/// Everything else of the table, and the HTTP_* variables.
pub fn request(
    _head: &Head,
    _conn: &Connection<'_>,
    _script: &Script<'_>,
    _sink: &mut impl Sink,
) -> Result<Dropped, Ambiguous> {
    todo!()
}

/// Whether a configuration may set the variable `name`: not where galgo computes it.
pub fn is_computed(_name: &str) -> bool {
    todo!()
}
