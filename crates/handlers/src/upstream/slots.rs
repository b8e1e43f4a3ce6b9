//! The slots of an upstream's own workers. Each slot has its own socket, which tells the workers apart. It also lets galgo
//! replace a worker while the socket waits for the next worker.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
};

use galgo_service::{admission::Permit, fault::Fault, lock::lock};
use galgo_spawn::{NamelessListener, owners::Owners};
use rustix::net::{Shutdown, accept, shutdown};
use tokio::sync::{mpsc, watch};

use crate::application_settings::Workers;

#[derive(Debug)]
pub(crate) struct WorkerSlots {
    pub(super) config: Workers,
    pub(super) slots: Vec<WorkerSlot>,
    /// Helpers that start the workers, if these run as another user.
    pub(super) owners: Option<Arc<Owners>>,
    free: Mutex<VecDeque<usize>>,
    /// Whether a worker that had answered has crashed: the spare is started then.
    pub(super) crashed: watch::Sender<bool>,
    /// Requests in a row, of all workers, without a complete answer.
    lost: AtomicU32,
}

/// Unanswered requests in a row, up to which galgo blames the requests: a worker that ended during such a request did start.
const UNLUCKY: u32 = 2;

#[derive(Debug)]
pub(super) struct WorkerSlot {
    socket: Mutex<SlotSocket>,
    /// Requests since the worker was started.
    pub(super) served: AtomicUsize,
    /// Reason why there is no worker; `None`: a worker runs, or will in a moment.
    pub(super) down: Mutex<Option<String>>,
    /// Tells the supervisor that the worker must be replaced, and lends it the permit for that time.
    worn: mpsc::UnboundedSender<Permit>,
    /// Receiver of `worn`, until the supervisor takes it.
    pub(super) told: Mutex<Option<mpsc::UnboundedReceiver<Permit>>>,
    /// Whether the worker's program has changed.
    pub(super) stale: AtomicBool,
    /// Whether the last request was answered: requests choose such slots first, rather than wait for a worker that is being
    /// started.
    trusted: AtomicBool,
    /// Whether the worker has proven that it can start. It has answered since its start, or galgo broke off its request, or the
    /// blame for its end is on an unusual request.
    pub(super) proven: watch::Sender<bool>,
}

/// Socket on which the worker in a slot takes connections.
#[derive(Debug)]
struct SlotSocket {
    /// Standard input of the worker; `None` once it was closed.
    listener: Option<Arc<OwnedFd>>,
    /// File that clients connect to.
    file: Arc<OwnedFd>,
}

impl SlotSocket {
    /// Makes a socket without a name, so that no other process can connect: a worker trusts every client to be the server.
    fn make(owners: Option<&Owners>) -> io::Result<Self> {
        let made = match owners {
            None => NamelessListener::create(),
            Some(owners) => owners.make_listener().map_err(io::Error::other),
        };
        let NamelessListener { listener, file } = made?;
        Ok(Self {
            listener: Some(Arc::new(listener)),
            file: Arc::new(file),
        })
    }
}

impl WorkerSlot {
    /// Records that a part of an answer has come, or that galgo has broken a request off.
    pub(super) fn mark_proven(&self) {
        if !*self.proven.borrow() {
            self.proven.send_replace(true);
        }
    }

    /// Resets the slot: nothing is known about its next worker.
    pub(super) fn forget_worker(&self) {
        self.served.store(0, Ordering::Relaxed);
        self.stale.store(false, Ordering::Relaxed);
        self.proven.send_replace(false);
    }

    /// Records whether the last request was answered.
    pub(super) fn set_trusted(&self, answered: bool) {
        self.trusted.store(answered, Ordering::Relaxed);
    }

    fn is_up(&self) -> bool {
        lock(&self.down).is_none()
    }

    /// Closes the connections that wait for a worker, and the listener with them.
    ///
    /// Leftover processes of a worker may hold the listener, too, and take connections from it. After its shutdown, which cannot
    /// be undone, accept(2) returns the waiting connections and then fails: it never blocks.
    pub(super) fn hang_up(&self) {
        let Some(listener) = lock(&self.socket).listener.take() else {
            return;
        };
        if shutdown(&*listener, Shutdown::Both).is_ok() {
            while accept(&*listener).is_ok() {}
        }
    }

    /// Returns the file for connections to the worker.
    pub(super) fn socket_file(&self) -> Arc<OwnedFd> {
        lock(&self.socket).file.clone()
    }
}

impl WorkerSlots {
    /// Makes the slots. `owners` start workers that run as another user.
    pub(super) fn new(config: &Workers, owners: Option<Arc<Owners>>) -> io::Result<Self> {
        let slot = |_| -> io::Result<WorkerSlot> {
            let (worn, told) = mpsc::unbounded_channel();
            Ok(WorkerSlot {
                socket: Mutex::new(SlotSocket::make(owners.as_deref())?),
                served: AtomicUsize::new(0),
                down: Mutex::new(None),
                worn,
                told: Mutex::new(Some(told)),
                stale: false.into(),
                trusted: true.into(),
                proven: watch::Sender::new(false),
            })
        };
        Ok(Self {
            // The last slot is the spare.
            slots: (0..=config.count).map(slot).collect::<io::Result<_>>()?,
            free: Mutex::new((0..config.count).collect()),
            config: config.clone(),
            owners,
            crashed: watch::Sender::new(false),
            lost: AtomicU32::new(0),
        })
    }

