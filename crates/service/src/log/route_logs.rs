//! Access logs that belong to routes.

use std::sync::{Arc, OnceLock};

use crate::log::{
    log_settings::{LogFormat, LogTo},
    writer::LogWriter,
};

/// The access log of a route, which replaces the server's access log for its requests.
#[derive(Debug)]
pub struct OwnLog {
    /// The target of the log; `None`: requests are not logged.
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
    /// Returns a log that is not open yet; `None`: requests are not logged.
    pub fn new(to: Option<LogTo>, format: LogFormat) -> Self {
        Self {
            to,
            format,
            writer: OnceLock::new(),
        }
    }

    /// Returns the target of the log.
    pub fn log_target(&self) -> Option<&LogTo> {
        self.to.as_ref()
    }

    /// Connects the log to the thread that writes to its target.
    pub(super) fn set_writer(&self, writer: &Arc<LogWriter>) {
        // A route that stays over a reload has the same writer already.
        let _ = self.writer.set(writer.clone());
    }

    /// Returns the format of the lines; `None`: requests are not logged.
    pub fn format(&self) -> Option<LogFormat> {
        self.to.is_some().then_some(self.format)
    }

    /// Hands whole lines over to the thread.
    pub fn write(&self, lines: Vec<u8>) {
        if let (Some(writer), false) = (self.writer.get(), lines.is_empty()) {
            writer.write(lines);
        }
    }
}
