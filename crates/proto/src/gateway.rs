//! Requests that arrive as variables: from a web server in front of us, over FastCGI or SCGI.
//!
//! [`parse_request`] makes the head that the same request would have had over HTTP. It also returns other facts that the front
//! server knows: both ends, the user it has verified, and the file that it means.
//!
//! Decisions:
//! - The path is SCRIPT_NAME and PATH_INFO, already decoded. Without them it is the path of REQUEST_URI. The query is
//!   QUERY_STRING. Both may differ from REQUEST_URI. The front may have rewritten it, and programs see it as it is.
//! - A field that comes twice is a list, as over HTTP (RFC 3875, 4.1.18). For any other variable, Host and Authorization, the
//!   last value counts, as for fcgiwrap and php-fpm. If a `fastcgi_param` repeats a variable of an include, nginx sends both
//!   values. If such a variable frames the body, the request is refused. So are bytes that no field may hold.
//! - `HTTP_X_Y` is the field `x-y`. Authorization is passed on if the route allows it; Proxy is never passed on.
//!   Only the front knows the field's original name: nginx and Apache let no `X_Y` and no `X.Y` pass.
//!   `HTTP_X.Y`, which Caddy sends, is dropped just as the field `X.Y` is over HTTP.
//! - HTTPS counts if it is `on` or `1`. REQUEST_SCHEME counts only without HTTPS.
//! - REMOTE_USER counts only with AUTH_TYPE. The reason is that nginx sends the name that the client claims as REMOTE_USER,
//!   even if nginx has not asked for a password. HAProxy also sends `AUTH_TYPE=Basic` for every such claim. Behind HAProxy
//!   another AUTH_TYPE, which its configuration sets, says that HAProxy has checked the password.

use std::net::IpAddr;

use crate::{
    Fields,
    fields::is_text,
    h1::{BodyLen, Head, HeadError, HeadLimits, Method, Version},
    target::{Authority, Target},
};

/// A request as a front server passed it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Head of the request. The length of the body comes from CONTENT_LENGTH. The caller has to set `keep_alive`.
    pub head: Head,
    /// SCRIPT_FILENAME if it is an absolute path, without the prefix that Apache adds.
    pub file: Option<Vec<u8>>,
    /// DOCUMENT_ROOT if it is an absolute path.
    pub document_root: Option<Vec<u8>>,
    /// SCRIPT_NAME.
    pub script_name: Vec<u8>,
    /// PATH_INFO.
    pub path_info: Vec<u8>,
    /// REMOTE_ADDR.
    pub remote: Option<IpAddr>,
    /// REMOTE_PORT.
    pub remote_port: Option<u16>,
    /// SERVER_ADDR.
    pub local: Option<IpAddr>,
    /// SERVER_PORT.
    pub port: Option<u16>,
    /// The client spoke TLS.
    pub https: bool,
    /// (REMOTE_USER, AUTH_TYPE), if the front has verified the user.
    pub user: Option<(String, String)>,
}

/// Selected variables. If names are equal, the last one counts.
#[derive(Debug, Default)]
struct HeadVariables<'p> {
    values: [Option<&'p [u8]>; NAMES.len()],
}

/// Allowance for variables that are no fields: fronts add some thirty, which do not count against clients.
const OTHERS: usize = 83;

const NAMES: [&str; 21] = [
    "REQUEST_METHOD",
    "REQUEST_URI",
    "DOCUMENT_URI",
    "SCRIPT_NAME",
    "PATH_INFO",
    "QUERY_STRING",
    "SERVER_PROTOCOL",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "SCRIPT_FILENAME",
    "DOCUMENT_ROOT",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "SERVER_ADDR",
    "SERVER_PORT",
    "SERVER_NAME",
    "HTTPS",
    "REQUEST_SCHEME",
    "REMOTE_USER",
    "AUTH_TYPE",
    "SERVER_SOFTWARE",
];

impl<'p> HeadVariables<'p> {
    /// Returns the value of a variable. An empty variable counts as not set.
    fn variable_value(&self, name: &str) -> Option<&'p [u8]> {
        let at = NAMES.iter().position(|&n| n == name)?;
        self.values[at].filter(|v| !v.is_empty())
    }

    fn variable_text(&self, name: &str) -> Option<&'p str> {
        str::from_utf8(self.variable_value(name)?).ok()
    }
}

