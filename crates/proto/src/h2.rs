//! Request heads of HTTP/2 (RFC 9113, 8), made from pseudo-fields and fields.
//!
//! [`build_head`] takes and refuses the same requests as [`Head::parse`], so later code need not know the version of a request.

use crate::{
    Fields,
    fields::{is_text, is_token},
    h1::{
        BodyLen, FramingFields, Head, HeadError, HeadLimits, Method, Once, Version,
        parse_content_length, set_host_field,
    },
    target::{Authority, Target},
};

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

/// The pseudo-fields of requests (RFC 9113, 8.3.1; RFC 8441, 4). The scheme is not used, because the connection tells it.
const METHOD: &str = ":method";
const AUTHORITY: &str = ":authority";
const PATH: &str = ":path";
const PROTOCOL: &str = ":protocol";
const PSEUDO: [&str; 5] = [METHOD, AUTHORITY, ":scheme", PATH, PROTOCOL];
/// The pseudo-fields of requests beside `:authority`, as bits in that order: of CONNECT, of other methods, and of CONNECT with a
/// protocol.
const OF_CONNECT: u8 = 0b00001;
const ORDINARY: u8 = 0b01101;
const EXTENDED: u8 = 0b11101;
const AUTHORITY_BIT: u8 = 0b00010;

/// The fields of a head as they come.
#[derive(Debug, Default)]
pub struct ReceivedFields {
    pseudo: Fields,
    fields: Fields,
    /// The pseudo-fields that have come, as bits in the order of [`PSEUDO`].
    seen: u8,
    /// Bytes as `max_head` counts them.
    size: usize,
    too_large: bool,
    malformed: bool,
}

impl ReceivedFields {
    /// Adds a field. If the head then is larger than `limit`, drops all fields, because the answer needs none of them.
    pub fn add_field(&mut self, name: &[u8], value: &[u8], limit: usize) {
        self.size = self.size.saturating_add(name.len() + value.len() + AROUND);
        self.too_large |= self.size > limit;
        if self.too_large {
            (self.pseudo, self.fields) = <_>::default();
        } else if name.first() == Some(&b':') {
            let known = PSEUDO.iter().position(|known| known.as_bytes() == name);
            let bit = known.map_or(0, |at| 1 << at);
            self.malformed |= bit == 0 || self.seen & bit != 0 || !self.fields.is_empty();
            self.malformed |= name == PATH.as_bytes() && value.is_empty();
            self.seen |= bit;
            self.pseudo.push(name, value);
        } else {
            let lower = |b: u8| is_token(b) && !b.is_ascii_uppercase();
            let te = name == b"te" && !value.eq_ignore_ascii_case(b"trailers");
            let of_connection = OF_CONNECTION.iter().any(|known| known.as_bytes() == name);
            self.malformed |= name.is_empty() || !name.iter().copied().all(lower);
            self.malformed |= te || of_connection;
            self.fields.push(name, value);
        }
    }

    /// Returns whether RFC 9113, 8.2 and 8.3.1, calls this head of a request malformed. Too large a head does not count: its
    /// fields are missing here.
    pub fn is_malformed_request(&self) -> bool {
        let connect = self.pseudo_field(METHOD) == Some(b"CONNECT");
        let fits = match self.seen & !AUTHORITY_BIT {
            OF_CONNECT | EXTENDED => connect,
            ORDINARY => !connect,
            _ => false,
        };
        (self.malformed || !fits) && !self.too_large
    }

    /// Returns whether a field of these trailers is malformed.
    pub fn is_malformed_trailer(&self) -> bool {
        self.malformed
    }

    /// Returns the bytes of memory that the fields take.
    pub fn memory(&self) -> usize {
        self.pseudo.memory() + self.fields.memory()
    }

    /// Returns the protocol that the client asks for on the stream (RFC 8441, 4).
    pub fn protocol(&self) -> Option<&[u8]> {
        let may = self.pseudo_field(METHOD) == Some(b"CONNECT");
        self.pseudo_field(PROTOCOL).filter(|_| may)
    }

    /// Returns the declared length of the body, if it is a number.
    pub fn content_length(&self) -> Option<u64> {
        let declared = self.fields.first_value("content-length")?;
        parse_content_length(declared).ok()
    }

    fn pseudo_field(&self, name: &str) -> Option<&[u8]> {
        let mut pseudo = self.pseudo.iter();
        pseudo.find_map(|(known, value)| (known == name.as_bytes()).then_some(value))
    }
}

