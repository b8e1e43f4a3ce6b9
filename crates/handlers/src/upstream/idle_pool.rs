//! Connections that wait for their next request. Each stays registered with the event loop that used it last. Registering it anew
//! for each request would cost more than the request's other system calls.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use galgo_io::sock::Sock;
use galgo_service::lock::lock;
use rustix::net::RecvFlags;
use tokio::sync::watch;

/// Time after which an idle connection is closed, so that it does not hold a process of the application in vain: as long as
/// nginx's `keepalive_timeout` of an upstream. A request that needs such a process is noticed sooner (`STARVED`).
const IDLE: Duration = Duration::from_secs(60);

/// Time within which galgo closes a connection that the application has closed.
const LOOK: Duration = Duration::from_secs(5);

/// A connection that waits for its next request.
#[derive(Debug)]
struct Idle {
    /// The connection; `None` while the sweep looks at it. The sweep looks at one connection at a time, and no request can take
    /// it meanwhile.
    sock: Option<Sock>,
    /// Event loop with which the connection is registered.
    home: usize,
    since: Instant,
    slot: Option<usize>,
}

/// The idle connections of one application, or of the worker that runs modules. All event loops share them, because the
/// connection of one event loop may hold the only process that another needs.
#[derive(Debug, Default)]
pub(crate) struct UpstreamIdlePool {
    /// Every request takes this lock for a moment: no connection is checked or closed under it.
    list: Mutex<IdleList>,
    /// Whether no further request can come: no connection is kept then.
    ended: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct IdleList {
    idle: VecDeque<Idle>,
    /// Whether a task closes old connections.
    swept: bool,
}

impl UpstreamIdlePool {
    /// Takes a connection that is still good, for the event loop `home`. The most recently used connection comes first, so that
    /// superfluous ones grow old and are closed. A connection of another event loop is taken only if `home` has none.
    pub(crate) fn take_connection(&self, home: usize, slot: Option<usize>) -> Option<Sock> {
        loop {
            let (sock, at) = {
                let idle = &mut self.lock_list().idle;
                let fits = |i: &Idle| i.slot == slot && i.sock.is_some();
                let own = idle.iter().rposition(|i| fits(i) && i.home == home);
                let at = own.or_else(|| idle.iter().rposition(fits))?;
                let found = idle.remove(at)?;
                (found.sock?, found.home)
            };
            // The age does not matter: the sweep closes superfluous connections.
            if is_silent(&sock) {
                return Some(if at == home {
                    sock
                } else {
                    sock.without_registrations()
                });
            }
        }
    }

    /// Keeps a connection, if fewer than `most` are kept.
    pub(crate) fn keep_connection(
        self: &Arc<Self>,
        mut sock: Sock,
        home: usize,
        slot: Option<usize>,
        most: usize,
    ) {
        if *self.ended.borrow() {
            return;
        }
        sock.unwatch_room();
        let one = Idle {
            sock: Some(sock),
            home,
            since: Instant::now(),
            slot,
        };
        let mut list = self.lock_list();
        if list.idle.len() >= most {
            // Close it without the lock, as always: `one` is dropped after `list`.
            return;
        }
        list.idle.push_back(one);
        let sweeps = !std::mem::replace(&mut list.swept, true);
        drop(list);
        if sweeps {
            let sweep = sweep_all(Arc::downgrade(self), self.ended.subscribe());
            tokio::task::spawn_local(sweep);
        }
    }

    /// Closes the connection that has waited longest.
    pub(super) fn close_oldest(&self) {
        let oldest = self.lock_list().idle.pop_front();
        drop(oldest);
    }

    /// Closes the connections of one slot.
    pub(crate) fn close_slot(&self, slot: usize) {
        let mut its = Vec::new();
        let mut list = self.lock_list();
        while let Some(at) = list.idle.iter().position(|i| i.slot == Some(slot)) {
            its.extend(list.idle.remove(at));
        }
        drop(list);
        drop(its);
    }

    /// Closes all connections.
    pub(super) fn close_all(&self) {
        let all = std::mem::take(&mut self.lock_list().idle);
        drop(all);
    }

    /// Closes all connections, and keeps none from now on.
    pub(crate) fn close_for_good(&self) {
        self.ended.send_replace(true);
        self.close_all();
    }

    /// Closes connections that were idle too long, or that the other side has closed. Returns when to look again; `None` if no
    /// connection is left.
    fn sweep_idle(&self) -> Option<Instant> {
        let mut at = 0;
        while let Some((sock, since)) = self.lend_for_check(at) {
            let good = since.elapsed() < IDLE && is_silent(&sock);
            at = self.take_back(sock, good);
        }
        let mut list = self.lock_list();
        let oldest = list.idle.front().map(|i| i.since + IDLE);
        list.swept = oldest.is_some();
        Some(oldest?.min(Instant::now() + LOOK))
    }

