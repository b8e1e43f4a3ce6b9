//! Bytes of answers that wait here until the client reads its connection.
//!
//! A few bytes are free for each connection; more are charged to the address's share of `spool_memory`. Beyond [`MAX_UNREAD`]
//! no answer of the connection reads more of its file, or of its program's output.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes};
use galgo_service::{lock::lock, spool::Charge};
use http::{HeaderMap, HeaderValue};

use super::limits::{FREE_UNREAD, MAX_UNREAD, SMALL_HEAD};

/// A piece is not cut shorter than this for want of room: small frames cost the client more than they hold.
const LEAST: usize = 16 << 10;

/// Bytes that a field of a head takes in addition to its text.
const FIELD: usize = 128;

/// Counts the unread bytes of all answers of a connection. One thread uses it, but a [`HeaderValue`] may hold only types that
/// threads can share.
#[derive(Debug)]
pub(super) struct Unread {
    bytes: AtomicUsize,
    /// Bytes of answers whose heads are not complete.
    making: AtomicUsize,
    /// The answer with an incomplete head that goes on while the others wait; 0: no answer.
    first: AtomicUsize,
    /// The most bytes that have waited.
    most: AtomicUsize,
    charge: Charge,
    waiting: Mutex<VecDeque<Waker>>,
}

/// Bytes of an answer. They count until they have been sent or dropped.
#[derive(Debug)]
pub(super) struct UnreadPiece {
    bytes: Bytes,
    of: Arc<Unread>,
}

/// The largest value of a large head. The whole head counts until this value has been sent or dropped.
#[derive(Debug)]
struct CountedValue {
    value: HeaderValue,
    head: usize,
    of: Arc<Unread>,
}

impl Unread {
    /// Creates the counter of a connection, whose bytes are charged to `charge`.
    pub(super) fn new(charge: Charge) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            making: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            charge,
            waiting: Mutex::default(),
        })
    }

    /// Returns the most bytes that have waited.
    pub(super) fn peak_bytes(&self) -> usize {
        self.most.load(Relaxed)
    }

    /// Returns whether no more bytes may be read for answers now.
    pub(super) fn is_full(&self) -> bool {
        self.available_room(LEAST) == 0
    }

    /// Returns whether the answer `id` goes on although the connection is full. If only incomplete heads are waiting, the
    /// client can make no room. Then a single answer goes on, until its head is complete.
    pub(super) fn goes_first(&self, id: usize) -> bool {
        if !self.all_incomplete() {
            return false;
        }
        let first = self.first.load(Relaxed);
        if first == 0 {
            self.first.store(id, Relaxed);
        }
        first == 0 || first == id
    }

    /// Changes how many bytes count for the answer `id`, whose head is not complete.
    pub(super) fn recount_incomplete(&self, id: usize, before: usize, now: usize) {
        if now == 0 && self.first.load(Relaxed) == id {
            self.first.store(0, Relaxed);
        }
        self.making.fetch_add(now, Relaxed);
        self.making.fetch_sub(before, Relaxed);
        self.add_bytes(now);
        self.release_bytes(before);
    }

    fn all_incomplete(&self) -> bool {
        self.bytes.load(Relaxed) == self.making.load(Relaxed)
    }

    /// Waits for room for a piece of `want` bytes. Returns how many of them there is room for.
    pub(super) fn poll_room(&self, want: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let room = self.available_room(want);
        if room > 0 {
            return Poll::Ready(room);
        }
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
            waiting.push_back(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Counts bytes that were read for an answer.
    pub(super) fn hold_data(self: &Arc<Self>, bytes: Bytes) -> UnreadPiece {
        self.add_bytes(bytes.len());
        UnreadPiece {
            bytes,
            of: self.clone(),
        }
    }

    /// Counts a head, unless it is small, because flow control does not bound heads (RFC 9113, 5.2.1).
    pub(super) fn hold_head(self: &Arc<Self>, fields: &mut HeaderMap) {
        let text = fields
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len());
        let head = text.sum::<usize>() + fields.len() * FIELD;
        if head <= SMALL_HEAD {
            return;
        }
        let Some(largest) = fields.values_mut().max_by_key(|value| value.len()) else {
            return;
        };
        self.add_bytes(head);
        let counted = Bytes::from_owner(CountedValue {
            value: largest.clone(),
            head,
            of: self.clone(),
        });
        // On an error the counted value is dropped, and the head no longer counts.
        if let Ok(counted) = HeaderValue::from_maybe_shared(counted) {
            *largest = counted;
            // The table of HPACK keeps no sensitive value. In the table, the value would count for as long as the connection
            // lasts.
            largest.set_sensitive(true);
        }
    }

    fn add_bytes(&self, bytes: usize) {
        let all = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        self.most.fetch_max(all, Relaxed);
    }

    fn available_room(&self, want: usize) -> usize {
        let here = self.bytes.load(Relaxed);
        let needed = here + want.min(LEAST);
        let all = match needed <= FREE_UNREAD {
            true => FREE_UNREAD,
            false if self.charge.grow_to((MAX_UNREAD - FREE_UNREAD) as u64) => MAX_UNREAD,
            false => return 0,
        };
        if needed <= all {
            want.min(all - here)
        } else {
            0
        }
    }

    fn release_bytes(&self, bytes: usize) {
        let left = self.bytes.fetch_sub(bytes, Relaxed) - bytes;
        if left == 0 {
            self.charge.shrink_to(0);
        }
        if self.all_incomplete() {
            let waiting = std::mem::take(&mut *lock(&self.waiting));
            waiting.into_iter().for_each(Waker::wake);
            return;
        }
        let none_waits = lock(&self.waiting).is_empty();
        if !none_waits && !self.is_full() {
            let next = lock(&self.waiting).pop_front();
            next.into_iter().for_each(Waker::wake);
        }
    }
}

