//! Warm starts: programs kept loaded, stopped before their first line, and forked for each request; or
//! parked, for one request each.
//!
//! 1. `take`: a child for this request, or none: then the program is started cold, at once
//! 2. `program`: one program, and which of its templates is next; `state`: what is known of it, under its lock
//! 3. `live`: a loaded template or a parked process, its share of what is bounded
//! 4. `keeper`: loads, replaces and lets go of a program's templates, off the path of requests
//! 5. `learned`: the modules that children say they loaded
//! 6. `owned`: templates that a helper loads, for programs of other users
//! 7. `registry`: all programs, and whether files that templates were made from have changed; `bounds`: what their templates may take together

mod bounds;
mod failure;
mod keeper;
mod learned;
mod live;
mod order;
mod owned;
mod program;
pub mod registry;
pub mod settings;
pub(crate) mod setup;
mod state;
mod streams;
mod take;

pub use program::About;
pub use registry::Warm;
pub use settings::TemplateSettings;
pub use setup::{AsUser, TemplateSetup};
pub use take::{ReadyChild, TemplateChild, child};
