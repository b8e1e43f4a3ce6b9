//! Resources of an event loop that handlers use to start programs, and to log.

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

/// Interval after which the number of further refused requests is logged.
const COUNTED: Duration = Duration::from_secs(1);

/// The resources of one event loop.
#[derive(Debug)]
pub struct Resources {
    /// Number of the event loop.
    pub index: usize,
    /// Starts programs.
    pub spawner: RefCell<Spawner>,
    /// Has programs started as other users, if the server can.
    pub owners: Option<Arc<Owners>>,
    /// /dev/null, the standard input of programs that get no body.
    pub null: OwnedFd,
    /// The error log.
    pub errors: ErrorLog,
    /// Limits of the templates, as configured now.
    templates: RefCell<TemplateSettings>,
    /// Whether the server is still taking requests.
    pub phase: watch::Receiver<Phase>,
    /// Clients whose refusal the error log has explained in this second.
    refused: Rc<NamedClients>,
    /// The second since the epoch in which missing capacity was last logged.
    busy: Cell<u64>,
}

/// Opens /dev/null, for [`Resources::new`].
///
/// # Errors
/// /dev/null does not exist, or no descriptor is left.
pub fn open_null() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/null", flags, Mode::empty())?)
}

impl Resources {
    /// Creates the resources of the event loop with that number.
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

    /// Returns the limits of the programs that are kept loaded, as configured now.
    pub fn templates(&self) -> TemplateSettings {
        self.templates.borrow().clone()
    }

    /// Sets the umask and template limits of later starts.
    pub fn configure(&self, umask: u32, templates: TemplateSettings) {
        self.spawner.borrow_mut().set_umask(Some(umask));
        self.templates.replace(templates);
    }

    /// Logs why `fault` is the client's, once a second for each client, and how many more there were. So an operator need
    /// not guess at a 400. The access log has all of them. `path` is empty if it is not known.
    pub fn log_refusal(&self, link: &Link, id: Id, path: &[u8], fault: &Fault) {
        if !self.refused.mark_as_named(link.remote_ip) {
            self.count_more();
            return;
        }
        let space = if path.is_empty() { "" } else { " " };
        let path = String::from_utf8_lossy(path);
        let about = format!("[{}]{space}{path}", &*id.to_base32());
        let words = format!("{} for {}: {fault}", fault.status(), link.remote);
        self.errors.write(Level::Info, &about, &words);
    }

    /// Counts a request whose reason is not logged. A second later, logs how many there were.
    fn count_more(&self) {
        if !self.refused.count_repeat() {
            return;
        }
        let (refused, errors) = (self.refused.clone(), self.errors.clone());
        let mut phase = self.phase.clone();
        tokio::task::spawn_local(async move {
            // The event loop ends when its last task has ended.
            let _ = timeout(COUNTED, phase.wait_for(|p| *p != Phase::Serving)).await;
            let more = refused.take_repeat_count();
            let words =
                format!("{more} more requests were refused within a second: see the access log");
            errors.write(Level::Info, "", &words);
        });
    }

    /// Returns whether a 503 goes into the error log: the first of each second. A line for each request would make an
    /// overload worse. The access log has all of them.
    pub fn says_busy(&self) -> bool {
        first_of_second(&self.busy)
    }
}
