//! A loaded template, its children that wait, and its share of what is bounded.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use galgo_spawn::template::{Spare, Template};

use super::{Warm, program::Program};
use crate::config::Templates;

/// Children that wait ahead of their requests, in each template.
const AHEAD: usize = 2;
/// A template is replaced after so many children, or so long.
const SERVES: u64 = 10_000;
const LIVES: Duration = Duration::from_secs(3600);

/// A loaded template.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) template: Template,
    spares: VecDeque<Spare>,
    served: u64,
    since: Instant,
    /// How many lessons it was loaded with.
    lessons: u32,
    _room: Room,
}

/// A template's share of what is bounded; given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    warm: Arc<Warm>,
    memory: u64,
}

impl Live {
    pub(super) fn new(template: Template, room: Room, lessons: u32) -> Self {
        Self {
            template,
            spares: VecDeque::new(),
            served: 0,
            since: Instant::now(),
            lessons,
            _room: room,
        }
    }

    /// A child, and whether it shall tell what it loads: the first, the second, the fourth...
    pub(super) fn child(&mut self) -> std::io::Result<(Spare, i32, bool)> {
        let spare = match self.spares.pop_front() {
            Some(spare) => spare,
            None => self.template.spare()?,
        };
        self.served += 1;
        let teach = self.template.teaches() && self.served.is_power_of_two() && self.served <= 1024;
        Ok((spare, self.template.pid(), teach))
    }

    /// Has a child forked ahead of its request.
    pub(super) fn refill(&mut self) {
        if self.spares.len() < AHEAD
            && let Ok(spare) = self.template.spare()
        {
            self.spares.push_back(spare);
        }
    }

    /// Knows less than was learned since, or is worn.
    pub(super) fn is_old(&self, lessons: u32, now: Instant) -> bool {
        self.lessons < lessons
            || self.served >= SERVES
            || now.saturating_duration_since(self.since) >= LIVES
    }
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
