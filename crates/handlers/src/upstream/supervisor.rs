//! Supervises the processes of upstreams that galgo starts itself. They are watched, restarted, and replaced one by one. They end
//! with the last request that may need them, or with the server.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use galgo_service::{admission::Permit, lock::lock, log::Level};
use galgo_spawn::{Child, Exit, FileId, Spawner, Status, words::describe_status};
use tokio::{
    io::unix::AsyncFd,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    slots::WorkerSlot,
    worker_pool::WorkerPool,
    worker_start::{StartedWorker, version},
};

pub(super) const TERM: i32 = rustix::process::Signal::TERM.as_raw();
const KILL: i32 = rustix::process::Signal::KILL.as_raw();

/// Time below which a worker that ends without an answer has failed: the next start waits.
const SHORT: Duration = Duration::from_secs(2);
/// Wait after the first failure. It doubles with each failure, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Failures in a row after which requests no longer wait for the next try.
const PATIENCE: u32 = 3;
const END_AT_ONCE: &str = "the workers of this route end right after their start: see the log";
/// Time to read an answer that a worker gave just before it ended.
const READ: Duration = Duration::from_millis(100);
/// Interval of checks whether the program has changed.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps a worker running in one slot.
pub(super) struct Supervisor {
    pub(super) pool: Rc<WorkerPool>,
    pub(super) slot: usize,
    pub(super) spawner: Rc<RefCell<Spawner>>,
    /// Notified when all workers are to be replaced; an error means that no further request can come.
    pub(super) renew: watch::Receiver<()>,
    pub(super) ended: watch::Receiver<bool>,
    /// Lets one worker of a pool be replaced at a time.
    pub(super) replacing: Arc<Semaphore>,
}

/// Reason to stop watching a worker.
enum Over {
    /// The worker has exited, with this status if it is known.
    Exited(Option<Exit>),
    /// The worker was ended to be replaced. Its permit is lent to the supervisor meanwhile.
    Worn(Permit, ReplacePermit),
    /// No further request can come, or the server ends.
    Ended,
}

/// The right to replace a worker.
type ReplacePermit = Option<OwnedSemaphorePermit>;

impl Supervisor {
    pub(super) async fn keep_worker(mut self) {
        let Some(mut told) = lock(&self.own_slot().told).take() else {
            return;
        };
        let mut failures = 0;
        let mut replacing: ReplacePermit = None;
        let spare = self.slot == self.pool.slots.spare_slot();
        if spare && !self.is_needed().await {
            return;
        }
        while !self.is_over() {
            let began = Instant::now();
            // The start does what earlier renewals asked for. The slot is reset when a worker ends, not here: a request may use
            // the slot before its first worker is started.
            self.renew.mark_unchanged();
            let Some(started) = self.start_worker().await else {
                return;
            };
            drop(replacing.take());
            let exit = match started {
                Ok((child, executed)) => {
                    match self.watch_worker(child, executed, &mut told).await {
                        Over::Ended => return,
                        Over::Worn(permit, own) => {
                            failures = 0;
                            replacing = own;
                            // Reset the slot before a request can take it: a connection that comes now waits in its socket, and
                            // counts for the new worker.
                            self.own_slot().forget_worker();
                            self.pool.slots.release_slot(self.slot);
                            drop(permit);
                            continue;
                        }
                        Over::Exited(exit) => exit,
                    }
                }
                Err(words) => {
                    self.log_message(Level::Error, &words);
                    self.set_down(Some(words));
                    None
                }
            };
            let answered = self.handle_exit(exit).await;
            self.own_slot().forget_worker();
            failures = if answered || began.elapsed() >= SHORT {
                0
            } else {
                failures + 1
            };
            self.pause_before_start(failures).await;
        }
    }

    /// Waits until a worker has crashed, then offers the spare slot to requests. They choose the spare last until it has
    /// answered. Returns false if the pool ends first.
    async fn is_needed(&mut self) -> bool {
        let slots = self.pool.slots.clone();
        let mut crashed = slots.crashed.subscribe();
        loop {
            tokio::select! {
                _ = crashed.wait_for(|crashed| *crashed) => break,
                renewed = await_renewal(&mut self.ended, &mut self.renew) => if !renewed {
                    return false;
                }
            }
        }
        self.own_slot().set_trusted(false);
        slots.release_slot(self.slot);
        true
    }

    /// Returns whether a worker that has ended had answered before.
    async fn has_answered(&self) -> bool {
        let slots = &self.pool.slots;
        let mut proven = self.own_slot().proven.subscribe();
        // The end of its last answer may not have been read yet.
        let wait = if slots.is_free(self.slot) {
            Duration::ZERO
        } else {
            READ
        };
        let answered = timeout(wait, proven.wait_for(|proven| *proven)).await;
        matches!(answered, Ok(Ok(_)))
    }

    fn own_slot(&self) -> &WorkerSlot {
        &self.pool.slots.slots[self.slot]
    }

    fn is_over(&self) -> bool {
        *self.ended.borrow() || self.renew.has_changed().is_err()
    }

    /// Waits before the next start, the longer the more starts have failed in a row.
    async fn pause_before_start(&mut self, failures: u32) {
        if failures >= PATIENCE {
            self.set_down(Some(END_AT_ONCE.into()));
        }
        let Some(doubled) = failures.checked_sub(1) else {
            return;
        };
        let wait = FIRST_WAIT.saturating_mul(1 << doubled.min(10));
        tokio::select! {
            () = sleep(wait.min(LONGEST_WAIT)) => {}
            // No renewal is needed: the worker to replace is already gone.
            () = await_end(&mut self.ended, &mut self.renew) => {}
        }
    }

