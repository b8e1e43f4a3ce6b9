//! Compares the times at which files were changed, by the clock that dates the files.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Returns the first file that was changed at `since` or later, by the file system's clock.
///
/// The program's own file is left out: its version tells, and other users may be making links to it.
pub fn find_newer<'f>(
    files: &'f BTreeSet<PathBuf>,
    own: &Path,
    since: Duration,
) -> Option<&'f Path> {
    let changed = |file: &&PathBuf| match fs::metadata(file) {
        _ if file.as_path() == own => false,
        Ok(m) => to_duration(m.ctime(), m.ctime_nsec()) >= since,
        Err(_) => true,
    };
    files.iter().find(changed).map(PathBuf::as_path)
}

/// Returns the time that the kernel would give to a file that is changed now.
pub fn file_time_now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    to_duration(now.tv_sec, now.tv_nsec)
}

fn to_duration(seconds: i64, nanoseconds: i64) -> Duration {
    let nanoseconds = u32::try_from(nanoseconds).unwrap_or(0);
    Duration::new(seconds.max(0).unsigned_abs(), nanoseconds)
}
