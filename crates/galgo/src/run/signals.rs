//! Signals that end a command.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code that a shell reports for a process that SIGINT ended.
pub(super) const INTERRUPTED: u8 = 130;

/// Signals that end a command and the programs that it runs.
pub(super) struct CommandSignals {
    int: Signal,
    term: Signal,
}

impl CommandSignals {
    pub(super) fn register() -> Result<Self, String> {
        let watch = |kind| signal(kind).map_err(|e| format!("cannot watch for signals: {e}"));
        Ok(Self {
            int: watch(SignalKind::interrupt())?,
            term: watch(SignalKind::terminate())?,
        })
    }

    /// Waits for any of these signals.
    pub(super) async fn wait_for_any(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}
