//! Rules for requests that may be answered from memory, and for answers that may be kept (RFC 9111, 3 and 4, as a cache that
//! the site's own operator runs).
//!
//! To make an answer to keep, a program gets only variables from the key, from fields that its Vary may name, and from the
//! connection. Every other field of the request is left out, so a program cannot put it into an answer for other clients.

use std::time::{Duration, SystemTime};

use galgo_proto::{
    Fields, cond,
    fields::{is_one_of, lists_token},
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

/// A request with any of these fields has an answer of its own.
const OWN: [&str; 5] = [
    "cookie",
    "authorization",
    "proxy-authorization",
    "range",
    "upgrade",
];

/// Returns whether the answer to a request may be shared with other requests.
pub fn takes_part(request: &Request<'_>, head: &Head) -> bool {
    let link = request.link;
    let known = link.user.is_some() || link.tls.as_ref().is_some_and(|tls| tls.client.is_some());
    matches!(head.method, Method::Get | Method::Head)
        && head.body == BodyLen::None
        && !known
        && !head.fields.has_any(&OWN)
        && !lists_token(&head.fields, "cache-control", "no-store")
}

/// Returns the key of a request. Equal keys mean equal requests, apart from the fields that Vary names. The key holds all that
/// a program is told of a request, except for the client. It begins with the [`resource`].
pub fn request_key(request: &Request<'_>, head: &Head) -> Vec<u8> {
    let (link, target) = (request.link, &head.target);
    let mut key = resource(head);
    key.push(u8::from(link.https));
    let parts: [&[u8]; 5] = [
        link.local.as_bytes(),
        &link.port.to_ne_bytes(),
        head.fields.first_value("host").unwrap_or_default(),
        target.request_uri().as_bytes(),
        target.query().as_bytes(),
    ];
    parts.iter().for_each(|part| push_part(&mut key, part));
    for (name, value) in &request.granted {
        push_part(&mut key, name.as_bytes());
        push_part(&mut key, value);
    }
    key
}

/// Returns the host and the path of a request. All keys of these begin so, whatever their query, scheme or listener.
pub fn resource(head: &Head) -> Vec<u8> {
    let mut resource = Vec::new();
    push_part(&mut resource, head.host.as_bytes());
    push_part(&mut resource, head.target.path());
    resource
}

fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    key.extend_from_slice(&part.len().to_ne_bytes());
    key.extend_from_slice(part);
}

/// Returns whether an answer of this status to this method makes kept answers of the same resource stale. It does if the method
/// may have changed the resource, and has not failed (RFC 9111, 4.4; RFC 9110, 9.2.1).
pub fn invalidates(method: &Method, status: u16) -> bool {
    !matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS") && (200..400).contains(&status)
}

/// Returns the head that the program sees.
pub fn shown_head(head: &Head) -> Head {
    let mut head = Head {
        method: Method::Get,
        ..head.clone()
    };
    let is_shown = |name: &[u8]| is_one_of(name, &["host"]) || is_one_of(name, &SHOWN);
    head.fields.retain(|name, _| is_shown(name));
    head
}

/// Returns how long an answer may be kept, at most `most`; `None`: not at all.
pub fn freshness(status: u16, fields: &Fields, most: Duration) -> Option<Duration> {
    const KEPT: [u16; 4] = [200, 203, 404, 410];
    const NEVER: [&str; 3] = ["no-store", "private", "no-cache"];
    // `private="set-cookie"` counts for the whole answer, too (RFC 9111, 5.2.2.7).
    let never = NEVER.iter().any(|word| directive(fields, word).is_some());
    if !KEPT.contains(&status) || fields.has_field("set-cookie") || never {
        return None;
    }
    let seconds = |word: &str| {
        let value = directive(fields, word)?;
        let said = delta_seconds(unquoted(value));
        // An unreadable value makes the answer stale (4.2.1).
        Some(said.unwrap_or_default())
    };
    let said = seconds("s-maxage")
        .or_else(|| seconds("max-age"))
        .or_else(|| expires(fields));
    let left = said.map_or(most, |said| said.saturating_sub(received_age(fields)));
    Some(left.min(most)).filter(|left| !left.is_zero())
}

/// Returns the age of the answer when it was received (RFC 9111, 5.1).
pub fn received_age(fields: &Fields) -> Duration {
    let said = fields.first_value("age").and_then(delta_seconds);
    said.unwrap_or_default()
}

fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value
        .strip_prefix(b"\"")
        .and_then(|v| v.strip_suffix(b"\""));
    inner.unwrap_or(value)
}

/// Reads a number of seconds (RFC 9111, 1.2.2). A number that is too large becomes the largest one.
fn delta_seconds(value: &[u8]) -> Option<Duration> {
    let digits = value.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let seconds = str::from_utf8(digits).ok().filter(|_| is_number)?;
    // The RFC asks for at least 2^31.
    Some(Duration::from_secs(
        seconds.parse::<u32>().unwrap_or(u32::MAX).into(),
    ))
}

fn expires(fields: &Fields) -> Option<Duration> {
    let at = cond::parse_date(fields.first_value("expires")?);
    let left = at.and_then(|at| at.duration_since(SystemTime::now()).ok());
    Some(left.unwrap_or_default())
}

/// Returns the value after this word in Cache-Control, or an empty one; `None`: the word is not there.
fn directive<'f>(fields: &'f Fields, word: &str) -> Option<&'f [u8]> {
    let values = fields.all_values("cache-control");
    let mut words = values.flat_map(|v| v.split(|&b| b == b','));
    words.find_map(|own| {
        let at = own.iter().position(|&b| b == b'=').unwrap_or(own.len());
        let is_it = own[..at].trim_ascii().eq_ignore_ascii_case(word.as_bytes());
        is_it.then(|| own.get(at + 1..).unwrap_or_default().trim_ascii())
    })
}

/// Returns the fields that the answer depends on, in lower case. `None` if it depends on a field that the program was not
/// shown, or on anything.
pub fn vary_names(fields: &Fields) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for word in fields
        .all_values("vary")
        .flat_map(|v| v.split(|&b| b == b','))
    {
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

/// Returns the values of these fields. Several lines of a field are joined.
pub fn vary_values(head: &Head, names: &[String]) -> Vec<Vec<u8>> {
    let value = |name: &String| {
        let all: Vec<_> = head.fields.all_values(name).collect();
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
        let names = |value: &str| vary_names(&of(&[("Vary", value)]));
        assert_eq!(names(""), Some(vec![]));
        let two = vec!["accept-language".to_owned(), "accept".to_owned()];
        assert_eq!(names("Accept-Language, host, Accept, ACCEPT"), Some(two));
        for none in ["*", "Cookie", "Accept, X-Custom", "a b"] {
            assert_eq!(names(none), None, "{none}");
        }
    }
}
