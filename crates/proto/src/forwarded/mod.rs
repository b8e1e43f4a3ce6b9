//! The client of a request, as the proxies in front of us name it: Forwarded (RFC 7239) or X-Forwarded-*.
//!
//! Decisions:
//! - A field is read only if the peer is trusted and the proxies are known to write the field
//!   ([`ForwardedField`]). If a proxy passes a field through untouched, the client can forge it.
//! - The list is walked from the right, the end that our peer wrote. If an address is that of a trusted proxy,
//!   the entry to its left is believed in turn. The first other address is the client. Entries to the left of
//!   the client are its own words, and are not looked at.
//! - `for=unknown` and obfuscated names (RFC 7239, 6.2 and 6.3) end the walk. The client then is the last proxy
//!   that is known.
//! - If the words of a trusted proxy cannot be read, the request is refused; the words are never skipped. They
//!   are that proxy's mistake, and any reading of them would be a guess.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{
    Fields,
    fields::{elements, is_token},
    target::{Authority, parse_port},
};

/// A block of addresses: `10.0.0.0/8`, `2001:db8::/32`, `::1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    base: Ipv6Addr,
    /// Number of leading bits that count, of 128.
    bits: u32,
}

impl Block {
    /// Reads an address, alone or with the number of its bits that count. The bits after these must be zero:
    /// `10.0.0.1/8` is a mistake.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (most, before) = if address.is_ipv4() {
            (32, 96)
        } else {
            (128, 0)
        };
        let bits = match bits {
            None => most,
            Some(b) if (1..=3).contains(&b.len()) && b.bytes().all(|b| b.is_ascii_digit()) => {
                b.parse::<u32>().ok().filter(|&b| b <= most)?
            }
            Some(_) => return None,
        };
        let block = Self {
            base: to_ipv6(address),
            bits: before + bits,
        };
        (block.base.to_bits() & !block.bit_mask() == 0).then_some(block)
    }

    fn bit_mask(self) -> u128 {
        u128::MAX.checked_shl(128 - self.bits).unwrap_or_default()
    }

    /// Returns whether `address` is in the block; `::ffff:10.0.0.1` is 10.0.0.1.
    pub fn contains(self, address: IpAddr) -> bool {
        to_ipv6(address).to_bits() & self.bit_mask() == self.base.to_bits()
    }
}

fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The trusted proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trusted {
    /// Addresses of the proxies.
    pub blocks: Vec<Block>,
    /// Trust every client of a Unix socket.
    pub unix: bool,
    /// The fields that the proxies are known to write.
    pub fields: Vec<ForwardedField>,
}

/// A field that says where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ForwardedField {
    Forwarded,
    For,
    Proto,
    Host,
    Port,
}

impl ForwardedField {
    /// Every field.
    pub const ALL: [Self; 5] = [
        Self::Forwarded,
        Self::For,
        Self::Proto,
        Self::Host,
        Self::Port,
    ];

    /// Returns the field's name.
    pub fn field_name(self) -> &'static str {
        match self {
            Self::Forwarded => "Forwarded",
            Self::For => "X-Forwarded-For",
            Self::Proto => "X-Forwarded-Proto",
            Self::Host => "X-Forwarded-Host",
            Self::Port => "X-Forwarded-Port",
        }
    }
}

/// Statements about the other end. `None` if a statement is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForwardedParams {
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The client's port.
    pub client_port: Option<u16>,
    /// The client spoke TLS.
    pub https: Option<bool>,
    /// The host that the client asked.
    pub host: Option<Authority>,
    /// The port that the client asked.
    pub port: Option<u16>,
}

impl ForwardedParams {
    /// Returns SERVER_PORT: the stated port, that of the host, or that of the scheme.
    pub fn server_port(&self) -> Option<u16> {
        let of_scheme = self.https.map(|tls| if tls { 443 } else { 80 });
        let of_host = self.host.as_ref().and_then(|h| h.port);
        self.port.or(of_host).or(of_scheme)
    }
}

/// The field in which a trusted proxy has written a value with no reading, or with several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable(pub &'static str);

