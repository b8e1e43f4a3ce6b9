//! Which requests may be answered from memory, and which answers may be kept (RFC 9111, 3 and 4, as a cache that the site's
//! own operator runs).
//!
//! The variables of a program that is asked for an answer to keep come from the key, from fields that its Vary may name, and
//! from the connection. Every other field of the request is left out: a program cannot make it a part of what
//! others are shown.

use std::time::{Duration, SystemTime};

use galgo_proto::{
    Fields, cond,
    fields::{is_one_of, lists},
    h1::{BodyLen, Head, Method},
};
use galgo_service::request::Request;

/// Fields that a program is shown, besides Host, which is a part of the key.
const SHOWN: [&str; 5] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "user-agent",
];

/// A request with one of these has an answer of its own.
const OWN: [&str; 5] = [
    "cookie",
    "authorization",
    "proxy-authorization",
    "range",
    "upgrade",
];

/// Whether the answer to a request may be another one's.
pub fn takes_part(request: &Request<'_>, head: &Head) -> bool {
    let link = request.link;
    let known = link.user.is_some() || link.tls.as_ref().is_some_and(|tls| tls.client.is_some());
    matches!(head.method, Method::Get | Method::Head)
        && head.body == BodyLen::None
        && !known
        && !head.fields.has_any(&OWN)
        && !lists(&head.fields, "cache-control", "no-store")
}

/// What makes two requests equal, besides what Vary names: all that a program is told of them, except for who asks. It begins with
/// the [`resource`].
pub fn key(request: &Request<'_>, head: &Head) -> Vec<u8> {
    let (link, target) = (request.link, &head.target);
    let mut key = resource(head);
    key.push(u8::from(link.https));
    let parts: [&[u8]; 5] = [
        link.local.as_bytes(),
        &link.port.to_ne_bytes(),
        head.fields.first("host").unwrap_or_default(),
        target.uri().as_bytes(),
        target.query().as_bytes(),
    ];
    parts.iter().for_each(|part| add(&mut key, part));
    for (name, value) in &request.granted {
        add(&mut key, name.as_bytes());
        add(&mut key, value);
    }
    key
}

/// The host and the path of a request: what the keys of all its answers begin with, whatever their query, scheme or listener.
pub fn resource(head: &Head) -> Vec<u8> {
    let mut resource = Vec::new();
    add(&mut resource, head.host.as_bytes());
    add(&mut resource, head.target.path());
    resource
}

fn add(key: &mut Vec<u8>, part: &[u8]) {
    key.extend_from_slice(&part.len().to_ne_bytes());
    key.extend_from_slice(part);
}

/// Whether an answer of this status to this method makes the answers that are kept of the same resource stale: the method may have
/// changed the resource, and has not failed (RFC 9111, 4.4; RFC 9110, 9.2.1).
pub fn invalidates(method: &Method, status: u16) -> bool {
    !matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS") && (200..400).contains(&status)
}

/// The head that a program sees.
pub fn shown(head: &Head) -> Head {
    let mut head = Head {
        method: Method::Get,
        ..head.clone()
    };
    let is_shown = |name: &[u8]| is_one_of(name, &["host"]) || is_one_of(name, &SHOWN);
    head.fields.retain(|name, _| is_shown(name));
    head
}

/// How long an answer may be kept, at most `most`; `None`: not at all.
pub fn freshness(status: u16, fields: &Fields, most: Duration) -> Option<Duration> {
    const KEPT: [u16; 4] = [200, 203, 404, 410];
    const NEVER: [&str; 3] = ["no-store", "private", "no-cache"];
    // `private="set-cookie"` is taken as a whole, too (RFC 9111, 5.2.2.7).
    let never = NEVER.iter().any(|word| directive(fields, word).is_some());
    if !KEPT.contains(&status) || fields.has("set-cookie") || never {
        return None;
    }
    let seconds = |word: &str| {
        let value = directive(fields, word)?;
        let said = delta_seconds(unquoted(value));
        // What cannot be read is stale (4.2.1).
        Some(said.unwrap_or_default())
    };
    let said = seconds("s-maxage")
        .or_else(|| seconds("max-age"))
        .or_else(|| expires(fields));
    let left = said.map_or(most, |said| said.saturating_sub(age(fields)));
    Some(left.min(most)).filter(|left| !left.is_zero())
}

/// How old the answer was when it was received (RFC 9111, 5.1).
pub fn age(fields: &Fields) -> Duration {
    let said = fields.first("age").and_then(delta_seconds);
    said.unwrap_or_default()
}

fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value
        .strip_prefix(b"\"")
        .and_then(|v| v.strip_suffix(b"\""));
    inner.unwrap_or(value)
}

