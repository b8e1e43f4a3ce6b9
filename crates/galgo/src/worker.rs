//! One thread with an event loop of its own. Nothing a request touches is shared with other threads but
//! the site, the logs and the places for running programs.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use galgo_handlers::{
    files,
    resources::{Resources, first_of_second},
};
use galgo_spawn::Spawner;
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    balance::Load as Connections,
    config::LogFormat,
    crowd::{Crowd, Shed},
    id::Ids,
    idle::Idle,
    listen::{Accepted, Listener},
    log::{Logs, access::Entry},
    phase::Phase,
    refused::Refused,
    site::{Held, Site},
    tick,
};

/// What all workers share, whatever is configured.
#[derive(Debug)]
pub struct Server {
    /// The logs.
    pub logs: Logs,
    /// Connections of each worker, and the way to hand it another.
    pub peers: Vec<Peer>,
    /// Whose connections there are.
    pub crowd: Crowd,
    /// Whether the server is still taking requests.
    pub phase: watch::Receiver<Phase>,
}

/// Another worker, as seen from the one that accepted a connection.
#[derive(Debug)]
pub struct Peer {
    /// Connections it has.
    pub load: Connections,
    /// Hands it something to do.
    pub give: mpsc::UnboundedSender<Handed>,
}

/// What a worker is handed.
#[derive(Debug)]
pub enum Handed {
    /// A site for the requests to come.
    Site(Load),
    /// A connection to serve.
    Connection(Accepted),
    /// Another connection needs room: this one must close if it waits still.
    Shed(Shed),
}

/// A site, for one worker.
#[derive(Debug)]
pub struct Load {
    /// The site. Listeners that it does not name are closed.
    pub site: Arc<Site>,
    /// Those that it is the first to name.
    pub listeners: Vec<Listener>,
    /// Dropped when the worker has it.
    pub taken: Arc<oneshot::Sender<()>>,
}

impl Peer {
    /// A worker without connections, and where it is handed some.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Handed>) {
        let (give, given) = mpsc::unbounded_channel();
        let peer = Self {
            load: Connections::default(),
            give,
        };
        (peer, given)
    }
}

impl Server {
    /// Nothing has been asked for.
    pub fn new(logs: Logs, peers: Vec<Peer>, phase: watch::Receiver<Phase>) -> Self {
        Self {
            logs,
            peers,
            crowd: Crowd::default(),
            phase,
        }
    }

    /// Has a connection closed. False where its worker takes nothing any more.
    pub fn shed(&self, shed: Shed) -> bool {
        let worker = &self.peers[shed.at.worker];
        worker.give.send(Handed::Shed(shed)).is_ok()
    }

    /// Whether no more requests are taken.
    pub fn draining(&self) -> bool {
        // Asked several times a request: one load, as long as there was no other phase.
        !matches!(self.phase.has_changed(), Ok(false)) && *self.phase.borrow() != Phase::Serving
    }
}

/// What one worker owns.
#[derive(Debug)]
pub struct Worker {
    /// What it shares.
    pub server: Arc<Server>,
    site: RefCell<Held>,
    /// A site took the place of another.
    reloaded: Notify,
    /// Its number, and place in `server.peers`.
    pub index: usize,
    /// What those who answer its requests have of it.
    pub resources: Rc<Resources>,
    /// Makes request ids.
    pub ids: Ids,
    /// Connections waiting for a request.
    pub idle: Idle,
    /// Connections on which a request was refused for want of capacity.
    pub refused: Refused,
    date: RefCell<(u64, Rc<str>)>,
    /// In which second since the epoch it was last logged that a connection came without the PROXY header that its listener wants, or from who may not send one.
    unannounced: Cell<u64>,
    ending: Cell<bool>,
    lines: RefCell<Vec<u8>>,
}

/// Access log lines are handed to the log's thread this often, or when this many bytes have gathered.
const LOG_EVERY: Duration = Duration::from_millis(20);
const LOG_BYTES: usize = 32 << 10;

