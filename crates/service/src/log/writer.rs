//! The threads that write logs.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    time::{Duration, Instant, SystemTime},
};

use galgo_spawn::apart::open_files_as_user;

use super::{target::LogTarget, time};
use crate::lock::lock;

/// Limit of a log's blocks of lines that wait for the disk; more are dropped and counted.
const WAITING: usize = 4096;

/// Shortest interval between reports of lost lines.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Longest wait, at the end of the server, for a log whose reader does not read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Hands lines to a thread that writes them. Logs on one file system share a thread: a slow disk delays no log on another disk.
#[derive(Debug)]
pub struct LogWriter {
    log: Arc<Log>,
    to_thread: Sender<WriterMessage>,
    /// The file system of the log when it was opened; `None`: the log is no regular file.
    disk: Option<u64>,
}

type WriterMessage = (Arc<Log>, LogMessage);

/// A switch that the thread makes before it writes more lines.
#[derive(Debug, Default)]
struct LogSwitch {
    /// The new target.
    to: Option<LogTarget>,
    /// After that, the file is opened again.
    reopens: bool,
}

impl LogSwitch {
    /// Sets the new target; `None`: opens the file again, even if it was just opened for a pending switch, because it may have
    /// been moved away since.
    fn set_next_target(&mut self, to: Option<LogTarget>) {
        self.reopens = to.is_none();
        if to.is_some() {
            self.to = to;
        }
    }
}

#[derive(Debug)]
enum LogMessage {
    Lines(Vec<u8>),
    Switch,
    Flush(SyncSender<()>),
}

/// The state of a log that its thread uses.
#[derive(Debug)]
struct Log {
    /// Blocks of lines that wait for the thread.
    waiting: AtomicUsize,
    dropped: AtomicU64,
    switch: Mutex<LogSwitch>,
    /// Locked by the thread alone.
    output: Mutex<LogOutput>,
}

/// The target of the lines, and its errors.
#[derive(Debug)]
struct LogOutput {
    target: LogTarget,
    /// Lines that the system did not accept, and why.
    failed: Option<(u64, io::Error)>,
    reported: Option<Instant>,
    errors: Option<Arc<LogWriter>>,
}

impl LogWriter {
    /// Starts the thread of a log. Reports errors to `errors`.
    pub(super) fn start_thread(target: LogTarget, errors: Option<Arc<Self>>) -> io::Result<Self> {
        let (to_thread, messages) = channel();
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || run_log_thread(&messages))?;
        Ok(Self {
            disk: target.file_system_id(),
            log: Arc::new(Log::new(target, errors)),
            to_thread,
        })
    }

    /// Returns a writer for another log, on the same thread.
    pub(super) fn on_same_thread(&self, target: LogTarget, errors: Option<Arc<Self>>) -> Self {
        Self {
            disk: target.file_system_id(),
            log: Arc::new(Log::new(target, errors)),
            to_thread: self.to_thread.clone(),
        }
    }

    /// Whether this writer's thread may write the other log, too: both must be regular files on the same file system. A FIFO's
    /// reader may keep a thread waiting.
    pub(super) fn can_share_thread(&self, target: &LogTarget) -> bool {
        self.disk.is_some() && self.disk == target.file_system_id()
    }

    /// Hands over whole lines; drops them if too many are waiting.
    pub fn write(&self, lines: Vec<u8>) {
        let log = &self.log;
        if log.waiting.fetch_add(1, Ordering::Relaxed) < WAITING {
            self.send_to_thread(LogMessage::Lines(lines));
            return;
        }
        log.waiting.fetch_sub(1, Ordering::Relaxed);
        let count = memchr::memchr_iter(b'\n', &lines).count();
        log.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Switches to the new target; `None`: opens the file again.
    pub(super) fn switch_target(&self, to: Option<LogTarget>) {
        lock(&self.log.switch).set_next_target(to);
        self.send_to_thread(LogMessage::Switch);
    }

    /// Waits until all lines are written, but not for ever: a FIFO's reader may not read.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        self.send_to_thread(LogMessage::Flush(done));
        let _ = wait.recv_timeout(PATIENCE);
    }

    fn send_to_thread(&self, message: LogMessage) {
        // The thread lives as long as its last writer.
        let _ = self.to_thread.send((self.log.clone(), message));
    }
}

