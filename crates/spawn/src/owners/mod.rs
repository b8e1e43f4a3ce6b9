//! Programs that run as other users than the server.
//!
//! | process | is | does |
//! |---|---|---|
//! | the server | its own user | asks for helpers, and asks a helper to start a program ([`Owners`]) |
//! | the spawner | root, executed anew, so that its address layout is its own; one thread, no network | makes helpers, and nothing else ([`spawner`]). Neither reads the configuration itself nor asks who a user is: another process does (`errand`) |
//! | a helper, or several | one user, of one route | checks and starts programs (`helper`), and the worker of the route's modules (`modules`), once it has become that user and confined itself |
//!
//! The spawner and the helpers believe the server nothing. What may be started is what they have read in the configuration
//! themselves ([`Remit`]): the server names a route by a digest of it, and a program by its path. A server under an
//! attacker's control can start configured programs with hostile variables of requests, and nothing else.
//!
//! Each order has a deadline ([`Deadline`]). The server waits no longer, and what comes too late is not done.
//!
//! What a helper starts it starts as the server would ([`Direct`](crate::Direct)). Of each program the server has a connection:
//! over it come the end of the program and what was wrong with it, and signals go there. Who closes it ends the program
//! (`connection`).

mod cgroups;
mod checks;
mod coded;
mod configured;
mod errand;
mod fork;
mod front;
mod helper;
mod known;
mod link;
mod listed;
mod made;
mod modules;
mod program;
mod remit;
mod running;
pub mod spawner;
mod successor;
#[cfg(test)]
mod tests;
mod untold;
mod upgrade;
pub(crate) mod warm;

#[doc(hidden)]
pub use crate::remote::message::read_all;
pub use crate::remote::{
    connection::descriptors,
    deadline::{ANSWERS_WITHIN, Deadline},
    template_message::{NoTemplate, TemplateStop},
};
pub use cgroups::are_delegated;
pub use checks::{CheckFailure, Denied, Layout, OwnedBy, PROGRAMS, may_run};
pub use front::Owners;
pub use known::HelperNeed;
pub use link::NotDone;
pub use modules::MODULES;
pub use remit::{ModuleTerms, Remit, RunsAs, Terms};
pub use successor::SpawnerBackend;
pub use upgrade::StartedServer;
pub use warm::under_way::{StoppedTemplate, TemplateUnderWay};

use std::time::Duration;

/// What was configured may be asked for so long after the configuration has changed, for requests that began before: the
/// default of `total_timeout`.
const OLD: Duration = Duration::from_secs(3600);
