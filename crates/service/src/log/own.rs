//! Access logs of routes that have one of their own.

use std::sync::{Arc, OnceLock};

use super::{
    settings::{LogFormat, LogTo},
    writer::LogWriter,
};

/// Where the requests of a route are logged, in place of the server's access log.
#[derive(Debug)]
pub struct OwnLog {
    /// `None`: nowhere.
    to: Option<LogTo>,
    format: LogFormat,
    writer: OnceLock<Arc<LogWriter>>,
}

impl PartialEq for OwnLog {
    fn eq(&self, other: &Self) -> bool {
        (&self.to, self.format) == (&other.to, other.format)
    }
}

impl OwnLog {
    /// A log that is not open yet; `None`: requests are not logged.
    pub fn new(to: Option<LogTo>, format: LogFormat) -> Self {
        Self {
            to,
            format,
            writer: OnceLock::new(),
        }
    }

    /// Where it goes.
    pub fn to(&self) -> Option<&LogTo> {
        self.to.as_ref()
    }

    /// Has it write by the thread of that log.
    pub(super) fn connect(&self, writer: &Arc<LogWriter>) {
        // A route that goes on over a reload has the same one already.
        let _ = self.writer.set(writer.clone());
    }

    /// How requests are written; `None`: not at all.
    pub fn format(&self) -> Option<LogFormat> {
        self.to.is_some().then_some(self.format)
    }

    /// Hands over whole lines.
    pub fn write(&self, lines: Vec<u8>) {
        if let (Some(writer), false) = (self.writer.get(), lines.is_empty()) {
            writer.write(lines);
        }
    }
}