impl Trusted {
    /// Returns whether `peer` is trusted; `None` is a Unix socket.
    pub fn covers(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            None => self.unix,
            Some(address) => self.blocks.iter().any(|block| block.contains(address)),
        }
    }

    /// Returns the statements of `fields` about the client behind `peer`; `None` if `peer` is not trusted, or
    /// there are no statements.
    ///
    /// # Errors
    /// A relevant field cannot be read: 400.
    pub fn forwarded_params(
        &self,
        fields: &Fields,
        peer: Option<IpAddr>,
    ) -> Result<Option<ForwardedParams>, Unreadable> {
        if !self.covers(peer) {
            return Ok(None);
        }
        let origin = if self.fields.contains(&ForwardedField::Forwarded) {
            self.parse_forwarded(fields)?
        } else {
            self.parse_x_forwarded(fields)?
        };
        Ok((origin != ForwardedParams::default()).then_some(origin))
    }

    fn parse_forwarded(&self, fields: &Fields) -> Result<ForwardedParams, Unreadable> {
        let bad = Unreadable(ForwardedField::Forwarded.field_name());
        let mut hops = Vec::new();
        for line in fields.all_values("forwarded") {
            add_hops(line, &mut hops).ok_or(bad)?;
        }
        let mut origin = ForwardedParams::default();
        for hop in hops.iter().rev() {
            let node = match &hop.node {
                None => None,
                Some(node) => NodeName::parse(node).ok_or(bad)?.into(),
            };
            // A trusted proxy's statements about the connection that it accepted belong to the address that it
            // saw there.
            origin.https = match &hop.proto {
                None => origin.https,
                Some(proto) => Some(parse_scheme(proto).ok_or(bad)?),
            };
            origin.host = match &hop.host {
                None => origin.host,
                Some(host) => Some(Authority::parse(host).ok_or(bad)?),
            };
            let Some(NodeName::Address(client, port)) = node else {
                break;
            };
            (origin.client, origin.client_port) = (Some(client), port);
            if !self.covers(Some(client)) {
                break;
            }
        }
        Ok(origin)
    }

    fn parse_x_forwarded(&self, fields: &Fields) -> Result<ForwardedParams, Unreadable> {
        let list = |field: ForwardedField| -> Vec<&[u8]> {
            if self.fields.contains(&field) {
                fields
                    .all_values(field.field_name())
                    .flat_map(elements)
                    .collect()
            } else {
                Vec::new()
            }
        };
        let mut origin = ForwardedParams::default();
        let nodes = list(ForwardedField::For);
        let mut at = nodes.len();
        for node in nodes.iter().rev() {
            let node = NodeName::parse(node).ok_or(Unreadable(ForwardedField::For.field_name()))?;
            at -= 1;
            let NodeName::Address(client, port) = node else {
                break;
            };
            (origin.client, origin.client_port) = (Some(client), port);
            if !self.covers(Some(client)) {
                break;
            }
        }
        let said = |field| (field, list(field), (at, nodes.len()));
        origin.https = value_for_hop(said(ForwardedField::Proto), parse_scheme)?;
        origin.host = value_for_hop(said(ForwardedField::Host), Authority::parse)?;
        origin.port = value_for_hop(said(ForwardedField::Port), port_from_bytes)?;
        Ok(origin)
    }
}

