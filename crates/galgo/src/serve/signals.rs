//! The signals that the main thread waits for.

use std::{io, os::unix::net::UnixStream};

use rustix::{
    fs::{Mode, OFlags},
    process::Signal as Sent,
};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};

/// Signals of the main thread. They are watched before the server reports that it is ready: a signal right after that
/// must not kill the process.
#[derive(Debug)]
pub(super) struct Signals {
    pub(super) term: Signal,
    pub(super) int: Signal,
    pub(super) reopen: Signal,
    pub(super) reload: Signal,
    pub(super) upgrade: Signal,
    /// SIGHUP may also mean that the terminal has gone: that ends the server.
    terminal: bool,
}

/// Whether this process has a terminal that is still there.
fn terminal() -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}

/// Whether this process was started to ignore SIGHUP, as nohup(1) does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (Sent::HUP.as_raw() - 1) != 0)
}

impl Signals {
    /// Watches the signals; returns them with a runtime for the main thread.
    pub(super) fn register() -> io::Result<(Runtime, Self)> {
        let terminal = terminal() && !ignores_hangup();
        // tokio panics if it cannot have such a pair.
        UnixStream::pair()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let signals = Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            reopen: signal(SignalKind::user_defined1())?,
            reload: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
            terminal,
        };
        drop(entered);
        Ok((runtime, signals))
    }

    /// Whether the server had a terminal that has gone.
    pub(super) fn has_lost_terminal(&self) -> bool {
        self.terminal && !terminal()
    }
}

/// Resolves with the next of either signal.
pub(super) async fn wait_for_either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}

/// Whether the signal has come already.
pub(super) async fn is_pending(signal: &mut Signal) -> bool {
    tokio::select! {
        biased;
        _ = signal.recv() => true,
        () = std::future::ready(()) => false,
    }
}