impl Worker {
    /// The worker number `index`.
    pub fn new(
        server: Arc<Server>,
        site: Arc<Site>,
        index: usize,
        spawner: Spawner,
    ) -> io::Result<Rc<Self>> {
        let resources = Resources::new(
            index,
            spawner,
            server.logs.error.clone(),
            site.config.templates.clone(),
            server.phase.clone(),
        )?;
        Ok(Rc::new(Self {
            resources,
            server,
            site: RefCell::new(Held::new(site)),
            reloaded: Notify::new(),
            index,
            ids: Ids::new(),
            idle: Idle::default(),
            refused: Refused::default(),
            date: RefCell::new((0, "".into())),
            unannounced: Cell::new(0),
            ending: Cell::new(false),
            lines: RefCell::default(),
        }))
    }

    /// What answers a request that begins now.
    pub fn site(&self) -> Held {
        self.site.borrow().clone()
    }

    /// Requests that begin from now on are answered by this site.
    pub fn load(&self, site: Arc<Site>) {
        // What was logged before goes where that says.
        self.flush_log();
        self.resources
            .configure(site.config.umask, site.config.templates.clone());
        files::forget();
        let before = self.site.replace(Held::new(site));
        self.reloaded.notify_one();
        drop(before);
    }

    /// The value of the Date field, made once a second.
    pub fn date(&self) -> Rc<str> {
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

    /// Whether a connection that a listener for proxies closed at once goes into the error log: likewise.
    pub fn says_unannounced(&self) -> bool {
        first_of_second(&self.unannounced)
    }

    /// Logs a request that is over.
    pub fn log(self: &Rc<Self>, entry: &Entry) {
        let (Some(log), Some(format)) = (self.server.logs.access(), self.log_format()) else {
            return;
        };
        let mut lines = self.lines.borrow_mut();
        let first = lines.is_empty();
        entry.write(format, &mut lines);
        if lines.len() >= LOG_BYTES {
            log.write(std::mem::take(&mut *lines));
        } else if first && !self.ending.get() {
            let worker = self.clone();
            tokio::task::spawn_local(async move {
                tokio::time::sleep(LOG_EVERY).await;
                worker.flush_log();
            });
        }
    }

    /// How long a request has taken that began then, where somebody reads that: the access log does.
    pub fn taken(&self, began: Instant) -> Duration {
        match self.log_format() {
            Some(_) => began.elapsed(),
            None => Duration::ZERO,
        }
    }

    /// Format of the access log; `None` where there is none.
    fn log_format(&self) -> Option<LogFormat> {
        let log = &self.site.borrow().config.log;
        log.access.is_some().then_some(log.format)
    }

    /// Hands gathered lines to the log's thread.
    pub fn flush_log(&self) {
        let lines = self.lines.take();
        if let (Some(log), false) = (self.server.logs.access(), lines.is_empty()) {
            log.write(lines);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.flush_log();
    }
}

/// Runs a worker on this thread until the server drains and its last request is over, or until
/// `shutdown_grace` has passed then.
pub fn run(worker: &Rc<Worker>, tasks: impl FnOnce(Rc<Worker>)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut local = tokio::task::LocalSet::new();
    let entered = runtime.enter();
    local.block_on(&runtime, async { tasks(worker.clone()) });
    // Apart from the tasks, so that it is looked at only when it has something to do.
    let mut keeper = tokio::task::LocalSet::new();
    let kept = keeper.spawn_local(keep(worker.clone()));
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = &mut local => {}
            () = &mut keeper => {}
        }
        // Requests that are dropped now are logged all the same.
        worker.ending.set(true);
    });
    kept.abort();
    drop(local);
    drop(keeper);
    drop(entered);
    Ok(())
}

/// What a worker does beside its requests, until `shutdown_grace` has passed after it began to drain.
async fn keep(worker: Rc<Worker>) {
    let mut phase = worker.server.phase.clone();
    let ends = async {
        let _ = phase.wait_for(|p| *p != Phase::Serving).await;
        worker.idle.end_all();
        let grace = worker.site().config.shutdown_grace;
        let ending = phase.wait_for(|p| *p == Phase::Ending);
        let _ = tokio::time::timeout(grace, ending).await;
    };
    let expire = async {
        loop {
            let most = worker.site().config.http.keep_alive;
            tokio::select! {
                () = worker.idle.expire(most) => {}
                () = worker.reloaded.notified() => {}
            }
        }
    };
    tokio::select! {
        () = ends => {}
        () = tick::run() => {}
        () = files::close_open() => {}
        () = expire => {}
    }
}
