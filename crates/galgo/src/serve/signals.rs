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

/// Watched before anybody is told that the server is ready: a signal that comes right then must not end it the hard way.
#[derive(Debug)]
pub(super) struct Signals {
    pub(super) term: Signal,
    pub(super) int: Signal,
    pub(super) reopen: Signal,
    pub(super) reload: Signal,
    pub(super) upgrade: Signal,
    /// SIGHUP may be the end of a terminal, too: that ends the server.
    terminal: bool,
}

/// Whether this process has a terminal that is still there.
fn terminal() -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}

/// Whether whoever started us had us ignore SIGHUP, as nohup(1) does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (Sent::HUP.as_raw() - 1) != 0)
}

impl Signals {
    /// Watches them by a runtime for the main thread.
    pub(super) fn watch() -> io::Result<(Runtime, Self)> {
        let terminal = terminal() && !ignores_hangup();
        // tokio panics where it cannot have one.
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

    /// Whether the server had a terminal, which is gone.
    pub(super) fn has_lost_terminal(&self) -> bool {
        self.terminal && !terminal()
    }
}

/// Resolves with the next of either.
pub(super) async fn either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}

/// Whether it has come and was not waited for.
pub(super) async fn pends(signal: &mut Signal) -> bool {
    tokio::select! {
        biased;
        _ = signal.recv() => true,
        () = std::future::ready(()) => false,
    }
}
