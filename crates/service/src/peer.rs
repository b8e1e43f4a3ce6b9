//! The address by which limits count a client.
//!
//! Clients share by address connections (`front::crowd`), permits and the queue for them ([`admission`](crate::admission)),
//! waiting bytes ([`spool`](crate::spool)) and requests of a route (`handlers::rate_limit`).

use std::net::IpAddr;

/// A client by its address: a whole IPv4 address, or the /64 of an IPv6 address, which one subscriber gets. All clients without
/// an address, as on a Unix socket, count as one.
///
/// A single number, because each start of a program hashes it: 0 without an address, an IPv4 address mapped into IPv6, or a /64
/// followed by 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Peer(u128);

impl Peer {
    /// Returns the client at that address.
    pub fn from_address(ip: Option<IpAddr>) -> Self {
        Self(ip.map_or(0, |ip| match ip.to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits() >> 64 << 64 | 1,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_is_one() {
        let peer = |text: &str| Peer::from_address(Some(text.parse().unwrap()));
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), Peer::default());
        assert_ne!(peer("::1"), Peer::default());
        assert_ne!(peer("::1"), peer("127.0.0.1"));
    }
}
