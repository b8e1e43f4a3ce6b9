//! Programs that run as other users than the server.
//!
//! | process | is | does |
//! |---|---|---|
//! | the server | its own user | asks for helpers, and asks a helper to start a program ([`Owners`]) |
//! | the spawner | root, executed anew, so that its address layout is its own; one thread, no network | makes helpers, and nothing else ([`spawner`](crate::spawner)). Separate processes read the configuration and look up users for the spawner (`errand`) |
//! | a helper, or several | one user, of one route | checks and starts programs (`helper`), and the worker of the route's modules (`modules`), after becoming that user and confining itself |
//!
//! The spawner and the helpers do not trust the server. They read in the configuration themselves which programs may be started
//! ([`Remit`]): the server names a route by its digest, and a program by its path. A server under an attacker's control can
//! start configured programs with hostile request variables, and do nothing else.
//!
//! Each order has a deadline ([`Deadline`]). The server stops waiting then, and an order that arrives too late is not carried
//! out.
//!
//! A helper starts programs in the same way as the server ([`Direct`](crate::Direct)). The server has one connection for each
//! program: the helper reports failures and the program's end over it, and takes signals from it. Closing the connection ends
//! the program (`connection`).

pub(crate) mod cgroups;
pub(crate) mod checks;
pub(crate) mod coded;
pub(crate) mod front;
pub(crate) mod known;
pub(crate) mod link;
pub(crate) mod remit;
pub(crate) mod upgrade;

#[doc(hidden)]
pub use crate::remote::message::read_all;
pub use crate::remote::{
    connection::reserved_descriptors,
    deadline::{ANSWERS_WITHIN, Deadline},
    template_message::TemplateOrder,
};
pub use cgroups::are_delegated;
pub use checks::{CheckFailure, Denied, Layout, OwnedBy, PROGRAMS, PUBLIC, ProgramFolder, may_run};
pub use front::Owners;
pub use known::HelperNeed;
pub use link::NotDone;
pub use remit::{MODULES, ModuleTerms, Remit, RunsAs, Terms};
pub use upgrade::StartedServer;

use std::time::Duration;

/// After a reload, programs of the previous configuration can still be started for this time, because earlier requests may need
/// them: the default of `total_timeout`.
pub(crate) const OLD: Duration = Duration::from_secs(3600);
