//! The supervisor, which keeps the worker up.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, MutexGuard, Weak},
    thread,
    time::{Duration, Instant},
};

use galgo_spawn::{Child, Exit, Spawner, Status};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
};

use crate::{
    code, host,
    runtime::runtime_state::{Runtime, Supervision, WorkerHandle, folder},
    wire::{self, Message},
};
use galgo_spawn::lock::lock;

/// A worker that lived for a shorter time is not started again at once, because it may have had a reason to end.
const SHORT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
/// Longest pause. The pause doubles with each worker that ends before it takes connections.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Time limit for a worker to report that it takes connections.
const READY: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

impl Runtime {
    /// Makes sure that a supervisor keeps a worker up.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut supervision = lock(&self.supervision);
        if supervision.supervisor.is_none() {
            let own = supervision.supervisors;
            let theirs = Arc::downgrade(self);
            let thread = thread::Builder::new().name("wasm".into());
            let started = thread.spawn(move || keep_up(&theirs, own));
            started.inspect_err(|e| {
                self.say(&format!("cannot start a thread for the wasm worker: {e}"));
            })?;
            supervision.supervisors += 1;
            supervision.supervisor = Some(own);
        }
        Ok(())
    }

    /// Called if this worker has not taken a request. Ends the worker, and starts its replacement at once, because the worker
    /// may not end.
    pub(super) fn is_stuck(self: &Arc<Self>, worker: &WorkerHandle) {
        let mut supervision = lock(&self.supervision);
        let link = supervision
            .link
            .take_if(|link| link.number == worker.number);
        let Some(stuck) = link else { return };
        self.replace_supervisor(supervision);
        let _ = galgo_spawn::kill_by_pidfd(&stuck.process);
        self.say("the wasm worker takes no requests: it is stopped, or the file systems of its modules hang; galgo starts another");
    }

    /// Called when a module's code is in the cache. If the cache is another folder than the worker may read, another worker
    /// replaces it, and it ends with its last request.
    pub(super) fn has_cache(self: &Arc<Self>) {
        let now = folder(&self.cache());
        let mut supervision = lock(&self.supervision);
        if supervision.link.take_if(|link| link.cache != now).is_some() {
            self.replace_supervisor(supervision);
        }
    }

    /// Has another supervisor start a worker. If there is no thread for the supervisor, the next request gets an error.
    fn replace_supervisor(self: &Arc<Self>, mut supervision: MutexGuard<'_, Supervision>) {
        supervision.supervisor = None;
        drop(supervision);
        let _ = self.start();
    }
}

/// Starts a worker, and another whenever it has ended, until the runtime is dropped or another supervisor takes over.
fn keep_up(runtime: &Weak<Runtime>, own: usize) {
    let current = || runtime.upgrade().filter(|runtime| runtime.is_kept_by(own));
    let mut failures = 0;
    loop {
        let Some(strong) = current() else { return };
        let began = Instant::now();
        let launched = launch(&strong, own);
        drop(strong);
        let (failed, how) = match launched {
            Ok(mut child) => (false, obituary(child.wait())),
            Err(e) => (true, format!("cannot start the wasm worker: {e}")),
        };
        let Some(strong) = current() else { return };
        strong.say(&how);
        // New requests wait for the next worker.
        lock(&strong.supervision).link = None;
        drop(strong);
        failures = if failed { failures + 1 } else { 0 };
        if failed || began.elapsed() < SHORT {
            let pause = PAUSE.saturating_mul(1 << failures.min(10));
            thread::sleep(pause.min(LONGEST_PAUSE));
        }
    }
}

fn obituary(exit: io::Result<Exit>) -> String {
    let how = match exit.map(|exit| exit.status) {
        Ok(Status::Code(n)) => format!("exited with status {n}"),
        Ok(Status::Signal(n)) => format!("was killed by signal {n}"),
        Err(e) => format!("is gone: {e}"),
    };
    format!("the wasm worker {how}; galgo starts another")
}

/// Starts a worker, and directs requests to it once it takes connections.
fn launch(runtime: &Arc<Runtime>, own: usize) -> io::Result<Child> {
    // The folder must exist when the worker confines itself to it. An error is reported to the request that needs the folder.
    let _ = code::create_cache(&runtime.cache());
    let cache = folder(&runtime.cache());
    // A new spawner for each worker, because an older one would keep its resources for as long as the worker lives.
    let spawner = &mut Spawner::direct()?;
    let (ours, theirs) = wire::socket_pair()?;
    widen(&ours);
    // Before everything else, so that the setup is the first message.
    wire::send_message(&ours, &Message::Setup(runtime.setup()).encode(), &[])?;
    load(runtime, &ours);
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let stderr = io::stderr();
    let stdio = [theirs.as_fd(), null.as_fd(), stderr.as_fd()];
    let host = runtime.settings.beside.known_program();
    let host = host.ok_or_else(|| io::Error::other("galgo-wasm was not asked yet"))?;
    let child = host
        .start_command(spawner, host::WORKER, stdio, None)
        .map_err(io::Error::other)?;
    drop(theirs);
    is_ready(&ours)?;
    let process = child.as_fd().try_clone_to_owned()?;
    let mut supervision = lock(&runtime.supervision);
    // Another supervisor has taken over meanwhile, or must take over because compiled code is now in a folder that this
    // worker may not read. The worker ends with its socket.
    let reads = cache == folder(&runtime.cache());
    if supervision.supervisor == Some(own) && !reads {
        runtime.replace_supervisor(supervision);
    } else if supervision.supervisor == Some(own) {
        let number = supervision.workers;
        supervision.workers += 1;
        supervision.link = Some(Arc::new(WorkerHandle {
            socket: ours,
            process,
            number,
            cache,
        }));
    }
    Ok(child)
}

/// Makes the worker load the code that is in the cache, before the first request; missing code is compiled again.
fn load(runtime: &Runtime, worker: &OwnedFd) {
    let Some(host) = runtime.settings.beside.known_program() else {
        return;
    };
    let cache = &runtime.cache();
    let modules = &mut lock(&runtime.modules);
    let keys: Vec<_> = modules.keys().collect();
    for key in keys {
        if code::entry_path(cache, &key, host.engine()).exists() {
            // Code that does not fit into the socket is loaded on request.
            let _ = wire::send_message(worker, &Message::Load(key).encode(), &[]);
        } else {
            modules.lost(&key);
        }
    }
}

/// Waits until the worker reports that it takes connections.
fn is_ready(worker: &OwnedFd) -> io::Result<()> {
    let mut fds = [PollFd::new(worker, PollFlags::IN)];
    let said = loop {
        match poll(&mut fds, Some(&READY)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => break wire::receive_message(worker, &mut Vec::new())?.is_some(),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    };
    if said {
        Ok(())
    } else {
        Err(io::Error::other(
            "it ended right after its start: see standard error",
        ))
    }
}

/// Makes room for many requests at once; the system's limit decides.
fn widen(socket: &OwnedFd) {
    const BYTES: usize = 4 << 20;
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, BYTES);
}
