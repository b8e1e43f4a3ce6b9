//! A program that is started warm: its templates, and the facts about it.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use galgo_service::{
    lock::lock,
    log::{ErrorLog, Level},
};
use galgo_spawn::{
    FileId,
    template::{LoadedTemplate, Template},
};
use tokio::sync::Notify;

use crate::{
    program_settings::Cgi,
    warm::{
        bounds::TemplateShare,
        live::{Live, NextChild, Offer},
        order::{KeeperTask, LoadOrder},
        state::{Fit, PAUSE, PAUSE_MOST, TWINS, WarmState},
    },
};

/// State of a program's templates, for a report.
#[derive(Debug, Clone)]
pub struct About {
    /// Why the program is not loaded, in words.
    pub obstacle: Option<String>,
    /// The program cannot be loaded at all in its present revision.
    pub unfit: bool,
    /// Why the program is parked, and not forked. The text continues "it ...".
    pub parked: Option<String>,
    /// Modules that are not loaded ahead of requests, because they do more than load, or fail.
    pub left: Vec<String>,
    /// The program has its full number of templates, and none of them is to be replaced.
    pub settled: bool,
}

/// A program that is started warm.
#[derive(Debug)]
pub(super) struct WarmProgram {
    /// The path of the program's file, for the log.
    pub(super) name: String,
    pub(super) log: ErrorLog,
    pub(super) wake: Notify,
    /// Gone once no request can reach the program.
    cgi: Weak<Cgi>,
    /// Time of the last request for the program, in milliseconds since `began`.
    used: AtomicU64,
    began: Instant,
    /// Every request that starts the program takes this lock for a moment. No system call is made under it.
    state: Mutex<WarmState>,
}

impl WarmProgram {
    pub(super) fn new(cgi: &Arc<Cgi>, name: String, version: FileId, log: ErrorLog) -> Self {
        let now = Instant::now();
        Self {
            name,
            log,
            wake: Notify::new(),
            cgi: Arc::downgrade(cgi),
            used: AtomicU64::new(0),
            began: now,
            state: Mutex::new(WarmState::new(version, now)),
        }
    }

    /// Returns a child of the next template, or the next parked process; `None` if there is neither. The second value
    /// says whether a keeper has to be started.
    pub(super) fn child(&self, version: &FileId) -> (Option<Offer>, bool) {
        let now = Instant::now();
        self.touch(now);
        let mut state = lock(&self.state);
        state.displaced = false;
        let renewed = state.revision.version != *version;
        let gone = if renewed {
            state.renew(version, now)
        } else {
            Vec::new()
        };
        let mut next = state.next_child();
        let keeper = !state.has_keeper && state.fit != Fit::Cold && now >= state.not_before;
        state.has_keeper |= keeper;
        drop(state);
        if renewed {
            self.wake.notify_one();
        }
        drop(gone);
        while let Some(child) = next {
            let template = child.template.pid();
            match child.process() {
                Ok(offer) => return (Some(offer), keeper),
                Err(_) => next = self.instead(template),
            }
        }
        (None, keeper)
    }

    /// Returns the next child after `template` gave none, and removes that template.
    fn instead(&self, template: i32) -> Option<NextChild> {
        let (_gone, next) = self.change(|state| (state.remove(template), state.next_child()));
        next
    }

