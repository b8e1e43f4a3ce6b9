//! The checked configuration: paths are absolute, defaults applied, folders open.
//! `raw` holds the values as they were typed; nothing outside this module sees them.
//!
//! | module | holds |
//! |---|---|
//! | `checked` | the configuration as the server uses it |
//! | `listen` | an entry of `listen` |
//! | `raw`, `units` | keys and values as they are typed |
//! | `read` | parses the text, and goes on after errors |
//! | `error` | errors with file, line, column, key and fix |
//! | `include` | files that hold sites |
//! | `check`, `routes`, `handlers`, `environment`, `variables`, `sandbox`, `upstream`, `fields`, `rate`, `userdir`, `logs` | check the typed values |
//! | `steps`, `guard`, `elsewhere`, `response_steps` | steps before and after the handler of a route: access, paths that are replaced by others, fields |
//! | `host` | routes to the folders of a home or a host |
//! | `exposure` | checks that no program's source is served as a file |
//! | `folder` | paths, and why files and folders cannot be opened |
//! | `dev_errors` | which clients see why a program failed |
//! | `front`, `tls` | trusted proxies, and files that programs hand over; certificates |
//! | `defaults`, `source` | defaults; sources of a configuration: a file or a folder |

mod check;
mod checked;
mod defaults;
mod dev_errors;
mod elsewhere;
mod environment;
mod error;
mod exposure;
mod fields;
mod folder;
mod front;
mod guard;
mod handlers;
mod host;
mod host_names;
mod include;
mod listen;
mod logs;
mod rate;
mod raw;
mod read;
mod response_steps;
mod routes;
mod sandbox;
mod source;
mod steps;
#[cfg(test)]
mod tests;
mod tls;
mod units;
mod upstream;
mod userdir;
mod variables;

pub use checked::{
    Address, AdmissionSettings, Application, Automatic, BodyMode, Cgi, CgiOptions, CgiRoot, Config,
    DevErrors, Files, Folder, GuestAccess, Handler, Http, Listen, LogFormat, LogSettings, LogTo,
    PassedName, Protocol, RateLimit, RateSettings, Respond, Route, Sendfile, Sites, Speaks,
    SpoolSettings, StartMode, TemplateSettings, TlsConfig, To, UserDir, Workers,
};
pub use error::ConfigError;
pub use galgo_spawn::identity::{Identity, resolve_identity as identity};
pub(crate) use host::remit_of;
pub use listen::ListenAt;
