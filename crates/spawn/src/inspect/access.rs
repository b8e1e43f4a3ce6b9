//! Checks whether a file exists, whether it may be executed, and which users may replace it.

use super::finding::{Finding, Subject, chmod_command};
use crate::{
    identity::{effective_uid, user_name_of},
    words,
};
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};
use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// Returns the mode of a regular file. Any other kind of file, or none, is a finding.
pub(super) fn check_regular(subject: Subject<'_>, path: &Path) -> Result<u32, Finding> {
    match fs::metadata(path) {
        Ok(m) if m.is_dir() => Err(subject.failure("is a folder", "")),
        Ok(m) if !m.is_file() => Err(subject.failure("is not a regular file", "")),
        Ok(m) => Ok(m.mode()),
        Err(e) => Err(explain_absence(subject, path, &e)),
    }
}

fn explain_absence(subject: Subject<'_>, path: &Path, error: &io::Error) -> Finding {
    if let Ok(target) = fs::read_link(path) {
        let target = words::escape_path(&target);
        return subject.failure(format!("is a symbolic link to {target}: {error}"), "");
    }
    match error.kind() {
        io::ErrorKind::NotFound => subject.failure("does not exist", ""),
        io::ErrorKind::PermissionDenied => match first_barred_folder(path) {
            Some(f) => subject.failure(
                "is in a folder that this user cannot enter",
                chmod_command("+x", f),
            ),
            None => subject.failure(error, ""),
        },
        _ => subject.failure(error, ""),
    }
}

/// Returns whether this process may access a file so. The check uses the ids that open files, because the real ids may differ.
pub fn can_access(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// Returns the nearest folder on the way to `path` that this process may not enter.
fn first_barred_folder(path: &Path) -> Option<&Path> {
    let mut above = path.ancestors().skip(1);
    above.find(|f| fs::metadata(f).is_ok() && !can_access(f, Access::EXEC_OK))
}

/// Returns why this process may not enter or list a folder of programs; `None`: it may do both.
pub fn check_folder_access(folder: &Path) -> Option<Finding> {
    let says = |folder: &Path, what: &str, mend, fails| Finding {
        says: format!(
            "user {} cannot {what} the folder {}",
            user_name_of(effective_uid()),
            words::escape_path(folder)
        ),
        mend: chmod_command(mend, folder),
        fails,
    };
    let enter = |folder| says(folder, "enter", "a+x", true);
    match fs::metadata(folder) {
        Err(_) => first_barred_folder(folder).map(enter),
        Ok(_) if !can_access(folder, Access::EXEC_OK) => Some(enter(folder)),
        Ok(_) if !can_access(folder, Access::READ_OK) => Some(says(folder, "list", "a+r", false)),
        Ok(_) => None,
    }
}

/// Checks that `path` is a file that this process may execute. Root, too, needs one executable bit.
pub(super) fn check_executable(subject: Subject<'_>, path: &Path) -> Result<(), Finding> {
    if check_regular(subject, path)? & 0o111 == 0 {
        return Err(subject.failure("is not executable", chmod_command("+x", path)));
    }
    if can_access(path, Access::EXEC_OK) {
        return Ok(());
    }
    if statvfs(path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        let argument = words::shell_argument(path);
        let mend =
            format!("mount -o remount,exec \"$(findmnt -no TARGET -T {argument})\", or move it");
        return Err(subject.failure("is on a file system that is mounted noexec", mend));
    }
    // A server that looks here may not wait for a name service, so the user is not named.
    Err(subject.failure("is not executable for this user", chmod_command("+x", path)))
}

/// Warns if other users could replace this program: if they may write the file or any folder above it. In a sticky folder
/// (`/tmp`) only a file's owner may replace the file.
pub(super) fn warn_if_writable(path: &Path) -> Vec<Finding> {
    const STICKY: u32 = 0o1000;
    let Ok(path) = path.canonicalize() else {
        return Vec::new();
    };
    let warns = |what: String, path: &Path| Finding {
        says: format!("{what} is writable by others"),
        mend: chmod_command("o-w", path),
        fails: false,
    };
    let mut found = Vec::new();
    for (depth, place) in path.ancestors().enumerate() {
        let Ok(meta) = fs::metadata(place) else {
            continue;
        };
        if meta.mode() & 0o002 == 0 || (depth > 0 && meta.mode() & STICKY != 0) {
            continue;
        }
        found.push(match depth {
            0 => warns("the program".into(), place),
            _ => warns(format!("the folder {}", words::escape_path(place)), place),
        });
    }
    found
}
