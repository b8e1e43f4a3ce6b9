//! The processes of upstreams that galgo starts itself: watched, restarted, replaced one by one, and ended
//! with the last request that may ask them, or with the server. All of them on one thread, which ends after all
//! requests have.

use std::{
    cell::RefCell,
    ffi::{CString, NulError},
    fs::Metadata,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    rc::Rc,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use galgo_spawn::{Child, Direct, EnvBlock, Start, inspect};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::{JoinSet, LocalSet},
    time::{Instant, sleep, timeout},
};

use super::{Upstream, slots::Slots};
use crate::{
    admission::Permit,
    config::{self, Config},
    log::{ErrorLog, Level},
    pool,
    relay::{process::how, stderr::Lines},
    sock::{Sock, register},
};

const TERM: i32 = rustix::process::Signal::TERM.as_raw();

/// A worker that lives shorter than this has failed: the next one waits.
const SHORT: Duration = Duration::from_secs(2);
/// The first wait, doubled with each failure up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Failures in a row after which requests are not kept waiting for the next try.
const PATIENCE: u32 = 3;
const END_AT_ONCE: &str = "its workers end as soon as they are started: the log says how";
/// How often it is looked whether the program has changed.
const LOOK: Duration = Duration::from_secs(1);

/// What the workers of one route are started with.
#[derive(Debug)]
pub struct Crew {
    /// Gone once nobody asks it any more.
    upstream: Weak<Upstream>,
    slots: Arc<Slots>,
    renew: watch::Receiver<()>,
    options: config::CgiOptions,
    env: Vec<(String, String)>,
    path: String,
    umask: u32,
    log: ErrorLog,
}

impl Crew {
    /// The workers of `upstream`, as `up` of `config` has them; `None` where it has none.
    pub fn of(
        upstream: &Arc<Upstream>,
        up: &config::Upstream,
        config: &Config,
        log: &ErrorLog,
    ) -> Option<Self> {
        let (slots, renew) = upstream.slots()?;
        Some(Self {
            upstream: Arc::downgrade(upstream),
            slots: slots.clone(),
            renew,
            options: up.options.clone(),
            env: up.env.clone(),
            path: config.path.clone(),
            umask: config.umask,
            log: log.clone(),
        })
    }
}

/// The thread that watches all workers, once there are any; dropping it ends them.
#[derive(Debug)]
pub struct Watch {
    end: watch::Sender<bool>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// There has been no worker. The spawner was made early, while descriptor numbers were low.
    Idle(Option<Direct>),
    Runs {
        crews: mpsc::UnboundedSender<Crew>,
        thread: JoinHandle<()>,
    },
}

impl Watch {
    /// Nothing is watched yet.
    pub fn new(spawner: Direct) -> Self {
        Self {
            end: watch::Sender::new(false),
            state: State::Idle(Some(spawner)),
        }
    }

