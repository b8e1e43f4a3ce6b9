//! How many passwords are verified at once: one of each client's address at a time, and few in all.
//!
//! An address that tries passwords waits for itself. Another one waits only for the few that are being verified.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    thread,
};

use tokio::sync::{Mutex as Turns, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::{fault::Fault, lock::lock, peer::Peer};

/// Requests of one address that wait for their turn; beyond: 503. A browser may send 100 at once over HTTP/2.
const MOST: usize = 128;
const BUSY: Fault = Fault::Busy("too many passwords of this client wait to be verified");

/// Lets few verify a password at once.
#[derive(Debug)]
pub struct Gate {
    at_once: Arc<Semaphore>,
    clients: Mutex<HashMap<Peer, Arc<Turns<()>>>>,
}

impl Default for Gate {
    /// As many as half of the processors: requests without passwords go on beside them.
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            at_once: Arc::new(Semaphore::new(processors.div_ceil(2))),
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
    /// Waits until no other request of the same address is here.
    ///
    /// # Errors
    /// Too many wait.
    pub async fn turn(&self, peer: Peer) -> Result<PasswordTurn<'_>, Fault> {
        let turns = {
            let mut clients = lock(&self.clients);
            let turns = clients.entry(peer).or_default();
            if Arc::strong_count(turns) > MOST {
                return Err(BUSY);
            }
            turns.clone()
        };
        // Made first: it cleans up even where the wait is given up.
        let mut turn = PasswordTurn {
            gate: self,
            peer,
            held: None,
        };
        turn.held = Some(turns.lock_owned().await);
        Ok(turn)
    }

    /// Waits for room to verify a password. The permit belongs to the thread that does.
    pub async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.at_once.clone().acquire_owned().await.ok()
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
    use super::*;
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
    };

    #[test]
    fn an_address_waits_for_itself_alone() {
        let gate = Gate::default();
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|ip| Peer::of(ip.parse().ok()));
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = Box::pin(gate.turn(one));
        let std::task::Poll::Ready(Ok(turn)) = first.as_mut().poll(&mut cx) else {
            panic!("no other request is there");
        };
        let mut waits = Box::pin(gate.turn(one));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert!(pin!(gate.turn(two)).poll(&mut cx).is_ready());
        drop(turn);
        assert!(waits.as_mut().poll(&mut cx).is_ready());
        drop((first, waits));
        assert!(gate.clients.lock().unwrap().is_empty());
    }

    #[test]
    fn not_too_many_wait() {
        let gate = Gate::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut all: Vec<_> = (0..MOST)
            .map(|_| Box::pin(gate.turn(Peer::default())))
            .collect();
        let polled: Vec<_> = all
            .iter_mut()
            .map(|turn| turn.as_mut().poll(&mut cx))
            .collect();
        assert!(polled.iter().skip(1).all(std::task::Poll::is_pending));
        let more = pin!(gate.turn(Peer::default())).poll(&mut cx);
        assert!(matches!(more, std::task::Poll::Ready(Err(Fault::Busy(_)))));
        drop((polled, all));
        assert!(gate.clients.lock().unwrap().is_empty());
    }
}
