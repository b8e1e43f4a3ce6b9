//! The Landlock ruleset that all programs of the standard sandbox share. Beside its scopes ([`crate::domain`]), it closes the file systems
//! in which a program could change other processes of its user.
//!
//! Files of /proc/PID decide how the kernel treats a process (oom_score_adj, autogroup). They belong to the process's user, unless
//! the process is not dumpable, and a program that starts is dumpable for a moment. Files of a control group freeze and kill
//! processes. A filter of system calls sees no paths. Therefore programs may write beneath the other entries of `/` only.
//!
//! A right to a folder does not hold for a file system that is mounted there later. Therefore the thread of the reaper makes the
//! ruleset anew after `/` or the mounts there have changed. Templates from before are loaded again
//! ([`crate::template`]).

use crate::domain::make_standard_ruleset;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs::{File, metadata, read_dir, read_to_string},
    io, mem,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

/// The precision of the times of files, with room to spare.
const CLOCK: Duration = Duration::from_millis(50);

const MOUNTS: &str = "/proc/self/mountinfo";

/// The entries of `/` in which programs may not write.
const CLOSED: [&str; 2] = ["proc", "sys"];

/// Devices, whose files may belong to users: LEDs, pins, brightness.
const DEVICES: [&str; 2] = ["/sys/class", "/sys/devices"];

/// The ruleset of this process.
static STANDARD: Mutex<Option<StandardRuleset>> = Mutex::new(None);

/// Number of times that the ruleset was made anew.
static RENEWED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct StandardRuleset {
    ruleset: Weak<OwnedFd>,
    /// The table of mounts, which has exceptional conditions once it has changed (proc_pid_mountinfo(5)). `None`: nothing has looked
    /// for changes yet.
    mounts: Option<File>,
    /// The lines of entries of `/` in that table.
    mounted: Vec<String>,
    /// The time at which an entry of `/` was last added or removed.
    changed: Option<SystemTime>,
    is_stale: bool,
}

impl StandardRuleset {
    fn has_changed(&mut self) -> bool {
        let changed = change_time();
        let mut has_changed = mem::replace(&mut self.changed, changed) != changed;
        let is_same = self.mounts.as_ref().is_some_and(|mounts| {
            let mut fds = [PollFd::new(mounts, PollFlags::PRI)];
            poll(&mut fds, Some(&Timespec::default())) == Ok(0)
        });
        if !is_same {
            self.mounts = self.mounts.take().or_else(|| File::open(MOUNTS).ok());
            let mounted = list_mounted_entries();
            has_changed |= mounted != self.mounted;
            self.mounted = mounted;
        }
        has_changed
    }
}

/// Returns the number of times that the ruleset was made anew. Programs and templates that were started before have previous
/// rights.
pub(crate) fn count_renewals() -> u64 {
    RENEWED.load(Ordering::SeqCst)
}

/// Returns the ruleset, which stays current if the reaper runs; `None`: the kernel has no scopes. If this user cannot list `/`,
/// the ruleset closes nothing.
///
/// # Errors
/// Descriptors or memory are short.
pub(crate) fn share_standard_ruleset() -> io::Result<Option<Arc<OwnedFd>>> {
    let mut standard = STANDARD.lock().unwrap_or_else(PoisonError::into_inner);
    let known = standard.as_ref().and_then(|known| known.ruleset.upgrade());
    if known.is_some() {
        return Ok(known);
    }
    // A change after this is noticed.
    let (mounted, changed) = (list_mounted_entries(), change_time());
    let writable = list_writable_entries().or_else(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => Ok(Vec::new()),
        _ => Err(e),
    })?;
    let ruleset = make_standard_ruleset(&writable)?.map(Arc::new);
    *standard = ruleset.as_ref().map(|ruleset| StandardRuleset {
        ruleset: Arc::downgrade(ruleset),
        mounts: None,
        mounted,
        changed,
        is_stale: false,
    });
    Ok(ruleset)
}

/// Makes the ruleset anew if `/` has other entries, or other file systems are mounted there.
pub(crate) fn renew_standard_ruleset() {
    let mut standard = STANDARD.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(known) = &mut *standard else {
        return;
    };
    let Some(ruleset) = known.ruleset.upgrade() else {
        *standard = None;
        return;
    };
    known.is_stale |= known.has_changed();
    if !known.is_stale {
        return;
    }
    let made = list_writable_entries().and_then(|writable| make_standard_ruleset(&writable));
    known.is_stale = match made {
        Ok(Some(new)) => {
            // Threads may be starting programs: the number leads to one ruleset or the other at each moment.
            // SAFETY: both numbers are descriptors that are held here. The second one stays open, as its owner expects.
            let failed =
                unsafe { libc::dup3(new.as_raw_fd(), ruleset.as_raw_fd(), libc::O_CLOEXEC) } < 0;
            RENEWED.fetch_add(u64::from(!failed), Ordering::SeqCst);
            failed
        }
        Ok(None) => false,
        Err(e) => e.kind() != io::ErrorKind::PermissionDenied,
    };
}

/// Returns the files and folders (`true`) to which, and beneath which, programs may write.
fn list_writable_entries() -> io::Result<Vec<(PathBuf, bool)>> {
    let mut writable: Vec<_> = DEVICES.map(|folder| (folder.into(), true)).into();
    for entry in read_dir("/")? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let is_closed = CLOSED.iter().any(|closed| entry.file_name() == *closed);
        if !is_closed && !kind.is_symlink() {
            writable.push((entry.path(), kind.is_dir()));
        }
    }
    Ok(writable)
}

fn list_mounted_entries() -> Vec<String> {
    let is_entry = |line: &&str| {
        let place = line.split(' ').nth(4);
        place.is_some_and(|place| place.rfind('/') == Some(0))
    };
    let mounts = read_to_string(MOUNTS).unwrap_or_default();
    mounts.lines().filter(is_entry).map(str::to_owned).collect()
}

/// Returns the time at which an entry of `/` was last added or removed; `None`: a moment ago, so that another change may have the
/// same time.
fn change_time() -> Option<SystemTime> {
    let changed = metadata("/").and_then(|about| about.modified()).ok()?;
    let age = changed.elapsed();
    (!age.is_ok_and(|age| age < CLOCK)).then_some(changed)
}
