//! Checks the typed configuration, and opens the files and folders that it names.
//!
//! | module | holds |
//! |---|---|
//! | `source` | where a configuration comes from: a file, or a folder without one |
//! | `check`, `logs`, `listen`, `front`, `tls`, `dev_errors` | check the values that are not of a route |
//! | `routes`, `host`, `userdir` | make the table of routes, with those of hosts and homes |
//! | `exposure` | checks that no program's source is served as a file |

pub(crate) mod check;
pub(crate) mod dev_errors;
pub(crate) mod exposure;
pub(crate) mod front;
pub(crate) mod host;
pub(crate) mod listen;
pub(crate) mod logs;
pub(crate) mod routes;
pub(crate) mod source;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
pub(crate) mod userdir;
