//! One program that is started warm: its templates, and what is known about it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use galgo_spawn::template::{Spare, Template};
use tokio::sync::Notify;

use super::{
    Warm,
    live::{Live, Room},
    lock,
};
use crate::{
    log::{ErrorLog, Level},
    route::Version,
};

/// Templates of one program: requests go to them in turn, so that what one child learns of its
/// addresses does not hold for the next.
pub(super) const TWINS: usize = 2;
/// After a crash or a failure the program stays cold for this long, doubled each time up to the
/// most; a quiet [`CALM`] forgets them.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
const CALM: Duration = Duration::from_secs(600);
/// A version of a program is loaded again for what its children taught at most this often.
const LESSONS: u32 = 6;

/// A program.
#[derive(Debug)]
pub(super) struct Program {
    /// Its file, for the log.
    pub(super) name: String,
    pub(super) log: ErrorLog,
    pub(super) wake: Notify,
    warm: Arc<Warm>,
    /// When it was asked for, milliseconds since `began`.
    used: AtomicU64,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// The file the templates were made from.
    pub(super) version: Version,
    live: Vec<Live>,
    next: usize,
    /// Modules that children loaded, one a line: the next template loads them.
    modules: Vec<u8>,
    lessons: u32,
    /// It can only be cold, in this version.
    unfit: bool,
    not_before: Instant,
    failures: u32,
    failed: Instant,
    /// Somebody loads and watches its templates.
    kept: bool,
}

/// What a program's keeper has to do.
#[derive(Debug)]
pub(super) enum Work {
    /// Load a template, with these modules.
    Load(Vec<u8>, u32),
    /// Look again then.
    Wait(Duration),
    /// Nobody asks for it any more.
    Over,
}

impl Program {
    pub(super) fn new(warm: Arc<Warm>, name: String, version: Version, log: ErrorLog) -> Self {
        let now = Instant::now();
        Self {
            name,
            log,
            wake: Notify::new(),
            warm,
            used: AtomicU64::new(0),
            began: now,
            state: Mutex::new(State {
                version,
                live: Vec::new(),
                next: 0,
                modules: Vec::new(),
                lessons: 0,
                unfit: false,
                not_before: now,
                failures: 0,
                failed: now,
                kept: false,
            }),
        }
    }

    /// A child of the next template, and whether it shall teach; `None` where there is no template.
    /// The second answer is whether a keeper has to be started.
    pub(super) fn child(&self, version: &Version) -> (Option<(Spare, i32, bool)>, bool) {
        let now = Instant::now();
        self.touch(now);
        let mut gone = Vec::new();
        let mut state = lock(&self.state);
        if state.version != *version {
            gone = state.renew(version);
            self.wake.notify_one();
        }
        let mut found = None;
        while found.is_none() && !state.live.is_empty() {
            let at = state.next % state.live.len();
            match state.live[at].child() {
                Ok(child) => found = Some(child),
                Err(_) => {
                    gone.push(state.live.remove(at));
                    self.wake.notify_one();
                }
            }
            state.next = state.next.wrapping_add(1);
        }
        let keeper = !state.kept && !state.unfit && now >= state.not_before;
        state.kept |= keeper;
        drop(state);
        drop(gone); // ends processes: not under the lock
        (found, keeper)
    }

