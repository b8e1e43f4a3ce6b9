//! The meta-variables of a request (RFC 3875, 4.1), written into one [`Sink`] in three stages: variables of the server, of the
//! connection, and of the request. CGI, FastCGI, SCGI and wasm are four sinks of the same table.
//!
//! Decisions where RFC 3875 leaves room:
//! - `SERVER_PORT` is the port that received the request (4.1.15 says MUST). It is never the port that a client wrote into
//!   Host, so a client cannot choose it. Only a Unix socket has no port: then it is Host's, else the scheme's default.
//! - `REMOTE_HOST` is the address, as 4.1.9 allows. No name is looked up.
//! - `REMOTE_IDENT` is never set, and no configuration may set it.
//! - A variable without a value is not set (4.1). Only `QUERY_STRING`, `REMOTE_ADDR`, `REMOTE_HOST` and `SERVER_ADDR` are
//!   always there.

mod given;
mod protocol;
#[cfg(test)]
mod tests;

pub use given::{ClientVars, ConnectionVars, Script, ServerVars, Sink, TlsVars};
pub use protocol::{Ambiguous, Dropped};

use crate::{
    digits::{DIGITS, write_decimal},
    h1::Head,
};

/// Every variable that galgo computes, in alphabetical order, except `HTTP_*`.
pub const NAMES: &[&str] = &[
    "AUTH_TYPE",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "PATH",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "QUERY_STRING",
    "REDIRECT_STATUS",
    "REMOTE_ADDR",
    "REMOTE_HOST",
    "REMOTE_PORT",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "SERVER_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
    "SSL_CIPHER",
    "SSL_CLIENT_I_DN",
    "SSL_CLIENT_M_SERIAL",
    "SSL_CLIENT_S_DN",
    "SSL_CLIENT_S_DN_CN",
    "SSL_CLIENT_VERIFY",
    "SSL_CLIENT_V_END",
    "SSL_CLIENT_V_START",
    "SSL_PROTOCOL",
    "SSL_SERVER_NAME",
    "UNIQUE_ID",
];

/// Returns whether a configuration may not set the variable `name`, because it is computed or must stay unset. These are
/// [`NAMES`], `HTTP_*`, REMOTE_IDENT and REDIRECT_URL. Only a request for another path has REDIRECT_URL. The administrator may
/// set all others, even LD_PRELOAD and `http_proxy` in lower case, because no request can reach these.
pub fn is_computed(name: &str) -> bool {
    const MORE: [&str; 2] = ["REDIRECT_URL", "REMOTE_IDENT"];
    name.starts_with("HTTP_") || MORE.contains(&name) || NAMES.contains(&name)
}

/// Returns whether the variable `name` may differ between requests, or be absent. That holds for every computed variable that
/// [`put_server`] does not put.
pub fn is_of_request(name: &str) -> bool {
    let constant = [
        "GATEWAY_INTERFACE",
        "PATH",
        "REDIRECT_STATUS",
        "SERVER_SOFTWARE",
    ];
    is_computed(name) && !constant.contains(&name)
}

/// Puts GATEWAY_INTERFACE, SERVER_SOFTWARE, PATH, REDIRECT_STATUS.
pub fn put_server(s: &ServerVars<'_>, sink: &mut impl Sink) {
    sink.put_variable(b"GATEWAY_INTERFACE", b"CGI/1.1");
    sink.put_variable(b"SERVER_SOFTWARE", s.software.as_bytes());
    sink.put_variable(b"PATH", s.path.as_bytes());
    // php-cgi refuses to answer without REDIRECT_STATUS (cgi.force_redirect), which proves that a server called.
    sink.put_variable(b"REDIRECT_STATUS", s.redirect_status);
}

/// Puts REMOTE_ADDR, REMOTE_HOST, REMOTE_PORT, SERVER_ADDR, SERVER_PORT, HTTPS and REQUEST_SCHEME. If the client speaks TLS to
/// this server, also SSL_PROTOCOL, SSL_CIPHER, SSL_SERVER_NAME and SSL_CLIENT_*, with the names of mod_ssl.
pub fn put_connection(c: &ConnectionVars<'_>, sink: &mut impl Sink) {
    sink.put_variable(b"REMOTE_ADDR", c.remote_addr.as_bytes());
    sink.put_variable(b"REMOTE_HOST", c.remote_addr.as_bytes());
    if let Some(port) = c.remote_port {
        sink.put_variable(b"REMOTE_PORT", write_decimal(port.into(), &mut [0; DIGITS]));
    }
    sink.put_variable(b"SERVER_ADDR", c.server_addr.as_bytes());
    if c.server_port != 0 {
        sink.put_variable(
            b"SERVER_PORT",
            write_decimal(c.server_port.into(), &mut [0; DIGITS]),
        );
    }
    if c.https {
        sink.put_variable(b"HTTPS", b"on");
    }
    if let Some(tls) = &c.tls {
        sink.put_variable(b"SSL_PROTOCOL", tls.protocol.as_bytes());
        sink.put_variable(b"SSL_CIPHER", tls.cipher.as_bytes());
        if let Some(name) = tls.server_name {
            sink.put_variable(b"SSL_SERVER_NAME", name.as_bytes());
        }
        put_client_certificate(tls, sink);
    }
    let scheme: &[u8] = if c.https { b"https" } else { b"http" };
    sink.put_variable(b"REQUEST_SCHEME", scheme);
}

