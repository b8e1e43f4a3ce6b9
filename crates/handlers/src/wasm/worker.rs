//! Workers that run modules. One worker runs all modules of the server's own user. Other users, and routes with a strict sandbox,
//! have one worker for each route and user, which ends when it is idle.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use galgo_io::sock::{Sock, register};
use galgo_service::{
    fault::Fault,
    lock::lock,
    log::{ErrorLog, Level},
};
use galgo_spawn::{
    Child, Status,
    owners::{Owners, Remit},
};
use galgo_wasm::{
    CodeChange, Compiler, FolderId,
    wire::{self, Message},
};
use tokio::{
    io::Interest,
    sync::{Mutex as Turn, watch},
};

use super::start::{WorkerStarter, launch_worker};
use crate::{resources::Resources, trial, upstream::idle_pool::UpstreamIdlePool};

/// Pause before another try at a worker that takes no more, or that is being started.
pub(super) const PAUSE: Duration = Duration::from_millis(2);
/// Time to wait for the start of a worker, even if requests must not wait in a queue.
pub(super) const STARTS: Duration = Duration::from_secs(1);
/// Time that a worker of another user accepts requests. Its successor sees the user and the files as they are by then.
const LIFE: Duration = Duration::from_secs(3600);
/// Time after which a worker of another user ends, if it has no requests.
const IDLE: Duration = Duration::from_secs(60);

/// Digest of a route, and a user.
type WorkerKey = (u64, u32);

/// The places of all workers. They outlive a configuration, because most workers serve the next one, too.
#[derive(Debug, Default)]
pub(super) struct WorkerPlaces {
    places: Mutex<HashMap<WorkerKey, Arc<WorkerPlace>>>,
    /// Whether no further request can come.
    ended: watch::Sender<bool>,
}

/// The place for one worker at a time. The task that starts the worker holds `turn`.
#[derive(Debug)]
pub(super) struct WorkerPlace {
    pub(super) starter: WorkerStarter,
    turn: Turn<()>,
    worker: Mutex<Option<Arc<ModuleWorker>>>,
    ended: watch::Receiver<bool>,
}

/// A running worker. Dropping it ends the process.
#[derive(Debug)]
pub struct ModuleWorker {
    pub(super) place: Weak<WorkerPlace>,
    pub(super) socket: OwnedFd,
    pub(super) child: Mutex<Child>,
    /// Tells the operator what happens to the worker.
    pub(super) log: ErrorLog,
    /// The folder of compiled code that the worker may read.
    pub(super) cache: Option<FolderId>,
    /// Idle connections.
    pub(super) idle: Arc<UpstreamIdlePool>,
    began: Instant,
    used: Mutex<Instant>,
}

impl WorkerPlaces {
    /// Returns a place that only its user knows.
    pub(super) fn new_place(&self, starter: WorkerStarter) -> Arc<WorkerPlace> {
        Arc::new(WorkerPlace {
            starter,
            turn: Turn::default(),
            worker: Mutex::default(),
            ended: self.ended.subscribe(),
        })
    }

    /// Returns the place for the worker of a route and user.
    pub(super) fn user_place(
        &self,
        owners: &Arc<Owners>,
        remit: &Arc<Remit>,
        uid: u32,
    ) -> Arc<WorkerPlace> {
        let key = (remit.digest(), uid);
        let mut places = lock(&self.places);
        if let Some(place) = places.get(&key) {
            return place.clone();
        }
        places.retain(|_, place| Arc::strong_count(place) > 1 || lock(&place.worker).is_some());
        let place = self.new_place(WorkerStarter::Helper(owners.clone(), remit.clone(), uid));
        places.insert(key, place.clone());
        place
    }

    /// Forgets all workers, because no further request can come: each ends with its last request.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
        let places = std::mem::take(&mut *lock(&self.places));
        places.values().for_each(|place| place.forget_worker());
    }
}

impl WorkerPlace {
    /// Returns the worker if it can take requests.
    pub(super) fn usable_worker(&self) -> Option<Arc<ModuleWorker>> {
        let mut place = lock(&self.worker);
        let leaves = self.starter.leaves();
        let gone = place.take_if(|own| leaves && own.began.elapsed() >= LIFE);
        let worker = place.clone();
        drop(place);
        drop(gone);
        worker
    }

    /// Returns the worker, and starts it if there is none.
    ///
    /// # Errors
    /// The reason why the worker could not be started.
    pub(super) async fn start_worker(
        self: &Arc<Self>,
        resources: &Resources,
    ) -> Result<Arc<ModuleWorker>, Fault> {
        let _turn = self.turn.lock().await;
        if let Some(worker) = self.usable_worker() {
            return Ok(worker);
        }
        let (socket, child, cache) = launch_worker(resources, &self.starter).await?;
        let process = child.as_fd().try_clone_to_owned().ok();
        let worker = Arc::new(ModuleWorker {
            place: Arc::downgrade(self),
            socket,
            child: Mutex::new(child),
            log: resources.errors.clone(),
            cache,
            idle: Arc::default(),
            began: Instant::now(),
            used: Mutex::new(Instant::now()),
        });
        {
            let mut place = lock(&self.worker);
            // After the end, only the request that has the worker keeps it. If compiled code is in another folder by now, the
            // next request needs another worker.
            let reads = |compiler: &Arc<Compiler>| compiler.cache_folder() == cache;
            if !*self.ended.borrow() && self.starter.compiler().is_none_or(reads) {
                *place = Some(worker.clone());
            }
        }
        if let Some(process) = process {
            let idle = self.starter.leaves().then(idle);
            let watches = watch_worker(Arc::downgrade(&worker), process, idle, self.ended.clone());
            tokio::task::spawn_local(watches);
        }
        Ok(worker)
    }