/// Reads a request from its variables.
///
/// # Errors
/// The request would be refused over HTTP as well: 400, 405, 413, 414, 431 or 501.
pub fn parse_request<'p>(
    params: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
    limits: &HeadLimits,
) -> Result<Gateway, HeadError> {
    let mut known = HeadVariables::default();
    let mut fields = Fields::new();
    for (count, (name, value)) in params.into_iter().enumerate() {
        if count >= limits.fields.saturating_add(OTHERS) {
            return Err(HeadError::new(431, "too many variables"));
        }
        if let Some(at) = NAMES.iter().position(|n| n.as_bytes() == name) {
            if known.values[at].replace(value).is_some() && name == b"CONTENT_LENGTH" {
                return Err(HeadError::bad_request("CONTENT_LENGTH came twice"));
            }
        } else if let Some(field) = name.strip_prefix(b"HTTP_") {
            // nginx sends these in addition. CONTENT_TYPE and CONTENT_LENGTH hold the same values.
            if matches!(field, b"CONTENT_TYPE" | b"CONTENT_LENGTH") {
                continue;
            }
            push_field(&mut fields, field, value, limits)?;
        }
    }
    if let Some(media) = known.variable_value("CONTENT_TYPE") {
        push_field(&mut fields, b"CONTENT_TYPE", media, limits)?;
    }
    let (script_name, path_info) = script_path(&known)?;
    let head = build_head(&known, fields, [script_name, path_info].concat(), limits)?;
    let absolute = |value: &[u8]| value.starts_with(b"/").then(|| value.to_vec());
    Ok(Gateway {
        head,
        file: known
            .variable_value("SCRIPT_FILENAME")
            .and_then(|f| absolute(strip_proxy_prefix(f))),
        document_root: known.variable_value("DOCUMENT_ROOT").and_then(absolute),
        script_name: script_name.to_vec(),
        path_info: path_info.to_vec(),
        remote: known.variable_text("REMOTE_ADDR").and_then(parse_address),
        remote_port: known
            .variable_text("REMOTE_PORT")
            .and_then(|p| p.parse().ok()),
        local: known.variable_text("SERVER_ADDR").and_then(parse_address),
        port: known
            .variable_text("SERVER_PORT")
            .and_then(|p| p.parse().ok()),
        https: is_https(&known),
        user: verified_user(&known),
    })
}

/// Removes the prefix of Apache (mod_proxy_fcgi): `proxy:fcgi://host:port/path`, `proxy:unix:/s|fcgi://host/path`.
fn strip_proxy_prefix(file: &[u8]) -> &[u8] {
    let Some(url) = file.strip_prefix(b"proxy:") else {
        return file;
    };
    let scheme = [&b"fcgi://"[..], b"scgi://"]
        .into_iter()
        .find_map(|scheme| memchr::memmem::find(url, scheme).map(|at| at + scheme.len()));
    let host = scheme.map_or(&b""[..], |at| &url[at..]);
    memchr::memchr(b'/', host).map_or(b"", |at| &host[at..])
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    bare.unwrap_or(text)
        .parse()
        .ok()
        .map(|a: IpAddr| a.to_canonical())
}

fn is_https(known: &HeadVariables<'_>) -> bool {
    let is = |name, wanted: &str| {
        let value: Option<&str> = known.variable_text(name);
        value.is_some_and(|v| v.eq_ignore_ascii_case(wanted))
    };
    match known.variable_value("HTTPS") {
        Some(_) => is("HTTPS", "on") || is("HTTPS", "1"),
        None => is("REQUEST_SCHEME", "https"),
    }
}

/// Returns the user and how the front has verified the user; `None`: the name is only the client's claim.
fn verified_user(known: &HeadVariables<'_>) -> Option<(String, String)> {
    let user = known
        .variable_text("REMOTE_USER")
        .filter(|u| !u.contains('\0'))?;
    let scheme = known
        .variable_text("AUTH_TYPE")
        .filter(|s| !s.contains('\0') && !s.trim().is_empty())?;
    let by_haproxy = known
        .variable_value("SERVER_SOFTWARE")
        .is_some_and(|s| s.starts_with(b"HAProxy"));
    let is_claim = by_haproxy && scheme.eq_ignore_ascii_case("basic");
    (!is_claim).then(|| (user.to_owned(), scheme.to_owned()))
}

