//! The processes of upstreams that galgo starts itself: watched, restarted, replaced one by one, and ended
//! with the last request that may ask them, or with the server.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use galgo_service::{admission::Permit, lock::lock, log::Level};
use galgo_spawn::{Child, Exit, FileId, Spawner, Status, words::how};
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

/// A worker that ends sooner, and has answered nothing, has failed: the next one waits.
const SHORT: Duration = Duration::from_secs(2);
/// The first wait, doubled with each failure up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Failures in a row after which requests are not kept waiting for the next try.
const PATIENCE: u32 = 3;
const END_AT_ONCE: &str = "its workers end as soon as they are started: the log says how";
/// An answer that a worker gave just before it ended is read within this.
const READ: Duration = Duration::from_millis(100);
/// How often it is looked whether the program has changed.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps a worker running in one slot.
pub(super) struct Supervisor {
    pub(super) pool: Rc<WorkerPool>,
    pub(super) slot: usize,
    pub(super) spawner: Rc<RefCell<Spawner>>,
    /// All workers are to be replaced; an error: no request comes any more.
    pub(super) renew: watch::Receiver<()>,
    pub(super) ended: watch::Receiver<bool>,
    /// One worker of a pool is replaced at a time.
    pub(super) replacing: Arc<Semaphore>,
}

/// Why a worker is not watched any longer.
enum Over {
    /// It has exited, in this way where that is known.
    Exited(Option<Exit>),
    /// It was ended, to be replaced; its permit is lent meanwhile.
    Worn(Permit, ReplacePermit),
    /// No request comes any more, or the server ends.
    Ended,
}

/// The holder may replace a worker.
type ReplacePermit = Option<OwnedSemaphorePermit>;

impl Supervisor {
    pub(super) async fn keep(mut self) {
        let Some(mut told) = lock(&self.own_slot().told).take() else {
            return;
        };
        let mut failures = 0;
        let mut replacing: ReplacePermit = None;
        let spare = self.slot == self.pool.slots.spare();
        if spare && !self.is_needed().await {
            return;
        }
        while !self.is_over() {
            let began = Instant::now();
            // What was said before it is started is done then. What is known of it is forgotten when it ends: a request
            // may be the first worker's before that is started.
            self.renew.mark_unchanged();
            let Some(started) = self.start().await else {
                return;
            };
            drop(replacing.take());
            let exit = match started {
                Ok((child, executed)) => match self.watch(child, executed, &mut told).await {
                    Over::Ended => return,
                    Over::Worn(permit, own) => {
                        failures = 0;
                        replacing = own;
                        // Before its slot is taken: what comes now waits in its socket, and counts for the new worker.
                        self.own_slot().renew();
                        self.pool.slots.free(self.slot);
                        drop(permit);
                        continue;
                    }
                    Over::Exited(exit) => exit,
                },
                Err(words) => {
                    self.say(Level::Error, &words);
                    self.down(Some(words));
                    None
                }
            };
            let answered = self.ended(exit).await;
            self.own_slot().renew();
            failures = if answered || began.elapsed() >= SHORT {
                0
            } else {
                failures + 1
            };
            self.pause(failures).await;
        }
    }

    /// Waits until a worker has crashed, and gives its slot to requests then: they come to the spare last, until it has
    /// answered. False: all is over before.
    async fn is_needed(&mut self) -> bool {
        let slots = self.pool.slots.clone();
        let mut crashed = slots.crashed.subscribe();
        loop {
            tokio::select! {
                _ = crashed.wait_for(|crashed| *crashed) => break,
                renewed = renewed(&mut self.ended, &mut self.renew) => if !renewed {
                    return false;
                }
            }
        }
        self.own_slot().trust(false);
        slots.free(self.slot);
        true
    }

