//! The server's end of the socket to the spawner. Any number of threads ask at once, and each waits for its own answer.
//!
//! An order has a number and a deadline. One waiting thread at a time reads the socket for all. An answer that comes
//! after its deadline is dropped, with its descriptors: a helper without a socket ends.

use crate::remote::{
    deadline::{Deadline, to_timespec},
    message::{Order, OrderAnswer, REPORT, Received, receive_all, send_message},
    shortage::{is_short, pause_for_shortage},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use std::{
    collections::HashMap,
    fmt,
    os::fd::{AsFd, OwnedFd},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// The reason why an order was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDone {
    /// The order is not permitted. The string is a sentence for the log.
    Denied(String),
    /// The order cannot be done now, because the spawner does not answer or something is short. The string is a sentence for
    /// the log.
    NotNow(String),
    /// The helper has ended before it served any request; the log says why.
    Ended,
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(why) | Self::NotNow(why) => f.write_str(why),
            Self::Ended => f.write_str("the helper has ended at its start"),
        }
    }
}

/// An answer of the spawner, with the descriptors that came with it.
type AnswerWithFiles = (OrderAnswer, Vec<OwnedFd>);

/// The socket, and the orders that wait for an answer.
#[derive(Debug)]
pub(crate) struct SpawnerLink {
    socket: OwnedFd,
    orders: Mutex<Orders>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    /// The number of the last order.
    last: u32,
    /// The orders with a waiting thread, and the answers that have come.
    waiting: HashMap<u32, Option<AnswerWithFiles>>,
    /// A waiting thread is reading the socket.
    is_read: bool,
}

