//! Request heads of HTTP/2 (RFC 9113, 8), made from pseudo-fields and fields.
//!
//! [`build_head`] takes and refuses the same requests as [`Head::parse`], so later code need not know the version of a request. A
//! request that RFC 9113 calls malformed gets 400, unless it ends the stream before.

use crate::{
    Fields,
    fields::{is_text, is_token},
    h1::{
        BodyLen, FramingFields, Head, HeadError, HeadLimits, Method, Once, Version,
        parse_content_length, set_host_field,
    },
    target::{Authority, Target},
};

/// The pseudo-fields of a request, and whether a body follows. The scheme is left out, because the connection tells it.
#[derive(Debug, Clone, Copy)]
pub struct PseudoFields<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:authority`.
    pub authority: Option<&'a [u8]>,
    /// `:path`.
    pub path: &'a [u8],
    /// The client has ended the stream: there is no body.
    pub ended: bool,
    /// The client asks for a WebSocket by the method CONNECT (RFC 8441, 4). It sends no Sec-WebSocket-Key: programs are
    /// shown this key instead.
    pub websocket: Option<&'a str>,
}

/// Fields that concern a connection of HTTP/1 (RFC 9113, 8.2.2). TE may say `trailers`.
pub const OF_CONNECTION: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];
/// Bytes around name and value in a line of HTTP/1. `max_head` counts them in both versions.
const AROUND: usize = ": \r\n".len();

/// Makes the head of a request. A request for a WebSocket gets the head of HTTP/1.1 (RFC 6455, 4.1).
///
/// # Errors
/// The errors of [`Head::parse`], and requests that RFC 9113, 8.2 and 8.3.1 call malformed.
pub fn build_head<'a>(
    asked: &PseudoFields<'a>,
    fields: impl Iterator<Item = (&'a str, &'a [u8])>,
    limits: &HeadLimits,
) -> Result<Head, HeadError> {
    let method = match asked.websocket {
        Some(_) => Method::Get,
        None => Method::parse(asked.method)?,
    };
    let target = Target::parse_with(asked.path, limits.target, limits.encoded_slash)?;
    if target.authority().is_some() {
        return Err(HeadError::bad_request(":path is not a path"));
    }
    if target.path() == b"*" && method.as_str() != "OPTIONS" {
        return Err(HeadError::bad_request(
            "target `*` without the method OPTIONS",
        ));
    }
    let line = asked.method.len() + asked.path.len();
    let (mut fields, framing) = copy_fields(fields, line, limits)?;
    let Authority { host, port } = requested_authority(asked.authority, framing.host)?;
    if let Some(authority) = asked.authority.and_then(|a| str::from_utf8(a).ok()) {
        set_host_field(&mut fields, authority);
    }
    let body = match (framing.content_length, asked.ended) {
        (Once::Absent, _) if asked.websocket.is_some() => BodyLen::None,
        (_, _) if asked.websocket.is_some() => {
            return Err(HeadError::bad_request("a WebSocket with Content-Length"));
        }
        (Once::Several, _) => return Err(HeadError::bad_request("several Content-Length")),
        (Once::One(value), ended) => match BodyLen::Length(parse_content_length(value)?) {
            BodyLen::Length(1..) if ended => {
                return Err(HeadError::bad_request("Content-Length without a body"));
            }
            length => length,
        },
        (Once::Absent, true) => BodyLen::None,
        (Once::Absent, false) => BodyLen::Chunked,
    };
    if let Some(key) = asked.websocket {
        fields.retain(|name, _| name != b"sec-websocket-key");
        fields.push("upgrade", "websocket");
        fields.push("connection", "Upgrade");
        fields.push("sec-websocket-key", key);
    }
    if framing.other_expectation {
        return Err(HeadError::EXPECTATION);
    }
    Ok(Head {
        method,
        target,
        version: Version::Http2,
        fields,
        host,
        port,
        body,
        expects_continue: framing.continues && !body.is_empty(),
        keep_alive: true,
    })
}

/// Copies the fields, and picks out the framing of the message. The request line has this many bytes.
fn copy_fields<'a>(
    all: impl Iterator<Item = (&'a str, &'a [u8])>,
    line: usize,
    limits: &HeadLimits,
) -> Result<(Fields, FramingFields<'a>), HeadError> {
    let (mut fields, mut framing, mut bytes) = (Fields::new(), FramingFields::default(), line);
    for (name, value) in all {
        let lower = |b: u8| is_token(b) && !b.is_ascii_uppercase();
        if name.is_empty() || !name.bytes().all(lower) {
            return Err(HeadError::bad_request(
                "a field name that is not a token in lower case",
            ));
        }
        if !value.iter().copied().all(is_text) {
            return Err(HeadError::CONTROL);
        }
        if value != value.trim_ascii() {
            return Err(HeadError::bad_request(
                "a field value with white space around it",
            ));
        }
        let te = name == "te" && !value.eq_ignore_ascii_case(b"trailers");
        if te || OF_CONNECTION.contains(&name) {
            return Err(HeadError::bad_request(
                "a field that concerns the connection",
            ));
        }
        bytes += name.len() + value.len() + AROUND;
        if bytes > limits.bytes {
            return Err(HeadError::TOO_LARGE);
        }
        if fields.len() == limits.fields {
            return Err(HeadError::MANY_FIELDS);
        }
        framing.note_field(name, value);
        fields.push(name, value);
    }
    Ok((fields, framing))
}

/// Returns the requested host: `:authority`, with which Host must agree (RFC 9113, 8.3.1), else Host.
fn requested_authority(asked: Option<&[u8]>, host: Once<'_>) -> Result<Authority, HeadError> {
    let parsed = |value| Authority::parse(value).ok_or(HeadError::HOST);
    match (asked, host) {
        (_, Once::Several) => Err(HeadError::bad_request("several Host")),
        (None, Once::Absent) => Err(HeadError::bad_request("neither :authority nor Host")),
        (Some(asked), Once::Absent) => parsed(asked),
        (None, Once::One(host)) => parsed(host),
        (Some(asked), Once::One(host)) => match (parsed(asked)?, parsed(host)?) {
            (asked, host) if asked == host => Ok(asked),
            _ => Err(HeadError::bad_request("Host and :authority disagree")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    const GET: PseudoFields<'static> = PseudoFields {
        method: b"GET",
        authority: Some(b"Example.org:8080"),
        path: b"/a%20b?c=d",
        ended: true,
        websocket: None,
    };

    fn read(asked: PseudoFields<'_>, fields: Pairs<'_>) -> Result<Head, HeadError> {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let limits = HeadLimits {
            bytes: 1000,
            fields: 9,
            ..HeadLimits::default()
        };
        build_head(&asked, fields, &limits)
    }

    #[test]
    fn it_is_the_head_that_http_1_would_have() {
        let text = "GET /a%20b?c=d HTTP/1.1\r\naccept: */*\r\ncookie: a\r\ncookie: b\r\nHost: Example.org:8080\r\n\r\n";
        let wanted = Head {
            version: Version::Http2,
            ..Head::parse(text.as_bytes(), &HeadLimits::default()).unwrap()
        };
        let fields = [("accept", "*/*"), ("cookie", "a"), ("cookie", "b")];
        assert_eq!(read(GET, &fields), Ok(wanted));
    }

    /// RFC 8441, 5: the same request in HTTP/1.1 is a GET with these fields.
    #[test]
    fn a_websocket_is_asked_for_as_in_http_1() {
        let asked = PseudoFields {
            method: b"CONNECT",
            ended: false,
            websocket: Some("a2V5"),
            ..GET
        };
        let version = ("sec-websocket-version", "13");
        let head = read(asked, &[version, ("sec-websocket-key", "theirs")]).unwrap();
        assert_eq!((head.method, head.body), (Method::Get, BodyLen::None));
        for (name, value) in [
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("sec-websocket-key", "a2V5"),
            version,
        ] {
            let values: Vec<_> = head.fields.all_values(name).collect();
            assert_eq!(values, [value.as_bytes()], "{name}");
        }
        let refused = read(asked, &[("content-length", "0")]).unwrap_err();
        assert_eq!(refused.status, 400);
        // Without the protocol the request is a CONNECT.
        let none = PseudoFields {
            websocket: None,
            ..asked
        };
        assert_eq!(read(none, &[]).unwrap_err().status, 405);
    }

    #[test]
    fn s8_3_1_authority_and_host() {
        let no = PseudoFields {
            authority: None,
            ..GET
        };
        let host = |asked, fields: Pairs<'_>| {
            let head = read(asked, fields).map_err(|e| e.status)?;
            let field =
                String::from_utf8_lossy(head.fields.first_value("host").unwrap()).into_owned();
            Ok((head.host, head.port, field))
        };
        let asked = |host: &str, field: &str| Ok((host.into(), Some(8080), field.into()));
        assert_eq!(host(GET, &[]), asked("example.org", "Example.org:8080"));
        let same = host(GET, &[("host", "example.org:8080")]);
        assert_eq!(same, asked("example.org", "Example.org:8080"));
        assert_eq!(host(no, &[("host", "a:8080")]), asked("a", "a:8080"));
        for (asked, fields) in [
            (GET, &[("host", "example.org")][..]),
            (GET, &[("host", "evil.org:8080")]),
            (
                GET,
                &[("host", "example.org:8080"), ("host", "example.org:8080")],
            ),
            (GET, &[("host", "")]),
            (no, &[]),
            (no, &[("host", "a b")]),
        ] {
            assert_eq!(host(asked, fields), Err(400), "{fields:?}");
        }
        for authority in ["", "user@example.org", "a/b", "example.org:"] {
            let authority = Some(authority.as_bytes());
            assert_eq!(host(PseudoFields { authority, ..GET }, &[]), Err(400));
        }
    }

    #[test]
    fn bodies() {
        let open = PseudoFields {
            ended: false,
            ..GET
        };
        let body = |asked, fields: Pairs<'_>| {
            let head = read(asked, fields)?;
            Ok::<_, HeadError>((head.body, head.expects_continue))
        };
        let expects = ("expect", "100-continue");
        assert_eq!(body(GET, &[]), Ok((BodyLen::None, false)));
        assert_eq!(body(GET, &[expects]), Ok((BodyLen::None, false)));
        assert_eq!(body(open, &[expects]), Ok((BodyLen::Chunked, true)));
        let length = ("content-length", "5");
        assert_eq!(body(open, &[length]), Ok((BodyLen::Length(5), false)));
        let none = ("content-length", "0");
        assert_eq!(body(GET, &[none]), Ok((BodyLen::Length(0), false)));
        for (asked, fields) in [
            (GET, &[length][..]),
            (open, &[length, length]),
            (open, &[("content-length", "+5")]),
        ] {
            assert_eq!(body(asked, fields).unwrap_err().status, 400);
        }
    }

    #[test]
    fn refused() {
        let many = [("a", ""); 10];
        let long = "x".repeat(990);
        for (fields, status) in [
            (&[("connection", "close")][..], 400),
            (&[("keep-alive", "1")], 400),
            (&[("proxy-connection", "close")], 400),
            (&[("transfer-encoding", "chunked")], 400),
            (&[("upgrade", "h2c")], 400),
            (&[("te", "gzip")], 400),
            (&[("Accept", "a")], 400),
            (&[("a b", "")], 400),
            (&[("", "")], 400),
            (&[(":path", "/")], 400),
            (&[("a", "b\r\nc: d")], 400),
            (&[("a", "b\0")], 400),
            (&[("a", " b")], 400),
            (&[("a", "b\t")], 400),
            (&[("expect", "a")], 417),
            (&many, 431),
            (&[("a", &long)], 431),
        ] {
            assert_eq!(read(GET, fields).unwrap_err().status, status, "{fields:?}");
        }
        assert!(read(GET, &[("te", "trailers"), ("a", "b\tc \u{e4}")]).is_ok());
        for (method, path, status) in [
            ("CONNECT", "/", 405),
            ("TRACE", "/", 405),
            ("G T", "/", 400),
            ("GET", "*", 400),
            ("GET", "a", 400),
            ("GET", "", 400),
            ("GET", "http://example.org/", 400),
            ("GET", "/a b", 400),
            ("GET", "/a#b", 400),
            ("GET", "/../a", 400),
            ("GET", "/%00", 400),
            ("GET", "/a%2fb", 400),
        ] {
            let (method, path) = (method.as_bytes(), path.as_bytes());
            let refused = read(
                PseudoFields {
                    method,
                    path,
                    ..GET
                },
                &[],
            )
            .unwrap_err();
            assert_eq!(refused.status, status, "{path:?}");
        }
        let (method, path) = (&b"OPTIONS"[..], &b"*"[..]);
        assert!(
            read(
                PseudoFields {
                    method,
                    path,
                    ..GET
                },
                &[]
            )
            .is_ok()
        );
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics(method: Vec<u8>, path: Vec<u8>, host: Option<Vec<u8>>, name in "\\PC{0,9}", value: Vec<u8>, ended: bool) {
            let authority = host.as_deref();
            let asked = PseudoFields { method: &method, authority, path: &path, ended, websocket: None };
            let _ = build_head(&asked, [(&*name, &*value)].into_iter(), &HeadLimits::default());
        }
    }
}
