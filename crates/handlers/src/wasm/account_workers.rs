//! Workers that run modules as other users, or in a strict sandbox. Each route and user in use has its own worker, started by the
//! helper that starts this route's programs. Workers end when they are idle.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use galgo_io::sock::{Sock, register};
use galgo_service::{
    fault::{Fault, is_shortage},
    lock::lock,
};
use galgo_spawn::{
    Child, EnvBlock, Launch, Limits, Priority, Sandbox, StartError, StartStage,
    owners::{MODULES, Owners, Remit},
};
use galgo_wasm::wire::{self, Message};
use rustix::{
    fs::{Mode, OFlags},
    net::RecvFlags,
};
use tokio::{
    io::Interest,
    sync::{Mutex as Turn, watch},
    time::timeout,
};

use crate::{
    owners,
    relay::pipes::make_pipe,
    resources::Resources,
    trial,
    upstream::{idle_pool::UpstreamIdlePool, log_errors},
};

/// Time after which a worker without requests ends.
const IDLE: Duration = Duration::from_secs(60);
/// Time that a worker accepts requests. Its successor sees the user and the files as they are by then.
const LIFE: Duration = Duration::from_secs(3600);
/// Time for a new worker to report that it accepts connections. After that the worker is given up.
const READY: Duration = Duration::from_secs(60);

/// The fault for missing resources; the next request may find them.
const SHORT: Fault = Fault::Busy("no process or descriptor is left for a WebAssembly module");

/// Digest of a route, and a user.
type WorkerKey = (u64, u32);

/// The workers of all routes and users.
#[derive(Debug, Default)]
pub(crate) struct OwnWorkers {
    places: Mutex<HashMap<WorkerKey, Arc<WorkerPlace>>>,
    /// Whether no further request can come.
    ended: watch::Sender<bool>,
}

/// Place for the worker of a route and user. The task that starts the worker holds `turn`.
#[derive(Debug, Default)]
struct WorkerPlace {
    turn: Turn<()>,
    worker: Mutex<Option<Arc<OwnWorker>>>,
}

/// A running worker. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct OwnWorker {
    pub(super) number: usize,
    socket: OwnedFd,
    child: Child,
    pub(super) idle: Arc<UpstreamIdlePool>,
    began: Instant,
    given_up: AtomicBool,
    used: Mutex<Instant>,
}

impl OwnWorkers {
    /// Returns the worker of a route and user, and starts it if there is none.
    ///
    /// # Errors
    /// The reason why the worker could not be started.
    pub(super) async fn worker(
        self: &Arc<Self>,
        resources: &Resources,
        owners: &Arc<Owners>,
        remit: &Arc<Remit>,
        uid: u32,
    ) -> Result<Arc<OwnWorker>, Fault> {
        let key = (remit.digest(), uid);
        let place = lock(&self.places).entry(key).or_default().clone();
        if let Some(worker) = place.usable() {
            return Ok(worker);
        }
        let _turn = place.turn.lock().await;
        if let Some(worker) = place.usable() {
            return Ok(worker);
        }
        let worker = Arc::new(start(resources, owners, remit, uid).await?);
        *lock(&place.worker) = Some(worker.clone());
        if *self.ended.borrow() {
            // A request that began before the end has the worker, which ends with that request.
            lock(&self.places).remove(&key);
        }
        let leaves = leaves(
            Arc::downgrade(self),
            (key, worker.number),
            self.ended.subscribe(),
        );
        tokio::task::spawn_local(leaves);
        Ok(worker)
    }

    /// Forgets a worker that accepts no more connections: the next request starts another.
    pub(super) fn lost(&self, worker: &Arc<OwnWorker>) {
        let places: Vec<_> = lock(&self.places).values().cloned().collect();
        for place in places {
            let gone = lock(&place.worker).take_if(|own| Arc::ptr_eq(own, worker));
            drop(gone);
        }
    }

    /// Forgets all workers, because no further request can come: each ends with its last request.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
        let places = std::mem::take(&mut *lock(&self.places));
        drop(places);
    }

    /// Ends the worker of this number, of a route and user, if it has been idle for long. Returns when to look again; `None` if
    /// the worker is gone.
    fn look(&self, (key, number): (WorkerKey, usize), idle: Duration) -> Option<Instant> {
        let mut places = lock(&self.places);
        let place = places.get(&key)?.clone();
        let mut own = lock(&place.worker);
        let worker = own.as_ref().filter(|own| own.number == number)?;
        // Leases hold references to the worker, too.
        let is_used = Arc::strong_count(worker) > 1;
        let used = *lock(&worker.used);
        if is_used || used.elapsed() < idle {
            let now = Instant::now();
            return Some((used + idle).max(now + idle / 10));
        }
        let gone = own.take();
        drop(own);
        // A task that waits for its turn keeps using its reference to the place.
        if Arc::strong_count(&place) == 2 {
            places.remove(&key);
        }
        drop(places);
        drop(gone);
        None
    }
}

/// Ends a worker once it is idle, or once no further request can come.
async fn leaves(
    workers: std::sync::Weak<OwnWorkers>,
    of: (WorkerKey, usize),
    mut ended: watch::Receiver<bool>,
) {
    let idle = idle();
    let mut next = Instant::now() + idle;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            _ = ended.wait_for(|ended| *ended) => return,
        }
        match workers.upgrade().and_then(|workers| workers.look(of, idle)) {
            Some(later) => next = later,
            None => return,
        }
    }
}

