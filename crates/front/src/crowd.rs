//! Groups all connections by the address they come from. If a new connection needs room, chooses the connection to close.
//!
//! Only a connection that waits for a request, or that has sent only a piece of a head, is ever closed. The address with most
//! connections goes first. Of its connections, the longest waiting is closed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use galgo_service::{lock::lock, peer::Peer};

/// Start of a connection's wait, in nanoseconds of the monotonic clock; [`BUSY`] while the connection does not wait.
pub(crate) type Since = Arc<AtomicU64>;
/// A connection that does not wait.
pub(crate) const BUSY: u64 = u64::MAX;
/// Connections of one address that are looked at in one pass, to find a connection that waits. With this limit, making room
/// costs the same however many there are. The next pass begins after the connections that were busy.
const LOOKS: usize = 64;
/// Passes over one address before the next address is tried, if they find only busy connections.
const ROUNDS: usize = 4;

/// The connections of the whole server.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Mutex<AddressGroups>);

#[derive(Debug, Default)]
struct AddressGroups {
    groups: HashMap<Peer, Group>,
    /// Number of connections, except for those asked to close.
    stay: usize,
}

/// The connections of one address.
#[derive(Debug, Default)]
struct Group {
    /// Whether many clients ask from this address, because it belongs to a web server or proxy in front of us.
    exempt: bool,
    /// Connections that stay, in the order in which they came.
    all: BTreeMap<u64, CountedConnection>,
    /// Connections that were asked to close.
    leave: BTreeMap<u64, CountedConnection>,
    /// The number of the next connection.
    next: u64,
    /// The number at which the next pass begins.
    from: u64,
}

#[derive(Debug)]
struct CountedConnection {
    since: Since,
    at: Location,
}

/// The place of a connection among all event loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The index of the event loop that serves the connection.
    pub event_loop: usize,
    /// Entry of the connection in that event loop's idle pool.
    pub entry: usize,
}

/// A connection that is asked to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shed {
    /// The connection's event loop and entry.
    pub at: Location,
    /// Start of the connection's wait. If the connection has become busy since then, it stays.
    pub since: u64,
    peer: Peer,
    key: u64,
}

/// Answer to the question whether there is room for a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is room.
    Enough,
    /// There will be room once this connection has closed.
    Instead(Shed),
    /// There is no room.
    Nowhere,
}

/// The membership of a connection; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Member<'c> {
    crowd: &'c Crowd,
    peer: Peer,
    key: u64,
}

impl Crowd {
    /// Adds a connection of `peer`. The connection does not count if `peer` is `exempt`.
    pub(crate) fn add_connection(
        &self,
        peer: Peer,
        exempt: bool,
        since: Since,
        at: Location,
    ) -> Member<'_> {
        let key = self
            .lock()
            .insert_connection(peer, exempt, CountedConnection { since, at });
        Member {
            crowd: self,
            peer,
            key,
        }
    }

    /// Chooses the connection to close first, for any purpose.
    pub(crate) fn choose_to_close(&self) -> Option<Shed> {
        self.lock().choose_connection(0, None)
    }

    /// Notes that a connection that was asked to close has become busy, and stays.
    pub(crate) fn keep_connection(&self, shed: &Shed) {
        let mut state = self.lock();
        let group = state.groups.get_mut(&shed.peer);
        if let Some(group) = group
            && let Some(one) = group.leave.remove(&shed.key)
        {
            group.all.insert(shed.key, one);
            state.stay += 1;
        }
    }

    /// Returns the number of connections that have joined, except for those asked to close.
    pub(crate) fn staying_count(&self) -> usize {
        self.lock().stay
    }

    fn lock(&self) -> MutexGuard<'_, AddressGroups> {
        lock(&self.0)
    }
}

