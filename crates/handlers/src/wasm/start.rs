//! Starts a worker: from this process for the server's own user, else by the helper that starts the route's programs.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock},
    time::Duration,
};

use galgo_io::{off_loop::off_loop, sock::register};
use galgo_service::fault::{Fault, is_shortage};
use galgo_spawn::{
    Child, EnvBlock, Launch, Limits, Priority, Sandbox, StartError, StartStage,
    owners::{MODULES, Owners, Remit},
};
use galgo_wasm::{
    Beside, Compiler, FolderId, ModuleFault, NoCode,
    wire::{self, Profile},
};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{RecvFlags, sockopt::set_socket_send_buffer_size},
};
use tokio::{io::Interest, time::timeout};

use crate::{owners, relay::pipes::make_pipe, resources::Resources, upstream::log_errors};

/// Time for a new worker to report that it accepts connections. After that the worker is given up.
const READY: Duration = Duration::from_secs(60);
/// Limit for idle connections to a worker of another user: there may be many workers.
const OTHERS_IDLE: usize = 16;
/// Size of the socket's buffer, for many requests at once; the system's limit decides.
const ROOM: usize = 4 << 20;

/// The fault for missing resources; the next request may find them.
pub(super) const SHORT: Fault =
    Fault::Busy("no thread, process or descriptor is left for a WebAssembly module");

/// Finds `galgo-wasm`. Call this before the server becomes another user, because that user may not enter the folders on the way
/// there.
pub fn beside() -> &'static Arc<Beside> {
    static BESIDE: OnceLock<Arc<Beside>> = OnceLock::new();
    BESIDE.get_or_init(|| Arc::new(Beside::next_to_executable()))
}

/// Tells in words why no module can be run at this moment.
pub fn missing() -> Option<String> {
    beside().explain_missing()
}

/// The process that starts a worker.
#[derive(Debug, Clone)]
pub(super) enum WorkerStarter {
    /// This process; the worker reads the code that the compiler makes, and runs so many instances with these profiles.
    Server(Arc<Compiler>, usize, Vec<Profile>),
    /// The helper of a route and this user; the worker has modules compiled itself.
    Helper(Arc<Owners>, Arc<Remit>, u32),
}

impl WorkerStarter {
    /// Returns the compiler that makes the code; `None`: the worker has modules compiled itself.
    pub(super) fn compiler(&self) -> Option<&Arc<Compiler>> {
        match self {
            Self::Server(compiler, ..) => Some(compiler),
            Self::Helper(..) => None,
        }
    }

    /// Whether the worker ends when it is idle or old: there may be many such workers.
    pub(super) fn leaves(&self) -> bool {
        matches!(self, Self::Helper(..))
    }

    /// Returns the limit for idle connections to the worker.
    pub(super) fn most_idle(&self) -> usize {
        match self {
            Self::Server(_, instances, _) => *instances,
            Self::Helper(..) => OTHERS_IDLE,
        }
    }

    /// Names the worker in the log.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Server(..) => "the wasm worker".into(),
            Self::Helper(.., uid) => format!("the wasm worker of the user {uid}"),
        }
    }

    /// Returns the fault of a worker that does not come up.
    fn fault(&self, words: String) -> Fault {
        match self {
            Self::Server(..) => Fault::Internal(words),
            Self::Helper(..) => Fault::Script(words),
        }
    }
}

/// Starts a worker, and waits until it accepts connections. Returns the socket to it, its process, and the folder of compiled code
/// that it may read.
///
/// # Errors
/// The worker does not come up.
pub(super) async fn launch_worker(
    resources: &Resources,
    starter: &WorkerStarter,
) -> Result<(OwnedFd, Child, Option<FolderId>), Fault> {
    if let Some(why) = missing() {
        return Err(Fault::Refused(why));
    }
    let io = |e: io::Error| match Errno::from_io_error(&e) {
        Some(Errno::AGAIN) => SHORT,
        _ if is_shortage(&e) => SHORT,
        _ => Fault::Internal(format!("starting a wasm worker: {e}")),
    };
    let (socket, theirs) = wire::socket_pair().map_err(io)?;
    let _ = set_socket_send_buffer_size(&socket, ROOM);
    let (errors, stderr) = make_pipe(|(ours, _)| ours).map_err(io)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let stdio = [theirs, null.map_err(|e| io(e.into()))?, stderr];
    let log = resources.errors.clone();
    tokio::task::spawn_local(log_errors(errors, log, starter.name()));
    // The worker has its own copies of `stdio`, which is dropped with the start.
    let ((child, cache), socket) = match starter.clone() {
        WorkerStarter::Server(compiler, instances, profiles) => {
            let starts = move || {
                let stdio = stdio.each_ref().map(AsFd::as_fd);
                let started = compiler.start_worker(instances as u64, profiles, &socket, stdio);
                (started.map_err(not_started_here), socket)
            };
            let (started, socket) = off_loop("wasm", starts).await.map_err(io)?;
            (started?, socket)
        }
        WorkerStarter::Helper(owners, remit, uid) => {
            let started = start_as_user(resources, &owners, &remit, uid, stdio).await;
            ((started.map_err(not_started)?, None), socket)
        }
    };
    is_ready(&socket, starter).await?;
    Ok((socket, child, cache))
}

fn not_started_here(NoCode { words, whose }: NoCode) -> Fault {
    match whose {
        ModuleFault::Shortage => SHORT,
        ModuleFault::Host | ModuleFault::Denied => Fault::Refused(words),
        ModuleFault::Module | ModuleFault::Ours => Fault::Internal(words),
    }
}

/// Lets the route's helper start a worker.
async fn start_as_user(
    resources: &Resources,
    owners: &Arc<Owners>,
    remit: &Arc<Remit>,
    uid: u32,
    stdio: [OwnedFd; 3],
) -> Result<Child, StartError> {
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
    let stdio = stdio.each_ref().map(AsFd::as_fd);
    owners::start_program(owners, (remit, uid), launch, stdio, &resources.spawner).await
}

/// Waits until the worker reports that it accepts connections.
async fn is_ready(socket: &OwnedFd, starter: &WorkerStarter) -> Result<(), Fault> {
    let said = async {
        let watched = register(socket.as_fd(), Interest::READABLE)?;
        let mut ready = watched.readable().await?;
        ready.retain_ready();
        // The worker may be a process of another user, so galgo does not trust it: any other message is ignored, and no
        // descriptor is accepted.
        let mut said = [0; wire::READY.len() + 2];
        let (n, _) = rustix::net::recv(socket, &mut said[..], RecvFlags::DONTWAIT)?;
        Ok::<_, io::Error>(n > 0 && said[1..n] == *wire::READY)
    };
    match timeout(READY, said).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => {
            let words =
                "the wasm worker of the program's user ended right after its start: see the log";
            Err(starter.fault(words.into()))
        }
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
        _ => Fault::Script(format!("the wasm worker of its user: {e}")),
    }
}
