//! Connections of a worker that wait for a request, the longest idle first.
//!
//! Becoming idle and busy again happens with every request, so it costs no allocation, no timer and
//! no look at what other threads write: a connection has a seat for its whole life, and is linked into
//! a list while it is idle. All are given the same time, so the first of the list is the first to
//! run out of it, and one timer serves them all.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

/// The seat at which the list begins and ends; nobody sits on it.
const ENDS: usize = 0;
/// The shortest pause between two looks at who has been idle too long.
const LEAST: Duration = Duration::from_millis(10);

/// Nanoseconds of a clock that is exact to a few milliseconds: it is asked for each request.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    nanos(Duration::try_from(now).unwrap_or_default())
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// The idle connections of one worker.
#[derive(Debug)]
pub struct Idle {
    /// Since when the first of the list is idle, for other workers to see; `u64::MAX`: none is.
    oldest: Arc<AtomicU64>,
    seats: RefCell<Seats>,
}

/// A connection's seat, for as long as it lives.
#[derive(Debug)]
pub struct Seat<'a> {
    idle: &'a Idle,
    at: usize,
}

/// A connection's place among the idle ones; left when dropped.
#[derive(Debug)]
pub struct Place<'s, 'a>(&'s Seat<'a>);

#[derive(Debug)]
struct Seats {
    all: Vec<Links>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Links {
    before: usize,
    after: usize,
    /// Nanoseconds; `u64::MAX` at the ends.
    since: u64,
    /// It must close.
    ended: bool,
    waker: Option<Waker>,
}

impl Idle {
    /// Nobody is idle; `oldest` tells other workers who is.
    pub fn new(oldest: Arc<AtomicU64>) -> Self {
        let seats = Seats {
            all: vec![Links::alone(ENDS)],
            free: Vec::new(),
        };
        Self {
            oldest,
            seats: RefCell::new(seats),
        }
    }

    /// A seat for a connection, which is busy at first.
    pub fn seat(&self) -> Seat<'_> {
        let mut seats = self.seats.borrow_mut();
        let at = seats.free.pop().unwrap_or(seats.all.len());
        if at == seats.all.len() {
            seats.all.push(Links::alone(at));
        }
        Seat { idle: self, at }
    }

    /// Closes the connection that has been idle longest, if it has been since `since` or longer: whoever
    /// asks has seen that time, and the one that had it may have gone meanwhile.
    pub fn shed_oldest(&self, since: u64) {
        self.end_first(|idle_since| idle_since <= since);
    }

    /// Closes all that are idle now.
    pub fn end_all(&self) {
        while self.end_first(|_| true) {}
    }

    /// Closes whoever has been idle for `most`, when that is over; never ends.
    pub async fn expire(&self, most: Duration) {
        let most = nanos(most);
        loop {
            let first = self.oldest.load(Ordering::Relaxed);
            // Who becomes idle later runs out of time later.
            let end = first.min(now()).saturating_add(most);
            let left = Duration::from_nanos(end.saturating_sub(now()));
            tokio::time::sleep(left.max(LEAST)).await;
            let now = now();
            while self.end_first(|since| since.saturating_add(most) <= now) {}
        }
    }