    /// Takes the connection at that index out of the list for a check. Also returns since when it has waited.
    fn lend_for_check(&self, at: usize) -> Option<(Sock, Instant)> {
        let idle = &mut self.lock_list().idle;
        let one = idle.get_mut(at)?;
        Some((one.sock.take()?, one.since))
    }

    /// Puts a lent connection back, unless it has to be closed: either it is not `good`, or the pool was closed meanwhile.
    /// Returns the index of the next connection.
    fn take_back(&self, sock: Sock, good: bool) -> usize {
        let mut list = self.lock_list();
        let Some(at) = list.idle.iter().position(|i| i.sock.is_none()) else {
            drop(list);
            return 0;
        };
        if good {
            list.idle[at].sock = Some(sock);
            return at + 1;
        }
        list.idle.remove(at);
        drop(list);
        at
    }

    fn lock_list(&self) -> MutexGuard<'_, IdleList> {
        lock(&self.list)
    }
}

/// Closes connections that grow old, until none is left or no further request can come. A server that drains does not wait for
/// this task.
async fn sweep_all(pool: Weak<UpstreamIdlePool>, mut ended: watch::Receiver<bool>) {
    let sweep = || pool.upgrade()?.sweep_idle();
    while let Some(next) = sweep() {
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            _ = ended.wait_for(|ended| *ended) => {
                return pool.upgrade().iter().for_each(|pool| pool.close_all());
            }
        }
    }
}

/// Returns whether the other side has neither closed the connection nor sent anything. Bytes that come before a request cannot be
/// an answer.
fn is_silent(sock: &Sock) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peeked = rustix::net::recv(sock, &mut [0_u8; 1][..], flags);
    matches!(peeked, Err(rustix::io::Errno::AGAIN))
}

#[cfg(test)]
mod tests {
    use std::os::{fd::OwnedFd, unix::net::UnixStream};

    use tokio::{task::LocalSet, time::timeout};

    use super::*;

    /// Adds a connection to the pool, and returns its other end, still open.
    fn one(pool: &Arc<UpstreamIdlePool>) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        pool.keep_connection(Sock::for_requests(OwnedFd::from(ours)), 0, None, 8);
        theirs
    }

    #[tokio::test]
    async fn nothing_waits_for_those_that_nobody_can_ask_for() {
        for ends in [UpstreamIdlePool::close_for_good, |_: &UpstreamIdlePool| ()] {
            let local = LocalSet::new();
            let pool = Arc::new(UpstreamIdlePool::default());
            let theirs = local.run_until(async { one(&pool) }).await;
            assert_eq!(pool.lock_list().idle.len(), 1);
            ends(&pool);
            drop(pool);
            assert!(timeout(IDLE / 2, local).await.is_ok());
            let mut byte = [0];
            assert_eq!(std::io::Read::read(&mut &theirs, &mut byte).unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn what_the_application_has_closed_is_let_go_of() {
        let local = LocalSet::new();
        let pool = Arc::new(UpstreamIdlePool::default());
        let (open, closed) = local.run_until(async { (one(&pool), one(&pool)) }).await;
        drop(closed);
        let next = pool.sweep_idle().unwrap();
        assert!(next <= Instant::now() + LOOK);
        assert_eq!(pool.lock_list().idle.len(), 1);
        drop(open);
        assert_eq!(pool.sweep_idle(), None);
    }

    #[tokio::test]
    async fn one_that_is_looked_at_is_for_nobody_and_stays_closed() {
        use std::io::Read;
        let local = LocalSet::new();
        let pool = Arc::new(UpstreamIdlePool::default());
        let mut theirs = local.run_until(async { one(&pool) }).await;
        let (sock, _) = pool.lend_for_check(0).unwrap();
        assert!(pool.take_connection(0, None).is_none());
        pool.take_back(sock, true);
        let sock = pool.take_connection(0, None).unwrap();
        pool.keep_connection(sock, 0, None, 8);
        let (sock, _) = pool.lend_for_check(0).unwrap();
        pool.close_all();
        pool.take_back(sock, true);
        assert!(pool.lock_list().idle.is_empty());
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }

    #[tokio::test]
    async fn after_the_end_none_is_kept() {
        let local = LocalSet::new();
        let pool = Arc::new(UpstreamIdlePool::default());
        pool.close_for_good();
        let _theirs = local.run_until(async { one(&pool) }).await;
        assert!(pool.lock_list().idle.is_empty());
    }
}
