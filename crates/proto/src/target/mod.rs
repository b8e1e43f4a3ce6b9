//! The request target (RFC 9112, 3.2): origin-form, absolute-form and `*`.

mod path;

use std::{
    borrow::Cow,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use memchr::memchr;

pub use path::UrlPath;

use crate::{
    head_error::HeadError,
    target::target_error::{BYTE, DOT_SEGMENT, FORM, TOO_LONG},
};
use path::{decode, encode, has_dots, merge_slashes, remove_dots};

/// A request target, checked and decoded once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// Path and query as they came (`/a%20b?x=1`). Absolute-form has lost its scheme and authority, and a byte above 0x7F is
    /// percent-encoded.
    pub raw: String,
    /// Position of the query in `raw`, after the `?`; `None` if there is no `?`.
    pub query_at: Option<usize>,
    /// Parts that most targets lack.
    rare: Option<Box<Rare>>,
}

/// Parts of a target that differ from `raw`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rare {
    authority: Option<String>,
    rewritten: Option<String>,
    decoded: Option<Vec<u8>>,
    merged: Option<Vec<u8>>,
    without_dots: Option<String>,
}

impl Target {
    /// Parses a target, and refuses an encoded slash.
    pub fn parse(raw: &[u8], limit: usize) -> Result<Self, HeadError> {
        Self::parse_with(raw, limit, false)
    }

    /// Parses the target of a request line; `slashes`: an encoded slash counts as a slash. `*` is accepted here. It needs the
    /// method OPTIONS, which [`Head::parse`](crate::h1::Head::parse) checks because it knows the method.
    pub fn parse_with(raw: &[u8], limit: usize, slashes: bool) -> Result<Self, HeadError> {
        if raw.len() > limit {
            return Err(TOO_LONG);
        }
        let marks = Marks::from_target(raw).ok_or(BYTE)?;
        let plain = marks.encode_high_bytes(raw).ok_or(BYTE)?;
        // Encoding makes a target longer.
        if plain.len() > limit {
            return Err(TOO_LONG);
        }
        match raw.first() {
            Some(b'/') if marks.is_plain() => Ok(Self {
                query_at: memchr(b'?', raw).map(|at| at + 1),
                raw: plain.into_owned(),
                ..Self::default()
            }),
            Some(b'/') => Self::parse_origin(plain.into_owned(), None, slashes),
            Some(b'*') if raw.len() == 1 => Ok(Self {
                raw: plain.into_owned(),
                ..Self::default()
            }),
            _ => Self::parse_absolute(&plain, slashes),
        }
    }

    /// Makes the target of a request that a server in front of us has taken apart: the requested `uri`, the decoded `path` that
    /// the front server makes of it, and the query. Missing parts come from the URI.
    pub fn from_gateway(
        uri: Option<&[u8]>,
        path: Vec<u8>,
        query: Option<&[u8]>,
        limit: usize,
        slashes: bool,
    ) -> Result<Self, HeadError> {
        let given = query.map(visible).transpose()?;
        let rewritten = |target: &Self| {
            let given = given.as_deref().filter(|q| *q != target.query());
            given.map(str::to_owned)
        };
        if path.is_empty() {
            let mut target = Self::parse_with(uri.unwrap_or_default(), limit, slashes)?;
            if let Some(query) = rewritten(&target) {
                target.rare_mut().rewritten = Some(query);
            }
            return Ok(target);
        }
        if !path.starts_with(b"/") || path.iter().any(u8::is_ascii_control) {
            return Err(FORM);
        }
        if has_dots(&path) {
            return Err(DOT_SEGMENT);
        }
        let raw = match uri {
            Some(uri) => visible(uri)?.into_owned(),
            None => format!("{}?{}", encode(&path), given.as_deref().unwrap_or_default()),
        };
        let raw = raw.strip_suffix('?').map_or(raw.clone(), str::to_owned);
        if raw.len() > limit || path.len() > limit {
            return Err(TOO_LONG);
        }
        let query_at = memchr(b'?', raw.as_bytes()).map(|at| at + 1);
        // The front server has refused paths that it cannot decode. It may take an encoded slash for a slash.
        let asked = decode(raw_path(&raw, query_at), true).unwrap_or_default();
        let asked = asked.as_deref().unwrap_or(raw_path(&raw, query_at));
        let asked = has_dots(asked).then(|| remove_dots(asked)).transpose()?;
        let merged = merge_slashes(&path);
        let mut target = Self::from_decoded(raw, query_at, path);
        target.rare_mut().merged = merged;
        let without_dots = asked.map(|asked| encode(&asked) + target.raw_query());
        target.rare_mut().without_dots = without_dots;
        target.rare_mut().rewritten = rewritten(&target);
        Ok(target)
    }

