//! The values that variables are made from, and the sink that takes variables.

/// Takes variables. The environment of a process is one sink, FastCGI params are another.
pub trait Sink {
    /// Takes one variable. `name` holds no `=` and no NUL, `value` no NUL.
    fn put_variable(&mut self, name: &[u8], value: &[u8]);
}

/// Values that do not change while the server runs.
#[derive(Debug, Clone)]
pub struct ServerVars<'a> {
    /// REDIRECT_STATUS: 200, or the status of the response whose error page is made.
    pub redirect_status: &'a [u8],
    /// SERVER_SOFTWARE, `galgo/0.1.0`.
    pub software: &'a str,
    /// PATH of programs.
    pub path: &'a str,
}

/// Values that do not change during a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionVars<'a> {
    /// REMOTE_ADDR; empty for a Unix socket.
    pub remote_addr: &'a str,
    /// REMOTE_PORT; `None` for a Unix socket.
    pub remote_port: Option<u16>,
    /// SERVER_ADDR, without brackets; empty for a Unix socket.
    pub server_addr: &'a str,
    /// SERVER_PORT, the port listened on; 0 for a Unix socket.
    pub server_port: u16,
    /// The client spoke TLS: HTTPS=on, REQUEST_SCHEME=https.
    pub https: bool,
    /// The TLS parameters of a client that speaks TLS to this server itself.
    pub tls: Option<TlsVars<'a>>,
}

/// The parameters that were agreed on in TLS.
#[derive(Debug, Clone, Copy)]
pub struct TlsVars<'a> {
    /// SSL_PROTOCOL: `TLSv1.3`.
    pub protocol: &'a str,
    /// SSL_CIPHER: the suite as IANA names it.
    pub cipher: &'a str,
    /// SSL_SERVER_NAME: the host that the client asked for (SNI).
    pub server_name: Option<&'a str>,
    /// The client was asked for a certificate, so SSL_CLIENT_VERIFY is set.
    pub asked: bool,
    /// The certificate that the client has shown.
    pub client: Option<ClientVars<'a>>,
}

/// The certificate of a client that has proved to own it.
#[derive(Debug, Clone, Copy)]
pub struct ClientVars<'a> {
    /// SSL_CLIENT_S_DN, as RFC 4514 writes it.
    pub subject: &'a str,
    /// SSL_CLIENT_S_DN_CN.
    pub common_name: Option<&'a str>,
    /// SSL_CLIENT_I_DN.
    pub issuer: &'a str,
    /// SSL_CLIENT_M_SERIAL, in hexadecimal digits.
    pub serial: &'a str,
    /// SSL_CLIENT_V_START.
    pub start: &'a str,
    /// SSL_CLIENT_V_END.
    pub end: &'a str,
}

/// The results of routing.
#[derive(Debug, Clone, Copy)]
pub struct Script<'a> {
    /// SCRIPT_NAME, the clean path up to and including the program (`/cgi-bin/a.cgi`).
    pub script_name: &'a [u8],
    /// PATH_INFO, decoded, with the slashes that came. It is empty if the path ends with the
    /// program.
    pub path_info: &'a [u8],
    /// PATH_TRANSLATED; set only if there is a PATH_INFO.
    pub path_translated: Option<&'a [u8]>,
    /// SCRIPT_FILENAME, absolute; empty if the path names no file.
    pub script_filename: &'a [u8],
    /// DOCUMENT_ROOT, absolute; empty if the route has none.
    pub document_root: &'a [u8],
    /// UNIQUE_ID, the request id.
    pub unique_id: &'a str,
    /// CONTENT_LENGTH: the body's length if it is known, never an invented 0.
    pub content_length: Option<u64>,
    /// (REMOTE_USER, AUTH_TYPE) from verified authentication, in this order.
    pub user: Option<(&'a str, &'a str)>,
    /// Pass the Authorization field as HTTP_AUTHORIZATION (`pass_authorization`).
    pub pass_authorization: bool,
    /// Drop values that begin with `() {` (CVE-2014-6271).
    pub drop_shellshock: bool,
    /// The program may get the connection, so it sees Upgrade and Connection.
    pub upgrade: bool,
}
