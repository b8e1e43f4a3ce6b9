//! A loaded template or a parked process, children that wait, and the share of what is bounded.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use galgo_spawn::template::{Kind, Spare, Template, Uses};

use super::{Warm, program::Program};
use crate::config::Templates;

/// Children that wait ahead of their requests, in each template.
const AHEAD: usize = 2;
/// A template is replaced after so many children, or so long.
const SERVES: u64 = 10_000;
const LIVES: Duration = Duration::from_secs(3600);

/// A loaded template, or a parked process.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) template: Template,
    spares: VecDeque<Spare>,
    served: u64,
    since: Instant,
    /// How much of what was learned it was loaded with, bytes.
    knows: usize,
    _room: Room,
}

/// A process for one request.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) spare: Spare,
    /// The pid of the template it comes from.
    pub(super) template: i32,
    pub(super) uses: Uses,
    pub(super) kind: Kind,
    /// It shall tell which modules it loads.
    pub(super) teach: bool,
}

/// A template's share of what is bounded; given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    warm: Arc<Warm>,
    memory: u64,
}

impl Live {
    pub(super) fn new(template: Template, room: Room, knows: usize) -> Self {
        Self {
            template,
            spares: VecDeque::new(),
            served: 0,
            since: Instant::now(),
            knows,
            _room: room,
        }
    }

    /// A child.
    pub(super) fn child(&mut self) -> io::Result<Offer> {
        let spare = match self.spares.pop_front() {
            Some(spare) => spare,
            None => self.template.spare()?,
        };
        self.served += 1;
        Ok(Offer {
            spare,
            template: self.template.pid(),
            uses: Uses::Many,
            kind: self.template.kind(),
            teach: self.template.teaches() && teaches(self.served),
        })
    }

    /// The parked process; `served` with it.
    pub(super) fn itself(self, served: u64) -> Offer {
        Offer {
            template: self.template.pid(),
            uses: Uses::Once,
            kind: self.template.kind(),
            teach: self.template.teaches() && teaches(served),
            spare: self.template.itself(),
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        self.template.uses() == Uses::Once
    }

    /// Has a child forked ahead of its request.
    pub(super) fn refill(&mut self) {
        if self.spares.len() < AHEAD
            && let Ok(spare) = self.template.spare()
        {
            self.spares.push_back(spare);
        }
    }

    /// Knows less than was `learned` by now, bytes, or is worn.
    pub(super) fn is_old(&self, learned: usize, now: Instant) -> bool {
        self.knows < learned
            || self.served >= SERVES
            || now.saturating_duration_since(self.since) >= LIVES
    }
}

/// Whether a child tells what it loads: the first, the second, the fourth...
fn teaches(served: u64) -> bool {
    served.is_power_of_two() && served <= 1024
}

impl Room {
    /// A place for a template that is about to be loaded.
    pub(super) fn take(
        warm: &Arc<Warm>,
        program: &Arc<Program>,
        limits: &Templates,
    ) -> Option<Self> {
        warm.room(program, limits).then(|| {
            warm.count.fetch_add(1, Ordering::Relaxed);
            Self {
                warm: warm.clone(),
                memory: 0,
            }
        })
    }

    /// What the template turned out to hold, bytes.
    pub(super) fn holds(&mut self, memory: u64) {
        self.warm.memory.fetch_add(memory, Ordering::Relaxed);
        self.memory += memory;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.warm.count.fetch_sub(1, Ordering::Relaxed);
        self.warm.memory.fetch_sub(self.memory, Ordering::Relaxed);
    }
}
