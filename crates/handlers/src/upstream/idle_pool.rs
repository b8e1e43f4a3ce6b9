//! Connections that wait for their next request. Each stays registered with the event loop that used it last:
//! adding it and taking it out again for each request would cost more than the request's other system calls.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use galgo_io::sock::Sock;
use galgo_service::lock::lock;
use rustix::net::RecvFlags;
use tokio::sync::watch;

/// A connection that was idle for this long is closed, so that it does not hold a process of the application for nothing:
/// as long as nginx's `keepalive_timeout` of an upstream. A request that needs such a process is seen sooner (`STARVED`).
const IDLE: Duration = Duration::from_secs(60);

/// One that the application has closed is let go of within this.
const LOOK: Duration = Duration::from_secs(5);

/// A connection that waits for its next request.
#[derive(Debug)]
struct Idle {
    /// `None` while the sweep looks at it: one at a time, and no request gets it meanwhile.
    sock: Option<Sock>,
    /// The event loop that knows it.
    home: usize,
    since: Instant,
    slot: Option<usize>,
}

/// The idle connections of one application, or of the worker that runs modules: of all event loops, for each may hold the
/// one process that another needs.
#[derive(Debug, Default)]
pub(crate) struct UpstreamIdlePool {
    /// Every request takes this lock, for a moment: nothing is looked at or closed under it.
    list: Mutex<IdleList>,
    /// No request comes any more: no connection is kept.
    ended: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct IdleList {
    idle: VecDeque<Idle>,
    /// A task closes those that grow old.
    swept: bool,
}

impl UpstreamIdlePool {
    /// One that is still good, for the event loop `home`: the one used last, so that those not needed grow old and are
    /// closed. Another event loop's only where there is none of its own.
    pub(crate) fn take(&self, home: usize, slot: Option<usize>) -> Option<Sock> {
        loop {
            let (sock, at) = {
                let idle = &mut self.list().idle;
                let fits = |i: &Idle| i.slot == slot && i.sock.is_some();
                let own = idle.iter().rposition(|i| fits(i) && i.home == home);
                let at = own.or_else(|| idle.iter().rposition(fits))?;
                let found = idle.remove(at)?;
                (found.sock?, found.home)
            };
            // How old it is does not matter: the sweep closes those that were not needed.
            if is_silent(&sock) {
                return Some(if at == home { sock } else { sock.moved() });
            }
        }
    }

    /// Keeps a connection, one of `most`.
    pub(crate) fn put(
        self: &Arc<Self>,
        mut sock: Sock,
        home: usize,
        slot: Option<usize>,
        most: usize,
    ) {
        if *self.ended.borrow() {
            return;
        }
        sock.rest();
        let one = Idle {
            sock: Some(sock),
            home,
            since: Instant::now(),
            slot,
        };
        let mut list = self.list();
        if list.idle.len() >= most {
            // Closed without the lock, as always: `one` goes after `list`.
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

    /// Closes the one that has waited longest.
    pub(super) fn close_oldest(&self) {
        let oldest = self.list().idle.pop_front();
        drop(oldest);
    }

    /// Closes those of one slot.
    pub(crate) fn close_slot(&self, slot: usize) {
        let mut its = Vec::new();
        let mut list = self.list();
        while let Some(at) = list.idle.iter().position(|i| i.slot == Some(slot)) {
            its.extend(list.idle.remove(at));
        }
        drop(list);
        drop(its);
    }

    /// Closes all.
    pub(super) fn close(&self) {
        let all = std::mem::take(&mut self.list().idle);
        drop(all);
    }

    /// Closes all, and keeps none from now on.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
        self.close();
    }

    /// Closes what was idle for long, and what the other side has closed. Returns when to look again; `None`: nothing is left.
    fn sweep(&self) -> Option<Instant> {
        let mut at = 0;
        while let Some((sock, since)) = self.lend(at) {
            let good = since.elapsed() < IDLE && is_silent(&sock);
            at = self.take_back(sock, good);
        }
        let mut list = self.list();
        let oldest = list.idle.front().map(|i| i.since + IDLE);
        list.swept = oldest.is_some();
        Some(oldest?.min(Instant::now() + LOOK))
    }

    /// The connection at that index of the list, and since when it waits.
    fn lend(&self, at: usize) -> Option<(Sock, Instant)> {
        let idle = &mut self.list().idle;
        let one = idle.get_mut(at)?;
        Some((one.sock.take()?, one.since))
    }

    /// Puts the connection that was lent back, unless it is to be closed now: because it is not `good`, or for what happened
    /// meanwhile. The index of the next one.
    fn take_back(&self, sock: Sock, good: bool) -> usize {
        let mut list = self.list();
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

    fn list(&self) -> MutexGuard<'_, IdleList> {
        lock(&self.list)
    }
}

/// Closes connections as they grow old, until there is none, or no request can come: a server that drains does not wait
/// for this.
async fn sweep_all(pool: Weak<UpstreamIdlePool>, mut ended: watch::Receiver<bool>) {
    let sweep = || pool.upgrade()?.sweep();
    while let Some(next) = sweep() {
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            _ = ended.wait_for(|ended| *ended) => {
                return pool.upgrade().iter().for_each(|pool| pool.close());
            }
        }
    }
}

/// Whether the other side has neither closed nor said anything: what it says before it is asked cannot be an
/// answer.
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

    /// A connection, the other end of which is still open, and is kept.
    fn one(pool: &Arc<UpstreamIdlePool>) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        pool.put(Sock::asking(OwnedFd::from(ours)), 0, None, 8);
        theirs
    }

    #[tokio::test]
    async fn nothing_waits_for_those_that_nobody_can_ask_for() {
        for ends in [UpstreamIdlePool::end, |_: &UpstreamIdlePool| ()] {
            let local = LocalSet::new();
            let pool = Arc::new(UpstreamIdlePool::default());
            let theirs = local.run_until(async { one(&pool) }).await;
            assert_eq!(pool.list().idle.len(), 1);
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
        let next = pool.sweep().unwrap();
        assert!(next <= Instant::now() + LOOK);
        assert_eq!(pool.list().idle.len(), 1);
        drop(open);
        assert_eq!(pool.sweep(), None);
    }

    #[tokio::test]
    async fn one_that_is_looked_at_is_for_nobody_and_stays_closed() {
        use std::io::Read;
        let local = LocalSet::new();
        let pool = Arc::new(UpstreamIdlePool::default());
        let mut theirs = local.run_until(async { one(&pool) }).await;
        let (sock, _) = pool.lend(0).unwrap();
        assert!(pool.take(0, None).is_none());
        pool.take_back(sock, true);
        let sock = pool.take(0, None).unwrap();
        pool.put(sock, 0, None, 8);
        let (sock, _) = pool.lend(0).unwrap();
        pool.close();
        pool.take_back(sock, true);
        assert!(pool.list().idle.is_empty());
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }

    #[tokio::test]
    async fn after_the_end_none_is_kept() {
        let local = LocalSet::new();
        let pool = Arc::new(UpstreamIdlePool::default());
        pool.end();
        let _theirs = local.run_until(async { one(&pool) }).await;
        assert!(pool.list().idle.is_empty());
    }
}
