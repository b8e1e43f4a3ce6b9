//! State that connections share with their event loop. A request touches nothing that other threads write, except the site and
//! the data that the site answers from.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use galgo_io::{off_loop::off_loop, pool::give_back_memory};
use galgo_service::{
    id::Ids,
    log::{access::AccessEntry, route_logs::OwnLog, time::first_of_second, told::NamedClients},
};
use rustix::time::{ClockId, clock_gettime};
use tokio::{sync::Notify, time::Instant};

use crate::{
    handshakes::Handshakes, idle::IdlePool, shared_by_loops::Shared, site::SiteService,
    throttle::RetryThrottle,
};

/// The state of one event loop, which one thread runs.
#[derive(Debug)]
pub struct EventLoop<S: SiteService> {
    /// State that this event loop shares with the other event loops.
    pub(crate) shared: Arc<Shared<S>>,
    site: RefCell<Rc<S>>,
    /// Notified when a site took the place of another.
    pub(crate) reloaded: Notify,
    /// Index of this event loop in [`Shared::loops`].
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
    /// Second since the epoch of the last log line about a connection that was refused because its peer may not name clients,
    /// or did not. See [`EventLoop::should_log_unannounced`].
    unannounced: Cell<u64>,
    /// Clients whose failed handshakes were logged in this second.
    pub(crate) told: NamedClients,
    /// Whether the event loop ends: no task begins any more.
    pub(crate) ending: Cell<bool>,
    /// Bytes that connections have freed since the system had some back.
    freed: Cell<usize>,
    lines: RefCell<Vec<u8>>,
    /// Lines of logs that belong to single routes.
    own_lines: RefCell<Vec<(Arc<OwnLog>, Vec<u8>)>>,
}

/// Access log lines are handed to the log's thread this often, or as soon as this many bytes have gathered.
const LOG_EVERY: Duration = Duration::from_millis(20);
const LOG_BYTES: usize = 32 << 10;
/// Memory is given back to the system this long after this many bytes were freed.
const MUCH: usize = 16 << 20;
const FREED: Duration = Duration::from_secs(1);

impl<S: SiteService> EventLoop<S> {
    /// Creates the event loop at `index`. `site` answers its requests.
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

    /// Returns the site that answers a request that begins now.
    pub(crate) fn current_site(&self) -> Rc<S> {
        self.site.borrow().clone()
    }

    /// Replaces the site, for requests that begin from now on.
    pub(crate) fn replace_site(&self, make: impl FnOnce(&S) -> S) {
        // Lines that were logged before go to the logs of the previous site.
        self.flush_log();
        let next = Rc::new(make(&self.current_site()));
        let before = self.site.replace(next);
        self.reloaded.notify_one();
        drop(before);
    }

    /// Returns the value of the Date field, which is made once a second.
    pub(crate) fn date_value(&self) -> Rc<str> {
        // This clock costs little, and may be some milliseconds late.
        let now = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
        let second = u64::try_from(now).unwrap_or_default();
        let mut date = self.date.borrow_mut();
        if date.0 != second {
            let now = UNIX_EPOCH + Duration::from_secs(second);
            *date = (second, httpdate::fmt_http_date(now).into());
        }
        date.1.clone()
    }

    /// Returns whether the error log shall mention a connection that was refused because its peer is no trusted proxy, or sent
    /// no PROXY header. True for the first such connection of each second.
    pub(crate) fn should_log_unannounced(&self) -> bool {
        first_of_second(&self.unannounced)
    }

    /// Notes that a connection frees this many bytes that it has held for its client. Once the bytes are many, gives them back
    /// to the system, because the allocator would keep them for later use.
    pub(crate) fn count_freed(self: &Rc<Self>, bytes: usize) {
        let before = self.freed.get();
        self.freed.set(before + bytes);
        if before >= MUCH || before + bytes < MUCH || self.ending.get() {
            return;
        }
        let event_loop = self.clone();
        tokio::task::spawn_local(async move {
            // Wait, because other connections of the same client end now, too.
            tokio::time::sleep(FREED).await;
            event_loop.freed.set(0);
            // If there is no thread, the next try comes after as many bytes were freed again.
            let _ = off_loop("memory", give_back_memory).await;
        });
    }

    /// Logs a request that is over.
    pub(crate) fn log_request(self: &Rc<Self>, entry: &AccessEntry) {
        if let Some(own) = &entry.log {
            return self.log_to_own_file(own, entry);
        }
        let format = self.site.borrow().settings().access_log;
        let (Some(log), Some(format)) = (self.shared.logs.access_log(), format) else {
            return;
        };
        let mut lines = self.lines.borrow_mut();
        let first = lines.is_empty();
        entry.append_line(format, &mut lines);
        if lines.len() >= LOG_BYTES {
            log.write(std::mem::take(&mut *lines));
        } else if first {
            self.flush_soon();
        }
    }

    /// Logs a request in the log of its route.
    fn log_to_own_file(self: &Rc<Self>, log: &Arc<OwnLog>, entry: &AccessEntry) {
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
            entry.append_line(format, lines);
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

    /// Returns the time since a request began; zero if no access log needs it.
    pub(crate) fn time_taken(&self, began: Instant) -> Duration {
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
        if let (Some(log), false) = (self.shared.logs.access_log(), lines.is_empty()) {
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
