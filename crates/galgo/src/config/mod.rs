//! The configuration, checked: paths absolute, defaults applied, folders opened.
//! `raw` is what was typed; nothing outside this module sees it.
//!
//! | room | holds |
//! |---|---|
//! | `checked` | the configuration as the server uses it |
//! | `raw`, `units` | keys and values as they are typed |
//! | `error` | errors with file, line, column, key and mend |
//! | `check`, `routes`, `handlers`, `upstream`, `fields`, `userdir` | from typed to checked |
//! | `cover` | no program's source is served as a file |
//! | `folder`, `identity` | what the file system and the system's accounts say |
//! | `desk` | who is shown why a program has failed |
//! | `front`, `tls` | whose word about a client counts, files that programs hand over; certificates |
//! | `defaults`, `source` | defaults, where a configuration comes from |

mod check;
mod checked;
mod cover;
mod defaults;
mod desk;
mod error;
mod fields;
mod folder;
mod front;
mod handlers;
mod identity;
mod raw;
mod routes;
mod source;
#[cfg(test)]
mod tests;
mod tls;
mod units;
mod upstream;
mod userdir;

pub use checked::{
    Address, AdmissionSettings, Application, BodyMode, Cgi, CgiOptions, CgiRoot, Config, DevErrors,
    Files, Folder, Handler, Http, Listen, LogFormat, LogSettings, LogTo, Protocol, Respond, Route,
    Sendfile, Sight, Speaks, SpoolSettings, StartMode, Templates, Tls, To, UserDir, Workers,
};
pub use error::ConfigError;
pub use identity::{Identity, identity};