    /// Makes a target with this decoded path, unchecked.
    pub fn from_decoded(raw: String, query_at: Option<usize>, path: Vec<u8>) -> Self {
        let rare = Rare {
            decoded: Some(path),
            ..Rare::default()
        };
        Self {
            raw,
            query_at,
            rare: Some(Box::new(rare)),
        }
    }

    fn rare_part<T: ?Sized>(&self, what: impl Fn(&Rare) -> Option<&T>) -> Option<&T> {
        self.rare.as_deref().and_then(what)
    }

    fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Returns `host[:port]` of an absolute-form target.
    pub fn authority(&self) -> Option<&str> {
        self.rare_part(|rare| rare.authority.as_deref())
    }

    /// Returns the path, percent-decoded exactly once, without dot segments and with runs of slashes as one. It begins with
    /// `/`, or is `*`. It holds no NUL and no control byte. All decisions about a request use this path.
    pub fn path(&self) -> &[u8] {
        self.rare_part(|rare| rare.merged.as_deref())
            .unwrap_or(self.received_path())
    }

    /// Returns the path, also with the slashes that came.
    pub fn url_path(&self) -> UrlPath<'_> {
        UrlPath {
            clean: self.path(),
            came: self.received_path(),
        }
    }

    /// Returns the path with the slashes that came.
    fn received_path(&self) -> &[u8] {
        self.rare_part(|rare| rare.decoded.as_deref())
            .unwrap_or(raw_path(&self.raw, self.query_at))
    }

    /// Returns path and query as they came: REQUEST_URI. Only dot segments are removed, because `/admin/../x` is found as `/x`,
    /// and a program that looks at the beginning must not take it for `/admin/`.
    pub fn request_uri(&self) -> &str {
        self.rare_part(|rare| rare.without_dots.as_deref())
            .unwrap_or(&self.raw)
    }

    /// Returns [path](Self::path) and query, for programs that judge a request by its URI.
    pub fn canonical(&self) -> String {
        let query = match self.query() {
            "" => self.raw_query().get(..1).unwrap_or_default().to_owned(),
            query => format!("?{query}"),
        };
        encode(self.path()) + &query
    }

    /// Returns the query with its `?`, as it stands in `raw`.
    fn raw_query(&self) -> &str {
        self.query_at.map_or("", |at| &self.raw[at - 1..])
    }

    /// Returns the query without its `?`; empty if there is none.
    pub fn query(&self) -> &str {
        self.rare_part(|rare| rare.rewritten.as_deref())
            .unwrap_or(self.query_at.map_or("", |at| &self.raw[at..]))
    }

    /// Parses an absolute-form (RFC 9112, 3.2.2), and removes scheme and authority.
    fn parse_absolute(raw: &str, slashes: bool) -> Result<Self, HeadError> {
        let rest = ["http://", "https://"]
            .iter()
            .find_map(|scheme| {
                let head = raw.get(..scheme.len())?;
                head.eq_ignore_ascii_case(scheme)
                    .then(|| &raw[scheme.len()..])
            })
            .ok_or(FORM)?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        Authority::parse(authority.as_bytes()).ok_or(FORM)?;
        let authority = Some(authority.to_owned());
        if path.starts_with('/') {
            Self::parse_origin(path.to_owned(), authority, slashes)
        } else {
            Self::parse_origin(format!("/{path}"), authority, slashes)
        }
    }

    fn parse_origin(
        raw: String,
        authority: Option<String>,
        slashes: bool,
    ) -> Result<Self, HeadError> {
        let query_at = memchr(b'?', raw.as_bytes()).map(|at| at + 1);
        let plain = raw_path(&raw, query_at);
        let mut decoded = decode(plain, slashes)?;
        // Looked for in the decoded path, so that `%2e` hides nothing.
        let dots = has_dots(decoded.as_deref().unwrap_or(plain));
        if dots {
            decoded = Some(remove_dots(decoded.as_deref().unwrap_or(plain))?);
        }
        let rare = Rare {
            merged: merge_slashes(decoded.as_deref().unwrap_or(plain)),
            decoded,
            authority,
            ..Rare::default()
        };
        let mut target = Self {
            raw,
            query_at,
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
        };
        if dots {
            let uri = encode(target.received_path()) + target.raw_query();
            target.rare_mut().without_dots = Some(uri);
        }
        Ok(target)
    }
}

/// Returns the path of a target as it came, whose query begins at `query_at`.
fn raw_path(raw: &str, query_at: Option<usize>) -> &[u8] {
    &raw.as_bytes()[..query_at.map_or(raw.len(), |at| at - 1)]
}

/// The kinds of bytes in a target, found in one pass. Most targets need no other pass.
#[derive(Debug, Clone, Copy)]
struct Marks(u8);

impl Marks {
    /// A byte that may not stand in a target.
    const REFUSED: u8 = 1;
    /// A byte above 0x7F.
    const HIGH: u8 = 2;
    /// A `%`, or a slash followed by a slash or a dot.
    const UNCLEAN: u8 = 4;