    /// Prepares to start workers.
    ///
    /// # Errors
    /// There is no thread to watch them.
    pub fn prepare(&mut self) -> io::Result<()> {
        let State::Idle(spawner) = &mut self.state else {
            return Ok(());
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (crews, new) = mpsc::unbounded_channel();
        // Where there was no thread to be had, the next try needs another.
        let mut spawner = spawner.take().map_or_else(Direct::new, Ok)?;
        // A server that is killed cannot end them, and nobody else would. The thread outlives them.
        spawner.set_orphaned(Some(TERM));
        let ended = self.end.subscribe();
        let thread = std::thread::Builder::new()
            .name("workers".into())
            .spawn(move || {
                runtime.block_on(LocalSet::new().run_until(posts(new, spawner, ended)))
            })?;
        self.state = State::Runs { crews, thread };
        Ok(())
    }

    /// Starts the workers of a crew; there is a thread for them, or they are not started.
    pub fn start(&self, crew: Crew) {
        if let State::Runs { crews, .. } = &self.state {
            let _ = crews.send(crew);
        }
    }
}

/// Keeps the workers of all crews, until there are none and no crew comes any more.
async fn posts(
    mut crews: mpsc::UnboundedReceiver<Crew>,
    spawner: Direct,
    ended: watch::Receiver<bool>,
) {
    let spawner = Rc::new(RefCell::new(spawner));
    let mut posts = JoinSet::new();
    loop {
        tokio::select! {
            crew = crews.recv() => match crew {
                Some(crew) => man(&mut posts, crew, &spawner, &ended),
                None => break,
            },
            Some(_) = posts.join_next() => {}
        }
    }
    while posts.join_next().await.is_some() {}
}

/// A post for each place of a crew.
fn man(
    posts: &mut JoinSet<()>,
    crew: Crew,
    spawner: &Rc<RefCell<Direct>>,
    ended: &watch::Receiver<bool>,
) {
    let crew = Rc::new(crew);
    let turn = Arc::new(Semaphore::new(1));
    for slot in 0..crew.slots.slots.len() {
        let post = Post {
            renew: crew.renew.clone(),
            crew: crew.clone(),
            slot,
            spawner: spawner.clone(),
            ended: ended.clone(),
            turn: turn.clone(),
        };
        posts.spawn_local(post.keep());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.send_replace(true);
        let state = std::mem::replace(&mut self.state, State::Idle(None));
        if let State::Runs { crews, thread } = state {
            drop(crews);
            let _ = thread.join();
        }
    }
}

/// Who keeps a worker running in one slot.
struct Post {
    crew: Rc<Crew>,
    slot: usize,
    spawner: Rc<RefCell<Direct>>,
    /// All workers are to be replaced; an error: nobody asks them any more.
    renew: watch::Receiver<()>,
    ended: watch::Receiver<bool>,
    /// One worker of a crew is replaced at a time.
    turn: Arc<Semaphore>,
}

/// Why a worker is not watched any longer.
enum Over {
    /// It has exited.
    Exited,
    /// It was ended, for another to take its place, which is lent meanwhile.
    Worn(Permit, Turn),
    /// Nobody asks for it any more, or the server ends.
    Ended,
}

/// Who has it may replace a worker.
type Turn = Option<OwnedSemaphorePermit>;

impl Post {
    async fn keep(mut self) {
        let told = &self.crew.slots.slots[self.slot].told;
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut told) = told else { return };
        let mut failures = 0;
        let mut turn: Turn = None;
        while !self.is_over() {
            let began = Instant::now();
            // What was said before it is started is done then.
            self.renew.mark_unchanged();
            let started = self.start();
            drop(turn.take());
            match started {
                Ok((child, stamp)) => match self.watch(child, stamp, &mut told).await {
                    Over::Ended => return,
                    Over::Worn(permit, own) => {
                        failures = 0;
                        turn = own;
                        self.refill(permit);
                        continue;
                    }
                    Over::Exited => {}
                },
                Err(words) => {
                    self.say(Level::Error, &words);
                    self.down(Some(words));
                }
            }
            failures = match began.elapsed() >= SHORT {
                true => 0,
                false => failures + 1,
            };
            self.pause(failures).await;
        }
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
        let ends = async {
            // Whoever is to be replaced is gone already.
            while matches!(order(&mut self.ended, &mut self.renew).await, Order::Renew) {}
        };
        tokio::select! {
            () = sleep(wait.min(LONGEST_WAIT)) => {}
            () = ends => {}
        }
    }

    /// The slot of a worker that was replaced is free again: what comes now waits in its socket until the new
    /// one takes it.
    fn refill(&self, permit: Permit) {
        self.crew.slots.free(self.slot);
        drop(permit);
    }