    /// Watches a worker until another has to follow.
    async fn watch_worker(
        &mut self,
        mut child: AsyncFd<Child>,
        executed: Option<FileId>,
        told: &mut mpsc::UnboundedReceiver<Permit>,
    ) -> Over {
        let began = Instant::now();
        let (mut stale, mut due) = (false, false);
        loop {
            // Check before waiting: a helper may report the end of a worker along with its start.
            match child.get_mut().try_wait() {
                Ok(None) => {}
                exit => return Over::Exited(exit.ok().flatten()),
            }
            tokio::select! {
                biased;
                ready = child.readable() => {
                    let Ok(mut ready) = ready else { return Over::Exited(None) };
                    ready.clear_ready();
                    continue;
                }
                Some(permit) = told.recv() => {
                    let replacing = self.replacing.clone().acquire_owned().await.ok();
                    self.terminate_worker(&mut child).await;
                    return Over::Worn(permit, replacing);
                }
                renewed = await_renewal(&mut self.ended, &mut self.renew) => {
                    if !renewed {
                        let exit = self.terminate_worker(&mut child).await;
                        self.log_exit(exit);
                        return Over::Ended;
                    }
                    (stale, due) = (true, true);
                }
                replacing = self.replacing.clone().acquire_owned(), if due => {
                    // If the worker is busy, its request hands it over when it gives the slot back.
                    if let Some(permit) = self.take_idle_worker() {
                        self.terminate_worker(&mut child).await;
                        return Over::Worn(permit, replacing.ok());
                    }
                    due = false;
                    continue;
                }
                () = sleep(LOOK) => {
                    let now = version(&self.pool.slots.config.run);
                    if !stale && now.is_some() && now != executed {
                        self.log_message(Level::Info, "the program has changed: replacing the worker");
                        stale = true;
                    }
                    due = stale;
                }
            }
            if began.elapsed() >= SHORT {
                self.set_down(None);
            }
            if stale {
                self.own_slot().stale.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Takes the worker's permit and slot if no request uses the worker.
    fn take_idle_worker(&self) -> Option<Permit> {
        let upstream = self.pool.upstream.upgrade()?;
        let permit = upstream.admission.try_admit()?;
        self.pool.slots.take_this_slot(self.slot).then_some(permit)
    }

    /// Sends TERM to the worker, and KILL after the grace period.
    async fn terminate_worker(&self, child: &mut AsyncFd<Child>) -> Option<Exit> {
        // Some applications obey TERM only when no client is connected.
        if let Some(upstream) = self.pool.upstream.upgrade() {
            upstream.idle.close_slot(self.slot);
        }
        // Wait for the end, because the next worker must not share the socket with this one. Dropping the child kills its process
        // group.
        for signal in [TERM, KILL] {
            let _ = child.get_ref().signal_group(signal);
            let ended = timeout(self.pool.options.kill_grace, child.readable());
            if ended.await.is_ok() {
                break;
            }
            if signal == TERM {
                self.log_message(
                    Level::Warn,
                    "did not end within kill_grace after TERM: sending KILL",
                );
            }
        }
        child.get_mut().try_wait().ok().flatten()
    }

    /// Logs how a worker ended after it was told to.
    fn log_exit(&self, exit: Option<Exit>) {
        if let Some(exit) = exit.filter(|exit| exit.status != Status::Signal(KILL)) {
            let words = format!(
                "was stopped by galgo, and ended {}",
                describe_status(exit.status)
            );
            self.log_message(Level::Info, &words);
        }
    }

    /// Handles a worker that ended by itself. Returns whether it had answered before.
    async fn handle_exit(&self, exit: Option<Exit>) -> bool {
        self.own_slot().set_trusted(false);
        let success = exit.is_none_or(|exit| exit.status.success());
        if let Some(exit) = exit {
            let level = if success { Level::Info } else { Level::Warn };
            let words = format!("ended {}; starting another", describe_status(exit.status));
            self.log_message(level, &words);
        }
        let answered = self.has_answered().await;
        if answered && !success {
            self.pool.slots.crashed.send_replace(true);
        }
        answered
    }

    /// Refuses with `words` new requests and requests that wait in the socket: no worker will answer them soon. `None`: a worker
    /// runs again.
    fn set_down(&self, words: Option<String>) {
        let slot = self.own_slot();
        let waiting = words.is_some();
        *lock(&slot.down) = words;
        if waiting {
            slot.hang_up();
        }
    }

    fn log_label(&self) -> String {
        let run = &self.pool.slots.config.run;
        format!("worker {} of {}", self.slot + 1, run.display())
    }

    fn log_message(&self, level: Level, words: &str) {
        self.pool.log.write(level, &self.log_label(), words);
    }

    /// Starts a worker on the slot's socket; `None` if the pool or the server ends first.
    async fn start_worker(&self) -> Option<Result<StartedWorker, String>> {
        let (mut ended, mut renew) = (self.ended.clone(), self.renew.clone());
        tokio::select! {
            biased;
            started = self.pool.start_worker(&self.spawner, self.slot, self.log_label()) => Some(started),
            () = await_end(&mut ended, &mut renew) => None,
        }
    }
}

/// Waits until the worker has to end.
async fn await_end(ended: &mut watch::Receiver<bool>, renew: &mut watch::Receiver<()>) {
    while await_renewal(ended, renew).await {}
}

/// Waits until the worker has to be replaced. Returns false if it has to end, because no further request can come or the server
/// ends.
async fn await_renewal(ended: &mut watch::Receiver<bool>, renew: &mut watch::Receiver<()>) -> bool {
    tokio::select! {
        _ = ended.wait_for(|e| *e) => false,
        renewed = renew.changed() => renewed.is_ok(),
    }
}