/// Runs the thread until its last log is gone.
fn run_log_thread(messages: &Receiver<WriterMessage>) {
    let mut owing: Vec<Arc<Log>> = Vec::new();
    loop {
        let message = if owing.is_empty() {
            messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            messages.recv_timeout(REPORT_EVERY)
        };
        match message {
            Ok((log, message)) => {
                log.handle_message(message);
                if log.owes_report() && !owing.iter().any(|other| Arc::ptr_eq(other, &log)) {
                    owing.push(log);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        owing.retain(|log| !log.report_if_due());
    }
}

impl Log {
    fn new(target: LogTarget, errors: Option<Arc<LogWriter>>) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            switch: Mutex::default(),
            output: Mutex::new(LogOutput {
                target,
                failed: None,
                reported: None,
                errors,
            }),
        }
    }

    fn handle_message(&self, message: LogMessage) {
        let mut output = lock(&self.output);
        let switch = std::mem::take(&mut *lock(&self.switch));
        if let Err(e) = output.apply_switch(switch) {
            output.report(&format!(
                "the log could not be reopened: {e}; still writing to the old file"
            ));
        }
        match message {
            LogMessage::Lines(lines) => {
                output.write(&lines);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            LogMessage::Flush(done) => {
                // The server may have become its user after this thread began.
                open_files_as_user();
                output.report_lost(&self.dropped);
                // The waiting thread may have given up.
                let _ = done.send(());
            }
            LogMessage::Switch => {}
        }
    }

    fn owes_report(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) > 0 || lock(&self.output).failed.is_some()
    }

    /// Reports lost lines, unless the last report was a moment ago.
    fn report_if_due(&self) -> bool {
        let mut output = lock(&self.output);
        let due = output
            .reported
            .is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if due {
            output.report_lost(&self.dropped);
        }
        due
    }
}

impl LogOutput {
    fn apply_switch(&mut self, switch: LogSwitch) -> io::Result<()> {
        if let Some(target) = switch.to {
            self.target.become_other(target);
        }
        if switch.reopens {
            self.target.reopen()
        } else {
            Ok(())
        }
    }

    fn write(&mut self, lines: &[u8]) {
        if let Err((written, e)) = self.target.write(lines) {
            // A cut line counts as lost.
            let count = memchr::memchr_iter(b'\n', &lines[written..]).count() as u64;
            let before = self.failed.take().map_or(0, |(n, _)| n);
            self.failed = Some((before + count, e));
        }
    }

    /// Reports how many lines were lost, and why.
    fn report_lost(&mut self, dropped: &AtomicU64) {
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.report(&format!(
                "{dropped} lines were dropped: the log is slower than the requests"
            ));
        }
        if let Some((lost, e)) = self.failed.take() {
            self.report(&format!("{lost} lines could not be written: {e}"));
        }
    }

    fn report(&mut self, what: &str) {
        self.reported = Some(Instant::now());
        let line = format!(
            "{} warn log: {what}\n",
            time::format_rfc3339(SystemTime::now())
        );
        match &self.errors {
            Some(errors) => errors.write(line.into_bytes()),
            None => {
                let _ = io::stderr().lock().write_all(line.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::LogTo, *};

    /// The log switches to another file, which is moved away while the thread is still busy.
    #[test]
    fn a_file_is_opened_again_though_it_was_opened_for_the_turn_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::new(LogTarget::disabled(), None);
        let target = LogTarget::open(&LogTo::File(path.clone()), None).unwrap();
        lock(&log.switch).set_next_target(Some(target));
        std::fs::rename(&path, folder.path().join("log.1")).unwrap();
        lock(&log.switch).set_next_target(None);
        log.handle_message(LogMessage::Lines(b"a line\n".to_vec()));
        assert_eq!(std::fs::read(&path).unwrap(), b"a line\n");
    }

    /// Logs share a thread, and each is complete; the end of one log does not affect the others.
    #[test]
    fn logs_share_a_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = |n: usize| folder.path().join(n.to_string());
        let open = |n| LogTarget::open(&LogTo::File(path(n)), None).unwrap();
        let first = LogWriter::start_thread(open(0), None).unwrap();
        let others: Vec<_> = (1..100)
            .map(|n| first.on_same_thread(open(n), None))
            .collect();
        assert!(
            first.can_share_thread(&open(1)) && !first.can_share_thread(&LogTarget::disabled())
        );
        drop(first);
        for _ in 0..50 {
            others
                .iter()
                .for_each(|log| log.write(b"a line\n".to_vec()));
        }
        others.iter().for_each(LogWriter::flush);
        for n in 1..100 {
            assert_eq!(std::fs::read(path(n)).unwrap(), b"a line\n".repeat(50));
        }
    }
}
