//! The configuration as it is typed.
//!
//! | module | holds |
//! |---|---|
//! | `raw`, `units`, `host_names` | keys and values |
//! | `read` | parses the text, and goes on after errors |
//! | `include` | files that hold sites |
//! | `error` | errors with file, line, column, key and fix |

pub(crate) mod config_error;
pub(crate) mod folder;
pub(crate) mod host_names;
pub(crate) mod include;
pub(crate) mod raw;
pub(crate) mod read;
pub(crate) mod units;
