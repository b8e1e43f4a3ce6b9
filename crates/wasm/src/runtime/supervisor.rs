//! Keeps the worker up.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use galgo_spawn::{Child, Exit, Spawner, Status};
use rustix::fs::{Mode, OFlags};

use super::{Link, Runtime, compiler::again, lock};
use crate::wire::{self, Message};

/// A worker that lived shorter is not started again at once: it may have a reason.
const SHORT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

pub(super) fn start(runtime: &Arc<Runtime>) {
    let theirs = Arc::downgrade(runtime);
    let thread = thread::Builder::new().name("wasm".into());
    if let Err(e) = thread.spawn(move || keep_up(&theirs)) {
        (runtime.settings.say)(&format!("no thread to look after the wasm worker: {e}"));
    }
}

/// Starts a worker, and another whenever one has ended, until the runtime is dropped.
fn keep_up(runtime: &Weak<Runtime>) {
    for number in 0.. {
        let Some(strong) = runtime.upgrade() else {
            return;
        };
        let began = Instant::now();
        let mut child = match launch(&strong, number) {
            Ok(child) => child,
            Err(e) => {
                (strong.settings.say)(&format!("the wasm worker cannot be started: {e}"));
                drop(strong);
                thread::sleep(SHORT);
                continue;
            }
        };
        drop(strong);
        let exit = child.wait();
        let Some(strong) = runtime.upgrade() else {
            return;
        };
        (strong.settings.say)(&obituary(exit));
        // At once: what comes now waits in the next worker's socket.
        let link = lock(&strong.link).clone();
        if let Some(link) = link {
            strong.died(&link);
        }
        drop(strong);
        if began.elapsed() < SHORT {
            thread::sleep(PAUSE);
        }
    }
}

fn obituary(exit: io::Result<Exit>) -> String {
    let how = match exit.map(|exit| exit.status) {
        Ok(Status::Code(n)) => format!("exited with status {n}"),
        Ok(Status::Signal(n)) => format!("was ended by signal {n}"),
        Err(e) => format!("is gone: {e}"),
    };
    format!("the wasm worker {how}; another is started")
}

fn launch(runtime: &Arc<Runtime>, number: usize) -> io::Result<Child> {
    // Made anew for each: what it holds would be held for as long as a worker lives.
    let spawner = &mut Spawner::direct()?;
    let (ours, theirs) = wire::pair()?;
    widen(&ours);
    // First of all, so that it is the first message, and requests need not wait for the process.
    wire::send_message(&ours, &Message::Setup(runtime.setup()).encode(), &[])?;
    for key in lock(&runtime.modules).keys() {
        // What does not fit is loaded when it is asked for.
        let _ = wire::send_message(&ours, &Message::Load(key).encode(), &[]);
    }
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let stderr = io::stderr();
    let stdio = [theirs.as_fd(), null.as_fd(), stderr.as_fd()];
    let child = again(spawner, "wasm-worker", stdio).map_err(io::Error::other)?;
    let link = Link {
        socket: ours,
        process: child.as_fd().try_clone_to_owned()?,
        number,
    };
    *lock(&runtime.link) = Some(Arc::new(link));
    Ok(child)
}

/// Room for many requests at once; the system's limit decides.
fn widen(socket: &OwnedFd) {
    const BYTES: usize = 4 << 20;
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, BYTES);
}
