//! One program that is started warm: its templates, and what is known about it.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use galgo_spawn::template::{Kind, Loaded, Template, Uses};
use tokio::sync::Notify;

use super::{
    About,
    learned::Learned,
    live::{Live, Offer, Room},
    lock,
    order::{Edition, Order, Work},
    watch,
};
use crate::{
    config::Route,
    log::{ErrorLog, Level},
    route::Version,
};

/// Templates of one program: requests go to them in turn, so that what one child learns of its
/// addresses does not hold for the next. Of parked processes there are as many.
pub(super) const TWINS: usize = 2;
/// After a crash or a failure the program stays cold for this long, doubled each time up to the
/// most; a quiet [`CALM`] forgets them.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
const CALM: Duration = Duration::from_secs(600);

/// A program.
#[derive(Debug)]
pub(super) struct Program {
    /// Its file, for the log.
    pub(super) name: String,
    pub(super) log: ErrorLog,
    pub(super) wake: Notify,
    /// Gone once no request can ask for it.
    route: Weak<Route>,
    /// When it was asked for, milliseconds since `began`.
    used: AtomicU64,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    edition: Edition,
    /// When the last change was seen.
    changed: Option<Instant>,
    live: Vec<Live>,
    next: usize,
    /// When this edition was first asked for, as the file system's clock has it: no request has had a hand in what
    /// changed before.
    since: Duration,
    /// Modules that children loaded: the next template loads them.
    learned: Learned,
    fit: Fit,
    /// Why it was not loaded, in words.
    obstacle: Option<String>,
    /// Parked processes that were used, in this edition.
    unparked: u64,
    not_before: Instant,
    failures: u32,
    failed: Instant,
    /// It has given up its templates for another program, and was not asked for since.
    displaced: bool,
    /// Somebody loads and watches its templates.
    kept: bool,
}

/// The best that an edition of a program was found fit for.
#[derive(Debug, PartialEq, Eq)]
enum Fit {
    Forked,
    /// It cannot be forked, for it ..., in words.
    Parked(String),
    Cold,
}

impl Program {
    pub(super) fn new(route: &Arc<Route>, name: String, version: Version, log: ErrorLog) -> Self {
        let now = Instant::now();
        Self {
            name,
            log,
            wake: Notify::new(),
            route: Arc::downgrade(route),
            used: AtomicU64::new(0),
            began: now,
            state: Mutex::new(State {
                edition: Edition {
                    version,
                    changes: 0,
                },
                changed: None,
                live: Vec::new(),
                next: 0,
                since: watch::now(),
                learned: Learned::default(),
                fit: Fit::Forked,
                obstacle: None,
                unparked: 0,
                not_before: now,
                failures: 0,
                failed: now,
                displaced: false,
                kept: false,
            }),
        }
    }

    /// A child of the next template, or the next parked process; `None` where there is neither.
    /// The second answer is whether a keeper has to be started.
    pub(super) fn child(&self, version: &Version) -> (Option<Offer>, bool) {
        let now = Instant::now();
        self.touch(now);
        let mut gone = Vec::new();
        let mut state = lock(&self.state);
        state.displaced = false;
        if state.edition.version != *version {
            gone = state.renew(version, now);
            self.wake.notify_one();
        }
        let mut found = None;
        while found.is_none() && !state.live.is_empty() {
            let at = state.next % state.live.len();
            if state.live[at].is_parked() {
                state.unparked += 1;
                found = Some(state.live.remove(at).itself(state.unparked));
                break;
            }
            match state.live[at].child() {
                Ok(child) => found = Some(child),
                Err(_) => {
                    gone.push(state.live.remove(at));
                    self.wake.notify_one();
                }
            }
            state.next = state.next.wrapping_add(1);
        }
        let keeper = !state.kept && state.fit != Fit::Cold && now >= state.not_before;
        state.kept |= keeper;
        drop(state);
        drop(gone); // ends processes: not under the lock
        (found, keeper)
    }