impl Member<'_> {
    /// Returns whether there is room for this connection among at most `all` connections, and `each` of one address.
    pub(crate) fn find_room(&self, all: usize, each: usize) -> Room {
        let mut state = self.crowd.lock();
        let group = state.groups.get(&self.peer);
        let own = group.map_or(0, Group::weight);
        let shed = if own > each {
            state.choose_of_peer(self.peer)
        } else if state.stay > all {
            state.choose_connection(own, Some(self.peer))
        } else {
            return Room::Enough;
        };
        shed.map_or(Room::Nowhere, Room::Instead)
    }

    /// Returns this connection's share of `requests` at once of its address: each of its connections has the same share.
    pub(crate) fn request_share(&self, requests: usize) -> usize {
        let state = self.crowd.lock();
        let weight = state.groups.get(&self.peer).map_or(0, Group::weight);
        match weight {
            // An exempt connection carries requests of many clients.
            0 => usize::MAX,
            connections => requests / connections,
        }
    }

    /// Returns whether this connection was asked to close, so that another connection has room.
    pub(crate) fn is_asked_to_close(&self) -> bool {
        let state = self.crowd.lock();
        let group = state.groups.get(&self.peer);
        group.is_some_and(|group| group.leave.contains_key(&self.key))
    }

    /// Moves the connection to another peer, because that turns out to be its client.
    pub(crate) fn move_to_peer(&mut self, peer: Peer, exempt: bool) {
        let mut state = self.crowd.lock();
        if let Some(one) = state.remove_connection(self.peer, self.key) {
            self.key = state.insert_connection(peer, exempt, one);
            self.peer = peer;
        }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.crowd.lock().remove_connection(self.peer, self.key);
    }
}

impl AddressGroups {
    fn insert_connection(&mut self, peer: Peer, exempt: bool, one: CountedConnection) -> u64 {
        let group = self.groups.entry(peer).or_default();
        group.exempt = exempt;
        let key = group.next;
        group.next += 1;
        group.all.insert(key, one);
        self.stay += 1;
        key
    }

    fn remove_connection(&mut self, peer: Peer, key: u64) -> Option<CountedConnection> {
        let group = self.groups.get_mut(&peer)?;
        let stayed = group.all.remove(&key);
        self.stay -= usize::from(stayed.is_some());
        let one = stayed.or_else(|| group.leave.remove(&key));
        if group.all.is_empty() && group.leave.is_empty() {
            self.groups.remove(&peer);
        }
        one
    }

    /// Chooses a connection to close for an address that has `own` connections. The address with most connections gives one up,
    /// if it has at least as many. Among addresses with equally many the asking address goes last.
    fn choose_connection(&mut self, own: usize, comes: Option<Peer>) -> Option<Shed> {
        let groups = self.groups.iter();
        let large = groups.filter(|(_, group)| group.exempt || group.weight() >= own);
        let mut by: Vec<_> = large
            .map(|(peer, group)| (Reverse(group.weight().max(own)), group.exempt, *peer))
            .collect();
        by.sort_unstable_by_key(|&(weight, exempt, peer)| (weight, exempt, Some(peer) == comes));
        by.into_iter()
            .find_map(|(.., peer)| self.choose_of_peer(peer))
    }

    fn choose_of_peer(&mut self, peer: Peer) -> Option<Shed> {
        let group = self.groups.get_mut(&peer)?;
        let (since, key) = (0..ROUNDS).find_map(|_| group.find_longest_wait())?;
        let one = group.all.remove(&key)?;
        let at = one.at;
        group.leave.insert(key, one);
        self.stay -= 1;
        Some(Shed {
            at,
            since,
            peer,
            key,
        })
    }
}

impl Group {
    fn weight(&self) -> usize {
        if self.exempt { 0 } else { self.all.len() }
    }