/// Returns SCRIPT_NAME and PATH_INFO.
fn script_path<'p>(known: &HeadVariables<'p>) -> Result<(&'p [u8], &'p [u8]), HeadError> {
    let script_name = known.variable_value("SCRIPT_NAME").unwrap_or_default();
    let path_info = known.variable_value("PATH_INFO").unwrap_or_default();
    let whole = [script_name, path_info];
    if whole
        .iter()
        .any(|part| !part.is_empty() && !part.starts_with(b"/"))
    {
        return Err(HeadError::bad_request(
            "SCRIPT_NAME or PATH_INFO does not begin with a slash",
        ));
    }
    // nginx without a split, and some other servers, send the whole path again as PATH_INFO.
    if script_name == path_info {
        Ok((script_name, b""))
    } else {
        Ok((script_name, path_info))
    }
}

fn build_head(
    known: &HeadVariables<'_>,
    fields: Fields,
    path: Vec<u8>,
    limits: &HeadLimits,
) -> Result<Head, HeadError> {
    let method = Method::parse(known.variable_value("REQUEST_METHOD").unwrap_or(b"GET"))?;
    let uri = known
        .variable_value("REQUEST_URI")
        .or(known.variable_value("DOCUMENT_URI"));
    let query = known.values[5];
    let target = Target::from_gateway(uri, path, query, limits.target, limits.encoded_slash)?;
    let version = match known.variable_value("SERVER_PROTOCOL") {
        Some(b"HTTP/1.0") => Version::Http10,
        _ => Version::Http11,
    };
    let Authority { host, port } = requested_authority(known, &fields)?;
    let body = match known.variable_value("CONTENT_LENGTH") {
        None => BodyLen::None,
        Some(n) => BodyLen::Length(crate::h1::parse_content_length(n)?),
    };
    Ok(Head {
        method,
        target,
        version,
        fields,
        host,
        port,
        body,
        expects_continue: false,
        keep_alive: false,
    })
}

/// Returns Host, else SERVER_NAME. SERVER_NAME may be a pattern, so no value of it makes the request fail.
fn requested_authority(known: &HeadVariables<'_>, fields: &Fields) -> Result<Authority, HeadError> {
    match fields.first_value("host") {
        Some(host) if !host.is_empty() => Authority::parse(host).ok_or(HeadError::HOST),
        _ => Ok(known
            .variable_value("SERVER_NAME")
            .and_then(Authority::parse)
            .unwrap_or_default()),
    }
}

