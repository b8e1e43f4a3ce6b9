//! The facts about one program: its templates, and when its keeper may load the next one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use galgo_spawn::{
    FileId,
    template::{Template, TemplateKind, Uses, dates},
};

use super::{
    learned::Learned,
    live::{Live, NextChild},
    order::{KeeperTask, LoadOrder, Revision},
};

/// Number of templates of one program. Requests take turns among them, so that an address that one child finds out
/// does not hold for the next. The same number of parked processes is kept.
pub(super) const TWINS: usize = 2;
/// After a crash or a failure the program stays cold for this long, doubled each time up to [`PAUSE_MOST`]. A quiet
/// [`CALM`] forgets the failures.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const PAUSE_MOST: Duration = Duration::from_secs(60);
pub(super) const CALM: Duration = Duration::from_secs(600);

/// The state of one program, under its lock. Nothing here makes a system call.
#[derive(Debug)]
pub(super) struct WarmState {
    pub(super) revision: Revision,
    /// Time when the last change was seen.
    pub(super) changed: Option<Instant>,
    /// The kind of the last template; `None` if there was none.
    pub(super) kind: Option<TemplateKind>,
    pub(super) live: Vec<Live>,
    pub(super) next: usize,
    /// Time of the first request for this revision, by the file system's clock. No request has influenced changes
    /// before it.
    pub(super) since: Duration,
    /// Modules that children loaded. The next template loads them.
    pub(super) learned: Learned,
    pub(super) fit: Fit,
    /// Why the program was not loaded, in words.
    pub(super) obstacle: Option<String>,
    /// Number of parked processes that were used, in this revision.
    pub(super) unparked: u64,
    pub(super) not_before: Instant,
    pub(super) failures: u32,
    pub(super) failed: Instant,
    /// The program has given up its templates for another program, and was not requested since.
    pub(super) displaced: bool,
    /// A keeper loads and watches the templates.
    pub(super) has_keeper: bool,
}

/// The best way to start a revision of a program that was found so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Forked,
    /// The program cannot be forked. The text continues "it ...".
    Parked(String),
    Cold,
}

impl WarmState {
    /// Creates the state of a program before anything has been loaded.
    pub(super) fn new(version: FileId, now: Instant) -> Self {
        Self {
            revision: Revision {
                version,
                changes: 0,
            },
            changed: None,
            kind: None,
            live: Vec::new(),
            next: 0,
            since: dates::file_time_now(),
            learned: Learned::default(),
            fit: Fit::Forked,
            obstacle: None,
            unparked: 0,
            not_before: now,
            failures: 0,
            failed: now,
            displaced: false,
            has_keeper: false,
        }
    }

    /// Returns the process for the next request.
    pub(super) fn next_child(&mut self) -> Option<NextChild> {
        let at = self.next.checked_rem(self.live.len())?;
        if self.live[at].template.uses() == Uses::Once {
            self.unparked += 1;
            return Some(self.live.remove(at).itself(self.unparked));
        }
        self.next = self.next.wrapping_add(1);
        Some(self.live[at].child())
    }

    pub(super) fn of(&mut self, template: i32) -> Option<&mut Live> {
        let mut all = self.live.iter_mut();
        all.find(|l| l.template.pid() == template)
    }

    /// Returns the entry of this template, if it is still used.
    pub(super) fn same(&mut self, template: &Arc<Template>) -> Option<&mut Live> {
        let mut all = self.live.iter_mut();
        all.find(|l| Arc::ptr_eq(&l.template, template))
    }

    pub(super) fn remove(&mut self, template: i32) -> Option<Live> {
        let at = self
            .live
            .iter()
            .position(|l| l.template.pid() == template)?;
        Some(self.live.remove(at))
    }

    /// Removes a template that is worn, or that knows less than was learned by now.
    pub(super) fn remove_old(&mut self, now: Instant) -> Option<Live> {
        let known = self.learned.names.len();
        let at = self.live.iter().position(|l| l.is_old(known, now))?;
        Some(self.live.remove(at))
    }

    /// Starts again with another version of the file, or of the files it loads. A program whose files change all
    /// the time, such as a file that each request writes to, is not loaded each time.
    pub(super) fn renew(&mut self, version: &FileId, now: Instant) -> Vec<Live> {
        let restless = |at| now.saturating_duration_since(at) < PAUSE;
        self.not_before = match self.changed {
            Some(at) if restless(at) => now + PAUSE,
            _ => now,
        };
        self.changed = Some(now);
        self.revision = Revision {
            version: *version,
            changes: self.revision.changes + 1,
        };
        self.since = dates::file_time_now();
        self.learned = Learned::default();
        self.fit = Fit::Forked;
        self.obstacle = None;
        self.unparked = 0;
        std::mem::take(&mut self.live)
    }

    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.failed) > CALM {
            self.failures = 0;
        }
        let pause = (PAUSE * 2u32.saturating_pow(self.failures)).min(PAUSE_MOST);
        self.failures = (self.failures + 1).min(10);
        self.failed = now;
        self.not_before = now + pause;
        pause
    }

    fn order(&self) -> LoadOrder {
        let uses = match self.fit {
            Fit::Parked(_) => Uses::Once,
            Fit::Forked | Fit::Cold => Uses::Many,
        };
        LoadOrder {
            revision: self.revision,
            uses,
            learned: self.learned.names.clone(),
            search: self.learned.search.clone(),
            since: self.since,
            proven: self.learned.proven.is_some(),
            first: uses == Uses::Many || self.unparked == 0 && self.live.is_empty(),
        }
    }

    pub(super) fn work(&mut self, now: Instant, idle: Duration, longest: Duration) -> KeeperTask {
        let known = self.learned.names.len();
        if idle >= longest || self.fit == Fit::Cold || self.displaced {
            self.has_keeper = false;
            return KeeperTask::Over;
        }
        let wanting = self.live.len() < TWINS || self.live.iter().any(|l| l.is_old(known, now));
        match (wanting, now < self.not_before) {
            (true, false) => KeeperTask::Load(self.order()),
            (true, true) => KeeperTask::Wait(self.not_before - now),
            (false, _) => KeeperTask::Wait((longest - idle).min(PAUSE)),
        }
    }
}

#[cfg(test)]
mod tests;
