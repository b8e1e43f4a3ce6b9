//! A thread that writes one log.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant, SystemTime},
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

use super::time;
use crate::config::LogTo;

/// Blocks of lines that may wait for the disk; more are dropped and counted.
const WAITING: usize = 4096;

/// Lost lines are reported this often at most.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// How long the end of the server waits for a log that nobody takes in, and looks again.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(10);

/// Hands lines to a thread that writes them.
#[derive(Debug)]
pub struct Writer {
    to_thread: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    turn: Arc<Mutex<Option<Turn>>>,
}

/// Where a log goes: open.
#[derive(Debug)]
pub(super) struct Target {
    to: LogTo,
    /// `None` where it is no file, or nobody writes to it.
    file: Option<File>,
}

/// What the thread does before it writes anything more.
#[derive(Debug)]
enum Turn {
    /// Opens its file again.
    Reopen,
    /// Goes on there.
    To(Target),
}

impl Target {
    /// Opens a log.
    pub(super) fn open(to: &LogTo) -> io::Result<Self> {
        Ok(Self {
            to: to.clone(),
            file: match to {
                LogTo::File(path) => Some(append(path)?),
                LogTo::Stdout | LogTo::Stderr => None,
            },
        })
    }

    /// For a log that nobody writes to.
    pub(super) fn nowhere() -> Self {
        Self {
            to: LogTo::Stderr,
            file: None,
        }
    }
}

enum Message {
    Lines(Vec<u8>),
    Turn,
    Flush(SyncSender<()>),
}

/// What the thread owns.
struct Output {
    target: Target,
    dropped: Arc<AtomicU64>,
    /// Lines that the system did not take, and why.
    failed: Option<(u64, io::Error)>,
    reported: Option<Instant>,
    turn: Arc<Mutex<Option<Turn>>>,
    errors: Option<Arc<Writer>>,
}

impl Writer {
    /// Starts the thread of a log. Trouble with it is reported to `errors`.
    pub(super) fn start(target: Target, errors: Option<Arc<Self>>) -> io::Result<Self> {
        let dropped = Arc::new(AtomicU64::new(0));
        let turn = Arc::default();
        let output = Output {
            target,
            dropped: dropped.clone(),
            failed: None,
            reported: None,
            turn: Arc::clone(&turn),
            errors,
        };
        let (to_thread, messages) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || output.run(&messages))?;
        Ok(Self {
            to_thread,
            dropped,
            turn,
        })
    }

    /// Hands over whole lines; drops them when too many are waiting.
    pub fn write(&self, lines: Vec<u8>) {
        let count = memchr::memchr_iter(b'\n', &lines).count();
        if self.to_thread.try_send(Message::Lines(lines)).is_err() {
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Goes on there; `None`: opens the file again.
    pub(super) fn turn(&self, to: Option<Target>) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match (to, &*turn) {
            (Some(to), _) => *turn = Some(Turn::To(to)),
            // What was opened a moment before is as good.
            (None, Some(Turn::To(_))) => {}
            (None, _) => *turn = Some(Turn::Reopen),
        }
        drop(turn);
        // Where no message fits the thread is busy, and sees it with the next one.
        let _ = self.to_thread.try_send(Message::Turn);
    }

    /// Waits until everything handed over is written, but not for ever: nobody may be reading.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        let until = Instant::now() + PATIENCE;
        while self
            .to_thread
            .try_send(Message::Flush(done.clone()))
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

impl Output {
    fn turn(&mut self) -> io::Result<()> {
        let turn = self
            .turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match turn {
            Some(Turn::To(target)) => self.target = target,
            Some(Turn::Reopen) if self.target.file.is_some() => {
                self.target = Target::open(&self.target.to)?;
            }
            Some(Turn::Reopen) | None => {}
        }
        Ok(())
    }

    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match self.owes_report() {
                true => messages.recv_timeout(REPORT_EVERY),
                false => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if let Err(e) = self.turn() {
                self.report(&format!(
                    "the log could not be reopened, the old file is kept: {e}"
                ));
            }
            match message {
                Ok(Message::Lines(lines)) => self.write(&lines),
                Ok(Message::Flush(done)) => {
                    self.report_lost();
                    // Who waits may have lost patience.
                    let _ = done.send(());
                }
                Ok(Message::Turn) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
                self.report_lost();
            }
        }
    }

    fn write(&mut self, lines: &[u8]) {
        let done = match (&self.target.to, &mut self.target.file) {
            (LogTo::Stdout, _) => io::stdout()
                .lock()
                .write_all(lines)
                .and_then(|()| io::stdout().flush()),
            (LogTo::Stderr, _) => io::stderr().lock().write_all(lines),
            (LogTo::File(_), Some(file)) => file.write_all(lines),
            (LogTo::File(_), None) => Ok(()),
        };
        if let Err(e) = done {
            let count = memchr::memchr_iter(b'\n', lines).count() as u64;
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

/// Opens the end of a file. Root, which a server is while it starts, does not follow a link there that is not root's:
/// whoever may write to the folder of a log could have any file of the system written to.
fn append(path: &Path) -> io::Result<File> {
    let follows = !geteuid().is_root() || path.symlink_metadata().is_ok_and(|m| m.uid() == 0);
    let flags = match follows {
        true => OFlags::empty(),
        false => OFlags::NOFOLLOW,
    };
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::LOOP) => io::Error::other(format!(
                "{} is a symbolic link that does not belong to root",
                path.display()
            )),
            _ => e,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{lchown, symlink};

    #[test]
    fn root_follows_links_of_root_only() {
        if !geteuid().is_root() {
            eprintln!("skipped root_follows_links_of_root_only: it needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        symlink(&file, &link).unwrap();
        append(&link).unwrap().write_all(b"one\n").unwrap();
        lchown(&link, Some(65534), None).unwrap();
        let refused = append(&link).unwrap_err().to_string();
        assert!(refused.contains("does not belong to root"), "{refused}");
        append(&file).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\n");
    }
}