/// Returns [`IDLE`], or less if a test asks a debug build for that.
fn idle() -> Duration {
    let asked = trial::read_switch("GALGO_TEST_WORKER_IDLE");
    let asked = asked.and_then(|ms| Some(Duration::from_millis(ms.parse().ok()?)));
    asked.unwrap_or(IDLE)
}

impl WorkerPlace {
    /// Returns the worker if it can take requests.
    fn usable(&self) -> Option<Arc<OwnWorker>> {
        let mut own = lock(&self.worker);
        let gone = own.take_if(|own| {
            own.has_ended() || own.given_up.load(Ordering::Relaxed) || own.began.elapsed() >= LIFE
        });
        let worker = own.clone();
        drop(own);
        drop(gone);
        worker
    }
}

impl OwnWorker {
    pub(super) fn has_ended(&self) -> bool {
        self.child.has_exited().unwrap_or(true)
    }

    /// Stops requests to a worker that takes none: the next request starts another worker.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Makes a new connection to the worker.
    ///
    /// # Errors
    /// The system's error: `WouldBlock` if the worker takes no more connections at this moment.
    pub(super) fn connect(&self) -> std::io::Result<OwnedFd> {
        let (ours, theirs) = wire::connection_pair()?;
        wire::send_message(&self.socket, &Message::Connect.encode(), &[theirs.as_fd()])?;
        Ok(ours)
    }

    /// Notes that a request begins, or has ended.
    pub(super) fn is_used(&self) {
        *lock(&self.used) = Instant::now();
    }
}

/// Lets the route's helper start a worker, and waits until the worker accepts connections.
async fn start(
    resources: &Resources,
    owners: &Arc<Owners>,
    remit: &Arc<Remit>,
    uid: u32,
) -> Result<OwnWorker, Fault> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let io = |e: std::io::Error| {
        if is_shortage(&e) {
            SHORT
        } else {
            Fault::Internal(format!("starting a wasm worker: {e}"))
        }
    };
    let (socket, theirs) = wire::socket_pair().map_err(io)?;
    let (errors, stderr) = make_pipe(|(ours, _)| ours).map_err(io)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = null.map_err(|e| io(e.into()))?;
    let stdio = [theirs.as_fd(), null.as_fd(), stderr.as_fd()];
    // The helper itself knows the program to execute.
    let launch = Launch {
        path: None,
        args: vec![std::ffi::CString::new(MODULES).unwrap_or_default()],
        env: EnvBlock::default(),
        dir: c"/".to_owned(),
        limits: Limits::default(),
        no_new_privs: true,
        sandbox: Sandbox::Standard,
        more: Vec::new(),
        knocks: false,
        priority: Priority::Normal,
    };
    let about = format!("wasm of the user {uid}");
    tokio::task::spawn_local(log_errors(errors, resources.errors.clone(), about));
    let started =
        owners::start_program(owners, (remit, uid), launch, stdio, &resources.spawner).await;
    let child = started.map_err(not_started)?;
    // The worker has its own copies of these ends.
    drop((theirs, stderr));
    is_ready(&socket).await?;
    Ok(OwnWorker {
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        socket,
        child,
        idle: Arc::default(),
        began: Instant::now(),
        given_up: AtomicBool::new(false),
        used: Mutex::new(Instant::now()),
    })
}

/// Waits until the worker reports that it accepts connections.
async fn is_ready(socket: &OwnedFd) -> Result<(), Fault> {
    let said = async {
        let watched = register(socket.as_fd(), Interest::READABLE)?;
        let mut ready = watched.readable().await?;
        ready.retain_ready();
        // The worker is a process of its user, so galgo does not trust it: any other message is ignored, and no descriptor is
        // accepted.
        let mut said = [0; wire::READY.len() + 2];
        let (n, _) = rustix::net::recv(socket, &mut said[..], RecvFlags::DONTWAIT)?;
        Ok::<_, std::io::Error>(n > 0 && said[1..n] == *wire::READY)
    };
    match timeout(READY, said).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(Fault::Script(
            "the wasm worker of the program's user ended right after its start: see the log".into(),
        )),
        Ok(Err(e)) if is_shortage(&e) => Err(SHORT),
        Ok(Err(e)) => Err(Fault::Internal(format!("the wasm worker: {e}"))),
        Err(_late) => Err(Fault::Late(
            "the wasm worker of the program's user accepted no connection within a minute".into(),
        )),
    }
}

fn not_started(e: StartError) -> Fault {
    match e.stage {
        StartStage::Denied => Fault::Refused(e.source.to_string()),
        StartStage::Helper => owners::helper_fault(&e),
        StartStage::Clone => SHORT,
        _ if is_shortage(&e.source) => SHORT,
        _ => Fault::Script(format!("the wasm worker of the program's user: {e}")),
    }
}

/// Connects to the worker, or takes a connection that the worker has served before.
pub(super) fn sock(worker: &OwnWorker, home: usize) -> std::io::Result<Sock> {
    match worker.idle.take_connection(home, Some(worker.number)) {
        Some(sock) => Ok(sock),
        None => Ok(Sock::for_requests(worker.connect()?)),
    }
}
