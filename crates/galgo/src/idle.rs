//! Connections of a worker that wait for a request, the longest idle first. Whoever has to make room for another is
//! chosen in [`crate::crowd`], and told here.
//!
//! Becoming idle and busy again happens with every request, so it costs no allocation, no timer and
//! no look at what other threads write: a connection has a seat for its whole life, and is linked into
//! a list while it is idle. All are given the same time, so the first of the list is the first to
//! run out of it, and one timer serves them all.

use std::{
    cell::{RefCell, RefMut},
    sync::atomic::Ordering::Relaxed,
    task::{Poll, Waker},
    time::Duration,
};

use crate::crowd::{BUSY, Since};

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
#[derive(Debug, Default)]
pub struct Idle {
    seats: RefCell<Seats>,
}

/// A connection's seat, for as long as it lives.
#[derive(Debug)]
pub struct Seat<'a> {
    idle: &'a Idle,
    at: usize,
    /// Since when it waits, for other workers to see.
    since: Since,
}

/// A connection's place among those that wait; left when dropped.
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
    /// Nanoseconds; [`BUSY`] at the ends, and of who does not wait.
    since: u64,
    /// It must close.
    ended: bool,
    waker: Option<Waker>,
}

impl Idle {
    /// A seat for a connection, which is busy at first.
    pub fn seat(&self) -> Seat<'_> {
        let mut seats = self.seats.borrow_mut();
        let at = seats.free.pop().unwrap_or(seats.all.len());
        if at == seats.all.len() {
            seats.all.push(Links::alone(at));
        }
        let since = Since::new(BUSY.into());
        Seat {
            idle: self,
            at,
            since,
        }
    }

    /// Closes the connection with that seat, if it waits since then: whoever asks has seen that, and it may have gone
    /// meanwhile: false then.
    pub fn shed(&self, at: usize, since: u64) -> bool {
        let seats = self.seats.borrow_mut();
        let waits = since != BUSY && seats.all.get(at).is_some_and(|one| one.since == since);
        if waits {
            end(seats, at);
        }
        waits
    }

    /// Closes all that are idle now.
    pub fn end_all(&self) {
        while self.end_first(|_| true) {}
    }

    /// Closes whoever has been idle for `most`, when that is over; never ends.
    pub async fn expire(&self, most: Duration) {
        let most = nanos(most);
        loop {
            let first = self.first_since();
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
        let seats = self.seats.borrow_mut();
        let at = seats.all[ENDS].after;
        if at == ENDS || !ends(seats.all[at].since) {
            return false;
        }
        end(seats, at);
        true
    }

    /// Since when the first of the list is idle.
    fn first_since(&self) -> u64 {
        let seats = self.seats.borrow();
        seats.all[seats.all[ENDS].after].since
    }
}

/// Tells a connection that it must close.
fn end(mut seats: RefMut<'_, Seats>, at: usize) {
    seats.unlink(at);
    seats.all[at].ended = true;
    let waker = seats.all[at].waker.take();
    drop(seats);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<'a> Seat<'a> {
    /// Its number, and since when it waits.
    pub fn mark(&self) -> (usize, Since) {
        (self.at, self.since.clone())
    }

    /// Takes the last place among the idle ones.
    pub fn enter(&self) -> Place<'_, 'a> {
        let mut seats = self.idle.seats.borrow_mut();
        self.begin(&mut seats);
        seats.link_last(self.at);
        Place(self)
    }

    /// A piece of a head has come, for which there is another clock: the connection may have to make room for others,
    /// and is not idle.
    pub fn hears(&self) -> Place<'_, 'a> {
        self.begin(&mut self.idle.seats.borrow_mut());
        Place(self)
    }

    fn begin(&self, seats: &mut Seats) {
        let now = now();
        seats.all[self.at].ended = false;
        seats.all[self.at].since = now;
        self.since.store(now, Relaxed);
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
    /// Whether this connection must close, whatever has come meanwhile: it does not count any longer.
    pub fn is_ended(&self) -> bool {
        self.0.idle.seats.borrow().all[self.0.at].ended
    }

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
        seats.unlink(self.0.at);
        seats.all[self.0.at].since = BUSY;
        self.0.since.store(BUSY, Relaxed);
    }
}

impl Default for Seats {
    fn default() -> Self {
        Self {
            all: vec![Links::alone(ENDS)],
            free: Vec::new(),
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
            since: BUSY,
            ended: false,
            waker: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ended(place: &Place<'_, '_>) -> bool {
        place.is_ended()
    }

    #[test]
    fn the_longest_idle_goes_first() {
        let idle = Idle::default();
        let seats: Vec<_> = (0..4).map(|_| idle.seat()).collect();
        let places: Vec<_> = seats.iter().map(Seat::enter).collect();
        let [a, b, c, d] = <[_; 4]>::try_from(places).unwrap();
        drop(b);
        drop(a);
        let a = seats[0].enter();
        idle.end_first(|_| true);
        assert_eq!([&c, &d, &a].map(is_ended), [true, false, false]);
        // Being ended and leaving do not take another's place.
        drop(c);
        idle.end_first(|_| true);
        assert_eq!([&d, &a].map(is_ended), [true, false]);
        assert_ne!(idle.first_since(), BUSY);
        idle.end_all();
        assert!(is_ended(&a));
        assert_eq!(idle.first_since(), BUSY);
    }

    #[test]
    fn who_is_asked_to_make_room_may_have_become_busy() {
        let idle = Idle::default();
        let (one, other) = (idle.seat(), idle.seat());
        let (at, since) = one.mark();
        let [place, idles] = [one.hears(), other.enter()];
        let seen = since.load(Relaxed);
        assert!(!idle.shed(at, seen + 1) && !is_ended(&place));
        assert!(idle.shed(at, seen) && is_ended(&place) && !is_ended(&idles));
        drop(place);
        assert_eq!(since.load(Relaxed), BUSY);
        let place = one.enter();
        assert!(!idle.shed(at, BUSY) && !is_ended(&place));
        // Whose head has begun to come has another clock.
        let idle = Idle::default();
        let seat = idle.seat();
        let place = seat.hears();
        idle.end_all();
        assert!(!is_ended(&place));
    }

    #[test]
    fn a_seat_is_used_again_without_its_past() {
        let idle = Idle::default();
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
        let idle = Idle::default();
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
