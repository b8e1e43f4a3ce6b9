//! Telling whether a file is still the one it was.

use rustix::fs::Stat;

/// A file at one moment: device, inode, size, times of the last modification and of the last change
/// in seconds and nanoseconds. Another file, or another content, is another one, but for changes
/// within one tick of the kernel's clock (4 ms at most).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// Seconds and nanoseconds of the last change.
    pub fn changed(&self) -> (i64, i64) {
        (self.0[5], self.0[6])
    }
}