    /// Whether a worker that has ended had answered before.
    async fn has_answered(&self) -> bool {
        let slots = &self.pool.slots;
        let mut proven = self.own_slot().proven.subscribe();
        // What it said to the request that it had may not have been read yet.
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

    /// Waits before the next one is started, the longer the more have failed in a row.
    async fn pause(&mut self, failures: u32) {
        if failures >= PATIENCE {
            self.down(Some(END_AT_ONCE.into()));
        }
        let Some(doubled) = failures.checked_sub(1) else {
            return;
        };
        let wait = FIRST_WAIT.saturating_mul(1 << doubled.min(10));
        tokio::select! {
            () = sleep(wait.min(LONGEST_WAIT)) => {}
            // The worker that is to be replaced is gone already.
            () = end(&mut self.ended, &mut self.renew) => {}
        }
    }

    /// Watches one worker until it has to be followed by another.
    async fn watch(
        &mut self,
        mut child: AsyncFd<Child>,
        executed: Option<FileId>,
        told: &mut mpsc::UnboundedReceiver<Permit>,
    ) -> Over {
        let began = Instant::now();
        let (mut stale, mut due) = (false, false);
        loop {
            // Looked at first: a helper that tells of an end at once has told it with the start.
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
                    self.end(&mut child).await;
                    return Over::Worn(permit, replacing);
                }
                renewed = renewed(&mut self.ended, &mut self.renew) => {
                    if !renewed {
                        let exit = self.end(&mut child).await;
                        self.told(exit);
                        return Over::Ended;
                    }
                    (stale, due) = (true, true);
                }
                replacing = self.replacing.clone().acquire_owned(), if due => {
                    // Busy: the request that gives it back hands it over.
                    if let Some(permit) = self.take() {
                        self.end(&mut child).await;
                        return Over::Worn(permit, replacing.ok());
                    }
                    due = false;
                    continue;
                }
                () = sleep(LOOK) => {
                    let now = version(&self.pool.slots.config.run);
                    if !stale && now.is_some() && now != executed {
                        self.say(Level::Info, "its program has changed: it is replaced");
                        stale = true;
                    }
                    due = stale;
                }
            }
            if began.elapsed() >= SHORT {
                self.down(None);
            }
            if stale {
                self.own_slot().stale.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Takes its permit and slot, where no request uses the worker.
    fn take(&self) -> Option<Permit> {
        let upstream = self.pool.upstream.upgrade()?;
        let permit = upstream.admission.try_admit()?;
        self.pool.slots.take_this(self.slot).then_some(permit)
    }

    /// Sends TERM, and KILL after the grace.
    async fn end(&self, child: &mut AsyncFd<Child>) -> Option<Exit> {
        // Some answer TERM only when no client is connected.
        if let Some(upstream) = self.pool.upstream.upgrade() {
            upstream.idle.close_slot(self.slot);
        }
        // The next one is not to share the socket with it, so its end is waited for; dropping it kills its group.
        for signal in [TERM, KILL] {
            let _ = child.get_ref().signal_group(signal);
            let ended = timeout(self.pool.options.kill_grace, child.readable());
            if ended.await.is_ok() {
                break;
            }
            if signal == TERM {
                self.say(
                    Level::Warn,
                    "TERM did not end it within kill_grace: KILL ends it",
                );
            }
        }
        child.get_mut().try_wait().ok().flatten()
    }

    /// Logs how a worker has ended that was told to.
    fn told(&self, exit: Option<Exit>) {
        if let Some(exit) = exit.filter(|exit| exit.status != Status::Signal(KILL)) {
            let words = format!("was told to end, and ended {}", how(exit.status));
            self.say(Level::Info, &words);
        }
    }

    /// A worker has ended by itself. Whether it had answered before.
    async fn ended(&self, exit: Option<Exit>) -> bool {
        self.own_slot().trust(false);
        let success = exit.is_none_or(|exit| exit.status.success());
        if let Some(exit) = exit {
            let level = if success { Level::Info } else { Level::Warn };
            let words = format!("it ended {}; another is started", how(exit.status));
            self.say(level, &words);
        }
        let answered = self.has_answered().await;
        if answered && !success {
            self.pool.slots.crashed.send_replace(true);
        }
        answered
    }

    /// Requests are told `words` at once, and so are those that wait in the socket already: no worker will
    /// answer them soon. `None`: there is a worker again.
    fn down(&self, words: Option<String>) {
        let slot = self.own_slot();
        let waiting = words.is_some();
        *lock(&slot.down) = words;
        if waiting {
            slot.hang_up();
        }
    }

    fn about(&self) -> String {
        let run = &self.pool.slots.config.run;
        format!("worker {} of {}", self.slot + 1, run.display())
    }

    fn say(&self, level: Level, words: &str) {
        self.pool.log.write(level, &self.about(), words);
    }

    /// Starts a worker on the slot's socket; `None`: all is over before it runs.
    async fn start(&self) -> Option<Result<StartedWorker, String>> {
        let (mut ended, mut renew) = (self.ended.clone(), self.renew.clone());
        tokio::select! {
            biased;
            started = self.pool.start(&self.spawner, self.slot, self.about()) => Some(started),
            () = end(&mut ended, &mut renew) => None,
        }
    }
}

/// Waits until the worker is to end.
async fn end(ended: &mut watch::Receiver<bool>, renew: &mut watch::Receiver<()>) {
    while renewed(ended, renew).await {}
}

/// Waits until the worker is to make room for another. False: it is to end, for no request comes any more, or the server
/// ends.
async fn renewed(ended: &mut watch::Receiver<bool>, renew: &mut watch::Receiver<()>) -> bool {
    tokio::select! {
        _ = ended.wait_for(|e| *e) => false,
        renewed = renew.changed() => renewed.is_ok(),
    }
}
