//! The idle pool: the connections of an event loop that wait for a request, the longest idle first. `crowd` decides which
//! connection makes room for another; this module closes it.
//!
//! Every request makes its connection busy and idle again. So the change costs no allocation, no timer and no read of data that
//! other threads write. A connection has an entry for its whole life; the entry is linked into a list while the connection is
//! idle. All connections of a list may wait equally long, so the first of a list times out first, and one timer serves the
//! whole list.

use std::{
    cell::{RefCell, RefMut},
    sync::atomic::Ordering::Relaxed,
    task::{Poll, Waker},
    time::Duration,
};

use galgo_io::rate_allowance::saturating_nanos;
use tokio::time::{Instant, timeout_at};

use crate::crowd::{BUSY, Since};

/// The request that an idle connection waits for, which chooses its list. Each list begins and ends at an entry that no
/// connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitedRequest {
    /// The first request of the connection, which may be on its way.
    First,
    /// A later request.
    Next,
}

/// Entries that are the ends of lists.
const LISTS: usize = 2;
/// The shortest pause between two looks for connections that have been idle too long.
const LEAST: Duration = Duration::from_millis(10);

/// Returns the nanoseconds of a clock that is exact to a few milliseconds. It is cheap, because every request reads it.
fn coarse_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    saturating_nanos(Duration::try_from(now).unwrap_or_default())
}

/// The idle connections of one event loop.
#[derive(Debug, Default)]
pub(crate) struct IdlePool {
    entries: RefCell<Entries>,
}

/// The entry of a connection, for as long as the connection lives.
#[derive(Debug)]
pub(crate) struct IdleEntry<'a> {
    idle: &'a IdlePool,
    at: usize,
    /// Start of the connection's wait, for other event loops to read.
    since: Since,
}

/// A connection that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct IdleWait<'s, 'a>(&'s IdleEntry<'a>);

#[derive(Debug)]
struct Entries {
    all: Vec<Node>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Node {
    before: usize,
    after: usize,
    /// Nanoseconds; [`BUSY`] at the ends of a list, and while the connection does not wait.
    since: u64,
    /// Whether the connection must close.
    ended: bool,
    waker: Option<Waker>,
}

impl IdlePool {
    /// Returns an entry for a connection, which is busy at first.
    pub(crate) fn lease_entry(&self) -> IdleEntry<'_> {
        let mut entries = self.entries.borrow_mut();
        let at = entries.free.pop().unwrap_or(entries.all.len());
        if at == entries.all.len() {
            entries.all.push(Node::unlinked(at));
        }
        let since = Since::new(BUSY.into());
        IdleEntry {
            idle: self,
            at,
            since,
        }
    }

    /// Closes the connection at entry `at`, if it has waited since `since`. Returns false if the connection has become busy or
    /// has closed after another event loop looked at it.
    pub(crate) fn close_if_waiting(&self, at: usize, since: u64) -> bool {
        let entries = self.entries.borrow_mut();
        let waits = since != BUSY && entries.all.get(at).is_some_and(|one| one.since == since);
        if waits {
            close_entry(entries, at);
        }
        waits
    }

    /// Closes all connections that are idle in a list now.
    pub(crate) fn close_all(&self, list: AwaitedRequest) {
        while self.close_longest_idle(list, |_| true) {}
    }

    /// Closes each connection that has waited for `most`; never ends.
    pub(crate) async fn close_expired(&self, list: AwaitedRequest, most: Duration) {
        let most = saturating_nanos(most);
        loop {
            let first = self.first_since(list);
            // A connection that becomes idle later times out later.
            let end = first.min(coarse_nanos()).saturating_add(most);
            let left = Duration::from_nanos(end.saturating_sub(coarse_nanos()));
            tokio::time::sleep(left.max(LEAST)).await;
            let now = coarse_nanos();
            while self.close_longest_idle(list, |since| since.saturating_add(most) <= now) {}
        }
    }

    /// Ends the connection that is idle longest, if `ends` returns true for the start of its wait. Returns false if none ended.
    fn close_longest_idle(&self, list: AwaitedRequest, ends: impl Fn(u64) -> bool) -> bool {
        let entries = self.entries.borrow_mut();
        let at = entries.all[list as usize].after;
        if at == list as usize || !ends(entries.all[at].since) {
            return false;
        }
        close_entry(entries, at);
        true
    }