    /// As [`child`](Self::child), where somebody is loading a template: waits for that.
    pub(super) async fn awaited(&self, version: &Version) -> Option<Offer> {
        loop {
            let (found, keeper) = self.child(version);
            if keeper {
                lock(&self.state).kept = false; // for the next request to start one
                return found;
            }
            if found.is_some() || !self.is_loading() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn is_loading(&self) -> bool {
        let state = lock(&self.state);
        state.kept && state.fit != Fit::Cold && Instant::now() >= state.not_before
    }

    /// Has the template fork ahead of the next request.
    pub(super) fn refill(&self, template: i32) {
        let mut state = lock(&self.state);
        let live = state.live.iter_mut().find(|l| l.template.pid() == template);
        if let Some(live) = live {
            live.refill();
        }
    }

    /// Whether its route is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.route.strong_count() == 0
    }

    /// What the keeper does next. Nobody asks for the program once it was not asked for so `long`.
    pub(super) fn work(&self, long: Duration) -> Work {
        let now = Instant::now();
        let idle = now.saturating_duration_since(self.used());
        let mut state = lock(&self.state);
        let dead: Vec<Live> = state
            .live
            .extract_if(.., |l| !l.template.is_alive())
            .collect();
        let long = if self.is_gone() { Duration::ZERO } else { long };
        let work = state.work(now, idle, long);
        let let_go = match work {
            Work::Over => std::mem::take(&mut state.live),
            _ => Vec::new(),
        };
        drop(state);
        drop((dead, let_go));
        work
    }

    /// A template is ready: it takes the place of one that is older than what is known now, or worn.
    pub(super) fn add(&self, template: Template, loaded: Loaded, room: Room, order: &Order) {
        let mut state = lock(&self.state);
        if state.edition != order.edition || state.displaced {
            drop(state);
            return drop(template);
        }
        let now = Instant::now();
        let knows = order.learned.len();
        let live = Live::new(template, room, knows);
        let left = state.learned.proved(knows, loaded.search, loaded.left);
        let known = state.learned.names().len();
        state.obstacle = None;
        let old = state.live.iter().position(|l| l.is_old(known, now));
        let gone = old.map(|at| state.live.remove(at));
        state.live.push(live);
        drop(state);
        drop(gone);
        if !left.is_empty() {
            let words = format!(
                "left to each request, for they do more than load, or fail: {}",
                some(&left)
            );
            self.log.write(Level::Info, &self.name, &words);
        }
    }

    /// It did not load, or is not fit, and that may be for what it was `order`ed to load ahead: it is loaded again with
    /// less of that, where there was such a thing. What a child tells cannot make a program cold.
    pub(super) fn unlearned(&self, order: &Order, why: &str) -> bool {
        let mut state = lock(&self.state);
        if state.edition != order.edition {
            return false;
        }
        let Some(gone) = state.learned.failed(order.learned.len()) else {
            return false;
        };
        drop(state);
        let words = format!(
            "left to each request: {}; loaded with them, it {why}",
            some(&gone)
        );
        self.log.write(Level::Info, &self.name, &words);
        true
    }

    /// It cannot be loaded and used as it was `order`ed, this edition of it; `parks`: but parked.
    pub(super) fn unfit(&self, order: &Order, why: &str, parks: bool) {
        let mut state = lock(&self.state);
        if state.edition != order.edition {
            return;
        }
        let words = if parks {
            state.fit = Fit::Parked(why.to_owned());
            format!("parked, for it cannot be forked: it {why}")
        } else {
            state.fit = Fit::Cold;
            state.obstacle = Some(format!("it {why}"));
            state.kept = false;
            format!("started cold although `start` is \"warm\": it {why}")
        };
        let gone = std::mem::take(&mut state.live);
        drop(state);
        drop(gone);
        self.log.write(Level::Warn, &self.name, &words);
    }

    /// It did not load this time.
    pub(super) fn failed(&self, why: &str) {
        let mut state = lock(&self.state);
        let seconds = state.failed(Instant::now()).as_secs();
        state.obstacle = Some(why.to_owned());
        drop(state);
        let words = format!("not loaded for warm starts: {why}; cold for {seconds} s");
        self.log.write(Level::Warn, &self.name, &words);
    }

    /// There is no place for a template more: one that is to be replaced makes its own free, and
    /// a program that has one does without the other.
    pub(super) fn crowded(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let known = state.learned.names().len();
        let old = state.live.iter().position(|l| l.is_old(known, now));
        let gone = old.map(|at| state.live.remove(at));
        let none = gone.is_none() && state.live.is_empty();
        if gone.is_none() {
            // One that is parked leaves with the next request.
            state.not_before = now
                + match state.fit {
                    Fit::Parked(_) => PAUSE,
                    Fit::Forked | Fit::Cold => PAUSE_MOST,
                };
        }
        drop(state);
        drop(gone);
        if none {
            self.failed("max_templates or templates_memory is reached");
        }
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
        let version = state.edition.version;
        let gone = state.renew(&version, Instant::now());
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

    /// A child told which modules it loaded itself: the next template is to have them.
    pub(super) fn learned(&self, kind: Kind, report: &[u8]) {
        if lock(&self.state).learned.take(kind, report) {
            self.wake.notify_one();
        }
    }

    /// Gives up its templates, for another program. It takes them back only when it is asked for again, and not at once:
    /// programs that are asked for in turn would do nothing but load.
    pub(super) fn let_go(&self) {
        let mut state = lock(&self.state);
        let gone = std::mem::take(&mut state.live);
        state.failed(Instant::now());
        state.displaced = true;
        drop(state);
        drop(gone);
        self.wake.notify_one();
    }

    pub(super) fn has_templates(&self) -> bool {
        !lock(&self.state).live.is_empty()
    }

    pub(super) fn about(&self) -> About {
        let (now, state) = (Instant::now(), lock(&self.state));
        let known = state.learned.names().len();
        let knows = |l: &Live| !l.is_old(known, now);
        About {
            obstacle: state.obstacle.clone(),
            unfit: state.fit == Fit::Cold,
            parked: match &state.fit {
                Fit::Parked(why) => Some(why.clone()),
                Fit::Forked | Fit::Cold => None,
            },
            left: state.learned.left(),
            settled: state.live.len() == TWINS && state.live.iter().all(knows),
        }
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

/// A few of them, in words.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl State {
    /// Begins anew with another version of the file, or of what it loads. Where that changes all
    /// the time, as a file does that each request writes to, it is not loaded each time.
    fn renew(&mut self, version: &Version, now: Instant) -> Vec<Live> {
        let restless = |at| now.saturating_duration_since(at) < PAUSE;
        self.not_before = match self.changed {
            Some(at) if restless(at) => now + PAUSE,
            _ => now,
        };
        self.changed = Some(now);
        self.edition = Edition {
            version: *version,
            changes: self.edition.changes + 1,
        };
        self.since = watch::now();
        self.learned = Learned::default();
        self.fit = Fit::Forked;
        self.obstacle = None;
        self.unparked = 0;
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

    fn order(&self) -> Order {
        let uses = match self.fit {
            Fit::Parked(_) => Uses::Once,
            Fit::Forked | Fit::Cold => Uses::Many,
        };
        Order {
            edition: self.edition,
            uses,
            learned: self.learned.names().to_vec(),
            search: self.learned.search().clone(),
            since: self.since,
            proven: self.learned.is_proven(),
            first: uses == Uses::Many || self.unparked == 0 && self.live.is_empty(),
        }
    }

    fn work(&mut self, now: Instant, idle: Duration, longest: Duration) -> Work {
        let known = self.learned.names().len();
        if idle >= longest || self.fit == Fit::Cold || self.displaced {
            self.kept = false;
            return Work::Over;
        }
        let wanting = self.live.len() < TWINS || self.live.iter().any(|l| l.is_old(known, now));
        match (wanting, now < self.not_before) {
            (true, false) => Work::Load(self.order()),
            (true, true) => Work::Wait(self.not_before - now),
            (false, _) => Work::Wait((longest - idle).min(PAUSE)),
        }
    }
}