impl UnreadPiece {
    /// Splits off the first `n` bytes, which stay counted.
    pub(super) fn split_to(&mut self, n: usize) -> Self {
        Self {
            bytes: self.bytes.split_to(n),
            of: self.of.clone(),
        }
    }
}

impl AsRef<[u8]> for CountedValue {
    fn as_ref(&self) -> &[u8] {
        self.value.as_bytes()
    }
}

impl Drop for CountedValue {
    fn drop(&mut self) {
        self.of.release_bytes(self.head);
    }
}

impl Buf for UnreadPiece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [io::IoSlice<'a>]) -> usize {
        self.bytes.chunks_vectored(into)
    }

    fn advance(&mut self, n: usize) {
        self.bytes.advance(n);
        self.of.release_bytes(n);
    }
}

impl Drop for UnreadPiece {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.bytes);
        if !left.is_empty() {
            self.of.release_bytes(left.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use galgo_service::{
        peer::Peer,
        spool::{Spool, SpoolSettings},
    };

    use super::*;

    /// Makes two connections of one address, which has `share` bytes of `spool_memory`.
    fn connections(share: usize) -> [Arc<Unread>; 2] {
        let settings = SpoolSettings {
            memory: 2 * share as u64,
            ..SpoolSettings::default()
        };
        let spool = Arc::new(Spool::new(&settings, None));
        let share = spool.share_of(Peer::from_address(Some([192, 0, 2, 1].into())));
        [(); 2].map(|()| Unread::new(share.memory_charge()))
    }

    /// Holds pieces until there is no room for more.
    fn fill(unread: &Arc<Unread>) -> Vec<UnreadPiece> {
        let mut cx = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match unread.poll_room(28_000, &mut cx) {
            Poll::Ready(n) => Some(unread.hold_data(vec![0; n].into())),
            Poll::Pending => None,
        })
        .collect()
    }

    #[test]
    fn as_many_as_a_connection_may_hold_and_its_address() {
        let [one, other] = connections(MAX_UNREAD - FREE_UNREAD);
        let pieces = fill(&one);
        assert!(one.is_full() && one.bytes.load(Relaxed) <= MAX_UNREAD);
        assert!(one.bytes.load(Relaxed) > MAX_UNREAD - LEAST);
        // The share of their address is used up: only the free bytes are left.
        let more = fill(&other);
        assert!(other.is_full() && other.bytes.load(Relaxed) <= FREE_UNREAD);
        drop((pieces, more));
        assert_eq!((one.bytes.load(Relaxed), other.bytes.load(Relaxed)), (0, 0));
        fill(&other);
        assert!(other.peak_bytes() > FREE_UNREAD);
    }

    #[test]
    fn large_heads_count_until_they_are_sent() {
        let [one, _] = connections(MAX_UNREAD);
        let mut small = HeaderMap::new();
        small.insert("x-a", HeaderValue::from_static("a"));
        one.hold_head(&mut small);
        assert_eq!(one.bytes.load(Relaxed), 0);
        // Many small fields make a large head.
        for text in ["x".repeat(SMALL_HEAD).as_str(), "y"] {
            let mut large = HeaderMap::new();
            let value = HeaderValue::from_str(text).unwrap();
            for _ in 0..SMALL_HEAD / FIELD {
                large.append("x-a", value.clone());
            }
            one.hold_head(&mut large);
            assert!(one.bytes.load(Relaxed) > SMALL_HEAD && large.values().all(|v| v == text));
            assert_eq!(large.values().filter(|v| v.is_sensitive()).count(), 1);
            drop(large);
            assert_eq!(one.bytes.load(Relaxed), 0);
        }
    }

    #[test]
    fn bytes_count_until_they_are_sent() {
        let [one, _] = connections(MAX_UNREAD);
        let mut piece = one.hold_data(vec![0; 100].into());
        piece.advance(10);
        let mut first = piece.split_to(40);
        assert_eq!(
            (
                first.remaining(),
                piece.remaining(),
                one.bytes.load(Relaxed)
            ),
            (40, 50, 90)
        );
        first.advance(40);
        drop(first);
        assert_eq!(one.bytes.load(Relaxed), 50);
        drop(piece);
        assert_eq!(one.bytes.load(Relaxed), 0);
    }

    #[test]
    fn those_that_wait_are_woken() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        struct Woken(AtomicUsize);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let [one, _] = connections(MAX_UNREAD);
        let mut pieces = fill(&one);
        let woken = [(); 3].map(|()| Arc::new(Woken(AtomicUsize::new(0))));
        for one_of in &woken {
            let waker = Waker::from(one_of.clone());
            let cx = &mut Context::from_waker(&waker);
            assert!(one.poll_room(1, cx).is_pending() && one.poll_room(1, cx).is_pending());
        }
        let times = || woken.each_ref().map(|one| one.0.load(Ordering::Relaxed));
        // The waker of `fill` was woken as well.
        pieces.pop();
        pieces.pop();
        assert_eq!(times(), [1, 0, 0]);
        pieces.clear();
        assert_eq!(times(), [1; 3]);
    }
}
