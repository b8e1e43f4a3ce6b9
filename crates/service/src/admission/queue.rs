//! The policy, without clocks, locks or waking: which request gets a permit, which waits, and which gives way.
//!
//! 1. A request comes: it gets a permit at once, or joins the queue. If its address holds as many permits as one address may, the
//!    request joins the queue, too.
//! 2. The queue is full: the newest request of the address that has most in it gives way, unless the new request has that address.
//! 3. A permit becomes free: it goes to an address within its share of processor time; among those, to the address that holds
//!    fewest permits; among equals, to the address whose turn is longest ago.
//!
//! Each step costs the logarithm of the number of waiting addresses, for each route that has its own limit and waiting requests.

use std::{
    collections::{BTreeSet, HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{
    cpu::{CpuUse, Period},
    crowding::{Crowding, Meeting},
    limit::{AddressLimits, ConcurrencyLimit, applicable_limits, is_same_limit},
};
use crate::peer::Peer;

/// The permits of a server, and the requests that wait for one.
#[derive(Debug)]
pub(super) struct PermitQueue<T> {
    pub(super) server: Arc<ConcurrencyLimit>,
    bounds: AddressLimits,
    by: HashMap<Peer, Share<T>>,
    lanes: Vec<Lane>,
    /// Number of waiting requests of each address that has any.
    lengths: BTreeSet<(usize, Peer)>,
    /// Counts requests that wait, and turns.
    next: u64,
    /// Permits whose holders have been told to give way.
    ending: usize,
    meeting: Meeting,
    /// Processor time that the programs of all addresses have used.
    used: CpuUse,
    now: Period,
}

/// The addresses whose requests wait for permits of one route and of the server. Each has a waiting request.
#[derive(Debug)]
struct Lane {
    route: Option<Arc<ConcurrencyLimit>>,
    /// Sorted by the order of service.
    order: BTreeSet<(Rank, Peer)>,
}

/// The rank of an address: a lower rank is served sooner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The address holds as many permits as it may: it is not served at all.
    capped: bool,
    /// The address has used more processor time than its share.
    over: bool,
    held: usize,
    /// Number of the address's turn: when it last got or gave back a permit, or began to wait.
    turn: u64,
}

/// The permits and waiting requests of one address.
#[derive(Debug)]
struct Share<T> {
    held: usize,
    used: CpuUse,
    /// Number of waiting requests.
    waiting: usize,
    /// The waiting requests by lane; no element is empty.
    lines: Vec<AddressQueue<T>>,
    /// The rank under which lanes list the address, while requests wait.
    rank: Rank,
}

/// Requests of one address that wait in one lane, the oldest first.
#[derive(Debug)]
struct AddressQueue<T> {
    route: Option<Arc<ConcurrencyLimit>>,
    requests: VecDeque<Queued<T>>,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Queued<T> {
    /// Number of the request: earlier requests have lower numbers.
    at: u64,
    pub(super) peer: Peer,
    pub(super) route: Option<Arc<ConcurrencyLimit>>,
    pub(super) tell: T,
}

/// The result for a new request.
#[derive(Debug)]
pub(super) enum Arrival<T> {
    /// The request has a permit.
    In(Crowding),
    /// The request waits under that number; the second field is the request that gave way for it.
    Waits(u64, Option<T>),
    /// The queue is full.
    Full,
}

/// A permit that is given back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Freed {
    /// The holder was told to give way.
    pub(super) ending: bool,
    /// Microseconds of processor time that the holder's program used, and the period in which it ended.
    pub(super) used: Option<(u64, Period)>,
}

impl<T> Share<T> {
    fn is_idle(&self, now: Period) -> bool {
        self.held == 0 && self.waiting == 0 && self.used.is_negligible(now)
    }
}

impl<T> Default for Share<T> {
    fn default() -> Self {
        Self {
            held: 0,
            used: CpuUse::default(),
            waiting: 0,
            lines: Vec::new(),
            rank: Rank::default(),
        }
    }
}

impl<T> PermitQueue<T> {
    pub(super) fn new(server: Arc<ConcurrencyLimit>, bounds: AddressLimits) -> Self {
        Self {
            server,
            bounds,
            by: HashMap::new(),
            lanes: Vec::new(),
            lengths: BTreeSet::new(),
            next: 0,
            ending: 0,
            meeting: Meeting::default(),
            used: CpuUse::default(),
            now: 0,
        }
    }

    /// Changes the number of permits, and the limits of an address.
    pub(super) fn resize(&mut self, most: usize, bounds: AddressLimits) {
        self.server.most.store(most, Relaxed);
        self.bounds = bounds;
        let waiting: Vec<_> = self.lengths.iter().map(|&(_, peer)| peer).collect();
        for peer in waiting {
            self.update_rank(peer, None);
        }
    }

    /// Handles a new request; at most `queue` requests wait.
    pub(super) fn admit_or_queue(
        &mut self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
        queue: usize,
        tell: impl FnOnce() -> T,
    ) -> Arrival<T> {
        if let Some(crowds) = self.try_take(peer, route) {
            return Arrival::In(crowds);
        }
        let mut gone = None;
        if self.server.waiting_count() >= queue {
            match self.greediest_peer(peer) {
                Some(greedy) => gone = self.evict_newest(greedy),
                None => return Arrival::Full,
            }
        }
        let at = self.next_number();
        let queued = Queued {
            at,
            peer,
            route: route.cloned(),
            tell: tell(),
        };
        self.push_waiter(queued);
        Arrival::Waits(at, gone)
    }

    /// Takes a permit, if one is free; returns how much its address crowds others with it.
    pub(super) fn try_take(
        &mut self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
    ) -> Option<Crowding> {
        if self.server.is_full() || route.is_some_and(|route| route.is_full()) {
            return None;
        }
        let share = self.by.entry(peer).or_default();
        if is_capped(peer, share.held, self.bounds) {
            return None;
        }
        share.held += 1;
        for limit in applicable_limits(&self.server, route) {
            limit.taken.fetch_add(1, Relaxed);
        }
        if share.waiting > 0 {
            self.end_turn(peer);
        }
        self.meeting.record_permit(peer, self.now);
        Some(self.current_crowding(peer))
    }

    /// Returns how much an address crowds other addresses that got permits lately. It crowds them if it holds more permits than
    /// there are processors. Two permits are enough if it has used more processor time than its share.
    pub(super) fn current_crowding(&self, peer: Peer) -> Crowding {
        let alone = !self.meeting.is_mixed(self.now);
        if alone || self.bounds.cpu == 0 || peer == Peer::default() {
            return Crowding::None;
        }
        let Some(share) = self.by.get(&peer) else {
            return Crowding::None;
        };
        let over = || {
            share
                .used
                .exceeds_share(self.bounds.cpu, self.used, self.now)
        };
        if share.held <= self.bounds.processors && (share.held < 2 || !over()) {
            return Crowding::None;
        }
        if share.held * 2 > self.server.taken.load(Relaxed) {
            Crowding::Most
        } else {
            Crowding::Some
        }
    }

    /// Whether [`PermitQueue::admit_or_queue`] would say that the queue is full, whatever the route.
    pub(super) fn would_refuse(&self, peer: Peer, queue: usize) -> bool {
        let held = self.by.get(&peer).map_or(0, |share| share.held);
        let none = self.server.is_full() || is_capped(peer, held, self.bounds);
        none && self.server.waiting_count() >= queue && self.greediest_peer(peer).is_none()
    }

    /// Removes a request that waits no longer.
    pub(super) fn remove_request(
        &mut self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
        at: u64,
    ) {
        let left = self.take_waiter(peer, route, |requests| {
            let found = requests.binary_search_by_key(&at, |one| one.at);
            requests.remove(found.ok()?)
        });
        if left.is_some() {
            self.forget_if_idle(peer);
        }
    }

    /// Takes back a permit.
    pub(super) fn release_permit(
        &mut self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
        freed: Freed,
    ) {
        self.ending -= usize::from(freed.ending);
        for limit in applicable_limits(&self.server, route) {
            limit.taken.fetch_sub(1, Relaxed);
        }
        if let Some((used, now)) = freed.used {
            self.advance_period(now);
            self.used.add_micros(used, now);
        }
        // A single lookup, because every program that ends comes by here.
        let Entry::Occupied(mut entry) = self.by.entry(peer) else {
            return;
        };
        let share = entry.get_mut();
        share.held -= 1;
        if let Some((used, now)) = freed.used {
            share.used.add_micros(used, now);
        }
        if share.waiting > 0 {
            self.end_turn(peer);
        } else if share.is_idle(self.now) {
            entry.remove();
        }
    }

    /// Gives a free permit to the next request; returns how much its address crowds others with it.
    pub(super) fn grant_next(&mut self) -> Option<(Queued<T>, Crowding)> {
        if self.server.is_full() || self.server.waiting_count() == 0 {
            return None;
        }
        self.rerank_recovered();
        let open = self.lanes.iter().filter(|lane| !lane.is_full());
        let heads = open.filter_map(|lane| Some((lane.order.first()?, &lane.route)));
        let (&(rank, peer), route) = heads.min_by_key(|&(first, _)| first)?;
        if rank.capped {
            return None;
        }
        let route = route.clone();
        let one = self.take_waiter(peer, route.as_ref(), VecDeque::pop_front)?;
        for limit in applicable_limits(&self.server, route.as_ref()) {
            limit.taken.fetch_add(1, Relaxed);
        }
        self.by.entry(peer).or_default().held += 1;
        self.end_turn(peer);
        self.meeting.record_permit(peer, self.now);
        Some((one, self.current_crowding(peer)))
    }

    /// Whether a request with a slow client has to give up its permit. It has to if the permit would go to an address that holds
    /// at most as many permits. If the client has not been slow for long, its address must also hold more than half of all
    /// permits, and a request of another address must wait.
    pub(super) fn must_give_way(
        &mut self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
        slow_for_long: bool,
    ) -> bool {
        let held = self.by.get(&peer).map_or(0, |share| share.held);
        if !slow_for_long && held * 2 <= self.server.most.load(Relaxed) {
            return false;
        }
        let helps = |lane: &Lane| {
            let mut order = lane.order.iter();
            let next = order.find(|(_, one)| slow_for_long || *one != peer);
            let runs = is_same_limit(lane.route.as_ref(), route) || !lane.is_full();
            runs && next
                .is_some_and(|(rank, one)| rank.held <= held && (!rank.capped || *one == peer))
        };
        let ends = self.ending < self.server.waiting_count() && self.lanes.iter().any(helps);
        self.ending += usize::from(ends);
        ends
    }

    /// Adds a request to the queue.
    fn push_waiter(&mut self, one: Queued<T>) {
        let (peer, route) = (one.peer, one.route.clone());
        for limit in applicable_limits(&self.server, route.as_ref()) {
            limit.waiting.fetch_add(1, Relaxed);
        }
        let share = self.by.entry(peer).or_default();
        self.lengths.remove(&(share.waiting, peer));
        share.waiting += 1;
        self.lengths.insert((share.waiting, peer));
        let first = share.waiting == 1;
        let mut lines = share.lines.iter_mut();
        match lines.find(|line| is_same_limit(line.route.as_ref(), route.as_ref())) {
            Some(line) => return line.requests.push_back(one),
            None => share.lines.push(AddressQueue {
                route: route.clone(),
                requests: [one].into(),
            }),
        }
        let is_there = |lane: &Lane| is_same_limit(lane.route.as_ref(), route.as_ref());
        if !self.lanes.iter().any(is_there) {
            let order = BTreeSet::new();
            self.lanes.push(Lane { route, order });
        }
        let turn = first.then(|| self.next_number());
        self.update_rank(peer, turn);
    }

    /// Removes the request from the queue that `pick` takes out of its line.
    fn take_waiter(
        &mut self,
        peer: Peer,
        route: Option<&Arc<ConcurrencyLimit>>,
        pick: impl FnOnce(&mut VecDeque<Queued<T>>) -> Option<Queued<T>>,
    ) -> Option<Queued<T>> {
        let share = self.by.get_mut(&peer)?;
        let mut lines = share.lines.iter_mut();
        let line = lines.position(|line| is_same_limit(line.route.as_ref(), route))?;
        let one = pick(&mut share.lines[line].requests)?;
        self.lengths.remove(&(share.waiting, peer));
        share.waiting -= 1;
        if share.waiting > 0 {
            self.lengths.insert((share.waiting, peer));
        }
        if share.lines[line].requests.is_empty() {
            share.lines.swap_remove(line);
            let rank = share.rank;
            self.lanes.retain_mut(|lane| {
                if is_same_limit(lane.route.as_ref(), route) {
                    lane.order.remove(&(rank, peer));
                }
                !lane.order.is_empty()
            });
        }
        for limit in applicable_limits(&self.server, route) {
            limit.waiting.fetch_sub(1, Relaxed);
        }
        Some(one)
    }

    /// Ends the turn of an address that got or gave back a permit.
    fn end_turn(&mut self, peer: Peer) {
        let turn = self.next_number();
        self.update_rank(peer, Some(turn));
    }

    /// Computes the rank of an address anew; `turn`: the number of its new turn, if it gets one.
    fn update_rank(&mut self, peer: Peer, turn: Option<u64>) {
        let Some(share) = self.by.get_mut(&peer) else {
            return;
        };
        let before = share.rank;
        share.rank = Rank {
            capped: is_capped(peer, share.held, self.bounds),
            over: share
                .used
                .exceeds_share(self.bounds.cpu, self.used, self.now),
            held: share.held,
            turn: turn.unwrap_or(before.turn),
        };
        for line in &share.lines {
            let mut lanes = self.lanes.iter_mut();
            let is_its = |lane: &&mut Lane| is_same_limit(lane.route.as_ref(), line.route.as_ref());
            if let Some(lane) = lanes.find(is_its) {
                lane.order.remove(&(before, peer));
                lane.order.insert((share.rank, peer));
            }
        }
    }

    /// Finds waiting addresses that are within their share again because others have used more time.
    fn rerank_recovered(&mut self) {
        let over = Rank {
            over: true,
            ..Rank::default()
        };
        let first = |lane: &Lane| lane.order.range((over, Peer::default())..).next().copied();
        let over: Vec<_> = self.lanes.iter().filter_map(first).collect();
        for (rank, peer) in over {
            if rank.over && !rank.capped {
                self.update_rank(peer, None);
            }
        }
    }

    /// Advances the time, and forgets addresses whose use was long ago.
    fn advance_period(&mut self, now: Period) {
        if now > self.now {
            self.now = now;
            self.by.retain(|_, share| !share.is_idle(now));
        }
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Returns the address with most requests in the queue, if it has more than `peer` would have with one more.
    fn greediest_peer(&self, peer: Peer) -> Option<Peer> {
        let own = self.by.get(&peer).map_or(0, |share| share.waiting);
        let &(most, greedy) = self.lengths.last()?;
        (most > own + 1).then_some(greedy)
    }

    /// Removes the newest request of `peer`.
    fn evict_newest(&mut self, peer: Peer) -> Option<T> {
        let lines = self.by.get(&peer)?.lines.iter();
        let newest = lines.max_by_key(|line| line.requests.back().map(|one| one.at))?;
        let route = newest.route.clone();
        let one = self.take_waiter(peer, route.as_ref(), VecDeque::pop_back)?;
        self.forget_if_idle(peer);
        Some(one.tell)
    }

    /// Forgets an address without permits, requests and used time.
    fn forget_if_idle(&mut self, peer: Peer) {
        if let Entry::Occupied(share) = self.by.entry(peer)
            && share.get().is_idle(self.now)
        {
            share.remove();
        }
    }
}

impl Lane {
    fn is_full(&self) -> bool {
        self.route.as_ref().is_some_and(|route| route.is_full())
    }
}

/// Whether an address that holds this many permits may have no more. Clients without an address are many clients: a front server
/// asks for them.
fn is_capped(peer: Peer, held: usize, bounds: AddressLimits) -> bool {
    held >= bounds.each && peer != Peer::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: AddressLimits = AddressLimits {
        each: usize::MAX,
        cpu: 50,
        processors: 2,
    };

    fn queue<T>(most: usize, bounds: AddressLimits) -> PermitQueue<T> {
        PermitQueue::new(Arc::new(ConcurrencyLimit::new(most)), bounds)
    }

    fn peer(n: u8) -> Peer {
        Peer::from_address(Some([10, 0, 0, n].into()))
    }

    /// Plays a table. `a` asks as address 1 and `b` as 2, digits as 11 and on. The result follows: `+` has a permit, `.` waits,
    /// `-` is refused, `>n` waits and request n gave way. An upper case letter gives a permit back.
    fn play(most: usize, each: usize, waiting: usize, table: &str) {
        let mut line = queue(most, AddressLimits { each, ..ANY });
        let mut count = 0;
        for step in table.split_whitespace() {
            let mut letters = step.chars();
            let who = letters.next().unwrap();
            let said = letters.as_str();
            let from = peer(who.to_ascii_lowercase() as u8);
            if who.is_ascii_uppercase() {
                line.release_permit(from, None, Freed::default());
                let next = line.grant_next();
                let told = next.map_or_else(String::new, |(one, _)| one.tell);
                assert_eq!(told, said, "{step} in {table}");
                continue;
            }
            count += 1;
            let came = line.admit_or_queue(from, None, waiting, || format!("{who}{count}"));
            let told = match came {
                Arrival::In(_) => "+".into(),
                Arrival::Waits(_, None) => ".".into(),
                Arrival::Waits(_, Some(gone)) => format!(">{gone}"),
                Arrival::Full => "-".into(),
            };
            assert_eq!(told, said, "{step} in {table}");
        }
    }

    #[test]
    fn a_table_of_comings_and_goings() {
        let any = usize::MAX;
        for (most, each, queue, table) in [
            // A single address: first come, first served, and refused beyond the queue.
            (1, any, 2, "a+ a. a. a- Aa2 Aa3 A"),
            (2, any, 0, "a+ a+ a- b-"),
            // A permit goes to the address that holds fewest, though other requests came before.
            (3, any, 9, "a+ a+ a+ a. a. b. Ab6 Aa4 Aa5"),
            (4, any, 9, "a+ a+ a+ a+ a. a. b. b. b. Ab7 Ab8 Aa5 Bb9 Ba6"),
            // Among equals addresses are served in turn, however many requests each has in the queue.
            (1, any, 9, "a+ a. a. a. b. b. c. Ab5 Bc7 Ca2 Ab6 Ba3 Aa4"),
            (2, any, 9, "a+ a+ a. b. c. Ab4 Ac5 Ba3"),
            // A new address gets its turn after the addresses that wait already.
            (1, any, 9, "a+ b. c. a. Ab2 d. Bc3 Ca4 Ad5"),
            // The newest request of the address with most in the queue gives way, until shares are even.
            (1, any, 4, "a+ a. a. a. a. b>a5 b>a4 b- a- Ab6 Ba2 Ab7 Ba3"),
            (1, any, 3, "a+ a. a. b. c>a3 d- a-"),
            (1, any, 1, "a+ a. b-"),
            // Permits that one address may not have are free for others at once.
            (3, 2, 9, "a+ a+ a. b+ B Aa3 a. a. b+ B Aa5 b+ b. Ab9"),
            (3, 2, 1, "a+ a+ a. a- b+"),
        ] {
            play(most, each, queue, table);
        }
    }

    /// `peer` gives back a permit whose program has used this many milliseconds.
    fn used(line: &mut PermitQueue<u32>, from: Peer, ms: u64, now: Period) -> Option<u32> {
        let freed = Freed {
            ending: false,
            used: Some((ms * 1000, now)),
        };
        line.release_permit(from, None, freed);
        granted(line)
    }

    fn granted<T>(line: &mut PermitQueue<T>) -> Option<T> {
        line.grant_next().map(|(one, _)| one.tell)
    }

    #[test]
    fn who_has_used_more_than_its_share_is_served_behind_others() {
        let (a, b, c) = (peer(1), peer(2), peer(3));
        let mut line = queue(2, ANY);
        let come = |line: &mut PermitQueue<u32>, from, n| {
            let _ = line.admit_or_queue(from, None, 9, || n);
        };
        for (n, from) in (0..).zip([a, b, a, c, c, c]) {
            come(&mut line, from, n);
        }
        // Address c, which has used no time, is served before a, though it holds more permits.
        assert_eq!(used(&mut line, a, 900, 0), Some(3));
        assert_eq!(used(&mut line, b, 100, 0), Some(4));
        assert_eq!(used(&mut line, c, 100, 0), Some(5));
        come(&mut line, b, 6);
        assert_eq!(used(&mut line, c, 100, 0), Some(6));
        // By now the other addresses together have used more.
        come(&mut line, c, 7);
        assert_eq!(used(&mut line, b, 900, 0), Some(2));
        assert_eq!(used(&mut line, c, 0, 0), Some(7));
        // Address a is remembered, and then forgotten.
        assert_eq!(used(&mut line, a, 900, 1), None);
        assert_eq!(used(&mut line, c, 0, 1), None);
        assert_eq!((line.by.len(), line.server.waiting_count()), (3, 0));
        come(&mut line, b, 8);
        come(&mut line, b, 9);
        assert_eq!(used(&mut line, b, 1, 9), None);
        assert!(!line.by.contains_key(&a) && line.by.len() == 1);
    }

    #[test]
    fn who_has_many_at_once_crowds_those_that_ask_too() {
        let (a, b) = (peer(1), peer(2));
        let mut line: PermitQueue<()> = queue(9, ANY);
        // Alone, address a crowds no other address, whatever it has.
        let take = |line: &mut PermitQueue<()>, from| line.try_take(from, None).unwrap();
        assert_eq!([(); 3].map(|()| take(&mut line, a)), [Crowding::None; 3]);
        // Another address comes, which has few permits.
        assert_eq!(take(&mut line, b), Crowding::None);
        assert_eq!(
            [a, b].map(|of| line.current_crowding(of)),
            [Crowding::Most, Crowding::None]
        );
        assert_eq!(take(&mut line, a), Crowding::Most);
        // Two addresses crowd each other: neither leaves a processor to the other.
        for _ in 0..3 {
            let _ = take(&mut line, b);
        }
        assert_eq!(
            [a, b].map(|of| line.current_crowding(of)),
            [Crowding::Some; 2]
        );
        for _ in 0..3 {
            line.release_permit(b, None, Freed::default());
        }
        // A permit for each processor is not too many, unless the address has used more time than its share.
        for _ in 0..2 {
            line.release_permit(a, None, Freed::default());
        }
        assert_eq!(line.current_crowding(a), Crowding::None);
        let used = |used, now| Freed {
            ending: false,
            used: Some((used, now)),
        };
        line.release_permit(b, None, used(10_000, 0));
        line.release_permit(a, None, used(90_000, 0));
        assert_eq!(take(&mut line, a), Crowding::Most);
        // A single program crowds no other address.
        line.release_permit(a, None, Freed::default());
        assert_eq!(line.current_crowding(a), Crowding::None);
        // Later a is alone again.
        for (now, crowds) in [
            (1, Crowding::Most),
            (2, Crowding::Most),
            (3, Crowding::None),
        ] {
            assert_eq!(take(&mut line, a), crowds);
            line.release_permit(a, None, used(1, now));
        }
        // Clients without an address are many clients; and the configuration may say that no address is held up.
        assert_eq!(
            [(); 3].map(|()| take(&mut line, Peer::default())),
            [Crowding::None; 3]
        );
        line.resize(9, AddressLimits { cpu: 0, ..ANY });
        assert_eq!([(); 3].map(|()| take(&mut line, a)), [Crowding::None; 3]);
    }

    #[test]
    fn without_a_share_of_the_processor_only_permits_count() {
        let (a, b) = (peer(1), peer(2));
        let mut line = queue(1, AddressLimits { cpu: 0, ..ANY });
        for (n, from) in (0..).zip([a, b, a]) {
            let _ = line.admit_or_queue(from, None, 9, || n);
        }
        assert_eq!(used(&mut line, a, 900, 0), Some(1));
        let _ = line.admit_or_queue(b, None, 9, || 3);
        assert_eq!(used(&mut line, b, 0, 0), Some(2));
    }

    #[test]
    fn other_bounds_hold_for_those_who_wait() {
        let mut line = queue(2, AddressLimits { each: 1, ..ANY });
        for n in 0..3 {
            let _ = line.admit_or_queue(peer(1), None, 9, || n);
        }
        assert!(line.grant_next().is_none());
        line.resize(3, ANY);
        assert_eq!([granted(&mut line), granted(&mut line)], [Some(1), Some(2)]);
        assert!(line.grant_next().is_none() && line.lanes.is_empty() && line.lengths.is_empty());
    }

    #[test]
    fn who_waits_for_its_route_lets_others_pass() {
        let mut line = queue(2, ANY);
        let route = Arc::new(ConcurrencyLimit::new(1));
        let (a, b) = (peer(1), peer(2));
        assert!(matches!(
            line.admit_or_queue(a, Some(&route), 9, || 0),
            Arrival::In(_)
        ));
        assert!(matches!(
            line.admit_or_queue(b, Some(&route), 9, || 1),
            Arrival::Waits(..)
        ));
        assert!(matches!(
            line.admit_or_queue(a, None, 9, || 2),
            Arrival::In(_)
        ));
        assert!(matches!(
            line.admit_or_queue(a, None, 9, || 3),
            Arrival::Waits(..)
        ));
        // A permit of another route does not help a request that waits for this one.
        line.release_permit(a, None, Freed::default());
        assert_eq!(granted(&mut line), Some(3));
        line.release_permit(a, Some(&route), Freed::default());
        assert_eq!(granted(&mut line), Some(1));
        assert!(line.grant_next().is_none());
    }

    #[test]
    fn who_leaves_is_forgotten() {
        let mut line = queue(1, ANY);
        assert!(matches!(
            line.admit_or_queue(peer(1), None, 9, || 0),
            Arrival::In(_)
        ));
        let Arrival::Waits(at, None) = line.admit_or_queue(peer(2), None, 9, || 1) else {
            panic!("it has a permit");
        };
        line.remove_request(peer(2), None, at);
        line.remove_request(peer(2), None, at);
        line.release_permit(peer(1), None, Freed::default());
        assert!(line.grant_next().is_none());
        assert!(line.by.is_empty() && line.server.waiting_count() == 0);
        assert!(line.lanes.is_empty() && line.lengths.is_empty());
    }

    #[test]
    fn the_slow_give_way_to_those_who_hold_no_more() {
        let (a, b, c) = (peer(1), peer(2), peer(3));
        let line = |holders: &[Peer], waits: &[Peer]| {
            let mut line = queue(holders.len(), ANY);
            for peer in holders.iter().chain(waits) {
                let _ = line.admit_or_queue(*peer, None, 9, || ());
            }
            line
        };
        // No request waits, so no request is ended.
        assert!(!line(&[a, a], &[]).must_give_way(a, None, true));
        // A waiting request ends a slow one, even of the same address.
        let mut one = line(&[a, a, b, c], &[c]);
        assert!(one.must_give_way(a, None, true) && !one.must_give_way(a, None, true));
        assert!(line(&[a, a], &[a]).must_give_way(a, None, true));
        // An address with few permits does not give way to an address with many.
        assert!(!line(&[a, a, b, c], &[a]).must_give_way(b, None, true));
        // An address that has more than half gives way sooner, but not to itself.
        assert!(line(&[a, a, a, c], &[b]).must_give_way(a, None, false));
        assert!(!line(&[a, a, b, c], &[b]).must_give_way(a, None, false));
        assert!(!line(&[a, a, a, c], &[a]).must_give_way(a, None, false));
        // The permit of a does not help a request that waits for a full route.
        let route = Arc::new(ConcurrencyLimit::new(1));
        let mut full = queue(2, ANY);
        let _ = full.admit_or_queue(a, None, 9, || ());
        let _ = full.admit_or_queue(b, Some(&route), 9, || ());
        let _ = full.admit_or_queue(c, Some(&route), 9, || ());
        assert!(!full.must_give_way(a, None, true));
        assert!(full.must_give_way(b, Some(&route), true));
    }
}
