//! Clients that the log has named in this second. No client can fill the log: in each second the log names a limited
//! number of addresses, and each address only once.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv6Addr},
};

use super::time::current_second;

/// Limit of addresses that the log names in one second of one event loop.
const MOST: usize = 100;

/// Clients that one event loop has named in this second.
#[derive(Debug, Default)]
pub struct NamedClients(RefCell<Second>);

#[derive(Debug, Default)]
struct Second {
    second: u64,
    told: Vec<Option<IpAddr>>,
    /// Calls for clients that were named already, since they were last counted.
    more: u64,
}

impl NamedClients {
    /// Whether the log may name the client at that address; if so, it must not name that client again in this second.
    pub fn mark_as_named(&self, client: Option<IpAddr>) -> bool {
        self.mark_as_named_in(current_second(), client)
    }

    /// Whether this is the first call for a client that was named already, since [`NamedClients::take_repeat_count`].
    pub fn count_repeat(&self) -> bool {
        let mut now = self.0.borrow_mut();
        now.more += 1;
        now.more == 1
    }

    /// Returns the number of such calls since the last time.
    pub fn take_repeat_count(&self) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().more)
    }

    fn mark_as_named_in(&self, second: u64, client: Option<IpAddr>) -> bool {
        let mut now = self.0.borrow_mut();
        if now.second != second {
            now.second = second;
            now.told.clear();
        }
        let client = client.map(client_network);
        let first = now.told.len() < MOST && !now.told.contains(&client);
        if first {
            now.told.push(client);
        }
        first
    }
}

/// Returns the /64 of an IPv6 client: the client has it to itself, and could use a new address for each request.
fn client_network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !0 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_second_for_each_address() {
        let told = NamedClients::default();
        for (second, client, first) in [
            (1, "192.0.2.1", true),
            (1, "192.0.2.1", false),
            (1, "192.0.2.2", true),
            (1, "2001:db8::1", true),
            (1, "2001:db8::ffff:1", false),
            (1, "2001:db8:0:1::1", true),
            (2, "192.0.2.1", true),
            (2, "192.0.2.1", false),
        ] {
            let client = client.parse().ok();
            let is_first = told.mark_as_named_in(second, client);
            assert_eq!(is_first, first, "{second} {client:?}");
        }
        assert!(told.mark_as_named_in(2, None) && !told.mark_as_named_in(2, None));
    }

    #[test]
    fn many_addresses_do_not_fill_the_log() {
        let told = NamedClients::default();
        let clients = (0..1000_u32).map(|n| Some(IpAddr::from(n.to_be_bytes())));
        let said = clients.filter(|&client| told.mark_as_named_in(7, client));
        assert_eq!(said.count(), MOST);
    }
}
