//! The configuration, checked: paths absolute, defaults applied, folders opened.
//! `raw` is what was typed; nothing outside this module sees it.
//!
//! | module | holds |
//! |---|---|
//! | `checked` | the configuration as the server uses it |
//! | `listen` | an entry of `listen` |
//! | `raw`, `units` | keys and values as they are typed |
//! | `read` | from text to what was typed, past what is wrong with it |
//! | `error` | errors with file, line, column, key and mend |
//! | `include` | files that hold sites |
//! | `check`, `routes`, `handlers`, `environment`, `variables`, `sandbox`, `upstream`, `fields`, `rate`, `userdir`, `logs` | from typed to checked |
//! | `steps`, `guard`, `elsewhere`, `response_steps` | what stands before and after the handler of a route: who may come in, paths that stand for others, fields |
//! | `host` | routes to folders that a home or a host has |
//! | `exposure` | no program's source is served as a file |
//! | `folder` | what the file system says |
//! | `dev_errors` | which clients are shown why a program has failed |
//! | `front`, `tls` | whose word about a client counts, files that programs hand over; certificates |
//! | `defaults`, `source` | defaults, where a configuration comes from |

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
pub use galgo_spawn::identity::{Identity, lookup as identity};
pub(crate) use host::remit_of;
pub use listen::ListenAt;