/// Makes the head of a request. `ended`: the client has ended the stream, so there is no body. `websocket`: the client asks for a
/// WebSocket by the method CONNECT (RFC 8441, 4) and sends no Sec-WebSocket-Key, so programs are shown this key. Such a request
/// gets the head of HTTP/1.1 (RFC 6455, 4.1).
///
/// # Errors
/// The errors of [`Head::parse`], and requests that RFC 9113, 8.2 and 8.3.1 call malformed.
pub fn build_head(
    received: ReceivedFields,
    ended: bool,
    websocket: Option<&str>,
    limits: &HeadLimits,
) -> Result<Head, HeadError> {
    if received.too_large || received.size > limits.bytes {
        return Err(HeadError::TOO_LARGE);
    }
    if received.is_malformed_request() {
        return Err(HeadError::bad_request(
            "pseudo-fields or fields that HTTP/2 does not allow",
        ));
    }
    let [asked, path] = [METHOD, PATH].map(|name| received.pseudo_field(name).unwrap_or_default());
    let asked_authority = received.pseudo_field(AUTHORITY);
    let method = match websocket {
        Some(_) => Method::Get,
        None => Method::parse(asked)?,
    };
    let target = Target::parse_with(path, limits.target, limits.encoded_slash)?;
    if target.authority().is_some() {
        return Err(HeadError::bad_request(":path is not a path"));
    }
    if target.path() == b"*" && method.as_str() != "OPTIONS" {
        return Err(HeadError::bad_request(
            "target `*` without the method OPTIONS",
        ));
    }
    let framing = check_fields(&received, limits)?;
    let Authority { host, port } = requested_authority(asked_authority, framing.host)?;
    let expects_continue = framing.continues;
    let body = body_length(framing.content_length, ended, websocket.is_some())?;
    if framing.other_expectation {
        return Err(HeadError::EXPECTATION);
    }
    let ReceivedFields {
        mut fields, pseudo, ..
    } = received;
    if let Some(authority) = pseudo
        .first_value(AUTHORITY)
        .and_then(|a| str::from_utf8(a).ok())
    {
        set_host_field(&mut fields, authority);
    }
    if let Some(key) = websocket {
        fields.retain(|name, _| name != b"sec-websocket-key");
        fields.push("upgrade", "websocket");
        fields.push("connection", "Upgrade");
        fields.push("sec-websocket-key", key);
    }
    Ok(Head {
        method,
        target,
        version: Version::Http2,
        fields,
        host,
        port,
        body,
        expects_continue: expects_continue && !body.is_empty(),
        keep_alive: true,
    })
}

/// Returns whether a body follows the head, and its length.
fn body_length(declared: Once<'_>, ended: bool, websocket: bool) -> Result<BodyLen, HeadError> {
    match (declared, ended) {
        (Once::Absent, _) if websocket => Ok(BodyLen::None),
        (_, _) if websocket => Err(HeadError::bad_request("a WebSocket with Content-Length")),
        (Once::Several, _) => Err(HeadError::bad_request("several Content-Length")),
        (Once::One(value), ended) => match BodyLen::Length(parse_content_length(value)?) {
            BodyLen::Length(1..) if ended => {
                Err(HeadError::bad_request("Content-Length without a body"))
            }
            length => Ok(length),
        },
        (Once::Absent, true) => Ok(BodyLen::None),
        (Once::Absent, false) => Ok(BodyLen::Chunked),
    }
}

/// Checks pseudo-fields and fields, and picks out the framing of the message.
fn check_fields<'a>(
    ReceivedFields { pseudo, fields, .. }: &'a ReceivedFields,
    limits: &HeadLimits,
) -> Result<FramingFields<'a>, HeadError> {
    let mut framing = FramingFields::default();
    for (name, value) in pseudo.iter().chain(fields.iter()) {
        if !value.iter().copied().all(is_text) {
            return Err(HeadError::CONTROL);
        }
        if value != value.trim_ascii() {
            return Err(HeadError::bad_request(
                "a field value with white space around it",
            ));
        }
        framing.note_field(name, value);
    }
    if fields.len() > limits.fields {
        return Err(HeadError::MANY_FIELDS);
    }
    Ok(framing)
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

    /// A request with these pseudo-fields.
    #[derive(Clone, Copy)]
    struct PseudoFields<'a> {
        method: &'a [u8],
        authority: Option<&'a [u8]>,
        path: &'a [u8],
        ended: bool,
        websocket: Option<&'a str>,
    }

    fn read(asked: PseudoFields<'_>, fields: Pairs<'_>) -> Result<Head, HeadError> {
        let connect = asked.method == b"CONNECT" && asked.websocket.is_none();
        let scheme = (!connect).then_some(&b"https"[..]);
        let path = (!connect).then_some(asked.path);
        let protocol = asked.websocket.map(|_| &b"websocket"[..]);
        let pseudo = [Some(asked.method), asked.authority, scheme, path, protocol];
        let mut all = ReceivedFields::default();
        for (name, value) in PSEUDO.iter().zip(pseudo) {
            if let Some(value) = value {
                all.add_field(name.as_bytes(), value, usize::MAX);
            }
        }
        for (name, value) in fields {
            all.add_field(name.as_bytes(), value.as_bytes(), usize::MAX);
        }
        let limits = HeadLimits {
            bytes: 1000,
            fields: 9,
            ..HeadLimits::default()
        };
        build_head(all, asked.ended, asked.websocket, &limits)
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
        fn no_input_panics(fields: Vec<(Vec<u8>, Vec<u8>)>, pseudo: Vec<(u8, Vec<u8>)>, limit in 0usize..2000, ended: bool) {
            let mut all = ReceivedFields::default();
            for (at, value) in &pseudo {
                all.add_field(PSEUDO[usize::from(*at) % 5].as_bytes(), value, limit);
            }
            for (name, value) in &fields {
                all.add_field(name, value, limit);
            }
            let _ = build_head(all, ended, None, &HeadLimits::default());
        }
    }
}
