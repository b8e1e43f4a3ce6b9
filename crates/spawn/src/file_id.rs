//! Telling whether a file is still the one it was.

use rustix::fs::Stat;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file at one moment: device, inode, size, times of the last modification and of the last change
/// in seconds and nanoseconds. Another file, or another content, is another one, but for changes
/// within one tick of the kernel's clock (4 ms at most).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FileId([i64; 7]);

impl FileId {
    /// From what fstat(2) says.
    #[allow(clippy::unnecessary_cast, clippy::cast_possible_wrap)] // types differ between machines
    pub fn of(stat: &Stat) -> Self {
        Self([
            stat.st_dev as i64,
            stat.st_ino as i64,
            stat.st_size as i64,
            stat.st_mtime as i64,
            stat.st_mtime_nsec as i64,
            stat.st_ctime as i64,
            stat.st_ctime_nsec as i64,
        ])
    }

    /// The same but for the last change of status, which every hard link made to the file changes.
    #[must_use]
    pub fn content(mut self) -> Self {
        self.0[5..].fill(0);
        self
    }

    /// Whether it is the same file, whatever it holds.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.0[..2] == other.0[..2]
    }

    /// Bytes.
    pub fn size(&self) -> i64 {
        self.0[2]
    }

    /// Whether it is old enough that another change would show in its times.
    pub fn has_settled(&self) -> bool {
        const SETTLED: i64 = 2; // seconds: more than a tick of any file system's clock
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
        self.0[3].max(self.0[5]) + SETTLED <= now
    }

    /// Seconds and nanoseconds of the last change.
    pub fn changed(&self) -> (i64, i64) {
        (self.0[5], self.0[6])
    }
}
