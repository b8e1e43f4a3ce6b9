//! Which request gets a permit, waits or gives way: the policy, without clocks, locks or waking.
//!
//! 1. A request comes: it gets a permit at once, or joins the queue.
//! 2. The queue is full: the newest request of the address that has most in it gives way, unless the new request has that address.
//! 3. A permit comes free: it goes to the address that holds fewest; among equals, to the request that came first.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::peer::Peer;

/// How many permits the server or one route has, and how many are taken. Written under the queue's lock, read without it.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    most: AtomicUsize,
    taken: AtomicUsize,
    waiting: AtomicUsize,
}

/// The permits of a server, and the requests that wait for one.
#[derive(Debug)]
pub(super) struct PermitQueue<T> {
    pub(super) server: Arc<ConcurrencyLimit>,
    by: HashMap<Peer, Share<T>>,
    /// The number of the next request that waits.
    next: u64,
    /// Permits whose holders have been told to give way.
    ending: usize,
}

/// What one address has.
#[derive(Debug)]
struct Share<T> {
    held: usize,
    waiting: VecDeque<Queued<T>>,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Queued<T> {
    /// Its number: lower for earlier ones.
    at: u64,
    pub(super) peer: Peer,
    pub(super) route: Option<Arc<ConcurrencyLimit>>,
    pub(super) tell: T,
}

/// What has become of a request that came.
#[derive(Debug)]
pub(super) enum Arrival<T> {
    /// It has a permit.
    In,
    /// It waits under that number; another gave way for it.
    Waits(u64, Option<T>),
    /// The queue is full.
    Full,
}

impl ConcurrencyLimit {
    /// A limit of `most` permits, all free.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.into(),
            taken: 0.into(),
            waiting: 0.into(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.taken.load(Relaxed) >= self.most.load(Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Whether a request waits for one of these permits.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting() > 0 && self.is_full()
    }
}

impl<T> Share<T> {
    fn is_idle(&self) -> bool {
        self.held == 0 && self.waiting.is_empty()
    }
}

impl<T> Default for Share<T> {
    fn default() -> Self {
        Self {
            held: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl<T> PermitQueue<T> {
    pub(super) fn new(server: Arc<ConcurrencyLimit>) -> Self {
        Self {
            server,
            by: HashMap::new(),
            next: 0,
            ending: 0,
        }
    }

    pub(super) fn resize(&mut self, most: usize) {
        self.server.most.store(most, Relaxed);
    }

    /// A request comes; at most `queue` wait.
    pub(super) fn come(
        &mut self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
        queue: usize,
        tell: impl FnOnce() -> T,
    ) -> Arrival<T> {
        if self.take(peer, route) {
            return Arrival::In;
        }
        let mut gone = None;
        if self.server.waiting() >= queue {
            match self.greediest(peer) {
                Some(greedy) => gone = self.dismiss(greedy),
                None => return Arrival::Full,
            }
        }
        let at = self.next;
        self.next += 1;
        count(&self.server, route, 1);
        let share = self.by.entry(peer).or_default();
        share.waiting.push_back(Queued {
            at,
            peer,
            route: route.cloned(),
            tell: tell(),
        });
        Arrival::Waits(at, gone)
    }

    /// Takes a permit, if one is free.
    pub(super) fn take(&mut self, peer: Peer, route: Option<&Arc<ConcurrencyLimit>>) -> bool {
        let free = !self.server.is_full() && route.is_none_or(|route| !route.is_full());
        if free {
            self.hold(peer, route);
        }
        free
    }

    /// Whether [`PermitQueue::come`] would say that the queue is full.
    pub(super) fn refuses(&self, peer: Peer, queue: usize) -> bool {
        self.server.waiting() >= queue && self.greediest(peer).is_none()
    }

    /// A request waits no longer.
    pub(super) fn leave(&mut self, peer: Peer, at: u64) {
        let Some(share) = self.by.get_mut(&peer) else {
            return;
        };
        let found = share.waiting.binary_search_by_key(&at, |one| one.at);
        if let Ok(found) = found
            && let Some(one) = share.waiting.remove(found)
        {
            uncount(&self.server, one.route.as_ref());
            self.tidy(peer);
        }
    }

    /// A permit is free again; its holder was told to give way, if `ending`.
    pub(super) fn free(&mut self, peer: Peer, route: Option<&Arc<ConcurrencyLimit>>, ending: bool) {
        self.ending -= usize::from(ending);
        self.server.taken.fetch_sub(1, Relaxed);
        if let Some(route) = route {
            route.taken.fetch_sub(1, Relaxed);
        }
        // One look into the table: every program that ends comes by here.
        if let Entry::Occupied(mut share) = self.by.entry(peer) {
            share.get_mut().held -= 1;
            if share.get().is_idle() {
                share.remove();
            }
        }
    }

    /// Gives a free permit to the request that is to have it.
    pub(super) fn grant(&mut self) -> Option<Queued<T>> {
        if self.server.is_full() || self.server.waiting() == 0 {
            return None;
        }
        let first = |share: &Share<T>| share.waiting.iter().position(Queued::may_run);
        let found = self.by.iter().filter_map(|(peer, share)| {
            let first = first(share)?;
            Some((share.held, share.waiting[first].at, *peer, first))
        });
        let (_, _, peer, first) = found.min_by_key(|&(held, at, ..)| (held, at))?;
        let one = self.by.get_mut(&peer)?.waiting.remove(first)?;
        uncount(&self.server, one.route.as_ref());
        self.hold(peer, one.route.as_ref());
        Some(one)
    }

    /// Whether a request whose client is slow has to give up its permit: whether that would help a request whose address
    /// holds no more permits. One that is not slow for long has to only if its address holds more than half of all permits
    /// and a request of another address waits.
    pub(super) fn gives_way(
        &mut self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
        slow_for_long: bool,
    ) -> bool {
        let held = self.by.get(&peer).map_or(0, |share| share.held);
        let greedy = held * 2 > self.server.most.load(Relaxed);
        let helps = |one: &Queued<T>| {
            let own = |r: &Arc<ConcurrencyLimit>| route.is_some_and(|own| Arc::ptr_eq(own, r));
            let runs = one.route.as_ref().is_none_or(|r| own(r) || !r.is_full());
            runs && (slow_for_long || greedy && one.peer != peer)
        };
        let helped = |share: &Share<T>| share.held <= held && share.waiting.iter().any(helps);
        let ends = self.ending < self.server.waiting() && self.by.values().any(helped);
        self.ending += usize::from(ends);
        ends
    }

    fn hold(&mut self, peer: Peer, route: Option<&Arc<ConcurrencyLimit>>) {
        self.server.taken.fetch_add(1, Relaxed);
        if let Some(route) = route {
            route.taken.fetch_add(1, Relaxed);
        }
        self.by.entry(peer).or_default().held += 1;
    }

    /// The address that has most in the queue, where it has more than `peer` would have with one more.
    fn greediest(&self, peer: Peer) -> Option<Peer> {
        let own = self.by.get(&peer).map_or(0, |share| share.waiting.len());
        let (greedy, share) = self.by.iter().max_by_key(|(_, s)| s.waiting.len())?;
        (share.waiting.len() > own + 1).then_some(*greedy)
    }

    /// The newest request of `peer` waits no longer.
    fn dismiss(&mut self, peer: Peer) -> Option<T> {
        let one = self.by.get_mut(&peer)?.waiting.pop_back()?;
        uncount(&self.server, one.route.as_ref());
        self.tidy(peer);
        Some(one.tell)
    }

    /// Forgets an address that has nothing.
    fn tidy(&mut self, peer: Peer) {
        if self.by.get(&peer).is_some_and(Share::is_idle) {
            self.by.remove(&peer);
        }
    }
}

impl<T> Queued<T> {
    fn may_run(&self) -> bool {
        self.route.as_ref().is_none_or(|route| !route.is_full())
    }
}

fn count(server: &ConcurrencyLimit, route: Option<&Arc<ConcurrencyLimit>>, n: usize) {
    server.waiting.fetch_add(n, Relaxed);
    if let Some(route) = route {
        route.waiting.fetch_add(n, Relaxed);
    }
}

fn uncount(server: &ConcurrencyLimit, route: Option<&Arc<ConcurrencyLimit>>) {
    server.waiting.fetch_sub(1, Relaxed);
    if let Some(route) = route {
        route.waiting.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> Peer {
        Peer::of(Some([10, 0, 0, n].into()))
    }

    /// Plays a table: `a` asks as address 1 and `b` as 2, digits as 11 and on; what they were told stands behind:
    /// `+` has a permit, `.` waits, `-` is refused, `>n` waits and the one with number n gave way. An upper case letter gives a permit back.
    fn play(most: usize, queue: usize, table: &str) {
        let mut line = PermitQueue::new(Arc::new(ConcurrencyLimit::new(most)));
        let mut count = 0;
        for step in table.split_whitespace() {
            let mut letters = step.chars();
            let who = letters.next().unwrap();
            let said = letters.as_str();
            let from = peer(who.to_ascii_lowercase() as u8);
            if who.is_ascii_uppercase() {
                line.free(from, None, false);
                let next = line.grant();
                let told = next.map_or_else(String::new, |one| one.tell);
                assert_eq!(told, said, "{step} in {table}");
                continue;
            }
            count += 1;
            let came = line.come(from, None, queue, || format!("{who}{count}"));
            let told = match came {
                Arrival::In => "+".into(),
                Arrival::Waits(_, None) => ".".into(),
                Arrival::Waits(_, Some(gone)) => format!(">{gone}"),
                Arrival::Full => "-".into(),
            };
            assert_eq!(told, said, "{step} in {table}");
        }
    }

    #[test]
    fn a_table_of_comings_and_goings() {
        for (most, queue, table) in [
            // One address: first come, first served, and refused beyond the queue.
            (1, 2, "a+ a. a. a- Aa2 Aa3 A"),
            (2, 0, "a+ a+ a- b-"),
            // A permit goes to the address that holds fewest, though others came before.
            (3, 9, "a+ a+ a+ a. a. b. Ab6 Aa4 Aa5"),
            (4, 9, "a+ a+ a+ a+ a. a. b. b. b. Ab7 Ab8 Aa5 Bb9 Ba6"),
            (2, 9, "a+ a+ a. b. c. Ab4 Aa3 Bc5"),
            // The newest request of the address with most in the queue gives way, until shares are even.
            (1, 4, "a+ a. a. a. a. b>a5 b>a4 b- a- Aa2 Aa3 Ab6"),
            (1, 3, "a+ a. a. b. c>a3 d- a-"),
            (1, 1, "a+ a. b-"),
        ] {
            play(most, queue, table);
        }
    }

    #[test]
    fn who_waits_for_its_route_lets_others_pass() {
        let mut line = PermitQueue::new(Arc::new(ConcurrencyLimit::new(2)));
        let route = Arc::new(ConcurrencyLimit::new(1));
        let (a, b) = (peer(1), peer(2));
        assert!(matches!(line.come(a, Some(&route), 9, || 0), Arrival::In));
        assert!(matches!(
            line.come(b, Some(&route), 9, || 1),
            Arrival::Waits(..)
        ));
        assert!(matches!(line.come(a, None, 9, || 2), Arrival::In));
        assert!(matches!(line.come(a, None, 9, || 3), Arrival::Waits(..)));
        // A permit of another route does not help a request that waits for this one.
        line.free(a, None, false);
        assert_eq!(line.grant().map(|one| one.tell), Some(3));
        line.free(a, Some(&route), false);
        assert_eq!(line.grant().map(|one| one.tell), Some(1));
        assert!(line.grant().is_none());
    }

    #[test]
    fn who_leaves_is_forgotten() {
        let mut line = PermitQueue::new(Arc::new(ConcurrencyLimit::new(1)));
        assert!(matches!(line.come(peer(1), None, 9, || 0), Arrival::In));
        let Arrival::Waits(at, None) = line.come(peer(2), None, 9, || 1) else {
            panic!("it has a permit");
        };
        line.leave(peer(2), at);
        line.leave(peer(2), at);
        line.free(peer(1), None, false);
        assert!(line.grant().is_none());
        assert!(line.by.is_empty() && line.server.waiting() == 0);
    }

    #[test]
    fn the_slow_give_way_to_those_who_hold_no_more() {
        let (a, b, c) = (peer(1), peer(2), peer(3));
        let line = |holders: &[Peer], waits: &[Peer]| {
            let mut line = PermitQueue::new(Arc::new(ConcurrencyLimit::new(holders.len())));
            for peer in holders.iter().chain(waits) {
                let _ = line.come(*peer, None, 9, || ());
            }
            line
        };
        // No request waits: none is ended.
        assert!(!line(&[a, a], &[]).gives_way(a, None, true));
        // One that waits ends one that is slow, be it of the same address.
        let mut one = line(&[a, a, b, c], &[c]);
        assert!(one.gives_way(a, None, true) && !one.gives_way(a, None, true));
        assert!(line(&[a, a], &[a]).gives_way(a, None, true));
        // An address with few permits does not give way to one that has many.
        assert!(!line(&[a, a, b, c], &[a]).gives_way(b, None, true));
        // An address that has more than half gives way sooner, and not to itself.
        assert!(line(&[a, a, a, c], &[b]).gives_way(a, None, false));
        assert!(!line(&[a, a, b, c], &[b]).gives_way(a, None, false));
        assert!(!line(&[a, a, a, c], &[a]).gives_way(a, None, false));
        // Its permit does not help a request that waits for a route that is full.
        let route = Arc::new(ConcurrencyLimit::new(1));
        let mut full = PermitQueue::new(Arc::new(ConcurrencyLimit::new(2)));
        let _ = full.come(a, None, 9, || ());
        let _ = full.come(b, Some(&route), 9, || ());
        let _ = full.come(c, Some(&route), 9, || ());
        assert!(!full.gives_way(a, None, true));
        assert!(full.gives_way(b, Some(&route), true));
    }
}
