//! Tells whether a file is still the same as before.

use rustix::fs::Stat;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file at a moment: device, inode, size, times of the last modification and of the last change in seconds and nanoseconds.
/// Another file or other content has another id, except after changes within a tick of the kernel's clock (at most 4 ms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FileId([i64; 7]);

impl FileId {
    /// Makes the id from the result of fstat(2).
    #[allow(clippy::unnecessary_cast, clippy::cast_possible_wrap)] // types differ between machines
    pub fn from_stat(stat: &Stat) -> Self {
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

    /// Returns the id without the last change of status, because every new hard link to the file changes that.
    #[must_use]
    pub fn without_change_time(mut self) -> Self {
        self.0[5..].fill(0);
        self
    }

    /// Returns whether both are the same file, even if its content differs.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.0[..2] == other.0[..2]
    }

    /// Returns the number of the file system.
    pub fn device(&self) -> i64 {
        self.0[0]
    }

    /// Returns the size in bytes.
    pub fn file_size(&self) -> i64 {
        self.0[2]
    }

    /// Returns whether the file is old enough that another change would show in its times.
    pub fn has_settled(&self) -> bool {
        const SETTLED: i64 = 2; // seconds: more than a tick of any file system's clock
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
        self.0[3].max(self.0[5]) + SETTLED <= now
    }

    /// Returns seconds and nanoseconds of the last change.
    pub fn change_time(&self) -> (i64, i64) {
        (self.0[5], self.0[6])
    }
}