    /// Finds the kinds of bytes. Visible ASCII without `#` is accepted. This is wider than RFC 3986, which has no place for `|`
    /// or `[` in a path or a query, nor for a `%` without its digits in a query. Browsers send such bytes (`?q=100%`), and
    /// galgo gives them no meaning. A byte above 0x7F, which curl sends, counts as if it were percent-encoded.
    fn from_target(raw: &[u8]) -> Option<Self> {
        let mut marks = 0;
        let mut before = 0;
        for &b in raw {
            marks |= match b {
                b'/' | b'.' if before == b'/' => Self::UNCLEAN,
                b'%' => Self::UNCLEAN,
                b'#' | ..=b' ' | 0x7f => Self::REFUSED,
                0x80.. => Self::HIGH,
                _ => 0,
            };
            before = b;
        }
        (marks & Self::REFUSED == 0).then_some(Self(marks))
    }

    /// Returns whether nothing has to be encoded or decoded, and the path is clean.
    fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// Returns the target, in which bytes above 0x7F are percent-encoded.
    fn encode_high_bytes(self, raw: &[u8]) -> Option<Cow<'_, str>> {
        if self.0 & Self::HIGH == 0 {
            return str::from_utf8(raw).ok().map(Cow::from);
        }
        let encoded = raw.iter().map(|&b| {
            if b.is_ascii() {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        });
        Some(encoded.collect::<String>().into())
    }
}

fn visible(raw: &[u8]) -> Result<Cow<'_, str>, HeadError> {
    Marks::from_target(raw)
        .and_then(|marks| marks.encode_high_bytes(raw))
        .ok_or(BYTE)
}

/// Limit of a host, in bytes: a DNS name has at most 253 and a dot.
const LONGEST_HOST: usize = 254;

/// A host and a port, as the Host field and absolute-form have them (RFC 9110, 7.2; RFC 3986, 3.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authority {
    /// The host in lower case: a name without the dot of the DNS root, or an IPv6 address in brackets and in its shortest form.
    /// Never empty if it was parsed.
    pub host: Arc<str>,
    /// The port, 1 to 65535, if there is one.
    pub port: Option<u16>,
}

impl Authority {
    /// Parses `host[:port]`. This is narrower than the reg-name of RFC 3986: letters, digits and `-._~`, because programs print
    /// the host into pages and no name that resolves has more. An empty port and user information are refused.
    pub fn parse(raw: &[u8]) -> Option<Self> {
        let raw = str::from_utf8(raw).ok()?;
        let (host, port) = if raw.starts_with('[') {
            let end = raw.find(']')?;
            let address: Ipv6Addr = raw[1..end].parse().ok()?;
            (format!("[{address}]"), &raw[end + 1..])
        } else {
            let colon = raw.bytes().position(|b| b == b':');
            let (name, port) = raw.split_at(colon.unwrap_or(raw.len()));
            (parse_reg_name(name)?, port)
        };
        let port = match port.strip_prefix(':') {
            Some(digits) => Some(parse_port(digits)?),
            None if port.is_empty() => None,
            None => return None,
        };
        let host = host.into();
        Some(Self { host, port })
    }
}

/// The previous Host field of a connection, with its parsed value: a client asks the same host again and again.
#[derive(Debug, Clone, Default)]
pub struct LastHost(Option<(Box<[u8]>, Authority)>);

impl LastHost {
    /// Parses a field as [`Authority::parse`] does.
    pub(crate) fn parse_cached(&mut self, field: &[u8]) -> Option<Authority> {
        if let Some((last, says)) = &self.0
            && **last == *field
        {
            return Some(says.clone());
        }
        let says = Authority::parse(field)?;
        self.0 = Some((field.into(), says.clone()));
        Some(says)
    }
}

pub(crate) fn parse_port(digits: &str) -> Option<u16> {
    // u16::from_str takes a `+`.
    let plain = digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|&port| plain && port != 0)
}

/// Reads a name or an IPv4 address, and puts it in lower case.
fn parse_reg_name(name: &str) -> Option<String> {
    if name.len() > LONGEST_HOST {
        return None;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_~".contains(&b);
    let mut labels = name.as_bytes().split(|&b| b == b'.');
    if !labels.all(|label| !label.is_empty() && label.iter().copied().all(fits)) {
        return None;
    }
    // `127.1` and `2130706433` are addresses to some resolvers and names to others.
    let last = name.as_bytes().rsplit(|&b| b == b'.').next()?;
    if last.iter().all(u8::is_ascii_digit) && name.parse::<Ipv4Addr>().is_err() {
        return None;
    }
    Some(name.to_ascii_lowercase())
}

mod target_error;
#[cfg(test)]
mod tests;
