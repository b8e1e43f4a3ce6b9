//! What tells a file from what it was.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// A change within the same tick of the clock would leave no trace in the times (seconds).
const SETTLED: i64 = 2;

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    file: (u64, u64),
    pub(super) size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            modified: (
                stat.st_mtime,
                i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            ),
            changed: (
                stat.st_ctime,
                i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
            ),
        }
    }

    /// Whether it is old enough that a change would be seen.
    pub(super) fn has_settled(&self) -> bool {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.changed.0.max(self.modified.0) + SETTLED <= now
    }
}