impl SpawnerLink {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            orders: Mutex::default(),
            told: Condvar::new(),
        }
    }

    /// Gives an order to the spawner. Returns the descriptors of its answer. Blocks until the deadline at most.
    ///
    /// # Errors
    /// The order was not done.
    pub(crate) fn send_order(
        &self,
        order: Order<'_>,
        by: Deadline,
    ) -> Result<Vec<OwnedFd>, NotDone> {
        let mut orders = self.lock_orders();
        orders.last = orders.last.wrapping_add(1);
        let number = orders.last;
        orders.waiting.insert(number, None);
        drop(orders);
        let answered = self
            .write_order(number, order, by)
            .and_then(|()| self.wait_for_answer(number, by));
        self.lock_orders().waiting.remove(&number);
        let late = || {
            NotDone::NotNow(
                "the spawner, which makes the processes that start programs, does not answer: it is stopped or hangs".into(),
            )
        };
        let gone = |e: Errno| NotDone::NotNow(format!("the spawner has ended: {e}"));
        let (answer, fds) = answered.map_err(|e| match e {
            Errno::TIMEDOUT => late(),
            e => gone(e),
        })?;
        match answer {
            OrderAnswer::Done => Ok(fds),
            OrderAnswer::Denied(why) => Err(NotDone::Denied(why)),
            OrderAnswer::NotNow(why) => Err(NotDone::NotNow(why)),
            OrderAnswer::Ended => Err(NotDone::Ended),
        }
    }

    fn write_order(&self, number: u32, order: Order<'_>, by: Deadline) -> Result<(), Errno> {
        // The spawner gets an earlier deadline, so that it can report an errand as late before this deadline passes.
        let head = [&number.to_ne_bytes()[..], &by.with_margin().encode()].concat();
        let order = order.encode();
        let send = || {
            send_message(
                self.socket.as_fd(),
                &[&head, &order],
                &[],
                SendFlags::DONTWAIT,
            )
        };
        loop {
            match send() {
                Err(Errno::AGAIN) => self.wait_until_ready(PollFlags::OUT, by)?,
                Err(e) if is_short(e) => pause_for_shortage(),
                sent => return sent,
            }
            if by.has_passed() {
                return Err(Errno::TIMEDOUT);
            }
        }
    }

    fn wait_for_answer(&self, number: u32, by: Deadline) -> Result<AnswerWithFiles, Errno> {
        let mut orders = self.lock_orders();
        loop {
            if let Some(answer) = orders.waiting.get_mut(&number).and_then(Option::take) {
                return Ok(answer);
            }
            if by.has_passed() {
                return Err(Errno::TIMEDOUT);
            }
            if orders.is_read {
                let waited = self.told.wait_timeout(orders, by.time_left());
                orders = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            orders.is_read = true;
            drop(orders);
            let read = self
                .wait_until_ready(PollFlags::IN, by)
                .and_then(|()| self.read());
            orders = self.lock_orders();
            orders.is_read = false;
            self.told.notify_all();
            if let Some((number, answer)) = read?
                && let Some(waits) = orders.waiting.get_mut(&number)
            {
                *waits = Some(answer);
            }
        }
    }

    /// Waits until the socket is readable or writable, or the deadline has passed.
    fn wait_until_ready(&self, what: PollFlags, by: Deadline) -> Result<(), Errno> {
        match poll(
            &mut [PollFd::new(&self.socket, what)],
            Some(&to_timespec(by.time_left())),
        ) {
            Err(e) if is_short(e) => pause_for_shortage(),
            Err(Errno::INTR) | Ok(_) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Reads the next answer; `None` if there is no answer, or it cannot be understood.
    fn read(&self) -> Result<Option<(u32, AnswerWithFiles)>, Errno> {
        let mut buffer = [0; REPORT + 8];
        match receive_all(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(e) if is_short(e) => {
                pause_for_shortage();
                Ok(None)
            }
            Err(e) => Err(e),
            Ok(Received { bytes: 0, .. }) => Err(Errno::PIPE),
            Ok(Received { bytes, lacks, fds }) => {
                let told = buffer.get(..bytes).and_then(OrderAnswer::decode);
                Ok(told.map(|(number, answer)| match lacks {
                    // Descriptors came, but this process has no room for them.
                    true => (
                        number,
                        (
                            OrderAnswer::NotNow(
                                "no descriptors are left for another helper".into(),
                            ),
                            Vec::new(),
                        ),
                    ),
                    false => (number, (answer, fds)),
                }))
            }
        }
    }

    fn lock_orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::remote::message::socket_pair;
    use std::time::Duration;

    fn order(uid: u32) -> Order<'static> {
        Order::Helper {
            digest: 1,
            uid,
            host: "",
        }
    }

    /// Takes an order, as the spawner does. Returns its number and its user id.
    fn taken(theirs: &OwnedFd) -> (u32, u32) {
        let mut buffer = [0; Order::NUMBERED];
        let got = receive_all(theirs.as_fd(), &mut buffer, RecvFlags::empty()).unwrap();
        match Order::decode_numbered(&buffer[..got.bytes]) {
            Some((number, _, Some(Order::Helper { uid, .. }))) => (number, uid),
            other => panic!("{other:?}"),
        }
    }

    fn tell(theirs: &OwnedFd, number: u32, words: &str) {
        let answer = OrderAnswer::Denied(words.into()).encode(number);
        send_message(theirs.as_fd(), &[&answer], &[], SendFlags::empty()).unwrap();
    }

    #[test]
    fn each_order_waits_for_its_own_answer() {
        let (ours, theirs) = socket_pair().unwrap();
        let link = SpawnerLink::new(ours);
        let late = link.send_order(order(0), Deadline::within(Duration::from_millis(1)));
        assert!(matches!(late, Err(NotDone::NotNow(why)) if why.contains("does not answer")));
        let (of_late, _) = taken(&theirs);
        std::thread::scope(|threads| {
            let by = Deadline::within(Duration::from_secs(60));
            let asks = [1, 2, 3].map(|uid| {
                let link = &link;
                threads.spawn(move || (uid, link.send_order(order(uid), by)))
            });
            let mut orders = [(); 3].map(|()| taken(&theirs));
            // The answer to the late order comes first, and is dropped.
            tell(&theirs, of_late, "0");
            orders.reverse();
            for (number, uid) in orders {
                tell(&theirs, number, &uid.to_string());
            }
            for ask in asks {
                let (uid, answer) = ask.join().unwrap();
                assert_eq!(answer.unwrap_err(), NotDone::Denied(uid.to_string()));
            }
        });
        drop(theirs);
        let gone = link.send_order(order(4), Deadline::within(Duration::from_secs(60)));
        assert!(matches!(gone, Err(NotDone::NotNow(why)) if why.contains("has ended")));
    }
}
