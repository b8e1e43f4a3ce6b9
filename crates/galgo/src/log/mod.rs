//! The access log and the error log. Writing never blocks an event loop: lines go to a thread of
//! their own, and what it cannot keep up with is dropped, counted and reported.

pub mod access;
pub mod time;
mod writer;

use std::{io, sync::Arc, time::SystemTime};

pub use writer::Writer;

use crate::{config, id::Id, relay::stderr::escape};

/// Both logs, shared by all workers.
#[derive(Debug, Clone)]
pub struct Logs {
    /// The access log; `None` where it is off.
    pub access: Option<Arc<Writer>>,
    /// The error log.
    pub error: ErrorLog,
    /// Format of the access log.
    pub format: config::LogFormat,
}

/// Where errors and what programs say on standard error are written.
#[derive(Debug, Clone)]
pub struct ErrorLog(Arc<Writer>);

/// How much a line of the error log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Level {
    Error,
    Warn,
    Info,
}

impl Logs {
    /// Opens both logs.
    pub fn open(c: &config::Log) -> io::Result<Self> {
        let error = ErrorLog(Arc::new(Writer::open(&c.error, None)?));
        let access = match &c.access {
            Some(to) => Some(Arc::new(Writer::open(to, Some(error.0.clone()))?)),
            None => None,
        };
        Ok(Self {
            access,
            error,
            format: c.format,
        })
    }

    /// Opens the files again, after they were renamed (SIGUSR1).
    pub fn reopen(&self) {
        self.error.0.reopen();
        if let Some(access) = &self.access {
            access.reopen();
        }
    }

    /// Waits until everything handed over is written.
    pub fn flush(&self) {
        if let Some(access) = &self.access {
            access.flush();
        }
        self.error.0.flush();
    }
}

impl ErrorLog {
    /// A log that writes to standard error.
    pub fn to_stderr() -> io::Result<Self> {
        Ok(Self(Arc::new(Writer::open(&config::LogTo::Stderr, None)?)))
    }

    /// Writes one line: time, level, what it is about, message. Control characters are escaped.
    pub fn write(&self, level: Level, about: &str, message: &str) {
        let level = match level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
        };
        self.line(level, about, message);
    }

    fn line(&self, kind: &str, about: &str, message: &str) {
        let now = time::iso(SystemTime::now());
        let (about, message) = (escape(about.as_bytes()), escape(message.as_bytes()));
        let gap = if about.is_empty() { "" } else { ": " };
        self.0
            .write(format!("{now} {kind} {about}{gap}{message}\n").into_bytes());
    }

    /// Waits until everything handed over is written.
    pub fn flush(&self) {
        self.0.flush();
    }
}

/// Names a request and its program in the error log.
#[derive(Debug, Clone)]
pub struct Source {
    log: ErrorLog,
    about: Arc<str>,
}

impl Source {
    /// The source of lines about request `id`, answered by `script`.
    pub fn new(log: ErrorLog, id: Id, script: &str) -> Self {
        // Every request makes one, hardly any writes a line.
        let about = ["[", id.as_str(), "] ", script].concat();
        Self {
            log,
            about: about.into(),
        }
    }

    /// A line the program wrote to standard error, already escaped.
    pub fn line(&self, line: &str) {
        self.log.line("stderr", &self.about, line);
    }

    /// A line about the program.
    pub fn write(&self, level: Level, message: &str) {
        self.log.write(level, &self.about, message);
    }
}
