//! What handlers have of their event loop: they start programs with it, and log.

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use galgo_service::{
    fault::Fault,
    id::Id,
    link::Link,
    log::{ErrorLog, Level, time::first_of_second, told::NamedClients},
    phase::Phase,
};
use galgo_spawn::{Spawner, owners::Owners};
use rustix::fs::{Mode, OFlags};
use tokio::{sync::watch, time::timeout};

use crate::template_settings::TemplateSettings;

/// After this time it is said how many more requests were refused.
const COUNTED: Duration = Duration::from_secs(1);

/// Of one event loop.
#[derive(Debug)]
pub struct Resources {
    /// Its number.
    pub index: usize,
    /// Starts programs.
    pub spawner: RefCell<Spawner>,
    /// Has programs started as other users, where the server can.
    pub owners: Option<Arc<Owners>>,
    /// /dev/null, the standard input of programs that get no body.
    pub null: OwnedFd,
    /// The error log.
    pub errors: ErrorLog,
    /// How many of them may be, as configured now.
    templates: RefCell<TemplateSettings>,
    /// Whether the server is still taking requests.
    pub phase: watch::Receiver<Phase>,
    /// Clients of which the error log has said in this second why they were refused.
    refused: Rc<NamedClients>,
    /// In which second since the epoch it was last logged that there is no capacity.
    busy: Cell<u64>,
}

/// /dev/null, for [`Resources::new`].
///
/// # Errors
/// There is none, or no descriptor is left.
pub fn null() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/null", flags, Mode::empty())?)
}

impl Resources {
    /// Of the event loop with that number.
    pub fn new(
        index: usize,
        (spawner, owners): (Spawner, Option<Arc<Owners>>),
        null: OwnedFd,
        errors: ErrorLog,
        templates: TemplateSettings,
        phase: watch::Receiver<Phase>,
    ) -> Rc<Self> {
        Rc::new(Self {
            index,
            spawner: RefCell::new(spawner),
            owners,
            null,
            errors,
            templates: RefCell::new(templates),
            phase,
            refused: Rc::default(),
            busy: Cell::new(0),
        })
    }

    /// Limits of the programs that are kept loaded, as configured now.
    pub fn templates(&self) -> TemplateSettings {
        self.templates.borrow().clone()
    }

    /// What is started from now on is started as configured here.
    pub fn configure(&self, umask: u32, templates: TemplateSettings) {
        self.spawner.borrow_mut().set_umask(Some(umask));
        self.templates.replace(templates);
    }

    /// Says in the error log why `fault` is the client's, once a second for each client, and how many more there were: an
    /// operator need not guess at a 400. The access log has them all. `path` is empty where it is not known.
    pub fn note(&self, link: &Link, id: Id, path: &[u8], fault: &Fault) {
        if !self.refused.is_first(link.remote_ip) {
            self.count_more();
            return;
        }
        let space = if path.is_empty() { "" } else { " " };
        let path = String::from_utf8_lossy(path);
        let about = format!("[{}]{space}{path}", &*id.text());
        let words = format!("{} for {}: {fault}", fault.status(), link.remote);
        self.errors.write(Level::Info, &about, &words);
    }

    /// Counts a request whose reason is not logged; says a second later how many there were.
    fn count_more(&self) {
        if !self.refused.is_first_more() {
            return;
        }
        let (refused, errors) = (self.refused.clone(), self.errors.clone());
        let mut phase = self.phase.clone();
        tokio::task::spawn_local(async move {
            // The event loop ends when its last task has.
            let _ = timeout(COUNTED, phase.wait_for(|p| *p != Phase::Serving)).await;
            let more = refused.take_more();
            let words =
                format!("{more} more requests were refused within a second: see the access log");
            errors.write(Level::Info, "", &words);
        });
    }

    /// Whether a 503 goes into the error log: the first of each second. Overload must not be made worse by
    /// a line for each request; the access log has them all.
    pub fn says_busy(&self) -> bool {
        first_of_second(&self.busy)
    }
}