    /// As [`child`](Self::child), where somebody is loading a template: waits for that.
    pub(super) async fn awaited(&self, version: &Version) -> Option<(Spare, i32, bool)> {
        loop {
            let (found, keeper) = self.child(version);
            let mut state = lock(&self.state);
            if keeper {
                state.kept = false; // for the next request to start one
                return found;
            }
            let loading = state.kept && !state.unfit && Instant::now() >= state.not_before;
            drop(state);
            if found.is_some() || !loading {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Has the template fork ahead of the next request.
    pub(super) fn refill(&self, template: i32) {
        let mut state = lock(&self.state);
        let live = state.live.iter_mut().find(|l| l.template.pid() == template);
        if let Some(live) = live {
            live.refill();
        }
    }

    /// What the keeper does next.
    pub(super) fn work(&self) -> Work {
        let now = Instant::now();
        let idle = now.saturating_duration_since(self.used());
        let mut state = lock(&self.state);
        let dead: Vec<Live> = state
            .live
            .extract_if(.., |l| !l.template.is_alive())
            .collect();
        let work = state.work(now, idle, self.warm.limits.idle);
        let let_go = match work {
            Work::Over => std::mem::take(&mut state.live),
            _ => Vec::new(),
        };
        drop(state);
        drop((dead, let_go));
        work
    }

    /// A template is ready: it takes the place of one that is older than what is known now, or worn.
    pub(super) fn add(&self, template: Template, room: Room, lessons: u32, version: &Version) {
        let mut state = lock(&self.state);
        if state.version != *version {
            drop(state);
            return drop(template);
        }
        let now = Instant::now();
        let live = Live::new(template, room, lessons);
        let known = state.lessons;
        let old = state.live.iter().position(|l| l.is_old(known, now));
        let gone = old.map(|at| state.live.remove(at));
        state.live.push(live);
        drop(state);
        drop(gone);
    }

    /// The version that is to be loaded.
    pub(super) fn version(&self) -> Version {
        lock(&self.state).version
    }

    /// It cannot be loaded and forked, this version of it.
    pub(super) fn unfit(&self, version: &Version, why: &str) {
        let mut state = lock(&self.state);
        if state.version != *version {
            return;
        }
        state.unfit = true;
        state.kept = false;
        let gone = std::mem::take(&mut state.live);
        drop(state);
        drop(gone);
        let words = format!("started cold although `start` is \"warm\": it {why}");
        self.log.write(Level::Warn, &self.name, &words);
    }

    /// It did not load this time.
    pub(super) fn failed(&self, why: &str) {
        let pause = lock(&self.state).failed(Instant::now());
        let seconds = pause.as_secs();
        let words = format!("not loaded for warm starts: {why}; cold for {seconds} s");
        self.log.write(Level::Warn, &self.name, &words);
    }

    /// A child did not come: its template is gone, or stuck.
    pub(super) fn lost(&self, template: i32, why: &std::io::Error) {
        let mut state = lock(&self.state);
        let at = state.live.iter().position(|l| l.template.pid() == template);
        let gone = at.map(|at| state.live.remove(at));
        drop(state);
        if gone.is_some() {
            let words = format!("its template gave no child ({why}): it is replaced");
            self.log.write(Level::Warn, &self.name, &words);
        }
        drop(gone);
        self.wake.notify_one();
    }

    /// A file it is made of has changed.
    pub(super) fn retire_changed(&self) {
        let mut state = lock(&self.state);
        let version = state.version;
        let gone = state.renew(&version);
        drop(state);
        drop(gone);
        self.wake.notify_one();
    }

    /// A child of this template was ended by a signal.
    pub(super) fn retire_crashed(&self, template: i32) {
        let mut state = lock(&self.state);
        let at = state.live.iter().position(|l| l.template.pid() == template);
        let Some(at) = at else {
            return;
        };
        let gone = state.live.remove(at);
        state.failed(Instant::now());
        drop(state);
        drop(gone);
        let words = "a child of its template was ended by a signal: the template is replaced";
        self.log.write(Level::Warn, &self.name, words);
    }

    /// A child loaded these modules itself: the next template is to have them.
    pub(super) fn learned(&self, modules: &[u8]) {
        let mut state = lock(&self.state);
        if modules.is_empty() || state.lessons >= LESSONS {
            return;
        }
        let known = |name: &[u8]| state.modules.split(|&b| b == b'\n').any(|m| m == name);
        let new: Vec<&[u8]> = modules
            .split(|&b| b == b'\n')
            .filter(|name| !name.is_empty() && !known(name))
            .collect();
        if new.is_empty() {
            return;
        }
        let new = new.join(&b'\n');
        state.modules.extend_from_slice(&new);
        state.modules.push(b'\n');
        state.lessons += 1;
        drop(state);
        self.wake.notify_one();
    }

    /// Gives up its templates, for another program.
    pub(super) fn let_go(&self) {
        let gone = std::mem::take(&mut lock(&self.state).live);
        drop(gone);
    }

    pub(super) fn has_templates(&self) -> bool {
        !lock(&self.state).live.is_empty()
    }

    /// When it was last asked for.
    pub(super) fn used(&self) -> Instant {
        self.began + Duration::from_millis(self.used.load(Ordering::Relaxed))
    }

    fn touch(&self, now: Instant) {
        let since = now.saturating_duration_since(self.began).as_millis();
        self.used
            .store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl State {
    /// Begins anew with another version of the file, or of what it loads.
    fn renew(&mut self, version: &Version) -> Vec<Live> {
        self.version = *version;
        self.modules.clear();
        self.lessons = 0;
        self.unfit = false;
        self.not_before = Instant::now();
        std::mem::take(&mut self.live)
    }

    fn failed(&mut self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.failed) > CALM {
            self.failures = 0;
        }
        let pause = (PAUSE * 2u32.saturating_pow(self.failures)).min(PAUSE_MOST);
        self.failures = (self.failures + 1).min(10);
        self.failed = now;
        self.not_before = now + pause;
        pause
    }

    fn work(&mut self, now: Instant, idle: Duration, longest: Duration) -> Work {
        let known = self.lessons;
        if idle >= longest || self.unfit {
            self.kept = false;
            return Work::Over;
        }
        let wanting = self.live.len() < TWINS || self.live.iter().any(|l| l.is_old(known, now));
        match (wanting, now < self.not_before) {
            (true, false) => Work::Load(self.modules.clone(), known),
            (true, true) => Work::Wait(self.not_before - now),
            (false, _) => Work::Wait((longest - idle).min(PAUSE)),
        }
    }
}
