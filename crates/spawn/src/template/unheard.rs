//! Files that may change without an event of inotify(7): files on file systems that other machines change too, and files that a
//! mount may hide. They are checked by stat(2).

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::reports::LoadedTemplate;
use crate::{
    FileId,
    standard_ruleset::{count_renewals, renew_standard_ruleset},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, CWD, StatxFlags, stat, statfs, statx},
};

/// File systems that change only by calls to this kernel, so that inotify reports each change, by their numbers (statfs(2)):
/// ext2 to 4, XFS, Btrfs, tmpfs, ramfs, overlay, F2FS, ZFS, bcachefs, JFS, ReiserFS, NILFS, UDF, FAT, exFAT, NTFS, Squashfs,
/// EROFS, cramfs, ISO 9660.
const HEARD: [u32; 20] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x8584_58F6,
    0x794C_7630,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x3153_464A,
    0x5265_4973,
    0x3434,
    0x1501_3346,
    0x4D44,
    0x2011_BAB0,
    0x7366_746E,
    0x7371_7368,
    0xE0F5_E1E2,
    0x28CD_3D45,
    0x9660,
];

/// Interval for checking files that may change without an event.
pub const UNHEARD: Duration = Duration::from_secs(1);

/// The files that programs' templates were made of, with the versions at that time.
#[derive(Debug)]
pub struct UnheardFiles<P> {
    programs: Mutex<HashMap<usize, Noted<P>>>,
    /// Whether some program has a file on a file system without events.
    any: AtomicBool,
    /// The table of mounts, which becomes readable when it has changed (proc_pid_mountinfo(5)); `None`: changes go unnoticed.
    mounts: Option<File>,
    /// Number of times that the mounts have changed.
    changes: AtomicU64,
    /// The value of [`count_renewals`] when [`has_unheard`](Self::has_unheard) was last called.
    renewals: AtomicU64,
}

#[derive(Debug)]
struct Noted<P> {
    program: Weak<P>,
    files: Arc<BTreeMap<PathBuf, Option<FileId>>>,
    /// Whether some file may change without an event.
    unheard: bool,
    /// The value of `UnheardFiles::changes` when the files were last checked.
    changes: u64,
    /// The value of [`count_renewals`] when the template was started.
    renewals: u64,
}

impl<P> UnheardFiles<P> {
    pub(super) fn new() -> Self {
        Self {
            programs: Mutex::default(),
            any: AtomicBool::new(false),
            mounts: File::open("/proc/self/mountinfo").ok(),
            changes: AtomicU64::new(0),
            renewals: count_renewals().into(),
        }
    }