/// Adds the field of a variable.
fn push_field(
    fields: &mut Fields,
    variable: &[u8],
    value: &[u8],
    limits: &HeadLimits,
) -> Result<(), HeadError> {
    let named = |&b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    if variable.is_empty() || !variable.iter().all(named) {
        return Ok(());
    }
    if !value.iter().copied().all(is_text) {
        return Err(HeadError::CONTROL);
    }
    let letter = |&b: &u8| match b {
        b'_' => b'-',
        b => b.to_ascii_lowercase(),
    };
    let name: Vec<u8> = variable.iter().map(letter).collect();
    let has = |fields: &Fields| fields.has_field(str::from_utf8(&name).unwrap_or_default());
    match variable {
        b"TRANSFER_ENCODING" if has(fields) => {
            return Err(HeadError::bad_request("HTTP_TRANSFER_ENCODING came twice"));
        }
        b"HOST" | b"AUTHORIZATION" | b"CONTENT_TYPE" => fields.retain(|other, _| other != name),
        _ => {}
    }
    if fields.len() >= limits.fields {
        return Err(HeadError::MANY_FIELDS);
    }
    fields.push(name, value.trim_ascii());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn read(pairs: Pairs<'_>) -> Result<Gateway, HeadError> {
        let params = pairs.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        parse_request(params, &HeadLimits::default())
    }

    /// Variables that nginx sends with `include fastcgi.conf`, shortened.
    const NGINX: Pairs<'static> = &[
        ("SCRIPT_FILENAME", "/srv/cgi-bin/a.cgi"),
        ("QUERY_STRING", "x=1"),
        ("REQUEST_METHOD", "POST"),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", "5"),
        ("SCRIPT_NAME", "/cgi-bin/a.cgi"),
        ("REQUEST_URI", "/cgi-bin/a%2ecgi?x=1"),
        ("DOCUMENT_URI", "/cgi-bin/a.cgi"),
        ("DOCUMENT_ROOT", "/srv"),
        ("SERVER_PROTOCOL", "HTTP/2.0"),
        ("REQUEST_SCHEME", "https"),
        ("HTTPS", "on"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REMOTE_ADDR", "203.0.113.7"),
        ("REMOTE_PORT", "4711"),
        ("REMOTE_USER", ""),
        ("SERVER_ADDR", "192.0.2.1"),
        ("SERVER_PORT", "443"),
        ("SERVER_NAME", "_"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_HOST", "Www.Example.org"),
        ("HTTP_USER_AGENT", "a"),
        ("HTTP_CONTENT_TYPE", "text/plain"),
        ("HTTP_CONTENT_LENGTH", "5"),
        ("HTTP_X_A_B", "c, d"),
    ];

    #[test]
    fn what_nginx_sends() {
        let g = read(NGINX).unwrap();
        assert_eq!(g.head.method, Method::Post);
        assert_eq!(g.head.target.raw, "/cgi-bin/a%2ecgi?x=1");
        assert_eq!(g.head.target.path(), b"/cgi-bin/a.cgi");
        assert_eq!(g.head.target.query(), "x=1");
        assert_eq!(
            (&*g.head.host, g.head.body),
            ("www.example.org", BodyLen::Length(5))
        );
        assert_eq!(g.head.fields.first_value("x-a-b"), Some(&b"c, d"[..]));
        assert_eq!(
            g.head.fields.first_value("content-type"),
            Some(&b"text/plain"[..])
        );
        assert_eq!(g.file.as_deref(), Some(&b"/srv/cgi-bin/a.cgi"[..]));
        assert_eq!(
            (g.remote, g.remote_port),
            ("203.0.113.7".parse().ok(), Some(4711))
        );
        assert_eq!((g.port, g.https, g.user), (Some(443), true, None));
    }

    fn with<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut pairs: Vec<_> = NGINX.iter().copied().filter(|(n, _)| *n != name).collect();
        pairs.push((name, value));
        pairs
    }

    #[test]
    fn one_by_one() {
        let g = |name, value| read(&with(name, value)).unwrap();
        assert_eq!(
            g("SCRIPT_FILENAME", "proxy:fcgi://localhost:9000/srv/a")
                .file
                .unwrap(),
            b"/srv/a"
        );
        assert_eq!(
            g(
                "SCRIPT_FILENAME",
                "proxy:unix:/run/s|fcgi://localhost/srv/a"
            )
            .file
            .unwrap(),
            b"/srv/a"
        );
        assert_eq!(g("SCRIPT_FILENAME", "a.cgi").file, None);
        assert_eq!(g("SCRIPT_FILENAME", "proxy:balancer").file, None);
        assert!(!g("HTTPS", "off").https);
        assert!(g("HTTPS", "").https);
        assert_eq!(
            g("QUERY_STRING", "q=rewritten").head.target.query(),
            "q=rewritten"
        );
        assert_eq!(g("QUERY_STRING", "").head.target.query(), "");
        assert_eq!(
            g("PATH_INFO", "/x y").head.target.path(),
            b"/cgi-bin/a.cgi/x y"
        );
        assert_eq!(
            g("PATH_INFO", "/cgi-bin/a.cgi").head.target.path(),
            b"/cgi-bin/a.cgi"
        );
        assert_eq!(g("CONTENT_LENGTH", "").head.body, BodyLen::None);
        assert_eq!(&*g("HTTP_HOST", "").head.host, "_");
        assert_eq!(g("REMOTE_ADDR", "unix:").remote, None);
        let bare = read(&[("REQUEST_URI", "/a%20b?c")]).unwrap();
        assert_eq!(
            (bare.head.target.path(), bare.head.target.query()),
            (&b"/a b"[..], "c")
        );
        let bare = read(&[("SCRIPT_NAME", "/a b"), ("QUERY_STRING", "c")]).unwrap();
        assert_eq!(bare.head.target.raw, "/a%20b?c");
    }

    #[test]
    fn names_that_are_no_fields_are_dropped() {
        for name in [
            "HTTP_",
            "HTTP_x_a_b",
            "HTTP_X-A-B",
            "HTTP_X.A.B",
            "HTTP_X!A~B",
        ] {
            let g = read(&with(name, "evil")).unwrap();
            assert_eq!(g.head.fields, read(NGINX).unwrap().head.fields, "{name}");
        }
    }

    #[test]
    fn a_user_counts_where_the_front_says_how_it_was_verified() {
        let user = |more: &[(&'static str, &'static str)]| {
            let named = [("REMOTE_USER", "ada")];
            let all = NGINX.iter().chain(&named).chain(more).copied();
            let user = read(&all.collect::<Vec<_>>()).unwrap().user;
            user.map(|(user, scheme)| format!("{user} {scheme}"))
        };
        let haproxy = ("SERVER_SOFTWARE", "HAProxy 2.6.12");
        let scheme = |scheme| ("AUTH_TYPE", scheme);
        for claim in [
            &[][..],
            &[scheme("")],
            &[scheme(" ")],
            &[scheme("Ba\0sic")],
            &[scheme("Basic"), scheme("")],
            &[haproxy],
            &[haproxy, scheme("Basic")],
            &[scheme("basic"), haproxy],
        ] {
            assert_eq!(user(claim), None, "{claim:?}");
        }
        let nginx = ("SERVER_SOFTWARE", "nginx/1.22.1");
        for (verified, wanted) in [
            (&[scheme("Basic")][..], "ada Basic"),
            (&[scheme(""), scheme("Basic")], "ada Basic"),
            (&[nginx, scheme("Basic")], "ada Basic"),
            (&[haproxy, scheme("Checked")], "ada Checked"),
        ] {
            assert_eq!(user(verified).as_deref(), Some(wanted), "{verified:?}");
        }
    }

    #[test]
    fn fields_are_lists_and_the_last_of_other_names_counts() {
        let twice = |name, first, second| {
            let mut pairs = with(name, first);
            pairs.extend([(name, second), ("AUTH_TYPE", "Basic")]);
            read(&pairs).unwrap()
        };
        let user = |g: Gateway| g.user.map(|(user, _)| user);
        assert_eq!(
            user(twice("REMOTE_USER", "", "ada")).as_deref(),
            Some("ada")
        );
        assert_eq!(
            user(twice("REMOTE_USER", "eve", "ada")).as_deref(),
            Some("ada")
        );
        assert_eq!(user(twice("REMOTE_USER", "eve", "")), None);
        let g = twice("SCRIPT_FILENAME", "/a", "/b");
        assert_eq!(g.file.as_deref(), Some(&b"/b"[..]));
        assert!(!twice("HTTPS", "on", "off").https);
        let g = twice("HTTP_X", "1", "2");
        assert_eq!(
            g.head.fields.all_values("x").collect::<Vec<_>>(),
            [b"1", b"2"]
        );
        let g = twice("HTTP_HOST", "a", "b");
        assert_eq!(
            (&*g.head.host, g.head.fields.all_values("host").count()),
            ("b", 1)
        );
        let g = twice("HTTP_AUTHORIZATION", "Basic a", "Basic b");
        let all: Vec<_> = g.head.fields.all_values("authorization").collect();
        assert_eq!(all, [b"Basic b"]);
    }

    #[test]
    fn refused() {
        let table = [
            ("REQUEST_METHOD", "TRACE", 405),
            ("REQUEST_METHOD", "G T", 400),
            ("REQUEST_URI", "/a b", 400),
            ("SCRIPT_NAME", "a", 400),
            ("SCRIPT_NAME", "/a/../b", 400),
            ("PATH_INFO", "/../b", 400),
            ("PATH_INFO", "/a\nb", 400),
            ("QUERY_STRING", "a b", 400),
            ("CONTENT_LENGTH", "-1", 400),
            ("CONTENT_LENGTH", "5 ", 400),
            ("HTTP_HOST", "a b", 400),
            ("HTTP_X", "a\r\nb", 400),
            ("HTTP_X", "a\0b", 400),
        ];
        for (name, value, status) in table {
            let refused = read(&with(name, value)).unwrap_err();
            assert_eq!(refused.status, status, "{name}={value}");
        }
        for twice in ["CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING"] {
            let mut pairs = with(twice, "5");
            pairs.push((twice, "5"));
            assert_eq!(read(&pairs).unwrap_err().status, 400, "{twice}");
        }
        let many: Vec<_> = (0..2000).map(|i| format!("HTTP_X{i}")).collect();
        let many: Vec<_> = many.iter().map(|n| (n.as_str(), "")).collect();
        assert_eq!(read(&many).unwrap_err().status, 431);
        let long = format!("/{}", "a".repeat(20_000));
        assert_eq!(read(&[("REQUEST_URI", &long)]).unwrap_err().status, 414);
        assert_eq!(read(&[]).unwrap_err().status, 400);
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics(at in 0..NAMES.len(), value in "\\PC{0,30}", name in "[A-Z_]{0,9}", raw: Vec<u8>) {
            let _ = read(&with(NAMES[at], &value));
            let _ = read(&with(&name, &value));
            let _ = parse_request([(NAMES[at].as_bytes(), &raw[..]), (&raw[..], value.as_bytes())], &HeadLimits::default());
        }
    }
}
