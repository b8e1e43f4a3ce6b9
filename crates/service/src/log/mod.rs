//! The access log and the error log. Writing never blocks an event loop: lines go to a separate thread. The logs of routes
//! share a thread for each file system. Lines that a thread cannot keep up with are dropped, counted and reported.

pub mod access;
mod log_settings;
pub mod route_logs;
mod target;
pub mod time;
pub mod told;
mod writer;

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
    time::SystemTime,
};

use galgo_spawn::{
    Exit, Status,
    identity::Identity,
    trusted_path,
    words::{describe_status, escape},
};

pub use crate::log::log_settings::{LogFormat, LogSettings, LogTo};
use crate::log::route_logs::OwnLog;
use target::LogTarget;
pub use writer::LogWriter;

use crate::{id::Id, lock::lock};

/// The logs, shared by all event loops. Their files may change, but these objects stay.
#[derive(Debug, Clone)]
pub struct Logs {
    access: Arc<OnceLock<LogWriter>>,
    /// The logs of routes.
    own: Arc<Mutex<OwnWriters>>,
    /// The error log.
    pub error: ErrorLog,
}

type OwnWriters = Vec<(LogTo, Arc<LogWriter>)>;

/// The new targets of the logs, already opened; `None`: the target does not change.
#[derive(Debug, Default)]
pub struct Reopening {
    access: Option<LogTarget>,
    error: Option<LogTarget>,
    /// The logs of all routes, including logs that stay.
    own: Option<OwnWriters>,
}

/// The log of errors, and of the standard error of programs.
#[derive(Debug, Clone)]
pub struct ErrorLog(Arc<LogWriter>);

/// Whether a log is in another account's folder.
fn is_in_foreign_folder(to: &LogTo) -> bool {
    matches!(to, LogTo::File(path) if trusted_path::others_part(path).is_some())
}

/// The severity of a line in the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Level {
    Error,
    Warn,
    Info,
}

impl Logs {
    /// Opens the logs. The server may still be root, and become `user` later.
    pub fn open(c: &LogSettings, user: Option<&Identity>) -> io::Result<Self> {
        let error = LogTarget::open(&c.error, user)?;
        let access = c.access.as_ref().map(|to| LogTarget::open(to, user));
        let access = access.transpose()?;
        let logs = Self {
            access: Arc::default(),
            own: Arc::default(),
            error: ErrorLog(Arc::new(LogWriter::start_thread(error, None)?)),
        };
        let own = logs.open_route_writers(&c.own, user)?;
        *lock(&logs.own) = own;
        access.map_or(Ok(()), |target| logs.start_access_writer(target))?;
        Ok(logs)
    }

    /// Returns the writers of these logs: the writers that are open already, and new ones.
    fn open_route_writers(&self, all: &[LogTo], user: Option<&Identity>) -> io::Result<OwnWriters> {
        let open = lock(&self.own);
        let mut writers = OwnWriters::new();
        for to in all {
            let known = open.iter().find(|(known, _)| known == to);
            let writer = match known {
                Some((_, writer)) => writer.clone(),
                None => {
                    let target = match LogTarget::open(to, user) {
                        // The owner of that folder must not be able to prevent the server's start.
                        Err(e) if is_in_foreign_folder(to) => {
                            let words = format!("{e}: requests for this log are not logged");
                            self.error.write(Level::Warn, "log", &words);
                            continue;
                        }
                        opened => opened?,
                    };
                    let errors = Some(self.error.0.clone());
                    let mut others = writers.iter().chain(&*open);
                    let beside = others.find(|(_, other)| other.can_share_thread(&target));
                    Arc::new(match beside {
                        Some((_, other)) => other.on_same_thread(target, errors),
                        None => LogWriter::start_thread(target, errors)?,
                    })
                }
            };
            writers.push((to.clone(), writer));
        }
        Ok(writers)
    }

    /// Connects the log of a route to its writer, which must be open.
    pub fn connect_route_log(&self, log: &OwnLog) {
        let own = lock(&self.own);
        if let Some((_, writer)) = own.iter().find(|(to, _)| Some(to) == log.log_target()) {
            log.set_writer(writer);
        }
    }

    fn start_access_writer(&self, target: LogTarget) -> io::Result<()> {
        let errors = self.error.0.clone();
        // INVARIANT: only the main thread starts the writer, if there is none.
        let _ = self
            .access
            .set(LogWriter::start_thread(target, Some(errors))?);
        Ok(())
    }