/// A number of seconds (RFC 9111, 1.2.2). One that is too large for a number is the largest.
fn delta_seconds(value: &[u8]) -> Option<Duration> {
    let digits = value.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let seconds = str::from_utf8(digits).ok().filter(|_| is_number)?;
    // The RFC asks for 2^31 at least.
    Some(Duration::from_secs(
        seconds.parse::<u32>().unwrap_or(u32::MAX).into(),
    ))
}

fn expires(fields: &Fields) -> Option<Duration> {
    let at = cond::date(fields.first("expires")?);
    let left = at.and_then(|at| at.duration_since(SystemTime::now()).ok());
    Some(left.unwrap_or_default())
}

/// What Cache-Control says behind that word, or nothing; `None`: the word is not there.
fn directive<'f>(fields: &'f Fields, word: &str) -> Option<&'f [u8]> {
    let values = fields.all("cache-control");
    let mut words = values.flat_map(|v| v.split(|&b| b == b','));
    words.find_map(|own| {
        let at = own.iter().position(|&b| b == b'=').unwrap_or(own.len());
        let is_it = own[..at].trim_ascii().eq_ignore_ascii_case(word.as_bytes());
        is_it.then(|| own.get(at + 1..).unwrap_or_default().trim_ascii())
    })
}

/// The fields that the answer depends on, in lower case; `None`: on one that the program was not shown, or on anything.
pub fn vary(fields: &Fields) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for word in fields.all("vary").flat_map(|v| v.split(|&b| b == b',')) {
        let name = String::from_utf8_lossy(word.trim_ascii()).to_ascii_lowercase();
        match &*name {
            "" | "host" => {}
            _ if !SHOWN.contains(&&*name) => return None,
            _ if names.contains(&name) => {}
            _ => names.push(name),
        }
    }
    Some(names)
}

/// The values of these fields, each as one.
pub fn values(head: &Head, names: &[String]) -> Vec<Vec<u8>> {
    let value = |name: &String| {
        let all: Vec<_> = head.fields.all(name).collect();
        all.join(&b", "[..])
    };
    names.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        lines
            .iter()
            .for_each(|(name, value)| fields.push(name, value));
        fields
    }

    #[test]
    fn how_long_an_answer_is_kept() {
        let most = Duration::from_secs(60);
        for (status, lines, want) in [
            (200, &[][..], Some(60)),
            (404, &[], Some(60)),
            (500, &[], None),
            (206, &[], None),
            (302, &[], None),
            (200, &[("Set-Cookie", "a=b")], None),
            (200, &[("Cache-Control", "public, max-age=5")], Some(5)),
            (200, &[("cache-control", "max-age=500")], Some(60)),
            (200, &[("Cache-Control", "max-age=5, s-maxage=7")], Some(7)),
            (200, &[("Cache-Control", "s-maxage=\"7\"")], Some(7)),
            (200, &[("Cache-Control", "max-age=0")], None),
            (200, &[("Cache-Control", "max-age=abc")], None),
            (200, &[("Cache-Control", "max-age=-1")], None),
            (200, &[("Cache-Control", "max-age=+5")], None),
            (200, &[("Cache-Control", "max-age=")], None),
            (
                200,
                &[("Cache-Control", "max-age=99999999999999999999999")],
                Some(60),
            ),
            (
                200,
                &[
                    ("Cache-Control", "max-age=5"),
                    ("Age", "99999999999999999999999"),
                ],
                None,
            ),
            (
                200,
                &[("Cache-Control", "max-age=5"), ("Age", "3")],
                Some(2),
            ),
            (200, &[("Cache-Control", "max-age=5"), ("Age", "9")], None),
            (200, &[("Cache-Control", "No-Store")], None),
            (
                200,
                &[("Cache-Control", "a"), ("Cache-Control", "private")],
                None,
            ),
            (200, &[("Cache-Control", "private=\"x\", max-age=9")], None),
            (200, &[("Cache-Control", "no-cache")], None),
            (200, &[("Expires", "0")], None),
            (200, &[("Expires", "Thu, 01 Jan 1970 00:00:00 GMT")], None),
            (
                200,
                &[("Expires", "0"), ("Cache-Control", "max-age=3")],
                Some(3),
            ),
        ] {
            let kept = freshness(status, &of(lines), most);
            assert_eq!(kept, want.map(Duration::from_secs), "{status} {lines:?}");
        }
    }

    #[test]
    fn what_an_answer_depends_on() {
        let names = |value: &str| vary(&of(&[("Vary", value)]));
        assert_eq!(names(""), Some(vec![]));
        let two = vec!["accept-language".to_owned(), "accept".to_owned()];
        assert_eq!(names("Accept-Language, host, Accept, ACCEPT"), Some(two));
        for none in ["*", "Cookie", "Accept, X-Custom", "a b"] {
            assert_eq!(names(none), None, "{none}");
        }
    }
}
