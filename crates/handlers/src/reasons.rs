//! Why requests were refused: words for the error log, so that an operator need not guess at a 400.
//!
//! A client could fill the log with such requests: it has the first of each second of each address, and of so many
//! addresses. The access log has them all.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv6Addr},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    fault::Fault,
    id::Id,
    link::Link,
    log::{ErrorLog, Level},
};

/// Addresses of which something is said in one second of one event loop.
const MOST: usize = 100;

/// Clients that one event loop has named in this second.
#[derive(Debug, Default)]
pub(crate) struct Reasons(RefCell<Second>);

#[derive(Debug, Default)]
struct Second {
    second: u64,
    told: Vec<Option<IpAddr>>,
}

impl Reasons {
    fn is_first(&self, second: u64, client: Option<IpAddr>) -> bool {
        let mut now = self.0.borrow_mut();
        if now.second != second {
            now.second = second;
            now.told.clear();
        }
        let client = client.map(network);
        let first = now.told.len() < MOST && !now.told.contains(&client);
        if first {
            now.told.push(client);
        }
        first
    }

    /// Says in `errors` why `fault` is the client's. `path` is empty where it is not known.
    pub(crate) fn note(&self, errors: &ErrorLog, link: &Link, id: Id, path: &[u8], fault: &Fault) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let second = now.unwrap_or_default().as_secs();
        if !self.is_first(second, link.remote_ip) {
            return;
        }
        let space = if path.is_empty() { "" } else { " " };
        let path = String::from_utf8_lossy(path);
        let about = format!("[{}]{space}{path}", &*id.text());
        let words = format!("{} for {}: {fault}", fault.status(), link.remote);
        errors.write(Level::Info, &about, &words);
    }
}

/// An IPv6 client has a /64 to itself, and would be a new one with each request.
fn network(client: IpAddr) -> IpAddr {
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
        let reasons = Reasons::default();
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
            assert_eq!(
                reasons.is_first(second, client),
                first,
                "{second} {client:?}"
            );
        }
        assert!(reasons.is_first(2, None) && !reasons.is_first(2, None));
    }

    #[test]
    fn many_addresses_do_not_fill_the_log() {
        let reasons = Reasons::default();
        let clients = (0..1000_u32).map(|n| Some(IpAddr::from(n.to_be_bytes())));
        let told = clients
            .filter(|&client| reasons.is_first(7, client))
            .count();
        assert_eq!(told, MOST);
    }
}