    /// Watches one worker until it has to be followed by another.
    async fn watch(
        &mut self,
        mut child: AsyncFd<Child>,
        stamp: Stamp,
        told: &mut mpsc::UnboundedReceiver<Permit>,
    ) -> Over {
        let began = Instant::now();
        let (mut stale, mut due) = (false, false);
        loop {
            tokio::select! {
                biased;
                _ = child.readable() => {
                    self.exited(&mut child);
                    return Over::Exited;
                }
                Some(permit) = told.recv() => {
                    let turn = self.turn.clone().acquire_owned().await.ok();
                    self.end(&mut child).await;
                    return Over::Worn(permit, turn);
                }
                order = order(&mut self.ended, &mut self.renew) => match order {
                    Order::Renew => (stale, due) = (true, true),
                    Order::End => {
                        self.end(&mut child).await;
                        return Over::Ended;
                    }
                },
                turn = self.turn.clone().acquire_owned(), if due => {
                    // Busy: whoever gives it back hands it over.
                    if let Some(permit) = self.take() {
                        self.end(&mut child).await;
                        return Over::Worn(permit, turn.ok());
                    }
                    due = false;
                    continue;
                }
                () = sleep(LOOK) => {
                    if !stale && stamp.is_old(&self.crew.slots.config.run) {
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
                let slot = &self.crew.slots.slots[self.slot];
                slot.stale.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Takes its place, where nobody asks the worker anything.
    fn take(&self) -> Option<Permit> {
        let upstream = self.crew.upstream.upgrade()?;
        let permit = upstream.admission.try_admit()?;
        self.crew.slots.take_this(self.slot).then_some(permit)
    }

    /// TERM, and KILL after the grace.
    async fn end(&self, child: &mut AsyncFd<Child>) {
        // Some answer TERM only when nobody is connected.
        if let Some(upstream) = self.crew.upstream.upgrade() {
            upstream.forget(self.slot);
        }
        let _ = child.get_ref().signal_group(TERM);
        let _ = timeout(self.crew.options.kill_grace, child.readable()).await;
        // Where it has not exited, dropping it kills its group.
        let _ = child.get_mut().try_wait();
    }

    fn exited(&self, child: &mut AsyncFd<Child>) {
        if let Ok(Some(exit)) = child.get_mut().try_wait() {
            let level = if exit.status.success() {
                Level::Info
            } else {
                Level::Warn
            };
            self.say(
                level,
                &format!("it ended {}; another is started", how(exit.status)),
            );
        }
    }

    /// Requests are told `words` at once, and so are those that wait in the socket already: nobody will
    /// answer them soon. `None`: there is a worker again.
    fn down(&self, words: Option<String>) {
        let slot = &self.crew.slots.slots[self.slot];
        let waiting = words.is_some();
        *slot.down.lock().unwrap_or_else(PoisonError::into_inner) = words;
        if waiting {
            slot.hang_up();
        }
    }

    fn about(&self) -> String {
        let run = &self.crew.slots.config.run;
        format!("worker {} of {}", self.slot + 1, run.display())
    }

    fn say(&self, level: Level, words: &str) {
        self.crew.log.write(level, &self.about(), words);
    }

    /// Starts a worker on the slot's socket.
    fn start(&self) -> Result<(AsyncFd<Child>, Stamp), String> {
        let failed = |words: &str| format!("a worker could not be started: {words}");
        let io = |e: io::Error| failed(&e.to_string());
        let (errors, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| io(e.into()))?;
        rustix::io::ioctl_fionbio(&errors, true).map_err(|e| io(e.into()))?;
        let slots = &self.crew.slots;
        let (run, slot) = (&slots.config.run, &slots.slots[self.slot]);
        // Looked at before it is executed: a change meanwhile is noticed then.
        let stamp = Stamp(Stamp::of(run));
        let command = Command::of(&slots.config).map_err(|e| io(e.into()))?;
        let mut spawner = self.spawner.borrow_mut();
        spawner.set_umask(Some(self.crew.umask));
        let started = spawner.start(&Start {
            path: &command.args[0],
            args: &command.args,
            env: &self.environment(),
            dir: &command.dir,
            stdio: [slot.listener.as_fd(), theirs.as_fd(), theirs.as_fd()],
            more: &[],
            limits: self.crew.options.limits,
            no_new_privs: self.crew.options.no_new_privs,
        });
        let child = started.map_err(|e| failed(&inspect::diagnose(run, &self.crew.path, &e)))?;
        slot.served.store(0, Ordering::Relaxed);
        slot.stale.store(false, Ordering::Relaxed);
        let child = register(child, Interest::READABLE).map_err(io)?;
        tokio::task::spawn_local(log_errors(errors, self.crew.log.clone(), self.about()));
        Ok((child, stamp))
    }

    fn environment(&self) -> EnvBlock {
        let mut env = EnvBlock::default();
        env.put(b"PATH", self.crew.path.as_bytes());
        for (name, value) in &self.crew.env {
            env.put(name.as_bytes(), value.as_bytes());
        }
        env
    }
}

/// What is executed, and where.
struct Command {
    /// The program first.
    args: Vec<CString>,
    dir: CString,
}

impl Command {
    fn of(config: &config::Workers) -> Result<Self, NulError> {
        let run = config.run.as_os_str().as_bytes();
        let args = config.args.iter().map(|arg| arg.as_bytes());
        let args = std::iter::once(run).chain(args).map(CString::new);
        let dir = config.run.parent();
        Ok(Self {
            args: args.collect::<Result<_, _>>()?,
            dir: CString::new(dir.map_or(&b"/"[..], |d| d.as_os_str().as_bytes()))?,
        })
    }
}

/// What tells one version of a program from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(Option<(u64, u64, i64, i64, u64)>);

/// What a worker is to do.
enum Order {
    /// To make room for another.
    Renew,
    /// To end: nobody asks it any more, or the server ends.
    End,
}

async fn order(ended: &mut watch::Receiver<bool>, renew: &mut watch::Receiver<()>) -> Order {
    tokio::select! {
        _ = ended.wait_for(|e| *e) => Order::End,
        renewed = renew.changed() => match renewed {
            Ok(()) => Order::Renew,
            Err(_unasked) => Order::End,
        }
    }
}

impl Stamp {
    /// Whether the program is there and another one.
    fn is_old(self, path: &std::path::Path) -> bool {
        let now = Self::of(path);
        now.is_some() && now != self.0
    }

    fn of(path: &std::path::Path) -> Option<(u64, u64, i64, i64, u64)> {
        let m: Metadata = path.metadata().ok()?;
        Some((m.dev(), m.ino(), m.mtime(), m.mtime_nsec(), m.size()))
    }
}

/// Logs what a worker writes to its standard output and error, until both are closed.
async fn log_errors(errors: OwnedFd, log: ErrorLog, about: String) {
    let sock = Sock::reader(errors);
    let mut lines = Lines::new(usize::MAX);
    let mut say = |line: &str| log.write(Level::Warn, &about, line);
    let mut buf = Vec::new();
    while matches!(sock.read_later(&mut buf).await, Ok(n) if n > 0) {
        lines.take(&buf, &mut say);
        pool::give(std::mem::take(&mut buf));
    }
    lines.finish(&mut say);
}