    /// Returns a [`child`](Self::child). If a template is being loaded, waits for that template.
    pub(super) async fn awaited(&self, version: &FileId) -> Option<Offer> {
        loop {
            let (found, keeper) = self.child(version);
            if keeper {
                self.keeper_ended();
                return found;
            }
            if found.is_some() || !self.is_loading() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Notes that the keeper has ended, or was not started: the next request starts a keeper.
    pub(super) fn keeper_ended(&self) {
        lock(&self.state).has_keeper = false;
    }

    fn is_loading(&self) -> bool {
        let state = lock(&self.state);
        state.has_keeper && state.fit != Fit::Cold && Instant::now() >= state.not_before
    }

    /// Has the template fork a child ahead of the next request.
    pub(super) fn refill(&self, template: i32) {
        let wants = lock(&self.state).of(template).and_then(Live::wants);
        let Some(asked) = wants else {
            return;
        };
        let mut child = asked.prefork().ok();
        if let Some(live) = lock(&self.state).same(&asked) {
            live.put_by(child.take());
        }
    }

    /// Returns whether the program's route is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.cgi.strong_count() == 0
    }

    /// Returns the keeper's next task. The keeper ends once the program was not requested for this `long`.
    pub(super) fn work(&self, long: Duration) -> KeeperTask {
        let now = Instant::now();
        let idle = now.saturating_duration_since(self.used());
        let all: Vec<_> = lock(&self.state)
            .live
            .iter()
            .map(|l| l.template.clone())
            .collect();
        let dead: Vec<i32> = all
            .iter()
            .filter(|t| !t.is_alive())
            .map(|t| t.pid())
            .collect();
        let changed = all.iter().any(|t| t.has_changed());
        drop(all);
        if changed {
            self.retire_changed();
        }
        let mut state = lock(&self.state);
        let dead: Vec<_> = dead
            .into_iter()
            .filter_map(|pid| state.remove(pid))
            .collect();
        state.live.iter_mut().for_each(Live::greet);
        let long = if self.is_gone() { Duration::ZERO } else { long };
        let work = state.work(now, idle, long);
        let let_go = match work {
            KeeperTask::Over => std::mem::take(&mut state.live),
            _ => Vec::new(),
        };
        drop(state);
        drop((dead, let_go));
        work
    }

    /// Adds a template that is ready. It replaces a template that is worn, or that knows less than was learned by now.
    pub(super) fn add(
        &self,
        template: Template,
        loaded: LoadedTemplate,
        room: TemplateShare,
        order: &LoadOrder,
    ) {
        let knows = if loaded.knows_modules {
            order.learned.len()
        } else {
            0
        };
        let mut state = lock(&self.state);
        if state.revision != order.revision || state.displaced {
            drop(state);
            return drop(template);
        }
        let left = state.learned.proved(knows, loaded.search, loaded.left);
        state.obstacle = None;
        state.kind = Some(template.kind());
        let gone = state.remove_old(Instant::now());
        state.live.push(Live::new(template, room, knows));
        drop(state);
        drop(gone);
        if !left.is_empty() {
            let words = format!(
                "modules not loaded ahead, because they do more than load, or fail: {}",
                some(&left)
            );
            self.log.write(Level::Info, &self.name, &words);
        }
    }

    /// Notes that the program did not load, or is not fit. If learned modules in the `order` may be the cause, it gives
    /// up some of them and returns true: the program is loaded again with fewer modules. So a child's report cannot make
    /// a program cold.
    pub(super) fn unlearned(&self, order: &LoadOrder, why: &str) -> bool {
        let mut state = lock(&self.state);
        if state.revision != order.revision {
            return false;
        }
        let Some(gone) = state.learned.failed(order.learned.len()) else {
            return false;
        };
        drop(state);
        let words = format!(
            "modules not loaded ahead: {}; loaded with them, the program {why}",
            some(&gone)
        );
        self.log.write(Level::Info, &self.name, &words);
        true
    }

    /// Notes that this revision cannot be loaded and used as `order`ed. If `parks`, it can still be parked.
    pub(super) fn unfit(&self, order: &LoadOrder, why: &str, parks: bool) {
        let mut state = lock(&self.state);
        if state.revision != order.revision {
            return;
        }
        let words = if parks {
            state.fit = Fit::Parked(why.to_owned());
            format!("parked, because it cannot be forked: it {why}")
        } else {
            state.fit = Fit::Cold;
            state.obstacle = Some(format!("it {why}"));
            state.has_keeper = false;
            format!("started cold although `start` is \"warm\": it {why}")
        };
        let gone = std::mem::take(&mut state.live);
        drop(state);
        drop(gone);
        self.log.write(Level::Warn, &self.name, &words);
    }

    /// Notes that the program did not load this time.
    pub(super) fn failed(&self, why: &str) {
        let mut state = lock(&self.state);
        let seconds = state.failed(Instant::now()).as_secs();
        state.obstacle = Some(why.to_owned());
        drop(state);
        let words = format!("not loaded for warm starts: {why}; cold for {seconds} s");
        self.log.write(Level::Warn, &self.name, &words);
    }

    /// Handles a full limit of templates. A template that is to be replaced is dropped first. A program that has one
    /// template does without the second.
    pub(super) fn crowded(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let gone = state.remove_old(now);
        let none = gone.is_none() && state.live.is_empty();
        if gone.is_none() {
            // A parked process leaves with the next request.
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

    /// Handles a child that has not taken its request: checks whether the template is gone, if a helper holds it.
    pub(super) fn look(&self, template: i32) -> bool {
        let of = lock(&self.state).of(template).map(|l| l.template.clone());
        let Some(of) = of.filter(|of| of.has_changed()) else {
            self.wake.notify_one();
            return false;
        };
        drop(of);
        self.retire_changed();
        true
    }

    /// Handles a child that did not arrive: its template is gone, or stuck.
    pub(super) fn lost(&self, template: i32, why: &std::io::Error) {
        if self.look(template) {
            return;
        }
        if self.change(|state| state.remove(template)).is_some() {
            let words = format!("the template started no child ({why}): replacing the template");
            self.log.write(Level::Warn, &self.name, &words);
        }
    }

    /// Retires the templates because a file of the program has changed.
    pub(super) fn retire_changed(&self) {
        self.change(|state| {
            let version = state.revision.version;
            state.renew(&version, Instant::now())
        });
    }

    /// Changes the state under its lock, and wakes the keeper. Returns the processes that `change` gives up: they end without
    /// the lock.
    fn change<T>(&self, change: impl FnOnce(&mut WarmState) -> T) -> T {
        let given_up = change(&mut lock(&self.state));
        self.wake.notify_one();
        given_up
    }

    /// Retires the template whose child was ended by a signal.
    pub(super) fn retire_crashed(&self, template: i32) {
        let mut state = lock(&self.state);
        let Some(gone) = state.remove(template) else {
            return;
        };
        state.failed(Instant::now());
        drop(state);
        drop(gone);
        let words = "a child of the template was killed by a signal: replacing the template";
        self.log.write(Level::Warn, &self.name, words);
    }

    /// Takes a child's report of the modules that it loaded itself. The next template is to load them.
    pub(super) fn learned(&self, report: &[u8]) {
        let mut state = lock(&self.state);
        let kind = state.kind;
        if kind.is_some_and(|kind| state.learned.take(kind, report)) {
            self.wake.notify_one();
        }
    }

    /// Gives up the program's templates for another program. They are loaded again only when the program is requested
    /// again, and not at once: programs that are requested in turn would do nothing but load.
    pub(super) fn let_go(&self) {
        self.change(|state| {
            state.failed(Instant::now());
            state.displaced = true;
            std::mem::take(&mut state.live)
        });
    }

    pub(super) fn has_templates(&self) -> bool {
        !lock(&self.state).live.is_empty()
    }

    pub(super) fn about(&self) -> About {
        let (now, state) = (Instant::now(), lock(&self.state));
        let known = state.learned.names.len();
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

    /// Returns the time of the last request for the program.
    pub(super) fn used(&self) -> Instant {
        self.began + Duration::from_millis(self.used.load(Ordering::Relaxed))
    }

    fn touch(&self, now: Instant) {
        let since = now.saturating_duration_since(self.began).as_millis();
        self.used
            .store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Joins the first few names in words.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
