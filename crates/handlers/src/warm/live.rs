//! A loaded template or a parked process, and its waiting children.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use galgo_spawn::template::{PreforkedChild, Template, Uses};

use super::bounds::TemplateShare;

/// Number of children of each template that wait ahead of their requests.
const AHEAD: usize = 2;
/// A template is replaced after this many children, or at this age.
const SERVES: u64 = 10_000;
const LIVES: Duration = Duration::from_secs(3600);

/// A loaded template, or a parked process.
#[derive(Debug)]
pub(super) struct Live {
    /// Shared while it is asked for a child, because system calls are not made under the program's lock.
    pub(super) template: Arc<Template>,
    preforked: VecDeque<PreforkedChild>,
    /// Children that the template is now forking ahead of their requests.
    asked: usize,
    served: u64,
    since: Instant,
    /// Bytes of the learned names that this template was loaded with.
    knows: usize,
    _room: TemplateShare,
}

/// A process for one request.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) child: PreforkedChild,
    /// The pid of the template that forked this child.
    pub(super) template: i32,
    pub(super) uses: Uses,
    /// Asks the child to report which modules it loads.
    pub(super) teach: bool,
}

/// The process for a request: a template's next child, which may still have to be forked, or a parked process.
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

    /// Returns the next child, forked or still to be forked.
    pub(super) fn child(&mut self) -> NextChild {
        self.served += 1;
        NextChild {
            template: self.template.clone(),
            child: self.preforked.pop_front(),
            teach: self.template.can_teach() && teaches(self.served),
        }
    }

    /// Returns the parked process itself; `served` counts the requests, this one included.
    pub(super) fn itself(self, served: u64) -> NextChild {
        NextChild {
            teach: self.template.can_teach() && teaches(served),
            template: self.template,
            child: None,
        }
    }

    /// Returns the template if it is to fork a child ahead of a request. The child must be [put by](Self::put_by).
    pub(super) fn wants(&mut self) -> Option<Arc<Template>> {
        (self.preforked.len() + self.asked < AHEAD).then(|| {
            self.asked += 1;
            self.template.clone()
        })
    }

    /// Keeps the child that [`wants`](Self::wants) asked for; `None` if the template gave none.
    pub(super) fn put_by(&mut self, child: Option<PreforkedChild>) {
        self.asked -= 1;
        self.preforked.extend(child);
    }

    /// Gives the children that have arrived marks of their own, which ends processes that their fork handlers started. Drops
    /// children that will never arrive.
    pub(super) fn greet(&mut self) {
        self.preforked.retain_mut(|child| child.is_ready().is_ok());
    }

    /// Returns whether the template is worn, or knows less than the bytes `learned` by now.
    pub(super) fn is_old(&self, learned: usize, now: Instant) -> bool {
        self.knows < learned
            || self.served >= SERVES
            || self.template.is_worn()
            || now.saturating_duration_since(self.since) >= LIVES
    }
}

impl NextChild {
    /// Returns the process, forking it if necessary.
    ///
    /// # Errors
    /// The template gives no child.
    pub(super) fn process(self) -> io::Result<Offer> {
        let (template, uses) = (self.template.pid(), self.template.uses());
        let child = match (self.child, uses) {
            (Some(child), _) => child,
            (None, Uses::Many) => self.template.prefork()?,
            (None, Uses::Once) => match Arc::into_inner(self.template) {
                Some(template) => template.into_preforked(),
                // The keeper is checking whether the process lives, and holds the last reference.
                None => return Err(io::ErrorKind::ResourceBusy.into()),
            },
        };
        Ok(Offer {
            child,
            template,
            uses,
            teach: self.teach,
        })
    }
}

/// Returns whether a child reports its modules: the first child, the second, the fourth and so on.
fn teaches(served: u64) -> bool {
    served.is_power_of_two() && served <= 1024
}
