//! The address that limits count a client by.
//!
//! By it clients share connections (`front::crowd`), permits and the queue for them ([`admission`](crate::admission)), bytes that
//! wait ([`spool`](crate::spool)) and requests of a route (`handlers::rate_limit`).

use std::net::IpAddr;

/// A client by its address: IPv4 whole, IPv6 by the /64 that one subscriber is given. All clients without an address, as
/// behind a Unix socket, are one.
///
/// One number, for it is hashed with every program that starts: 0 without an address, an IPv4 address mapped into IPv6, or
/// a /64 followed by 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Peer(u128);

impl Peer {
    /// The client at that address.
    pub fn of(ip: Option<IpAddr>) -> Self {
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
        let peer = |text: &str| Peer::of(Some(text.parse().unwrap()));
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), Peer::default());
        assert_ne!(peer("::1"), Peer::default());
        assert_ne!(peer("::1"), peer("127.0.0.1"));
    }
}