    /// Returns since when the first connection of the list is idle.
    fn first_since(&self, list: AwaitedRequest) -> u64 {
        let entries = self.entries.borrow();
        entries.all[entries.all[list as usize].after].since
    }
}

/// Tells a connection that it must close.
fn close_entry(mut entries: RefMut<'_, Entries>, at: usize) {
    entries.unlink(at);
    entries.all[at].ended = true;
    let waker = entries.all[at].waker.take();
    drop(entries);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<'a> IdleEntry<'a> {
    /// Returns the number of the entry, and the shared start of the connection's wait.
    pub(crate) fn entry_and_start(&self) -> (usize, Since) {
        (self.at, self.since.clone())
    }

    /// Makes the connection idle from now on.
    pub(crate) fn begin_idle(&self, list: AwaitedRequest) -> IdleWait<'_, 'a> {
        let mut entries = self.idle.entries.borrow_mut();
        self.restart_wait(&mut entries);
        entries.link_last(list as usize, self.at);
        IdleWait(self)
    }

    /// Notes that a piece of a head has come. The connection may still have to make room for others. But it does not time out
    /// here, because `head_timeout` applies.
    pub(crate) fn begin_partial_head(&self) -> IdleWait<'_, 'a> {
        self.restart_wait(&mut self.idle.entries.borrow_mut());
        IdleWait(self)
    }

    /// Waits for `said`. Returns `None` if that takes longer than until `by`, or if another connection needs the room, even if
    /// both come at the same time.
    pub(crate) async fn wait_in_time<T>(
        &self,
        said: impl Future<Output = T>,
        by: Instant,
    ) -> Option<T> {
        let waiting = self.begin_partial_head();
        let said = tokio::select! {
            biased;
            said = timeout_at(by, said) => said.ok()?,
            () = waiting.close_requested() => return None,
        };
        (!waiting.is_close_requested()).then_some(said)
    }

    fn restart_wait(&self, entries: &mut Entries) {
        let now = coarse_nanos();
        entries.all[self.at].ended = false;
        entries.all[self.at].since = now;
        self.since.store(now, Relaxed);
    }
}

impl Drop for IdleEntry<'_> {
    fn drop(&mut self) {
        let mut entries = self.idle.entries.borrow_mut();
        entries.all[self.at] = Node::unlinked(self.at);
        entries.free.push(self.at);
    }
}

impl IdleWait<'_, '_> {
    /// Returns whether this connection must close, even if data has come meanwhile: the connection is no longer counted.
    pub(crate) fn is_close_requested(&self) -> bool {
        self.0.idle.entries.borrow().all[self.0.at].ended
    }