    /// Ends the one that is idle longest, if `ends` says so of its time. False: there is none such.
    fn end_first(&self, ends: impl Fn(u64) -> bool) -> bool {
        let mut seats = self.seats.borrow_mut();
        let at = seats.all[ENDS].after;
        if at == ENDS || !ends(seats.all[at].since) {
            return false;
        }
        seats.unlink(at);
        self.publish(&seats);
        seats.all[at].ended = true;
        let waker = seats.all[at].waker.take();
        drop(seats);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    fn publish(&self, seats: &Seats) {
        let first = seats.all[ENDS].after;
        self.oldest.store(seats.all[first].since, Ordering::Relaxed);
    }
}

impl<'a> Seat<'a> {
    /// Takes the last place.
    pub fn enter(&self) -> Place<'_, 'a> {
        let mut seats = self.idle.seats.borrow_mut();
        seats.all[self.at].ended = false;
        seats.all[self.at].since = now();
        seats.link_last(self.at);
        if seats.all[ENDS].after == self.at {
            self.idle.publish(&seats);
        }
        Place(self)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut seats = self.idle.seats.borrow_mut();
        seats.all[self.at] = Links::alone(self.at);
        seats.free.push(self.at);
    }
}

impl Place<'_, '_> {
    /// Resolves when this connection must close.
    pub async fn ended(&self) {
        std::future::poll_fn(|cx| {
            let mut seats = self.0.idle.seats.borrow_mut();
            let own = &mut seats.all[self.0.at];
            if own.ended {
                return Poll::Ready(());
            }
            match &mut own.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Place<'_, '_> {
    fn drop(&mut self) {
        let mut seats = self.0.idle.seats.borrow_mut();
        let first = seats.all[ENDS].after == self.0.at;
        seats.unlink(self.0.at);
        if first {
            self.0.idle.publish(&seats);
        }
    }
}

impl Seats {
    fn link_last(&mut self, at: usize) {
        let last = self.all[ENDS].before;
        self.all[at].before = last;
        self.all[at].after = ENDS;
        self.all[last].after = at;
        self.all[ENDS].before = at;
    }

    /// Does nothing for who is linked with nobody.
    fn unlink(&mut self, at: usize) {
        let (before, after) = (self.all[at].before, self.all[at].after);
        self.all[before].after = after;
        self.all[after].before = before;
        self.all[at].before = at;
        self.all[at].after = at;
    }
}

impl Links {
    fn alone(at: usize) -> Self {
        Self {
            before: at,
            after: at,
            since: u64::MAX,
            ended: false,
            waker: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ended(place: &Place<'_, '_>) -> bool {
        place.0.idle.seats.borrow().all[place.0.at].ended
    }

    #[test]
    fn the_longest_idle_goes_first() {
        let oldest = Arc::new(AtomicU64::new(0));
        let idle = Idle::new(oldest.clone());
        let seats: Vec<_> = (0..4).map(|_| idle.seat()).collect();
        let places: Vec<_> = seats.iter().map(Seat::enter).collect();
        let [a, b, c, d] = <[_; 4]>::try_from(places).unwrap();
        drop(b);
        drop(a);
        let a = seats[0].enter();
        idle.shed_oldest(u64::MAX - 1);
        assert_eq!([&c, &d, &a].map(is_ended), [true, false, false]);
        // Being ended and leaving do not take another's place.
        drop(c);
        idle.shed_oldest(u64::MAX - 1);
        assert_eq!([&d, &a].map(is_ended), [true, false]);
        assert_ne!(oldest.load(Ordering::Relaxed), u64::MAX);
        idle.end_all();
        assert!(is_ended(&a));
        assert_eq!(oldest.load(Ordering::Relaxed), u64::MAX);
    }

    #[test]
    fn a_seat_is_used_again_without_its_past() {
        let idle = Idle::new(Arc::default());
        let seat = idle.seat();
        let place = seat.enter();
        idle.end_all();
        drop(place);
        assert!(!is_ended(&seat.enter()));
        drop(seat);
        let seat = idle.seat();
        assert!(!is_ended(&seat.enter()));
        assert_eq!(idle.seats.borrow().all.len(), 2);
    }

    #[test]
    fn time_runs_out_in_the_order_of_becoming_idle() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let idle = Idle::new(Arc::new(AtomicU64::new(u64::MAX)));
        let (first, second) = (idle.seat(), idle.seat());
        let (first, second) = (first.enter(), second.enter());
        runtime.block_on(async {
            tokio::select! {
                () = idle.expire(Duration::from_millis(1)) => unreachable!("it never ends"),
                () = async { second.ended().await; } => assert!(is_ended(&first)),
            }
        });
    }
}
