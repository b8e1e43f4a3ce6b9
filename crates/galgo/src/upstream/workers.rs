//! The processes of upstreams that galgo starts itself: watched, restarted, replaced one by one, and ended
//! with the server. All of them on one thread, which ends after all requests have.

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
    sync::{Arc, PoisonError, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use galgo_spawn::{Child, Direct, EnvBlock, Spawner, Start, inspect};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::{Upstream, slots::Slots};
use crate::{
    admission::Permit,
    config,
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
    upstream: Arc<Upstream>,
    options: config::CgiOptions,
    env: Vec<(String, String)>,
    path: String,
    log: ErrorLog,
}

impl Crew {
    /// The workers of `upstream`; `None` where it has none.
    pub fn of(
        upstream: &Arc<Upstream>,
        config: &config::Upstream,
        path: &str,
        log: &ErrorLog,
    ) -> Option<Self> {
        upstream.slots()?;
        Some(Self {
            upstream: upstream.clone(),
            options: config.options.clone(),
            env: config.env.clone(),
            path: path.to_owned(),
            log: log.clone(),
        })
    }
}

/// The thread that watches all workers; dropping it ends them.
#[derive(Debug)]
pub struct Watch {
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts all workers. `spawner` was made early, while descriptor numbers were low.
    pub fn start(crews: Vec<Crew>, mut spawner: Direct) -> io::Result<Self> {
        // A server that is killed cannot end them, and nobody else would. This thread outlives them.
        spawner.set_orphaned(Some(TERM));
        let (end, ended) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("workers".into())
            .spawn(move || {
                let spawner = Rc::new(RefCell::new(Spawner::Direct(spawner)));
                let local = tokio::task::LocalSet::new();
                let mut posts = Vec::new();
                for crew in crews {
                    let crew = Rc::new(crew);
                    let turn = Rc::new(tokio::sync::Semaphore::new(1));
                    for slot in 0..crew.slots().slots.len() {
                        let post = Post {
                            crew: crew.clone(),
                            slot,
                            spawner: spawner.clone(),
                            ended: ended.clone(),
                            turn: turn.clone(),
                        };
                        posts.push(local.spawn_local(post.keep()));
                    }
                }
                local.block_on(&runtime, async {
                    for post in posts {
                        let _ = post.await;
                    }
                });
            })?;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Crew {
    fn slots(&self) -> &Arc<Slots> {
        // INVARIANT: `Crew::of` makes none for an upstream without slots.
        self.upstream.slots().expect("slots")
    }
}

/// Who keeps a worker running in one slot.
struct Post {
    crew: Rc<Crew>,
    slot: usize,
    spawner: Rc<RefCell<Spawner>>,
    ended: watch::Receiver<bool>,
    /// One worker of a crew is replaced at a time.
    turn: Rc<tokio::sync::Semaphore>,
}

/// Why a worker is not watched any longer.
enum Over {
    /// It has exited.
    Exited,
    /// It is to be replaced; the place is lent meanwhile.
    Worn(Permit),
    /// The server ends.
    Ended,
}

impl Post {
    async fn keep(mut self) {
        let told = &self.crew.slots().slots[self.slot].told;
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut told) = told else { return };
        let mut failures = 0;
        while !*self.ended.borrow() {
            let began = Instant::now();
            match self.start() {
                Ok((child, stamp)) => match self.watch(child, stamp, &mut told).await {
                    Over::Ended => return,
                    Over::Worn(permit) => {
                        failures = 0;
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
            _ = self.ended.wait_for(|e| *e) => {}
        }
    }

    /// The slot of a worker that was replaced is free again: what comes now waits in its socket until the new
    /// one takes it.
    fn refill(&self, permit: Permit) {
        self.crew.slots().free(self.slot);
        drop(permit);
    }

    /// Watches one worker until it has to be followed by another.
    async fn watch(
        &self,
        child: AsyncFd<Child>,
        stamp: Stamp,
        told: &mut mpsc::UnboundedReceiver<Permit>,
    ) -> Over {
        let (mut child, mut ended) = (child, self.ended.clone());
        let began = Instant::now();
        loop {
            let look = tokio::select! {
                biased;
                _ = child.readable() => {
                    self.exited(&mut child);
                    return Over::Exited;
                }
                Some(permit) = told.recv() => {
                    self.replace(child).await;
                    return Over::Worn(permit);
                }
                _ = ended.wait_for(|e| *e) => {
                    self.end(&mut child).await;
                    return Over::Ended;
                }
                () = sleep(LOOK) => Stamp::of(&self.crew.slots().config.run),
            };
            if began.elapsed() >= SHORT {
                self.down(None);
            }
            let slots = self.crew.slots();
            if look.is_some() && look != stamp.0 {
                slots.slots[self.slot].stale.store(true, Ordering::Relaxed);
                // Busy: whoever gives it back hands it over.
                if let Some(permit) = self.crew.upstream.admission.try_admit()
                    && slots.take_this(self.slot)
                {
                    self.say(Level::Info, "its program has changed: it is replaced");
                    self.replace(child).await;
                    return Over::Worn(permit);
                }
            }
        }
    }

    /// Ends a worker that nobody asks anything; the next one is started right after.
    async fn replace(&self, mut child: AsyncFd<Child>) {
        let _turn = self.turn.acquire().await;
        self.end(&mut child).await;
    }

    /// TERM, and KILL after the grace.
    async fn end(&self, child: &mut AsyncFd<Child>) {
        // Some answer TERM only when nobody is connected.
        self.crew.upstream.forget(self.slot);
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
        let slot = &self.crew.slots().slots[self.slot];
        let waiting = words.is_some();
        *slot.down.lock().unwrap_or_else(PoisonError::into_inner) = words;
        if waiting {
            slot.hang_up();
        }
    }

    fn about(&self) -> String {
        let run = &self.crew.slots().config.run;
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
        let slots = self.crew.slots();
        let (run, slot) = (&slots.config.run, &slots.slots[self.slot]);
        // Looked at before it is executed: a change meanwhile is noticed then.
        let stamp = Stamp(Stamp::of(run));
        let command = Command::of(&slots.config).map_err(|e| io(e.into()))?;
        let started = self.spawner.borrow_mut().start(&Start {
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

impl Stamp {
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