    /// Resolves when this connection must close.
    pub(crate) async fn close_requested(&self) {
        std::future::poll_fn(|cx| {
            let mut entries = self.0.idle.entries.borrow_mut();
            let own = &mut entries.all[self.0.at];
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

impl Drop for IdleWait<'_, '_> {
    fn drop(&mut self) {
        let mut entries = self.0.idle.entries.borrow_mut();
        entries.unlink(self.0.at);
        entries.all[self.0.at].since = BUSY;
        self.0.since.store(BUSY, Relaxed);
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            all: (0..LISTS).map(Node::unlinked).collect(),
            free: Vec::new(),
        }
    }
}

impl Entries {
    fn link_last(&mut self, ends: usize, at: usize) {
        let last = self.all[ends].before;
        self.all[at].before = last;
        self.all[at].after = ends;
        self.all[last].after = at;
        self.all[ends].before = at;
    }

    /// Unlinks an entry. Does nothing if the entry is in no list.
    fn unlink(&mut self, at: usize) {
        let (before, after) = (self.all[at].before, self.all[at].after);
        self.all[before].after = after;
        self.all[after].before = before;
        self.all[at].before = at;
        self.all[at].after = at;
    }
}

impl Node {
    fn unlinked(at: usize) -> Self {
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

    fn is_ended(waiting: &IdleWait<'_, '_>) -> bool {
        waiting.is_close_requested()
    }

    #[test]
    fn the_longest_idle_goes_first() {
        let idle = IdlePool::default();
        let entries: Vec<_> = (0..4).map(|_| idle.lease_entry()).collect();
        let waiting: Vec<_> = entries
            .iter()
            .map(|entry| entry.begin_idle(AwaitedRequest::Next))
            .collect();
        let [a, b, c, d] = <[_; 4]>::try_from(waiting).unwrap();
        drop(b);
        drop(a);
        let a = entries[0].begin_idle(AwaitedRequest::Next);
        idle.close_longest_idle(AwaitedRequest::Next, |_| true);
        assert_eq!([&c, &d, &a].map(is_ended), [true, false, false]);
        // A connection that was ended and leaves does not end the wait of another.
        drop(c);
        idle.close_longest_idle(AwaitedRequest::Next, |_| true);
        assert_eq!([&d, &a].map(is_ended), [true, false]);
        assert_ne!(idle.first_since(AwaitedRequest::Next), BUSY);
        idle.close_all(AwaitedRequest::Next);
        assert!(is_ended(&a));
        assert_eq!(idle.first_since(AwaitedRequest::Next), BUSY);
    }

    #[tokio::test]
    async fn what_comes_as_the_room_is_needed_comes_too_late() {
        let idle = IdlePool::default();
        let entry = idle.lease_entry();
        let (at, since) = entry.entry_and_start();
        let by = Instant::now() + Duration::from_secs(3600);
        assert_eq!(entry.wait_in_time(async { 5 }, by).await, Some(5));
        let together = async { idle.close_if_waiting(at, since.load(Relaxed)) };
        assert_eq!(entry.wait_in_time(together, by).await, None);
        assert_eq!(entry.wait_in_time(async { 5 }, by).await, Some(5));
    }

    #[test]
    fn who_is_asked_to_make_room_may_have_become_busy() {
        let idle = IdlePool::default();
        let (one, other) = (idle.lease_entry(), idle.lease_entry());
        let (at, since) = one.entry_and_start();
        let [waiting, idles] = [
            one.begin_partial_head(),
            other.begin_idle(AwaitedRequest::Next),
        ];
        let seen = since.load(Relaxed);
        assert!(!idle.close_if_waiting(at, seen + 1) && !is_ended(&waiting));
        assert!(idle.close_if_waiting(at, seen) && is_ended(&waiting) && !is_ended(&idles));
        drop(waiting);
        assert_eq!(since.load(Relaxed), BUSY);
        let waiting = one.begin_idle(AwaitedRequest::Next);
        assert!(!idle.close_if_waiting(at, BUSY) && !is_ended(&waiting));
        // A connection whose head has begun to come is in no list, because `head_timeout` applies to it.
        let idle = IdlePool::default();
        let lease = idle.lease_entry();
        let waiting = lease.begin_partial_head();
        idle.close_all(AwaitedRequest::Next);
        assert!(!is_ended(&waiting));
    }

    #[test]
    fn one_that_waits_for_its_first_request_has_a_clock_of_its_own() {
        let idle = IdlePool::default();
        let (new, other) = (idle.lease_entry(), idle.lease_entry());
        let (new, other) = (
            new.begin_idle(AwaitedRequest::First),
            other.begin_idle(AwaitedRequest::Next),
        );
        idle.close_all(AwaitedRequest::Next);
        assert_eq!([&new, &other].map(is_ended), [false, true]);
        idle.close_all(AwaitedRequest::First);
        assert!(is_ended(&new));
    }

    #[test]
    fn an_entry_is_used_again_without_its_past() {
        let idle = IdlePool::default();
        let lease = idle.lease_entry();
        let waiting = lease.begin_idle(AwaitedRequest::Next);
        idle.close_all(AwaitedRequest::Next);
        drop(waiting);
        assert!(!is_ended(&lease.begin_idle(AwaitedRequest::Next)));
        drop(lease);
        let lease = idle.lease_entry();
        assert!(!is_ended(&lease.begin_idle(AwaitedRequest::Next)));
        assert_eq!(idle.entries.borrow().all.len(), LISTS + 1);
    }

    #[test]
    fn time_runs_out_in_the_order_of_becoming_idle() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let idle = IdlePool::default();
        let (first, second) = (idle.lease_entry(), idle.lease_entry());
        let (first, second) = (
            first.begin_idle(AwaitedRequest::Next),
            second.begin_idle(AwaitedRequest::Next),
        );
        runtime.block_on(async {
            tokio::select! {
                () = idle.close_expired(AwaitedRequest::Next, Duration::from_millis(1)) => unreachable!("it never ends"),
                () = async { second.close_requested().await; } => assert!(is_ended(&first)),
            }
        });
    }
}
