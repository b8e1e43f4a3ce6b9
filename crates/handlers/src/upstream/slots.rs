//! The slots of an upstream's own workers: one socket each, so that it is known which worker answers what, and that a
//! worker can be replaced while its socket waits for it.

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
    /// What starts them, where they run as another user.
    pub(super) owners: Option<Arc<Owners>>,
    free: Mutex<VecDeque<usize>>,
    /// A worker that had answered has ended as it should not: the spare is started.
    pub(super) crashed: watch::Sender<bool>,
    /// Requests in a row, of all workers, that got no whole answer.
    lost: AtomicU32,
}

/// So many requests without an answer, and none between them that has one, are the doing of those requests: a worker
/// that has ended of one of them has not failed to start.
const UNLUCKY: u32 = 2;

#[derive(Debug)]
pub(super) struct WorkerSlot {
    socket: Mutex<SlotSocket>,
    /// Requests since it was started.
    pub(super) served: AtomicUsize,
    /// Why there is no worker; `None`: there is one, or there will be in a moment.
    pub(super) down: Mutex<Option<String>>,
    /// Tells its supervisor that it is worn, and lends the permit for as long as it is replaced.
    worn: mpsc::UnboundedSender<Permit>,
    /// The other end, until the supervisor takes it.
    pub(super) told: Mutex<Option<mpsc::UnboundedReceiver<Permit>>>,
    /// Its program has changed.
    pub(super) stale: AtomicBool,
    /// Its last request was answered: one that asks need not wait for a worker that is being started.
    trusted: AtomicBool,
    /// The worker has answered since it was started, or had a request that galgo broke off, or that others are not
    /// like: that it ends is no sign that it cannot start.
    pub(super) proven: watch::Sender<bool>,
}

/// Where the worker in a slot takes connections.
#[derive(Debug)]
struct SlotSocket {
    /// Its standard input; `None` once it was closed.
    listener: Option<Arc<OwnedFd>>,
    /// What is connected to.
    file: Arc<OwnedFd>,
}

impl SlotSocket {
    /// A worker takes every client for the server: no other process can connect.
    fn make(owners: Option<&Owners>) -> io::Result<Self> {
        let made = match owners {
            None => NamelessListener::make(),
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
    /// Something of an answer has come, or galgo has broken a request off.
    pub(super) fn prove(&self) {
        if !*self.proven.borrow() {
            self.proven.send_replace(true);
        }
    }

    /// Nothing is known of the worker that is started next.
    pub(super) fn renew(&self) {
        self.served.store(0, Ordering::Relaxed);
        self.stale.store(false, Ordering::Relaxed);
        self.proven.send_replace(false);
    }

    /// Whether its last request was answered.
    pub(super) fn trust(&self, answered: bool) {
        self.trusted.store(answered, Ordering::Relaxed);
    }

    fn is_up(&self) -> bool {
        lock(&self.down).is_none()
    }

    /// Closes the connections that wait for a worker, and the listener with them.
    ///
    /// What a worker has left behind may hold the listener, too, and take connections from it. Once it is shut down,
    /// which cannot be undone, accept(2) gives what waits there and then fails: it never blocks.
    pub(super) fn hang_up(&self) {
        let Some(listener) = lock(&self.socket).listener.take() else {
            return;
        };
        if shutdown(&*listener, Shutdown::Both).is_ok() {
            while accept(&*listener).is_ok() {}
        }
    }

    /// What connections to the worker are made to.
    pub(super) fn file(&self) -> Arc<OwnedFd> {
        lock(&self.socket).file.clone()
    }
}

impl WorkerSlots {
    /// `owners` start those that run as another user.
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
            // The last is the spare's.
            slots: (0..=config.count).map(slot).collect::<io::Result<_>>()?,
            free: Mutex::new((0..config.count).collect()),
            config: config.clone(),
            owners,
            crashed: watch::Sender::new(false),
            lost: AtomicU32::new(0),
        })
    }

    /// What the next worker in a slot takes connections from.
    pub(super) fn listener(&self, slot: usize) -> io::Result<Arc<OwnedFd>> {
        let socket = &self.slots[slot].socket;
        let known = lock(socket).listener.clone();
        if let Some(listener) = known {
            return Ok(listener);
        }
        // Without the lock, for which event loops wait: the spawner may hang.
        let fresh = SlotSocket::make(self.owners.as_deref())?;
        let listener = fresh.listener.clone();
        *lock(socket) = fresh;
        listener.ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// The slot that has no worker until one has crashed. There is one more than there are permits: while a crashed
    /// worker is being replaced a request finds another that is ready.
    pub(super) fn spare(&self) -> usize {
        self.config.count
    }

    /// Takes a free slot; a request that holds a permit finds one. The one that has rested longest: its worker may still
    /// have had something to do after its last answer. One whose last request was not answered comes last.
    pub(super) fn take(&self) -> Result<usize, Fault> {
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

    /// Whether no request has this slot.
    pub(super) fn is_free(&self, slot: usize) -> bool {
        lock(&self.free).contains(&slot)
    }

    /// Takes this slot, if it is free.
    pub(super) fn take_this(&self, slot: usize) -> bool {
        let mut free = lock(&self.free);
        let at = free.iter().position(|&s| s == slot);
        at.is_some_and(|at| free.remove(at).is_some())
    }

    /// The worker in a slot has answered a request, or not: then it may well have ended of it.
    pub(super) fn judge(&self, slot: usize, answered: bool) {
        let slot = &self.slots[slot];
        slot.trust(answered);
        if answered {
            // Written only where it changes: all event loops read it.
            if self.lost.load(Ordering::Relaxed) > 0 {
                self.lost.store(0, Ordering::Relaxed);
            }
        } else if slot.is_up() && self.lost.fetch_add(1, Ordering::Relaxed) < UNLUCKY {
            slot.prove();
        }
    }

    /// A request is over: the slot is free again, unless its worker is to be replaced first.
    pub(super) fn give_back(&self, slot: usize, permit: Permit) {
        let Some(s) = self.slots.get(slot) else {
            return;
        };
        let served = s.served.load(Ordering::Relaxed);
        let worn = self.config.max_requests.is_some_and(|most| served >= most);
        if worn || s.stale.load(Ordering::Relaxed) {
            match s.worn.send(permit) {
                Ok(()) => return,
                // The supervisor is gone: the server ends.
                Err(permit) => drop(permit),
            }
        }
        self.free(slot);
    }

    /// The slot may be taken; its permit must be given back after this.
    pub(super) fn free(&self, slot: usize) {
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
        let file = slots.slots[0].file();
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
