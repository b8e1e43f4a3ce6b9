//! Room for a connection, among all and among those of its address.

use std::net::IpAddr;

use crate::{
    config::Speaks,
    crowd::{Member, Room, Seated},
    idle::Seat,
    listen::Accepted,
    peer::Peer,
    worker::Worker,
};

/// A connection is among those of its address.
pub(super) fn joins<'w>(worker: &'w Worker, seat: &Seat<'w>, accepted: &Accepted) -> Member<'w> {
    let ip = accepted.remote.map(|at| at.ip());
    let (peer, (seat, since)) = (Peer::of(ip), seat.mark());
    // Nobody else may speak these.
    let front = matches!(accepted.speaks, Speaks::FastCgi | Speaks::Scgi);
    let at = Seated {
        worker: worker.index,
        seat,
    };
    let exempt = front || is_front(worker, ip);
    worker.server.crowd.join(peer, exempt, since, at)
}

/// Whether many clients ask from that address: a trusted proxy's, or a Unix socket.
pub(super) fn is_front(worker: &Worker, ip: Option<IpAddr>) -> bool {
    ip.is_none() || worker.site().config.trusted.covers(ip)
}

/// Whether there is room for one more connection of its address, and for one more of all; makes some by closing one that
/// waits.
pub(super) fn has_room(worker: &Worker, member: &Member<'_>) -> bool {
    let (all, each) = worker.site().max_connections;
    let server = &worker.server;
    match member.room(all, each) {
        Room::Enough => true,
        Room::Instead(shed) => server.shed(shed),
        Room::Nowhere => false,
    }
}

/// Every connection is busy: says so and closes.
pub(super) fn refuse(accepted: Accepted) {
    if !matches!(accepted.speaks, Speaks::Http | Speaks::Proxied) {
        return;
    }
    const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    // A peer that does not take these few bytes loses them.
    let _ = rustix::io::write(&accepted.fd, BUSY);
}