    /// Returns the listener for the next worker in a slot.
    pub(super) fn listener(&self, slot: usize) -> io::Result<Arc<OwnedFd>> {
        let socket = &self.slots[slot].socket;
        let known = lock(socket).listener.clone();
        if let Some(listener) = known {
            return Ok(listener);
        }
        // Do not hold the lock here, because event loops wait for it and the spawner may hang.
        let fresh = SlotSocket::make(self.owners.as_deref())?;
        let listener = fresh.listener.clone();
        *lock(socket) = fresh;
        listener.ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Returns the slot that has no worker until another worker has crashed. There is one more slot than there are permits: thus
    /// a request finds a ready worker while a crashed worker is being replaced.
    pub(super) fn spare_slot(&self) -> usize {
        self.config.count
    }

    /// Takes a free slot; a request with a permit finds one. The slot that has rested longest is first, because a worker may
    /// still have been busy after its last answer. Slots whose last request was not answered come last.
    pub(super) fn take_slot(&self) -> Result<usize, Fault> {
        let mut free = lock(&self.free);
        let up = |&slot: &usize| self.slots[slot].is_up();
        let good = |slot: &usize| up(slot) && self.slots[*slot].trusted.load(Ordering::Relaxed);
        let at = free.iter().position(good);
        if let Some(at) = at.or_else(|| free.iter().position(up))
            && let Some(slot) = free.remove(at)
        {
            self.slots[slot].served.fetch_add(1, Ordering::Relaxed);
            return Ok(slot);
        }
        let words = free
            .front()
            .and_then(|&slot| lock(&self.slots[slot].down).clone());
        Err(Fault::Script(
            words.unwrap_or_else(|| "no worker is running".into()),
        ))
    }

    /// Returns whether no request has this slot.
    pub(super) fn is_free(&self, slot: usize) -> bool {
        lock(&self.free).contains(&slot)
    }

    /// Takes this slot if it is free.
    pub(super) fn take_this_slot(&self, slot: usize) -> bool {
        let mut free = lock(&self.free);
        let at = free.iter().position(|&s| s == slot);
        at.is_some_and(|at| free.remove(at).is_some())
    }

    /// Records whether the worker in a slot has answered a request. If not, the worker may well have ended because of the
    /// request.
    pub(super) fn record_answered(&self, slot: usize, answered: bool) {
        let slot = &self.slots[slot];
        slot.set_trusted(answered);
        if answered {
            // Write only on a change, because all event loops read the counter.
            if self.lost.load(Ordering::Relaxed) > 0 {
                self.lost.store(0, Ordering::Relaxed);
            }
        } else if slot.is_up() && self.lost.fetch_add(1, Ordering::Relaxed) < UNLUCKY {
            slot.mark_proven();
        }
    }

    /// Ends a request: the slot becomes free, unless its worker must be replaced first.
    pub(super) fn give_back(&self, slot: usize, permit: Permit) {
        let Some(s) = self.slots.get(slot) else {
            return;
        };
        let served = s.served.load(Ordering::Relaxed);
        let worn = self.config.max_requests.is_some_and(|most| served >= most);
        if worn || s.stale.load(Ordering::Relaxed) {
            match s.worn.send(permit) {
                Ok(()) => return,
                // The supervisor has ended, because the server ends.
                Err(permit) => drop(permit),
            }
        }
        self.release_slot(slot);
    }

    /// Makes the slot free; the caller must give its permit back after this.
    pub(super) fn release_slot(&self, slot: usize) {
        lock(&self.free).push_back(slot);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::{fd::AsRawFd, unix::net::UnixStream},
        sync::{Barrier, mpsc},
        thread,
        time::Duration,
    };

    use super::*;

    fn slots() -> WorkerSlots {
        let config = Workers {
            run: "/bin/true".into(),
            args: Vec::new(),
            count: 1,
            max_requests: None,
        };
        WorkerSlots::new(&config, None).unwrap()
    }

    fn connect(slots: &WorkerSlots) -> io::Result<UnixStream> {
        let file = slots.slots[0].socket_file();
        UnixStream::connect(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    #[test]
    fn who_waits_for_a_worker_is_hung_up_on_and_the_next_one_is_heard() {
        use std::io::Read;
        let slots = slots();
        let slot = &slots.slots[0];
        let mut waiting = connect(&slots).unwrap();
        slot.hang_up();
        assert_eq!(waiting.read(&mut [0]).unwrap(), 0);
        assert!(connect(&slots).is_err());
        slot.hang_up();
        let listener = slots.listener(0).unwrap();
        let _next = connect(&slots).unwrap();
        accept(&*listener).unwrap();
    }

    /// A process that outlived its worker takes connections from the same listener, at the same moment.
    #[test]
    fn hanging_up_never_waits_for_a_connection() {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            for _ in 0..3000 {
                let slots = slots();
                let slot = &slots.slots[0];
                let listener = slots.listener(0).unwrap();
                let _waiting = connect(&slots).unwrap();
                let together = Barrier::new(2);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        together.wait();
                        let _ = accept(&*listener);
                    });
                    together.wait();
                    slot.hang_up();
                });
            }
            done.send(()).unwrap();
        });
        let patience = Duration::from_secs(300);
        ended.recv_timeout(patience).expect("hang_up waits");
    }
}
