//! Checks the keys of a route.
//!
//! | module | checks |
//! |---|---|
//! | `handlers`, `upstream`, `sandbox` | what answers, and with which rights |
//! | `environment`, `variables` | the variables that programs get |
//! | `steps` | the steps around the handler: `guard` (access), `rate`, `elsewhere` (paths that are replaced by others), `response_steps` and `fields` (what is sent) |
//! | `folder` | paths, and why files and folders cannot be opened |

pub(crate) mod elsewhere;
pub(crate) mod environment;
pub(crate) mod fields;
pub(crate) mod guard;
pub(crate) mod handlers;
pub(crate) mod rate;
pub(crate) mod response_steps;
pub(crate) mod sandbox;
pub(crate) mod steps;
pub(crate) mod upstream;
pub(crate) mod variables;