    /// Opens the logs of `next` that `before` does not have. Nothing changes before [`Logs::switch_targets`].
    ///
    /// # Errors
    /// A log cannot be opened.
    pub fn open_changed_logs(
        &self,
        before: &LogSettings,
        next: &LogSettings,
    ) -> io::Result<Reopening> {
        let access = match &next.access {
            to if *to == before.access => None,
            None => Some(LogTarget::disabled()),
            Some(to) => Some(LogTarget::open(to, None)?),
        };
        let access = match (access, self.access.get()) {
            (Some(target), None) => self.start_access_writer(target).map(|()| None)?,
            (access, _) => access,
        };
        let error = if next.error == before.error {
            None
        } else {
            Some(LogTarget::open(&next.error, None)?)
        };
        Ok(Reopening {
            access,
            error,
            own: Some(self.open_route_writers(&next.own, None)?),
        })
    }

    /// Switches the logs to new targets; a file that stays the same is opened again.
    pub fn switch_targets(&self, switch: Reopening) {
        if let Some(access) = self.access.get() {
            access.switch_target(switch.access);
        }
        let mut own = lock(&self.own);
        // A new file is opened twice, because logrotate may have moved it away meanwhile.
        let next = switch.own.unwrap_or_else(|| own.clone());
        next.iter()
            .for_each(|(_, writer)| writer.switch_target(None));
        *own = next;
        self.error.0.switch_target(switch.error);
    }

    /// Opens the files again, after they were renamed (SIGUSR1).
    pub fn reopen_files(&self) {
        self.switch_targets(Reopening::default());
    }

    /// Returns the access log, if there is or was one.
    pub fn access_log(&self) -> Option<&LogWriter> {
        self.access.get()
    }

    /// Waits until all lines are written.
    pub fn flush(&self) {
        if let Some(access) = self.access.get() {
            access.flush();
        }
        let own = lock(&self.own).clone();
        own.iter().for_each(|(_, writer)| writer.flush());
        self.error.0.flush();
    }
}

impl ErrorLog {
    /// Writes one line: time, level, subject, message. Control characters are escaped, and so are characters that change the
    /// direction of text.
    pub fn write(&self, level: Level, about: &str, message: &str) {
        let level = match level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
        };
        self.write_line(level, about, message);
    }

    /// Writes a line; returns the number of bytes that the log grows by.
    fn write_line(&self, kind: &str, about: &str, message: &str) -> usize {
        let now = time::format_rfc3339(SystemTime::now());
        let (about, message) = (escape(about.as_bytes()), escape(message.as_bytes()));
        let gap = if about.is_empty() { "" } else { ": " };
        let line = format!("{now} {kind} {about}{gap}{message}\n");
        let grows = line.len();
        self.0.write(line.into_bytes());
        grows
    }

    /// Waits until all lines are written.
    pub fn flush(&self) {
        self.0.flush();
    }
}

/// Names a request and its program in the error log.
#[derive(Debug, Clone)]
pub struct LogSource {
    log: ErrorLog,
    id: Id,
    script: Arc<str>,
}

impl LogSource {
    /// Returns the source of lines about request `id`, answered by `script`.
    pub fn new(log: ErrorLog, id: Id, script: &str) -> Self {
        Self {
            log,
            id,
            script: script.into(),
        }
    }

    /// Returns the name of the program.
    pub fn script(&self) -> &str {
        &self.script
    }

    /// Returns the subject of a line. Made for each line, because every request has a source, but hardly any writes one.
    fn line_subject(&self) -> String {
        ["[", &*self.id.to_base32(), "] ", &self.script].concat()
    }

    /// Writes a line from the program's standard error, already escaped. Returns the number of bytes that the log grows by.
    pub fn write_stderr_line(&self, line: &str) -> usize {
        self.log.write_line("stderr", &self.line_subject(), line)
    }

    /// Logs that the program failed although its response was sent correctly: most often an exception after the head.
    pub fn log_late_failure(&self, exit: Option<Exit>) {
        if let Some(status @ Status::Code(1..)) = exit.map(|exit| exit.status) {
            let words = format!("exited {} after its response", describe_status(status));
            self.write(Level::Warn, &words);
        }
    }

    /// Logs that the program printed more than it promised.
    pub fn log_excess_output(&self, promised: u64) {
        let words = format!(
            "the program printed more than its Content-Length {promised}; the rest was cut"
        );
        self.write(Level::Warn, &words);
    }

    /// Writes a line about the program.
    pub fn write(&self, level: Level, message: &str) {
        self.log.write(level, &self.line_subject(), message);
    }
}
