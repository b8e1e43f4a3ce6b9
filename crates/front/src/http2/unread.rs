//! Bytes of answers that wait here until the client reads its connection.
//!
//! A few are free for each connection; more of them are charged to the address's share of `spool_memory`. Beyond [`MOST`] no
//! answer of the connection reads on in its file, or in what its program prints.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes};
use galgo_service::spool::Charge;

use super::limits::{FREE_UNREAD, MAX_UNREAD};

/// A piece is not cut shorter for want of room: small frames cost the client more than they hold.
const LEAST: usize = 16 << 10;

/// What waits to be read, of all answers of a connection.
#[derive(Debug)]
pub(super) struct Unread {
    bytes: Cell<usize>,
    /// The most that has waited.
    most: Cell<usize>,
    charge: Charge,
    waiting: RefCell<VecDeque<Waker>>,
}

/// Bytes of an answer. They count until they have been sent or dropped.
#[derive(Debug)]
pub(super) struct UnreadPiece {
    bytes: Bytes,
    of: Rc<Unread>,
}

impl Unread {
    /// Of a connection, which are charged to `charge`.
    pub(super) fn new(charge: Charge) -> Rc<Self> {
        Rc::new(Self {
            bytes: Cell::new(0),
            most: Cell::new(0),
            charge,
            waiting: RefCell::default(),
        })
    }

    /// The most that has waited.
    pub(super) fn most(&self) -> usize {
        self.most.get()
    }

    /// Whether nothing more is to be read for answers now.
    pub(super) fn is_full(&self) -> bool {
        self.room(LEAST) == 0
    }

    /// Waits for room for a piece of `want` bytes: how much of it there is room for.
    pub(super) fn poll_room(&self, want: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let room = self.room(want);
        if room > 0 {
            return Poll::Ready(room);
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
            waiting.push_back(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Counts bytes that were read for an answer.
    pub(super) fn hold(self: &Rc<Self>, bytes: Bytes) -> UnreadPiece {
        let all = self.bytes.get() + bytes.len();
        self.bytes.set(all);
        self.most.set(self.most.get().max(all));
        UnreadPiece {
            bytes,
            of: self.clone(),
        }
    }

    fn room(&self, want: usize) -> usize {
        let needed = self.bytes.get() + want.min(LEAST);
        let all = match needed <= FREE_UNREAD {
            true => FREE_UNREAD,
            false if self.charge.reach((MAX_UNREAD - FREE_UNREAD) as u64) => MAX_UNREAD,
            false => return 0,
        };
        match needed <= all {
            true => want.min(all - self.bytes.get()),
            false => 0,
        }
    }

    fn release(&self, bytes: usize) {
        let left = self.bytes.get() - bytes;
        self.bytes.set(left);
        if left == 0 {
            self.charge.shrink(0);
            self.waiting.take().into_iter().for_each(Waker::wake);
        } else if !self.waiting.borrow().is_empty()
            && !self.is_full()
            && let Some(next) = self.waiting.borrow_mut().pop_front()
        {
            next.wake();
        }
    }
}

impl UnreadPiece {
    /// The first bytes of it, which are counted as before.
    pub(super) fn split_to(&mut self, n: usize) -> Self {
        Self {
            bytes: self.bytes.split_to(n),
            of: self.of.clone(),
        }
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
        self.of.release(n);
    }
}

impl Drop for UnreadPiece {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.bytes);
        if !left.is_empty() {
            self.of.release(left.len());
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

    /// Connections of one address, which has so many bytes of `spool_memory`.
    fn connections(share: usize) -> [Rc<Unread>; 2] {
        let settings = SpoolSettings {
            memory: 2 * share as u64,
            ..SpoolSettings::default()
        };
        let spool = Arc::new(Spool::new(&settings, None));
        let share = spool.share_of(Peer::of(Some([192, 0, 2, 1].into())));
        [(); 2].map(|()| Unread::new(share.in_memory()))
    }

    /// Holds pieces until there is no room for more.
    fn fill(unread: &Rc<Unread>) -> Vec<UnreadPiece> {
        let mut cx = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match unread.poll_room(60_000, &mut cx) {
            Poll::Ready(n) => Some(unread.hold(vec![0; n].into())),
            Poll::Pending => None,
        })
        .collect()
    }

    #[test]
    fn as_many_as_a_connection_may_hold_and_its_address() {
        let [one, other] = connections(MAX_UNREAD - FREE_UNREAD);
        let pieces = fill(&one);
        assert!(one.is_full() && one.bytes.get() <= MAX_UNREAD);
        assert!(one.bytes.get() > MAX_UNREAD - LEAST);
        // The share of their address is used up: what is free is left.
        let more = fill(&other);
        assert!(other.is_full() && other.bytes.get() <= FREE_UNREAD);
        drop((pieces, more));
        assert_eq!((one.bytes.get(), other.bytes.get()), (0, 0));
        fill(&other);
        assert!(other.most() > FREE_UNREAD);
    }

    #[test]
    fn bytes_count_until_they_are_sent() {
        let [one, _] = connections(MAX_UNREAD);
        let mut piece = one.hold(vec![0; 100].into());
        piece.advance(10);
        let mut first = piece.split_to(40);
        assert_eq!(
            (first.remaining(), piece.remaining(), one.bytes.get()),
            (40, 50, 90)
        );
        first.advance(40);
        drop(first);
        assert_eq!(one.bytes.get(), 50);
        drop(piece);
        assert_eq!(one.bytes.get(), 0);
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
        pieces.pop();
        pieces.pop();
        assert_eq!(times()[..2], [1, usize::from(times()[1] > 0)]);
        pieces.clear();
        assert_eq!(times(), [1; 3]);
    }
}
