//! Admits connections: decides which peers may name clients, and whether there is room.

use std::net::IpAddr;

use galgo_service::{
    fault::Fault,
    link::{Link, is_loopback},
    log::Level,
    peer::Peer,
};

use crate::{
    crowd::{Location, Member, Room},
    event_loop::EventLoop,
    front_settings::Speaks,
    idle::IdleEntry,
    shared_by_loops::Accepted,
    site::SiteService,
};

/// Counts a connection for its address.
pub(super) fn join_crowd<'l>(
    event_loop: &'l EventLoop<impl SiteService>,
    lease: &IdleEntry<'l>,
    accepted: &Accepted,
) -> Member<'l> {
    let ip = accepted.remote.map(|at| at.ip());
    let (peer, (entry, since)) = (Peer::from_address(ip), lease.entry_and_start());
    // Only a web server in front of us may speak these protocols.
    let gateway = matches!(accepted.speaks, Speaks::FastCgi | Speaks::Scgi);
    let at = Location {
        event_loop: event_loop.index,
        entry,
    };
    let exempt = gateway || speaks_for_many(event_loop, ip);
    event_loop
        .shared
        .crowd
        .add_connection(peer, exempt, since, at)
}

/// Returns whether the peer at that address speaks for many clients: a trusted proxy does, and a peer behind a Unix socket.
pub(super) fn speaks_for_many(
    event_loop: &EventLoop<impl SiteService>,
    ip: Option<IpAddr>,
) -> bool {
    ip.is_none() || event_loop.current_site().settings().trusted.covers(ip)
}

/// Returns whether there is room for one more connection of its address, and for one more of all. Makes room if it can, by
/// closing a connection that waits for a request.
pub(super) fn has_room(event_loop: &EventLoop<impl SiteService>, member: &Member<'_>) -> bool {
    let (all, each) = event_loop.current_site().settings().max_connections;
    let shared = &event_loop.shared;
    match member.find_room(all, each) {
        Room::Enough => true,
        Room::Instead(shed) => shared.request_close(shed),
        Room::Nowhere => false,
    }
}

/// Tells a client that every connection is busy, and closes.
pub(super) fn refuse(accepted: Accepted) {
    if !matches!(accepted.speaks, Speaks::Http | Speaks::Proxied) {
        return;
    }
    const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    // If the socket does not take these few bytes at once, they are lost.
    let _ = rustix::io::write(&accepted.fd, BUSY);
}

/// Returns whether the peer may name clients, as FastCGI, SCGI and a header of the PROXY protocol do. On a Unix socket its mode
/// decides which peers may connect.
pub(super) fn may_name_clients(
    event_loop: &EventLoop<impl SiteService>,
    speaks: Speaks,
    link: &Link,
) -> bool {
    let site = event_loop.current_site();
    let trusted = &site.settings().trusted;
    let listed = |ip| trusted.covers(Some(ip));
    let known = link.remote_ip.is_none_or(|ip| match speaks {
        Speaks::Http | Speaks::Https | Speaks::H2c => true,
        Speaks::Proxied if !trusted.blocks.is_empty() => listed(ip),
        Speaks::Proxied | Speaks::FastCgi | Speaks::Scgi => is_loopback(ip) || listed(ip),
    });
    if !known && event_loop.should_log_unannounced() {
        let words = match speaks {
            Speaks::Http | Speaks::Https | Speaks::H2c | Speaks::Proxied => {
                "the connection was closed: the PROXY protocol came from an address that is not in trusted_proxies (add it if it is your proxy)"
            }
            Speaks::FastCgi | Speaks::Scgi => {
                "the connection was closed: this address is not in trusted_proxies (add it if it is your front server)"
            }
        };
        let errors = &event_loop.shared.logs.error;
        errors.write(Level::Warn, &link.remote, words);
    }
    known
}

/// Logs that a connection came without the PROXY header that its listener requires. The access log does not show the
/// connection, and an operator needs the reason to set up a proxy.
pub(super) fn log_unannounced(
    event_loop: &EventLoop<impl SiteService>,
    link: &Link,
    fault: &Fault,
) {
    if matches!(fault, Fault::Client(..)) && event_loop.should_log_unannounced() {
        let words = format!(
            "the connection was closed: {fault} (a proxy+ listener needs that header first)"
        );
        let errors = &event_loop.shared.logs.error;
        errors.write(Level::Warn, &link.remote, &words);
    }
}

/// Logs why a handshake failed, if a reason is known: the access log has no request of that connection.
pub(super) fn log_failed_handshake(
    event_loop: &EventLoop<impl SiteService>,
    link: &Link,
    why: &Option<String>,
) {
    if let Some(why) = why
        && event_loop.told.mark_as_named(link.remote_ip)
    {
        let words = format!("the TLS handshake failed: {why}");
        let errors = &event_loop.shared.logs.error;
        errors.write(Level::Info, &link.remote, &words);
    }
}