    /// Empties the place: the worker ends with its last request.
    pub(super) fn forget_worker(&self) {
        let gone = lock(&self.worker).take();
        drop(gone);
    }

    /// Tells the worker about code in the cache. A worker that may not read the folder of new code ends with its last request.
    pub(super) fn tell_worker(&self, change: CodeChange) {
        let mut place = lock(&self.worker);
        let (message, gone) = match change {
            CodeChange::Made(key, cache) => {
                let gone = place.take_if(|own| own.cache != cache);
                (Message::Load(key), gone)
            }
            CodeChange::Unused(key) => (Message::Forget(key), None),
        };
        if let Some(worker) = &*place {
            // A worker that does not get the message loads code on request.
            let _ = wire::send_message(&worker.socket, &message.encode(), &[]);
        }
        drop(place);
        drop(gone);
    }
}

impl ModuleWorker {
    /// Makes a connection to the worker, or takes a connection that the worker has served before.
    ///
    /// # Errors
    /// The system's error: `WouldBlock` if the worker takes no more connections at this moment.
    pub(super) fn open_connection(&self, home: usize) -> std::io::Result<Sock> {
        self.note_use();
        if let Some(sock) = self.idle.take_connection(home, None) {
            return Ok(sock);
        }
        let (ours, theirs) = wire::connection_pair()?;
        wire::send_message(&self.socket, &Message::Connect.encode(), &[theirs.as_fd()])?;
        Ok(Sock::for_requests(ours))
    }

    /// Notes that a request begins, or has ended.
    pub(super) fn note_use(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// Takes a worker that accepts no more connections from its place: the next request starts another. Tells the operator `why`
    /// if the worker was there.
    pub(super) fn give_up(&self, why: &str) {
        let Some(place) = self.place.upgrade() else {
            return;
        };
        let is_this = |own: &mut Arc<Self>| std::ptr::eq(&**own, self);
        let gone = lock(&place.worker).take_if(is_this);
        if gone.is_some() {
            let words = format!("{} {why}", place.starter.name());
            self.log.write(Level::Error, "wasm", &words);
        }
    }

    /// Gives a worker up if its process has ended. Returns whether it has ended.
    pub(super) fn forget_ended(&self) -> bool {
        let exit = lock(&self.child).try_wait().ok().flatten();
        let how = match exit.map(|exit| exit.status) {
            None => return false,
            Some(Status::Code(n)) => format!("exited with status {n}"),
            Some(Status::Signal(n)) => format!("was killed by signal {n}"),
        };
        self.give_up(&format!("{how}: the next request starts another"));
        true
    }

    /// Waits until requests no longer go to a worker that left a request unread: a process that ends closes its connections
    /// before it can be seen to have ended. The wait is short, because the worker may have had another reason.
    pub async fn wait_for_end(&self) {
        let began = Instant::now();
        while self.is_in_place() && !self.forget_ended() && began.elapsed() < STARTS {
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn is_in_place(&self) -> bool {
        let place = self.place.upgrade();
        let is_this = |own: &Arc<Self>| std::ptr::eq(&**own, self);
        place.is_some_and(|place| lock(&place.worker).as_ref().is_some_and(is_this))
    }

    /// Ends a worker that has been idle for long.
    fn end_idle(&self, idle: Duration) {
        let Some(place) = self.place.upgrade() else {
            return;
        };
        // Leases hold references to the worker, too, and the caller holds one.
        let is_idle = |own: &mut Arc<Self>| {
            let is_this = std::ptr::eq(&**own, self);
            is_this && Arc::strong_count(own) == 2 && lock(&self.used).elapsed() >= idle
        };
        let gone = lock(&place.worker).take_if(is_idle);
        drop(gone);
    }
}

/// Watches a worker until it has ended, or no further request can come. Ends it if it has had no requests for `idle`.
async fn watch_worker(
    worker: Weak<ModuleWorker>,
    process: OwnedFd,
    idle: Option<Duration>,
    mut ended: watch::Receiver<bool>,
) {
    let Ok(process) = register(process, Interest::READABLE) else {
        return;
    };
    loop {
        let may_be_idle = async {
            match idle {
                Some(idle) => tokio::time::sleep(idle / 8).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = may_be_idle => {}
            ready = process.readable() => match ready {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return,
            },
            _ = ended.wait_for(|ended| *ended) => return,
        }
        // A worker that nobody holds was told to end.
        let Some(worker) = worker.upgrade() else {
            return;
        };
        if worker.forget_ended() {
            return;
        }
        idle.iter().for_each(|idle| worker.end_idle(*idle));
    }
}

/// Returns [`IDLE`], or less if a test asks a debug build for that.
fn idle() -> Duration {
    let asked = trial::read_switch("GALGO_TEST_WORKER_IDLE");
    let asked = asked.and_then(|ms| Some(Duration::from_millis(ms.parse().ok()?)));
    asked.unwrap_or(IDLE)
}
