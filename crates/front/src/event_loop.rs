//! What connections have of the event loop that serves them. No request touches what other threads write, but the site
//! and what it answers from.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use galgo_io::{off_loop::off_loop, pool::give_back_memory};
use galgo_service::{
    id::Ids,
    log::{access::AccessEntry, own::OwnLog, time::first_of_second, told::NamedClients},
};
use rustix::time::{ClockId, clock_gettime};
use tokio::{sync::Notify, time::Instant};

use crate::{
    handshakes::Handshakes, idle::IdlePool, shared::Shared, site::SiteService,
    throttle::RetryThrottle,
};

/// The state of one event loop, which one thread runs.
#[derive(Debug)]
pub struct EventLoop<S: SiteService> {
    /// What it shares with the others.
    pub(crate) shared: Arc<Shared<S>>,
    site: RefCell<Rc<S>>,
    /// A site took the place of another.
    pub(crate) reloaded: Notify,
    /// Its index in [`Shared::loops`].
    pub(crate) index: usize,
    /// Makes request ids.
    pub(crate) ids: Ids,
    /// Connections that wait for a request.
    pub(crate) idle: IdlePool,
    /// Handshakes of TLS that are under way.
    pub(crate) handshakes: Handshakes,
    /// Connections on which a request was refused for want of capacity.
    pub(crate) throttle: RetryThrottle,
    date: RefCell<(u64, Rc<str>)>,
    /// In which second since the epoch it was last logged that a connection was closed because of who opened it.
    unannounced: Cell<u64>,
    /// Clients of whose handshakes it was logged in this second why they failed.
    pub(crate) told: NamedClients,
    /// No task begins any more.
    pub(crate) ending: Cell<bool>,
    /// Bytes that connections have freed since the system had some back.
    freed: Cell<usize>,
    lines: RefCell<Vec<u8>>,
    /// Those of logs that routes have of their own.
    own_lines: RefCell<Vec<(Arc<OwnLog>, Vec<u8>)>>,
}

/// Access log lines are handed to the log's thread this often, or when this many bytes have gathered.
const LOG_EVERY: Duration = Duration::from_millis(20);
const LOG_BYTES: usize = 32 << 10;
/// Memory is given back to the system so long after this many bytes were freed.
const MUCH: usize = 16 << 20;
const FREED: Duration = Duration::from_secs(1);

impl<S: SiteService> EventLoop<S> {
    /// The event loop at `index`, whose requests `site` answers.
    pub fn new(shared: Arc<Shared<S>>, index: usize, site: S) -> Rc<Self> {
        Rc::new(Self {
            shared,
            site: RefCell::new(Rc::new(site)),
            reloaded: Notify::new(),
            index,
            ids: Ids::new(),
            idle: IdlePool::default(),
            handshakes: Handshakes::default(),
            throttle: RetryThrottle::default(),
            date: RefCell::new((0, "".into())),
            unannounced: Cell::new(0),
            told: NamedClients::default(),
            ending: Cell::new(false),
            freed: Cell::new(0),
            lines: RefCell::default(),
            own_lines: RefCell::default(),
        })
    }

    /// What answers a request that begins now.
    pub(crate) fn site(&self) -> Rc<S> {
        self.site.borrow().clone()
    }

    /// Another site answers the requests that begin from now on.
    pub(crate) fn replace(&self, make: impl FnOnce(&S) -> S) {
        // What was logged before goes where the site before says.
        self.flush_log();
        let next = Rc::new(make(&self.site()));
        let before = self.site.replace(next);
        self.reloaded.notify_one();
        drop(before);
    }

    /// The value of the Date field, made once a second.
    pub(crate) fn date(&self) -> Rc<str> {
        // A clock that costs little: it may be some milliseconds late.
        let now = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
        let second = u64::try_from(now).unwrap_or_default();
        let mut date = self.date.borrow_mut();
        if date.0 != second {
            let now = UNIX_EPOCH + Duration::from_secs(second);
            *date = (second, httpdate::fmt_http_date(now).into());
        }
        date.1.clone()
    }

    /// Whether a connection that was closed because of who opened it goes into the error log: the first of each second.
    pub(crate) fn says_unannounced(&self) -> bool {
        first_of_second(&self.unannounced)
    }

    /// A connection frees so many bytes that it has held for its client. Once they are many, the system has them back, as the
    /// allocator keeps what others might need.
    pub(crate) fn frees(self: &Rc<Self>, bytes: usize) {
        let before = self.freed.get();
        self.freed.set(before + bytes);
        if before >= MUCH || before + bytes < MUCH || self.ending.get() {
            return;
        }
        let event_loop = self.clone();
        tokio::task::spawn_local(async move {
            // Others of the same client end now, too.
            tokio::time::sleep(FREED).await;
            event_loop.freed.set(0);
            // Without a thread it is tried when as much has been freed again.
            let _ = off_loop("memory", give_back_memory).await;
        });
    }

    /// Logs a request that is over.
    pub(crate) fn log(self: &Rc<Self>, entry: &AccessEntry) {
        if let Some(own) = &entry.log {
            return self.log_own(own, entry);
        }
        let format = self.site.borrow().settings().access_log;
        let (Some(log), Some(format)) = (self.shared.logs.access(), format) else {
            return;
        };
        let mut lines = self.lines.borrow_mut();
        let first = lines.is_empty();
        entry.write(format, &mut lines);
        if lines.len() >= LOG_BYTES {
            log.write(std::mem::take(&mut *lines));
        } else if first {
            self.flush_soon();
        }
    }

    /// Logs a request where its route says.
    fn log_own(self: &Rc<Self>, log: &Arc<OwnLog>, entry: &AccessEntry) {
        let mut all = self.own_lines.borrow_mut();
        let first = all.is_empty();
        let known = all.iter().position(|(known, _)| Arc::ptr_eq(known, log));
        let at = known.unwrap_or_else(|| {
            all.push((log.clone(), Vec::new()));
            all.len() - 1
        });
        let Some((_, lines)) = all.get_mut(at) else {
            return;
        };
        if let Some(format) = log.format() {
            entry.write(format, lines);
        }
        if lines.len() >= LOG_BYTES {
            log.write(std::mem::take(lines));
        }
        if first {
            self.flush_soon();
        }
    }

    fn flush_soon(self: &Rc<Self>) {
        if self.ending.get() {
            return;
        }
        let event_loop = self.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(LOG_EVERY).await;
            event_loop.flush_log();
        });
    }

    /// How long a request has taken that began then; zero where no access log says so.
    pub(crate) fn taken(&self, began: Instant) -> Duration {
        let site = self.site.borrow();
        let settings = site.settings();
        if settings.access_log.is_some() || settings.own_logs {
            began.elapsed()
        } else {
            Duration::ZERO
        }
    }

    /// Hands gathered lines to the log's thread.
    fn flush_log(&self) {
        let lines = self.lines.take();
        if let (Some(log), false) = (self.shared.logs.access(), lines.is_empty()) {
            log.write(lines);
        }
        for (own, lines) in self.own_lines.take() {
            own.write(lines);
        }
    }
}

impl<S: SiteService> Drop for EventLoop<S> {
    fn drop(&mut self) {
        self.flush_log();
    }
}
