//! Limits how many passwords are verified at once: one for each client address, and few in all.
//!
//! An address that tries passwords waits for itself. Other addresses wait only for the few verifications that are under way.
//! Addresses whose last password was wrong come after all others.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
    thread,
};

use galgo_service::{fault::Fault, lock::lock, peer::Peer};
use tokio::sync::{Mutex as Turns, OwnedMutexGuard, oneshot};

/// Limit of the requests of one address that wait for their turn; beyond: 503. A browser may send 100 at once over HTTP/2.
const MOST: usize = 128;
/// Limit of the addresses that are remembered for a wrong password. Beyond it, all are forgotten.
const FAILED: usize = 1 << 16;
const BUSY: Fault = Fault::Busy("too many passwords of this client wait to be verified");

/// Lets only a few requests verify a password at once.
#[derive(Debug)]
pub struct Gate {
    queue: Arc<Mutex<VerifyQueue>>,
    clients: Mutex<HashMap<Peer, Arc<Turns<()>>>>,
}

/// The requests that wait to verify a password.
#[derive(Debug)]
struct VerifyQueue {
    /// Number of verifications that may begin now.
    free: usize,
    /// Waiting requests by whether their address failed last time, and by arrival. The first is the next.
    waiting: BTreeMap<(bool, u64), oneshot::Sender<VerifyPermit>>,
    came: u64,
    failed: HashSet<Peer>,
}

/// A permit to verify one password. When it is dropped, the next request gets it.
#[derive(Debug)]
pub struct VerifyPermit(Option<Arc<Mutex<VerifyQueue>>>);

impl Drop for VerifyPermit {
    fn drop(&mut self) {
        while let Some(queue) = self.0.take() {
            let mut waits = lock(&queue);
            let Some((_, next)) = waits.waiting.pop_first() else {
                waits.free += 1;
                return;
            };
            drop(waits);
            // A request that has stopped waiting returns the permit.
            if let Err(mut unused) = next.send(Self(Some(queue))) {
                self.0 = unused.0.take();
            }
        }
    }
}

impl Default for Gate {
    /// Allows half as many verifications as there are processors, so that requests without passwords go on meanwhile.
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let queue = VerifyQueue {
            free: processors.div_ceil(2),
            waiting: BTreeMap::new(),
            came: 0,
            failed: HashSet::new(),
        };
        Self {
            queue: Arc::new(Mutex::new(queue)),
            clients: Mutex::default(),
        }
    }
}

/// The turn of a client's address.
#[derive(Debug)]
pub struct PasswordTurn<'g> {
    gate: &'g Gate,
    peer: Peer,
    held: Option<OwnedMutexGuard<()>>,
}

impl Gate {
    /// Waits until no other request of the same address has the turn.
    ///
    /// # Errors
    /// Too many requests wait.
    pub async fn await_turn(&self, peer: Peer) -> Result<PasswordTurn<'_>, Fault> {
        let turns = {
            let mut clients = lock(&self.clients);
            let turns = clients.entry(peer).or_default();
            if Arc::strong_count(turns) > MOST {
                return Err(BUSY);
            }
            turns.clone()
        };
        // Made first, because it cleans up even if the wait is given up.
        let mut turn = PasswordTurn {
            gate: self,
            peer,
            held: None,
        };
        turn.held = Some(turns.lock_owned().await);
        Ok(turn)
    }

    /// Waits for room to verify a password of `peer`. The permit belongs to the thread that verifies the password.
    pub async fn acquire_permit(&self, peer: Peer) -> Option<VerifyPermit> {
        let comes = {
            let mut queue = lock(&self.queue);
            if queue.free > 0 {
                queue.free -= 1;
                return Some(VerifyPermit(Some(self.queue.clone())));
            }
            let (tell, comes) = oneshot::channel();
            let at = (queue.failed.contains(&peer), queue.came);
            queue.came += 1;
            queue.waiting.insert(at, tell);
            comes
        };
        comes.await.ok()
    }

    /// Notes that a password of `peer` was wrong.
    pub fn record_failure(&self, peer: Peer) {
        let failed = &mut lock(&self.queue).failed;
        if failed.len() >= FAILED {
            failed.clear();
        }
        failed.insert(peer);
    }

    /// Notes that a password of `peer` was right.
    pub fn record_success(&self, peer: Peer) {
        lock(&self.queue).failed.remove(&peer);
    }
}

impl Drop for PasswordTurn<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut clients = lock(&self.gate.clients);
        let last = |turns: &Arc<Turns<()>>| Arc::strong_count(turns) == 1;
        if clients.get(&self.peer).is_some_and(last) {
            clients.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::password_gate::*;
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
    };

    #[test]
    fn an_address_waits_for_itself_alone() {
        let gate = Gate::default();
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|ip| Peer::from_address(ip.parse().ok()));
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = Box::pin(gate.await_turn(one));
        let std::task::Poll::Ready(Ok(turn)) = first.as_mut().poll(&mut cx) else {
            panic!("no other request is there");
        };
        let mut waits = Box::pin(gate.await_turn(one));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert!(pin!(gate.await_turn(two)).poll(&mut cx).is_ready());
        drop(turn);
        assert!(waits.as_mut().poll(&mut cx).is_ready());
        drop((first, waits));
        assert!(gate.clients.lock().unwrap().is_empty());
    }

    #[test]
    fn addresses_that_failed_come_last() {
        let gate = Gate::default();
        let mut cx = Context::from_waker(Waker::noop());
        let peers = [1, 2, 3].map(|n| Peer::from_address(Some([192, 0, 2, n].into())));
        gate.record_failure(peers[0]);
        gate.record_failure(peers[1]);
        gate.record_success(peers[1]);
        let mut held = Vec::new();
        while let std::task::Poll::Ready(permit) = pin!(gate.acquire_permit(peers[0])).poll(&mut cx)
        {
            held.push(permit);
        }
        let mut waiting = peers.map(|peer| Box::pin(gate.acquire_permit(peer)));
        let mut ready = || waiting.each_mut().map(|one| one.as_mut().poll(&mut cx));
        assert!(ready().iter().all(std::task::Poll::is_pending));
        held.pop();
        let [first, second, third] = ready();
        assert!(first.is_pending() && second.is_ready() && third.is_pending());
        // A request that gives up passes its permit on, just as a finished request does.
        drop(second);
        drop((first, third));
        drop(waiting);
        held.clear();
        let queue = gate.queue.lock().unwrap();
        assert!(queue.free > 0 && queue.waiting.is_empty());
    }

    #[test]
    fn not_too_many_wait() {
        let gate = Gate::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut all: Vec<_> = (0..MOST)
            .map(|_| Box::pin(gate.await_turn(Peer::default())))
            .collect();
        let polled: Vec<_> = all
            .iter_mut()
            .map(|turn| turn.as_mut().poll(&mut cx))
            .collect();
        assert!(polled.iter().skip(1).all(std::task::Poll::is_pending));
        let more = pin!(gate.await_turn(Peer::default())).poll(&mut cx);
        assert!(matches!(more, std::task::Poll::Ready(Err(Fault::Busy(_)))));
        drop((polled, all));
        assert!(gate.clients.lock().unwrap().is_empty());
    }
}