/// Puts the result of asking a client for a certificate.
fn put_client_certificate(tls: &TlsVars<'_>, sink: &mut impl Sink) {
    if !tls.asked {
        return;
    }
    let Some(client) = &tls.client else {
        return sink.put_variable(b"SSL_CLIENT_VERIFY", b"NONE");
    };
    sink.put_variable(b"SSL_CLIENT_VERIFY", b"SUCCESS");
    sink.put_variable(b"SSL_CLIENT_S_DN", client.subject.as_bytes());
    if let Some(name) = client.common_name {
        sink.put_variable(b"SSL_CLIENT_S_DN_CN", name.as_bytes());
    }
    sink.put_variable(b"SSL_CLIENT_I_DN", client.issuer.as_bytes());
    sink.put_variable(b"SSL_CLIENT_M_SERIAL", client.serial.as_bytes());
    sink.put_variable(b"SSL_CLIENT_V_START", client.start.as_bytes());
    sink.put_variable(b"SSL_CLIENT_V_END", client.end.as_bytes());
}

/// Puts the rest of the table, and the HTTP_* variables. After an error the sink holds a part of them and is of no use.
///
/// Fields become variables as RFC 3875 4.1.18 says: the name in upper case, `-` as `_`. Repeated fields are joined with `, `,
/// Cookie with `; `. These fields are left out:
/// - Names with anything but letters, digits and `-`, which would pose as another field.
/// - Proxy, in any case, because HTTP_PROXY configures HTTP clients (httpoxy).
/// - Authorization, unless the route passes it, and Proxy-Authorization.
/// - Content-Type and Content-Length, which have variables of their own.
/// - Fields about the connection alone: Connection, Expect, HTTP2-Settings, Keep-Alive, Proxy-Connection, TE, Trailer,
///   Transfer-Encoding, Upgrade.
///
/// Fields that Connection nominates stay. RFC 9110 7.6.1 has a forwarder remove them, but here the message has arrived. Removal
/// would let a client hide a proxy's field from a program (`Connection: X-Real-IP`). It would gain nothing, because a client
/// that wants a field gone does not send the field.
pub fn put_request(
    head: &Head,
    conn: &ConnectionVars<'_>,
    script: &Script<'_>,
    sink: &mut impl Sink,
) -> Result<Dropped, Ambiguous> {
    put_request_line(head, sink);
    put_host(head, conn, sink);
    put_routing(script, sink);
    protocol::put_fields(&head.fields, script, sink)
}

fn put_request_line(head: &Head, sink: &mut impl Sink) {
    sink.put_variable(b"REQUEST_METHOD", head.method.as_str().as_bytes());
    sink.put_variable(b"REQUEST_URI", head.target.request_uri().as_bytes());
    sink.put_variable(b"QUERY_STRING", head.target.query().as_bytes());
    sink.put_variable(b"SERVER_PROTOCOL", head.version.as_str().as_bytes());
}

/// Puts SERVER_NAME, and SERVER_PORT if the connection has no port.
fn put_host(head: &Head, conn: &ConnectionVars<'_>, sink: &mut impl Sink) {
    let name = [&*head.host, conn.server_addr, "localhost"]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_default();
    // RFC 3875 4.1.14: `server-name = hostname | ipv4-address | ( "[" ipv6-address "]" )`.
    if name.contains(':') && !name.starts_with('[') {
        sink.put_variable(b"SERVER_NAME", format!("[{name}]").as_bytes());
    } else {
        sink.put_variable(b"SERVER_NAME", name.as_bytes());
    }
    if conn.server_port == 0 {
        let port = head.port.unwrap_or(if conn.https { 443 } else { 80 });
        sink.put_variable(b"SERVER_PORT", write_decimal(port.into(), &mut [0; DIGITS]));
    }
}

/// Puts the results of routing, authentication and the body's framing.
fn put_routing(script: &Script<'_>, sink: &mut impl Sink) {
    sink.put_variable(b"SCRIPT_NAME", script.script_name);
    for (name, value) in [
        (&b"SCRIPT_FILENAME"[..], script.script_filename),
        (b"DOCUMENT_ROOT", script.document_root),
    ] {
        if !value.is_empty() {
            sink.put_variable(name, value);
        }
    }
    sink.put_variable(b"UNIQUE_ID", script.unique_id.as_bytes());
    if !script.path_info.is_empty() {
        sink.put_variable(b"PATH_INFO", script.path_info);
        if let Some(translated) = script.path_translated {
            sink.put_variable(b"PATH_TRANSLATED", translated);
        }
    }
    if let Some(length) = script.content_length {
        sink.put_variable(b"CONTENT_LENGTH", write_decimal(length, &mut [0; DIGITS]));
    }
    if let Some((user, scheme)) = script.user {
        sink.put_variable(b"REMOTE_USER", user.as_bytes());
        sink.put_variable(b"AUTH_TYPE", scheme.as_bytes());
    }
}
