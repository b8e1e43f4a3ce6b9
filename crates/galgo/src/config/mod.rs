//! The configuration as the server uses it: paths are absolute, defaults applied, folders open.
//!
//! `config_text` reads what is typed; `config_check` and `route_check` make a [`Config`] of it.

mod checked;
mod defaults;

pub(crate) use checked::Placed;
pub use checked::{
    Address, AdmissionSettings, Application, Automatic, BodyMode, Cgi, CgiOptions, CgiRoot, Config,
    DevErrors, Files, Folder, GuestAccess, Handler, Http, Listen, LogFormat, LogSettings, LogTo,
    PassedName, Protocol, RateLimit, RateSettings, Respond, Route, Sendfile, Sites, Speaks,
    SpoolSettings, StartMode, TemplateSettings, TlsConfig, To, UserDir, Workers,
};
pub use galgo_spawn::identity::{Identity, resolve_identity as identity};
