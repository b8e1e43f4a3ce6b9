//! A thread that writes one log.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant, SystemTime},
};

use super::{target::LogTarget, time};

/// Blocks of lines that may wait for the disk; more are dropped and counted.
const WAITING: usize = 4096;

/// Lost lines are reported this often at most.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// How long the end of the server waits for a log whose reader does not read, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(10);

/// Hands lines to a thread that writes them.
#[derive(Debug)]
pub struct LogWriter {
    to_thread: SyncSender<LogMessage>,
    dropped: Arc<AtomicU64>,
    switch: Arc<Mutex<LogSwitch>>,
}

/// What the thread does before it writes anything more.
#[derive(Debug, Default)]
struct LogSwitch {
    /// Goes on there.
    to: Option<LogTarget>,
    /// Then opens its file again.
    reopens: bool,
}

impl LogSwitch {
    /// Goes on there; `None`: opens the file again, also one that was opened for a switch that is still to come. It may have been
    /// moved away since.
    fn next(&mut self, to: Option<LogTarget>) {
        self.reopens = to.is_none();
        if to.is_some() {
            self.to = to;
        }
    }
}

enum LogMessage {
    Lines(Vec<u8>),
    Switch,
    Flush(SyncSender<()>),
}

/// What the thread owns.
struct LogThread {
    target: LogTarget,
    dropped: Arc<AtomicU64>,
    /// Lines that the system did not take, and why.
    failed: Option<(u64, io::Error)>,
    reported: Option<Instant>,
    switch: Arc<Mutex<LogSwitch>>,
    errors: Option<Arc<LogWriter>>,
}

impl LogWriter {
    /// Starts the thread of a log. Trouble with it is reported to `errors`.
    pub(super) fn start(target: LogTarget, errors: Option<Arc<Self>>) -> io::Result<Self> {
        let dropped = Arc::new(AtomicU64::new(0));
        let switch = Arc::default();
        let output = LogThread {
            target,
            dropped: dropped.clone(),
            failed: None,
            reported: None,
            switch: Arc::clone(&switch),
            errors,
        };
        let (to_thread, messages) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || output.run(&messages))?;
        Ok(Self {
            to_thread,
            dropped,
            switch,
        })
    }

    /// Hands over whole lines; drops them when too many are waiting.
    pub fn write(&self, lines: Vec<u8>) {
        let count = memchr::memchr_iter(b'\n', &lines).count();
        if self.to_thread.try_send(LogMessage::Lines(lines)).is_err() {
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Goes on there; `None`: opens the file again.
    pub(super) fn switch(&self, to: Option<LogTarget>) {
        let switch = self.switch.lock();
        switch.unwrap_or_else(PoisonError::into_inner).next(to);
        // Where no message fits the thread is busy, and sees it with the next one.
        let _ = self.to_thread.try_send(LogMessage::Switch);
    }

    /// Waits until everything handed over is written, but not for ever: a FIFO's reader may not read.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        let until = Instant::now() + PATIENCE;
        while self
            .to_thread
            .try_send(LogMessage::Flush(done.clone()))
            .is_err()
        {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(RETRY);
        }
        drop(done);
        let _ = wait.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl LogThread {
    fn switch(&mut self) -> io::Result<()> {
        let switch = self.switch.lock();
        let switch = std::mem::take(&mut *switch.unwrap_or_else(PoisonError::into_inner));
        if let Some(target) = switch.to {
            self.target.become_other(target);
        }
        match switch.reopens {
            true => self.target.reopen(),
            false => Ok(()),
        }
    }

    fn run(mut self, messages: &Receiver<LogMessage>) {
        loop {
            let message = match self.owes_report() {
                true => messages.recv_timeout(REPORT_EVERY),
                false => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if let Err(e) = self.switch() {
                self.report(&format!(
                    "the log could not be reopened, the old file is kept: {e}"
                ));
            }
            match message {
                Ok(LogMessage::Lines(lines)) => self.write(&lines),
                Ok(LogMessage::Flush(done)) => {
                    self.report_lost();
                    // The waiting thread may have given up.
                    let _ = done.send(());
                }
                Ok(LogMessage::Switch) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
                self.report_lost();
            }
        }
    }

    fn write(&mut self, lines: &[u8]) {
        if let Err((written, e)) = self.target.write(lines) {
            // A line that was cut counts among those that are lost.
            let count = memchr::memchr_iter(b'\n', &lines[written..]).count() as u64;
            let before = self.failed.take().map_or(0, |(n, _)| n);
            self.failed = Some((before + count, e));
        }
    }

    fn owes_report(&self) -> bool {
        self.failed.is_some() || self.dropped.load(Ordering::Relaxed) > 0
    }

    /// Says how many lines were lost, and why.
    fn report_lost(&mut self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
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
        let line = format!("{} warn log: {what}\n", time::iso(SystemTime::now()));
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

    /// A log that goes to another file, which is moved away while the thread is still busy.
    #[test]
    fn a_file_is_opened_again_though_it_was_opened_for_the_turn_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let switch = Arc::<Mutex<LogSwitch>>::default();
        let mut output = LogThread {
            target: LogTarget::nowhere(),
            dropped: Arc::default(),
            failed: None,
            reported: None,
            switch: switch.clone(),
            errors: None,
        };
        let target = LogTarget::open(&LogTo::File(path.clone()), None).unwrap();
        switch.lock().unwrap().next(Some(target));
        std::fs::rename(&path, folder.path().join("log.1")).unwrap();
        switch.lock().unwrap().next(None);
        output.switch().unwrap();
        output.write(b"a line\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"a line\n");
    }
}
