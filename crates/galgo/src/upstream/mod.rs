//! Programs that stay and are asked over a socket: who they are, how many connections there may be, and
//! which of them are kept.
//!
//! | room | holds |
//! |---|---|
//! | `connect` | making a connection, within its clock |
//! | `sending` | the request on its way: variables, body, framing |
//! | `exchange` | one request and its response on one connection |
//! | `slots`, `workers` | processes that galgo starts itself, and who watches them |

mod connect;
pub mod exchange;
mod sending;
mod slots;
pub mod workers;

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::net::RecvFlags;
use tokio::sync::watch;

pub use connect::{Unreachable, probe};

use crate::{
    admission::{Admission, Permit},
    config::{self, To},
    fault::Fault,
    sock::Sock,
    worker::Phase,
};
use slots::Slots;

/// A connection that nobody has used for this long is closed, so that it does not hold a process of the
/// application for nothing.
const IDLE: Duration = Duration::from_secs(5);

/// Who answers the requests of one route, shared by all workers of the server.
#[derive(Debug)]
pub struct Upstream {
    to: Target,
    admission: Admission,
    connect_timeout: Duration,
    keep: usize,
    idle: Mutex<VecDeque<Idle>>,
    /// Requests on connections of their own that have no byte of a response yet.
    unheard: AtomicUsize,
    phase: OnceLock<watch::Receiver<Phase>>,
}

#[derive(Debug)]
enum Target {
    Address(config::Address),
    Slots(Arc<Slots>),
}

/// A connection that waits for its next request.
#[derive(Debug)]
struct Idle {
    fd: OwnedFd,
    since: Instant,
    slot: Option<usize>,
}

impl Upstream {
    /// As configured; `queue` says how requests wait. Nobody is asked yet.
    ///
    /// # Errors
    /// The sockets of its workers could not be made.
    pub fn new(config: &config::Upstream, queue: &config::Admission) -> io::Result<Self> {
        let to = match &config.to {
            To::Address(address) => Target::Address(address.clone()),
            To::Workers(workers) => Target::Slots(Arc::new(Slots::new(workers)?)),
        };
        Ok(Self {
            to,
            // Places of its own: an application that hangs takes none from anybody else.
            admission: Admission::new(&config::Admission {
                running: config.running,
                ..queue.clone()
            }),
            connect_timeout: config.connect_timeout,
            keep: config.keep,
            idle: Mutex::default(),
            unheard: AtomicUsize::new(0),
            phase: OnceLock::new(),
        })
    }

    /// Once the server takes no more requests, no connection is kept.
    pub(crate) fn follow(&self, phase: &watch::Receiver<Phase>) {
        let _ = self.phase.set(phase.clone());
    }

    fn serving(&self) -> bool {
        self.phase
            .get()
            .is_some_and(|phase| *phase.borrow() == Phase::Serving)
    }

    /// Closes what is kept of one slot: its worker is to end, and may wait for another request.
    pub(crate) fn forget(&self, slot: usize) {
        self.idle().retain(|i| i.slot != Some(slot));
    }

    /// Waits for a place, first come, first served.
    ///
    /// # Errors
    /// There is none within `queue_wait`, or none of its workers can be started.
    pub async fn lease(self: &Arc<Self>) -> Result<Lease, Fault> {
        let permit = self.admission.admit(None).await?;
        let slot = match &self.to {
            Target::Address(_) => None,
            Target::Slots(slots) => Some(slots.take()?),
        };
        Ok(Lease {
            upstream: self.clone(),
            slot,
            permit: Some(permit),
            unheard: false,
        })
    }

    /// The processes that galgo starts for it.
    pub(crate) fn slots(&self) -> Option<&Arc<Slots>> {
        match &self.to {
            Target::Address(_) => None,
            Target::Slots(slots) => Some(slots),
        }
    }

    /// Whether the application is asked to leave connections open.
    pub fn keeps(&self) -> bool {
        self.keep > 0
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what nobody has used for long. Returns when to look again; `None`: nothing is left.
    fn sweep(&self) -> Option<Instant> {
        let mut idle = self.idle();
        while idle.front().is_some_and(|i| i.since.elapsed() >= IDLE) {
            idle.pop_front();
        }
        idle.front().map(|i| i.since + IDLE)
    }
}

/// A place of one request at an upstream; given back when dropped.
#[derive(Debug)]
pub struct Lease {
    upstream: Arc<Upstream>,
    slot: Option<usize>,
    permit: Option<Permit>,
    unheard: bool,
}

impl Lease {
    /// A connection that was kept, where there is one that is still good.
    pub fn kept(&self) -> Option<OwnedFd> {
        let mut idle = self.upstream.idle();
        loop {
            // The one used last, so that those not needed grow old and are closed.
            let at = idle.iter().rposition(|i| i.slot == self.slot)?;
            let found = idle.remove(at)?;
            if found.since.elapsed() < IDLE && is_silent(&found.fd) {
                return Some(found.fd);
            }
        }
    }

    /// A new connection.
    pub async fn connect(&mut self) -> Result<Sock, Unreachable> {
        let up = &self.upstream;
        // Each connection that is kept may hold a process that this request needs.
        match self.slot {
            Some(slot) => up.forget(slot),
            None => drop(up.idle().pop_front()),
        }
        let fd = match &up.to {
            Target::Address(address) => connect::connect(address, up.connect_timeout).await?,
            Target::Slots(slots) => {
                let path = slots.address(self.slot.unwrap_or(0));
                connect::connect(&path, up.connect_timeout).await?
            }
        };
        if !std::mem::replace(&mut self.unheard, true) {
            up.unheard.fetch_add(1, Ordering::Relaxed);
        }
        Ok(fd)
    }

    /// Something of a response has come.
    pub fn heard(&mut self) {
        if std::mem::take(&mut self.unheard) {
            self.upstream.unheard.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The request is over and nothing was wrong: keeps the connection for another.
    pub fn give_back(mut self, conn: Sock) {
        self.heard();
        let up = self.upstream.clone();
        // Whoever waits for an answer on a new connection may wait for the process behind this one.
        let needed = self.slot.is_none() && up.unheard.load(Ordering::Relaxed) > 0;
        if needed || !up.keeps() || !up.serving() {
            return;
        }
        let mut idle = up.idle();
        if idle.len() < up.keep {
            let first = idle.is_empty();
            idle.push_back(Idle {
                fd: conn.into_fd(),
                since: Instant::now(),
                slot: self.slot,
            });
            drop(idle);
            if first {
                tokio::task::spawn_local(sweeper(up));
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.heard();
        if let (Target::Slots(slots), Some(slot), Some(permit)) =
            (&self.upstream.to, self.slot, self.permit.take())
        {
            slots.give_back(slot, permit);
        }
    }
}

/// Closes connections that grow old. There is one while there are any.
async fn sweeper(up: Arc<Upstream>) {
    let Some(mut phase) = up.phase.get().cloned() else {
        return;
    };
    while let Some(next) = up.sweep() {
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            _ = phase.wait_for(|p| *p != Phase::Serving) => up.idle().clear(),
        }
    }
}

/// Whether the other side has neither closed nor said anything: what it says before it is asked cannot be an
/// answer.
fn is_silent(fd: &OwnedFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peeked = rustix::net::recv(fd, &mut [0_u8; 1][..], flags);
    matches!(peeked, Err(rustix::io::Errno::AGAIN))
}