    /// Notes the files that a template was made of, the `ways` to them included. If another template of the program was made of
    /// another version of a file, that version is kept: the file has changed.
    pub(super) fn note_files<'f>(
        &self,
        loaded: &'f LoadedTemplate,
        ways: impl Iterator<Item = &'f Path>,
        program: &Arc<P>,
    ) {
        let changes = self.changes.load(Ordering::SeqCst);
        let mut heard = HashMap::new();
        let folders = loaded.absent.iter().filter_map(|file| file.parent());
        let all = loaded.files.iter().map(PathBuf::as_path);
        let mut all = all.chain(ways).chain(folders);
        let unheard = all.any(|path| !is_heard(path, &mut heard));
        let named = loaded.files.iter().chain(&loaded.absent);
        let mut files: BTreeMap<_, _> = named
            .map(|file| (file.clone(), read_version(file)))
            .collect();
        let mut programs = self.lock_programs();
        programs.retain(|_, noted| noted.program.strong_count() > 0);
        let mut is_same = true;
        if let Some(known) = programs.get(&program_key(program)) {
            for (file, then) in known.files.iter() {
                is_same &= files
                    .insert(file.clone(), *then)
                    .is_none_or(|now| now == *then);
            }
        }
        let noted = Noted {
            program: Arc::downgrade(program),
            files: files.into(),
            unheard: unheard || !is_same,
            changes,
            renewals: loaded.renewals,
        };
        programs.insert(program_key(program), noted);
        self.any.fetch_or(unheard, Ordering::SeqCst);
    }

    /// Returns whether some program has a file that may change without an event, or the ruleset of programs has changed since
    /// the last call.
    pub(crate) fn has_unheard(&self) -> bool {
        let renewals = count_renewals();
        let is_renewed = self.renewals.swap(renewals, Ordering::SeqCst) != renewals;
        is_renewed || self.any.load(Ordering::SeqCst)
    }

    /// Returns a descriptor that has exceptional conditions (POLLPRI) once the mounts have changed.
    pub(crate) fn mounts(&self) -> Option<BorrowedFd<'_>> {
        self.mounts.as_ref().map(AsFd::as_fd)
    }

    /// Checks whether the mounts have changed, and notes that. Call this each [`UNHEARD`], unless `mounts` is
    /// polled.
    pub fn look_at_mounts(&self) {
        let Some(mounts) = self.mounts() else {
            return;
        };
        let mut fds = [PollFd::from_borrowed_fd(mounts, PollFlags::PRI)];
        if poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            self.mounts_changed();
        }
    }

    /// Notes that the mounts have changed.
    pub(crate) fn mounts_changed(&self) {
        renew_standard_ruleset();
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether a program must be checked: a file may change without an event, or the mounts or the ruleset have changed.
    pub fn is_due(&self, program: &Arc<P>) -> bool {
        let changes = self.changes.load(Ordering::SeqCst);
        let programs = self.lock_programs();
        let noted = programs.get(&program_key(program));
        noted.is_some_and(|noted| {
            noted.unheard || noted.changes != changes || noted.renewals != count_renewals()
        })
    }

    /// Returns all programs whose files must be checked.
    pub(crate) fn due_programs(&self) -> Vec<Arc<P>> {
        let all: Vec<_> = self
            .lock_programs()
            .values()
            .filter_map(|noted| noted.program.upgrade())
            .collect();
        all.into_iter()
            .filter(|program| self.is_due(program))
            .collect()
    }

    /// Returns whether a file of the program has changed, by stat(2), or the ruleset of programs. Waits for file systems.
    pub fn has_changed(&self, program: &Arc<P>) -> bool {
        let changes = self.changes.load(Ordering::SeqCst);
        let Some((files, renewals)) = self
            .lock_programs()
            .get(&program_key(program))
            .map(|noted| (noted.files.clone(), noted.renewals))
        else {
            return false;
        };
        let changed = renewals != count_renewals()
            || files.iter().any(|(file, then)| read_version(file) != *then);
        let mut programs = self.lock_programs();
        match programs.get_mut(&program_key(program)) {
            // The program was loaded again meanwhile.
            Some(noted) if !Arc::ptr_eq(&noted.files, &files) => {}
            Some(_) if changed => drop(programs.remove(&program_key(program))),
            Some(noted) => noted.changes = changes,
            None => {}
        }
        changed
    }

    /// Forgets a program that has dropped its templates.
    pub(super) fn forget(&self, program: &Arc<P>) {
        self.lock_programs().remove(&program_key(program));
    }

    fn lock_programs(&self) -> MutexGuard<'_, HashMap<usize, Noted<P>>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn program_key<P>(program: &Arc<P>) -> usize {
    Arc::as_ptr(program).addr()
}

/// Returns the version of a file, asked of the file system itself, which may otherwise answer from a cache.
fn read_version(file: &Path) -> Option<FileId> {
    // If the system has no such call, the answer below may be out of date.
    let _ = statx(
        CWD,
        file,
        AtFlags::STATX_FORCE_SYNC,
        StatxFlags::BASIC_STATS,
    );
    stat(file).ok().map(|stat| FileId::from_stat(&stat))
}

/// Returns whether inotify reports all changes to this path.
fn is_heard(path: &Path, known: &mut HashMap<u64, bool>) -> bool {
    let Ok(about) = stat(path) else {
        return true; // the path does not exist
    };
    *known.entry(about.st_dev).or_insert_with(|| {
        // The numbers have 32 bits; some machines extend them by their sign.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let number = |f_type| f_type as u32;
        statfs(path).is_ok_and(|about| HEARD.contains(&number(about.f_type)))
    })
}
