//! Handshakes of TLS: the addresses of clients take turns.
//!
//! A handshake costs the event loop as much as many requests. So the event loop does one step of one handshake, and then all
//! its other work, before the next step. The next step is for another address, if one waits. An address that begins a thousand
//! handshakes at once delays only itself.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque, hash_map::Entry},
    future::poll_fn,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use galgo_service::peer::Peer;
use tokio::sync::Notify;

/// The handshakes of one event loop.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    turns: RefCell<Turns<Rc<Ticket>>>,
    /// Notified when a step was done.
    done: Notify,
}

/// A handshake that waits for its turn.
#[derive(Debug)]
struct Ticket {
    has_turn: Cell<bool>,
    waker: RefCell<Waker>,
}

/// The place of a handshake in the queue, while it is there.
#[derive(Debug)]
struct QueuedHandshake<'h> {
    handshakes: &'h Handshakes,
    ticket: Option<Rc<Ticket>>,
}

impl Handshakes {
    /// Runs a handshake with a client at `peer`, one step at each of its turns.
    pub(crate) async fn run_in_turn<T>(&self, peer: Peer, handshake: impl Future<Output = T>) -> T {
        let mut handshake = pin!(handshake);
        let mut place = QueuedHandshake {
            handshakes: self,
            ticket: None,
        };
        poll_fn(|cx| {
            ready!(place.poll_turn(peer, cx));
            let step = handshake.as_mut().poll(cx);
            self.done.notify_one();
            step
        })
        .await
    }

    /// Gives turns; never ends. This task runs apart from the tasks of connections. Whenever it runs, all connections that had
    /// something to do have had their turn.
    pub(crate) async fn give_turns(&self) {
        loop {
            self.done.notified().await;
            // If only the queue holds a ticket, the connection has ended.
            let waits = |ticket: &Rc<Ticket>| Rc::strong_count(ticket) > 1;
            let next = self.turns.borrow_mut().next_turn(waits);
            if let Some(ticket) = next {
                ticket.has_turn.set(true);
                ticket.waker.borrow().wake_by_ref();
            }
        }
    }
}

impl QueuedHandshake<'_> {
    fn poll_turn(&mut self, peer: Peer, cx: &Context<'_>) -> Poll<()> {
        let Some(ticket) = &self.ticket else {
            let mut turns = self.handshakes.turns.borrow_mut();
            if turns.take_turn() {
                return Poll::Ready(());
            }
            let ticket = Rc::new(Ticket {
                has_turn: Cell::new(false),
                waker: RefCell::new(cx.waker().clone()),
            });
            turns.enqueue_handshake(peer, ticket.clone());
            self.ticket = Some(ticket);
            return Poll::Pending;
        };
        if !ticket.has_turn.get() {
            ticket.waker.borrow_mut().clone_from(cx.waker());
            return Poll::Pending;
        }
        self.ticket = None;
        Poll::Ready(())
    }
}

impl Drop for QueuedHandshake<'_> {
    /// Passes the turn on if the connection ends while it has the turn.
    fn drop(&mut self) {
        let ticket = self.ticket.as_ref();
        if ticket.is_some_and(|ticket| ticket.has_turn.get()) {
            self.handshakes.done.notify_one();
        }
    }
}

/// The policy that decides which handshake has the next turn.
#[derive(Debug)]
struct Turns<T> {
    /// Whether a handshake has the turn.
    taken: bool,
    /// Addresses that wait, each once, the next address first.
    order: VecDeque<Peer>,
    by: HashMap<Peer, VecDeque<T>>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            taken: false,
            order: VecDeque::new(),
            by: HashMap::new(),
        }
    }
}

impl<T> Turns<T> {
    /// Takes the turn. Returns false if a handshake has it already.
    fn take_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.taken, true)
    }

    fn enqueue_handshake(&mut self, peer: Peer, one: T) {
        let line = self.by.entry(peer).or_default();
        if line.is_empty() {
            self.order.push_back(peer);
        }
        line.push_back(one);
    }

    /// Ends a turn, and chooses the next handshake among those still waiting.
    fn next_turn(&mut self, waits: impl Fn(&T) -> bool) -> Option<T> {
        while let Some(peer) = self.order.pop_front() {
            let Entry::Occupied(mut line) = self.by.entry(peer) else {
                continue;
            };
            let next = std::iter::from_fn(|| line.get_mut().pop_front()).find(&waits);
            if line.get().is_empty() {
                drop(line.remove())
            } else {
                self.order.push_back(peer)
            }
            if next.is_some() {
                return next;
            }
        }
        self.taken = false;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> Peer {
        Peer::from_address(Some([10, 0, 0, n].into()))
    }

    /// Each word is a handshake that waits: a letter for its address, and a letter for the handshake, which is a capital if the
    /// handshake has ended. The second column is the order of turns.
    #[test]
    fn a_table_of_turns() {
        for (waiting, turns) in [
            ("", ""),
            ("ax", "x"),
            ("av aw ax by bz", "vywzx"),
            ("aX by", "y"),
            ("aV aw bX cz ay", "wzy"),
            ("aX aY", ""),
        ] {
            let mut all = Turns::default();
            assert!(all.take_turn() && !all.take_turn());
            for one in waiting.split_whitespace() {
                all.enqueue_handshake(peer(one.as_bytes()[0]), char::from(one.as_bytes()[1]));
            }
            let next = || all.next_turn(char::is_ascii_lowercase);
            let given: String = std::iter::from_fn(next).collect();
            assert_eq!(given, turns, "{waiting}");
            assert!(all.by.is_empty() && all.order.is_empty() && all.take_turn());
        }
    }

    /// The steps of each handshake are ready at once. They run one at a time, and two addresses take turns.
    #[test]
    fn steps_are_done_in_turn_and_those_that_end_hold_up_nobody() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let (handshakes, log) = (Rc::new(Handshakes::default()), Rc::new(RefCell::default()));
        let begin = |who: u8, name: char| {
            let (handshakes, log) = (handshakes.clone(), log.clone());
            tokio::task::spawn_local(async move {
                let mut steps = 2;
                let shaken = poll_fn(|cx| {
                    RefCell::<String>::borrow_mut(&log).push(name);
                    steps -= 1;
                    cx.waker().wake_by_ref();
                    match steps {
                        0 => Poll::Ready(()),
                        _ => Poll::Pending,
                    }
                });
                handshakes.run_in_turn(peer(who), shaken).await;
            })
        };
        let tasks = tokio::task::LocalSet::new();
        let all = async {
            let first = [begin(1, 'a'), begin(1, 'b'), begin(1, 'c'), begin(2, 'x')];
            let gone = begin(1, 'd');
            tokio::task::yield_now().await;
            gone.abort();
            for one in first {
                one.await.unwrap();
            }
        };
        let both = async {
            tokio::select! {
                () = tasks.run_until(all) => {}
                () = handshakes.give_turns() => {}
            }
        };
        runtime.block_on(both);
        let log = log.borrow();
        assert_eq!(log.len(), 8, "{log}");
        // The other address has both its turns before the last turn of the first address.
        assert!(log.rfind('x') < log.rfind('c'), "{log}");
        assert!(log.find('x') < log.find('c'), "{log}");
    }
}