    /// Returns the start of the longest wait among the connections of one pass, and that connection's number.
    fn find_longest_wait(&mut self) -> Option<(u64, u64)> {
        let (before, from) = (self.all.range(..self.from), self.all.range(self.from..));
        let mut last = 0;
        let looked = from.chain(before).take(LOOKS).map(|(key, one)| {
            last = *key;
            (one.since.load(Relaxed), *key)
        });
        let (since, key) = looked.min()?;
        if since == BUSY {
            self.from = last + 1;
            return None;
        }
        Some((since, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds connections of addresses. `all` has the address of each connection and the start of its wait. The entries are
    /// numbered.
    fn crowd<'c>(crowd: &'c Crowd, all: &[(u8, u64)]) -> Vec<Member<'c>> {
        let join = |(entry, (who, since)): (usize, &(u8, u64))| {
            let since = Arc::new(AtomicU64::new(*since));
            crowd.add_connection(
                peer(*who),
                *who == 0,
                since,
                Location {
                    event_loop: 0,
                    entry,
                },
            )
        };
        all.iter().enumerate().map(join).collect()
    }

    fn peer(n: u8) -> Peer {
        Peer::from_address(Some([10, 0, 0, n].into()))
    }

    #[test]
    fn who_has_most_makes_room() {
        for (all, wanted) in [
            // The last connection of each row has just come.
            (&[(1, 5), (1, 4), (2, 1), (2, BUSY)][..], &[1, 2, 0][..]),
            (&[(1, 5), (1, 4), (1, 6), (2, 1), (2, BUSY)], &[1, 0, 3, 2]),
            (&[(1, BUSY), (1, 4), (2, 1), (3, BUSY)], &[1, 2]),
            // An address that has more connections than all others takes nothing from them.
            (&[(1, BUSY), (2, 1), (1, BUSY)], &[]),
            (&[(1, 9), (2, 1), (1, BUSY)], &[0, 1]),
            // Connections of a front server go last.
            (&[(0, 1), (0, 2), (0, 3), (1, 4), (2, BUSY)], &[3, 0, 1, 2]),
            (&[(1, 4), (1, 3), (0, BUSY)], &[1, 0]),
        ] {
            let crowd_of = Crowd::default();
            let members = crowd(&crowd_of, all);
            let comes = members.last().unwrap();
            let entries = std::iter::from_fn(|| match comes.find_room(0, 100) {
                Room::Instead(shed) => Some(shed.at.entry),
                Room::Nowhere | Room::Enough => None,
            });
            assert_eq!(entries.collect::<Vec<_>>(), wanted, "{all:?}");
        }
    }

    #[test]
    fn an_address_makes_room_for_itself() {
        let all = Crowd::default();
        let mut members = crowd(&all, &[(1, 7), (2, 1), (1, 3), (1, BUSY)]);
        let comes = members.last().unwrap();
        assert_eq!(comes.find_room(4, 3), Room::Enough);
        assert_eq!([7, 2].map(|n| comes.request_share(n)), [2, 0]);
        let Room::Instead(first) = comes.find_room(4, 2) else {
            panic!("no room");
        };
        // A connection that leaves does not count any longer, unless it stays after all.
        assert_eq!((first.at.entry, comes.find_room(3, 2)), (2, Room::Enough));
        let makes_room = || {
            members
                .iter()
                .map(Member::is_asked_to_close)
                .collect::<Vec<_>>()
        };
        assert_eq!(makes_room(), [false, false, true, false]);
        all.keep_connection(&first);
        assert_eq!(makes_room(), [false; 4]);
        assert_eq!(comes.find_room(4, 2), Room::Instead(first));
        let Room::Instead(second) = comes.find_room(4, 1) else {
            panic!("no room");
        };
        assert_eq!((second.at.entry, comes.find_room(4, 0)), (0, Room::Nowhere));
        members.last_mut().unwrap().move_to_peer(peer(3), false);
        assert_eq!(members.last().unwrap().find_room(4, 1), Room::Enough);
        members.last_mut().unwrap().move_to_peer(peer(0), true);
        assert_eq!(members.last().unwrap().find_room(4, 0), Room::Enough);
        assert_eq!(members.last().unwrap().request_share(7), usize::MAX);
        drop(members);
        assert!(all.lock().groups.is_empty() && all.lock().stay == 0);
    }

    #[test]
    fn those_behind_many_that_are_busy_are_found() {
        let all = Crowd::default();
        let mut many = vec![(1, BUSY); 3 * LOOKS];
        many.extend([(1, 5), (2, BUSY)]);
        let members = crowd(&all, &many);
        let found = (0..4).find_map(|_| match members.last().unwrap().find_room(0, 9) {
            Room::Instead(shed) => Some(shed.since),
            Room::Nowhere | Room::Enough => None,
        });
        assert_eq!(found, Some(5));
    }
}