/// Returns a field's statement about the hop `at`. The field has one element for all `hops`, or one for each.
fn value_for_hop<T>(
    (field, said, (at, hops)): (ForwardedField, Vec<&[u8]>, (usize, usize)),
    read: fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, Unreadable> {
    let one = match said.len() {
        0 => return Ok(None),
        1 => said.first(),
        n if n == hops => said.get(at),
        _ => None,
    };
    let value = one.and_then(|one| read(one));
    value.map(Some).ok_or(Unreadable(field.field_name()))
}

fn parse_scheme(text: &[u8]) -> Option<bool> {
    match text {
        t if t.eq_ignore_ascii_case(b"https") => Some(true),
        t if t.eq_ignore_ascii_case(b"http") => Some(false),
        _ => None,
    }
}

fn port_from_bytes(text: &[u8]) -> Option<u16> {
    parse_port(str::from_utf8(text).ok()?)
}

/// The node at the other end (RFC 7239, 6).
#[derive(Debug, PartialEq, Eq)]
enum NodeName {
    Address(IpAddr, Option<u16>),
    /// `unknown`, or a name with a meaning for the proxy alone.
    Hidden,
}

impl NodeName {
    fn parse(raw: &[u8]) -> Option<Self> {
        let text = str::from_utf8(raw).ok()?;
        // X-Forwarded-For also has IPv6 addresses without brackets, if no port follows.
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical(), None));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !text.ends_with(']') => (name, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            // An obfuscated port (`_x`) says nothing.
            Some(port) if !is_obfuscated(port) => Some(parse_port(port)?),
            _ => None,
        };
        if name.eq_ignore_ascii_case("unknown") || is_obfuscated(name) {
            return Some(Self::Hidden);
        }
        let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
        let address: IpAddr = match (port, bare) {
            (Some(_), _) => text.parse::<SocketAddr>().ok()?.ip(),
            (None, Some(v6)) => v6.parse::<Ipv6Addr>().ok()?.into(),
            (None, None) => name.parse::<Ipv4Addr>().ok()?.into(),
        };
        Some(Self::Address(address.to_canonical(), port))
    }
}

/// Recognizes an obfuscated name (RFC 7239, 6.3): `"_" 1*( ALPHA / DIGIT / "." / "_" / "-")`.
fn is_obfuscated(name: &str) -> bool {
    let rest = name.strip_prefix('_').unwrap_or_default();
    !rest.is_empty()
        && rest
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// A forwarded-element (RFC 7239, 4).
#[derive(Debug, Default)]
struct Hop {
    node: Option<Vec<u8>>,
    proto: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
}

/// Appends the elements of one field line to `hops`. `None` if the line breaks the grammar anywhere: a quote
/// that a client left open would swallow the text that our proxy has written after it.
fn add_hops(line: &[u8], hops: &mut Vec<Hop>) -> Option<()> {
    let (mut rest, mut hop) = (line.trim_ascii(), Hop::default());
    loop {
        rest = parse_pair(rest, &mut hop)?.trim_ascii_start();
        let Some((separator, more)) = rest.split_first() else {
            hops.push(hop);
            return Some(());
        };
        match separator {
            b';' => {}
            b',' => hops.push(std::mem::take(&mut hop)),
            _ => return None,
        }
        rest = more.trim_ascii_start();
    }
}

/// Reads a forwarded-pair: token "=" value. A name comes once in an element.
fn parse_pair<'l>(line: &'l [u8], hop: &mut Hop) -> Option<&'l [u8]> {
    let (name, rest) = split_token(line)?;
    let rest = rest.strip_prefix(b"=")?;
    let (value, rest) = match rest.first() {
        Some(b'"') => split_quoted(rest)?,
        _ => {
            let (value, rest) = split_token(rest)?;
            (value.to_vec(), rest)
        }
    };
    let place = match name {
        n if n.eq_ignore_ascii_case(b"for") => &mut hop.node,
        n if n.eq_ignore_ascii_case(b"proto") => &mut hop.proto,
        n if n.eq_ignore_ascii_case(b"host") => &mut hop.host,
        _ => return Some(rest),
    };
    place.replace(value).is_none().then_some(rest)
}

fn split_token(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line
        .iter()
        .position(|&b| !is_token(b))
        .unwrap_or(line.len());
    (end > 0).then(|| line.split_at(end))
}

/// Reads a quoted-string (RFC 9110, 5.6.4).
fn split_quoted(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut text = Vec::new();
    let mut bytes = line.iter().enumerate().skip(1);
    while let Some((at, &b)) = bytes.next() {
        match b {
            b'"' => return Some((text, &line[at + 1..])),
            b'\\' => text.push(*bytes.next()?.1),
            b => text.push(b),
        }
    }
    None
}

#[cfg(test)]
mod tests;
