//! Who asks, as far as fairness goes.

use std::net::{IpAddr, Ipv6Addr};

/// A client by its address: IPv4 whole, IPv6 by the /64 that one subscriber is given. All that have none, as behind a Unix
/// socket, are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Peer(Option<IpAddr>);

impl Peer {
    /// Who asks from that address.
    pub fn of(ip: Option<IpAddr>) -> Self {
        Self(ip.map(|ip| match ip.to_canonical() {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        }))
    }

    /// Whether it has no address.
    pub fn is_unknown(self) -> bool {
        self.0.is_none()
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
    }
}
