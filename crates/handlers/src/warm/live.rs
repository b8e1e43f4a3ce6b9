//! A loaded template or a parked process, and children that wait.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use galgo_spawn::template::{PreforkedChild, Template, TemplateKind, Uses};

use super::bounds::TemplateShare;

/// Children that wait ahead of their requests, in each template.
const AHEAD: usize = 2;
/// A template is replaced after so many children, or so long.
const SERVES: u64 = 10_000;
const LIVES: Duration = Duration::from_secs(3600);

/// A loaded template, or a parked process.
#[derive(Debug)]
pub(super) struct Live {
    /// Shared while it is asked for a child: system calls, not made under the program's lock.
    pub(super) template: Arc<Template>,
    preforked: VecDeque<PreforkedChild>,
    /// Children that it is being asked for ahead of their requests.
    asked: usize,
    served: u64,
    since: Instant,
    /// How much of what was learned it was loaded with, bytes.
    knows: usize,
    _room: TemplateShare,
}

/// A process for one request.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) child: PreforkedChild,
    /// The pid of the template it comes from.
    pub(super) template: i32,
    pub(super) uses: Uses,
    pub(super) kind: TemplateKind,
    /// It shall tell which modules it loads.
    pub(super) teach: bool,
}

/// What a request is given: a template's next child, which may have to be asked for, or a parked process.
#[derive(Debug)]
pub(super) struct NextChild {
    pub(super) template: Arc<Template>,
    child: Option<PreforkedChild>,
    teach: bool,
}

impl Live {
    pub(super) fn new(template: Template, room: TemplateShare, knows: usize) -> Self {
        Self {
            template: Arc::new(template),
            preforked: VecDeque::new(),
            asked: 0,
            served: 0,
            since: Instant::now(),
            knows,
            _room: room,
        }
    }

    /// The next child.
    pub(super) fn child(&mut self) -> NextChild {
        self.served += 1;
        NextChild {
            template: self.template.clone(),
            child: self.preforked.pop_front(),
            teach: self.template.teaches() && teaches(self.served),
        }
    }

    /// The parked process; `served` with it.
    pub(super) fn itself(self, served: u64) -> NextChild {
        NextChild {
            teach: self.template.teaches() && teaches(served),
            template: self.template,
            child: None,
        }
    }

    /// The template, where it is to fork a child ahead of its request: the child has to be [put by](Self::put_by).
    pub(super) fn wants(&mut self) -> Option<Arc<Template>> {
        (self.preforked.len() + self.asked < AHEAD).then(|| {
            self.asked += 1;
            self.template.clone()
        })
    }

    /// Keeps the child that it was asked for; `None`: there is none.
    pub(super) fn put_by(&mut self, child: Option<PreforkedChild>) {
        self.asked -= 1;
        self.preforked.extend(child);
    }

    /// Gives children that have come their own marks: what their fork handlers have started ends then. Drops those that will never
    /// come.
    pub(super) fn greet(&mut self) {
        self.preforked.retain_mut(|child| child.ready().is_ok());
    }

    /// Knows less than was `learned` by now, bytes, or is worn.
    pub(super) fn is_old(&self, learned: usize, now: Instant) -> bool {
        self.knows < learned
            || self.served >= SERVES
            || self.template.is_worn()
            || now.saturating_duration_since(self.since) >= LIVES
    }
}

impl NextChild {
    /// The process.
    ///
    /// # Errors
    /// The template gives none.
    pub(super) fn process(self) -> io::Result<Offer> {
        let (template, uses) = (self.template.pid(), self.template.uses());
        let kind = self.template.kind();
        let child = match (self.child, uses) {
            (Some(child), _) => child,
            (None, Uses::Many) => self.template.prefork()?,
            (None, Uses::Once) => match Arc::into_inner(self.template) {
                Some(template) => template.itself(),
                // Its keeper is looking whether it lives, and has the last of it.
                None => return Err(io::ErrorKind::ResourceBusy.into()),
            },
        };
        Ok(Offer {
            child,
            template,
            uses,
            kind,
            teach: self.teach,
        })
    }
}

/// Whether a child tells what it loads: the first, the second, the fourth...
fn teaches(served: u64) -> bool {
    served.is_power_of_two() && served <= 1024
}
