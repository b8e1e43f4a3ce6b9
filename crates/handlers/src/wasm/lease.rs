//! A connection to the worker of a module, and the lease on the worker, for one request.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use galgo_io::sock::Sock;
use galgo_service::{
    admission::Permit,
    fault::{Fault, is_shortage},
};
use galgo_spawn::{Exit, Status};
use galgo_wasm::wire::{self, ModuleDigest, RunOutcome};
use rustix::process::Signal;

use super::{
    start::SHORT,
    worker::{ModuleWorker, PAUSE, STARTS, WorkerPlace},
};
use crate::{resources::Resources, upstream::exchange::InstanceLease};

/// Messages for modules whose worker told the reason on standard error.
const DENIED: &str = "the module may not be run as its user: see the previous line of the log";
const BAD: &str = "the module cannot be run: see the previous line of the log";
const STUCK: &str =
    "takes no requests: it is stopped, or waits for a file system that hangs; starting another";

/// The exit of an instance that could not report how it ended: that of a killed process.
const KILLED: Exit = Exit {
    status: Status::Signal(Signal::KILL.as_raw()),
    user: Duration::ZERO,
    system: Duration::ZERO,
    max_rss: 0,
};

/// Limit for workers that end one after the other before one takes a request: each costs a process.
const WORKERS: u32 = 3;
const DEAF: &str = "takes no connections: the next request starts another";
const LOST: &str = "the wasm worker of the program's user ends right after its start";

const NONE_TAKEN: Fault = Fault::Busy("the wasm worker took no program within queue_wait");

/// The code of a module, and the place of the worker that runs it.
#[derive(Debug, Clone)]
pub struct ModuleCode {
    pub(super) place: Arc<WorkerPlace>,
    /// The name of the code; `None`: the worker finds the module by its path, and has it compiled itself.
    pub(super) key: Option<ModuleDigest>,
}

/// A lease on one connection to a worker, for one request.
#[derive(Debug)]
pub struct ModuleLease {
    pub(super) worker: Arc<ModuleWorker>,
    /// The code that runs.
    pub(super) code: ModuleCode,
    /// Event loop of the request.
    pub(super) home: usize,
    /// Permit, given back when the instance has ended.
    pub(super) permit: Permit,
}

impl ModuleLease {
    /// Returns the worker.
    pub fn worker(&self) -> &Arc<ModuleWorker> {
        &self.worker
    }
}

impl InstanceLease for ModuleLease {
    fn exit_length(&self) -> usize {
        wire::ENDED
    }

    fn decode_exit(&self, more: &[u8]) -> Result<Exit, Fault> {
        self.worker.note_use();
        let exit = match RunOutcome::decode(more) {
            Some(RunOutcome::Exit(exit)) => exit,
            Some(RunOutcome::NoThread) => return Err(SHORT),
            Some(RunOutcome::Denied) => return Err(Fault::Refused(DENIED.into())),
            Some(RunOutcome::Bad) => return Err(Fault::Script(BAD.into())),
            Some(RunOutcome::NoCode) => {
                let ModuleCode { place, key } = &self.code;
                if let (Some(compiler), Some(key)) = (place.starter.compiler(), key) {
                    compiler.forget_code(key);
                }
                KILLED
            }
            None => KILLED,
        };
        self.permit.record_cpu_time(exit.user + exit.system);
        Ok(exit)
    }

    fn exit_without_report(&self) -> Exit {
        // The end of a connection says nothing about the worker, which closes a connection whose answer the server broke off.
        self.worker.forget_ended();
        KILLED
    }

    fn report_stuck(&self) {
        self.worker.give_up(STUCK);
    }

    fn give_back(self: Box<Self>, conn: Sock) {
        let most = self.code.place.starter.most_idle();
        self.worker
            .idle
            .keep_connection(conn, self.home, None, most);
        drop(self.permit);
    }
}

impl ModuleCode {
    /// Connects to the worker that runs this code, for one run on the event loop of `resources`. If there is no worker, starts it;
    /// if the worker takes no more, waits for up to `wait`. `None`: the code has meanwhile been removed, along with the cache.
    ///
    /// # Errors
    /// No connection can be made.
    pub async fn connect(
        &self,
        resources: &Resources,
        permit: Permit,
        wait: Duration,
    ) -> Result<Option<(Sock, ModuleLease)>, Fault> {
        let (began, wait, home) = (Instant::now(), wait.max(STARTS), resources.index);
        let Self { place, key } = self;
        let (mut is_first, mut lost) = (true, 0);
        loop {
            let worker = match place.usable_worker() {
                Some(worker) => worker,
                None => {
                    is_first = false;
                    // Boxed for its size, because few requests come here.
                    Box::pin(place.start_worker(resources)).await?
                }
            };
            let compiler = place.starter.compiler().filter(|_| !is_first);
            // If a new worker did not find the code in the cache, no module has it.
            if let (Some(compiler), Some(key)) = (compiler, key)
                && !compiler.has_code(key)
            {
                return Ok(None);
            }
            match worker.open_connection(home) {
                Ok(sock) => {
                    let code = self.clone();
                    let lease = ModuleLease {
                        worker,
                        code,
                        home,
                        permit,
                    };
                    return Ok(Some((sock, lease)));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if is_shortage(&e) => return Err(SHORT),
                Err(_) => {
                    worker.wait_for_end().await;
                    worker.give_up(DEAF);
                    lost += 1;
                    if lost >= WORKERS {
                        return Err(Fault::Script(LOST.into()));
                    }
                }
            }
            if began.elapsed() >= wait {
                return Err(NONE_TAKEN);
            }
            is_first = false;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
