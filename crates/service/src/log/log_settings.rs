//! The settings of the logs.

use std::path::PathBuf;

/// The settings of the logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Access log; `None`: off.
    pub access: Option<LogTo>,
    /// Format of the access log.
    pub format: LogFormat,
    /// Error log.
    pub error: LogTo,
    /// Access logs of routes; each target is listed once.
    pub own: Vec<LogTo>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            access: Some(LogTo::Stdout),
            format: LogFormat::Combined,
            error: LogTo::Stderr,
            own: Vec::new(),
        }
    }
}

/// The target of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogTo {
    Stdout,
    Stderr,
    File(PathBuf),
}

/// Format of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogFormat {
    Combined,
    /// `Combined`, with the host in front.
    HostCombined,
    Json,
}
