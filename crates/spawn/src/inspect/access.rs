//! Checks whether a file exists, whether it may be executed, and which users may replace it.

use super::finding::{Finding, Subject, chmod};
use crate::words;
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};
use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// Returns the mode of a regular file. Any other kind of file, or none, is a finding.
pub(super) fn regular(subject: Subject<'_>, path: &Path) -> Result<u32, Finding> {
    match fs::metadata(path) {
        Ok(m) if m.is_dir() => Err(subject.fails("is a folder", "")),
        Ok(m) if !m.is_file() => Err(subject.fails("is not a regular file", "")),
        Ok(m) => Ok(m.mode()),
        Err(e) => Err(absent(subject, path, &e)),
    }
}

fn absent(subject: Subject<'_>, path: &Path, error: &io::Error) -> Finding {
    if let Ok(target) = fs::read_link(path) {
        let target = words::path(&target);
        return subject.fails(format!("is a symbolic link to {target}: {error}"), "");
    }
    match error.kind() {
        io::ErrorKind::NotFound => subject.fails("does not exist", ""),
        io::ErrorKind::PermissionDenied => match barred(path) {
            Some(f) => subject.fails("is in a folder this user may not enter", chmod("+x", f)),
            None => subject.fails(error, ""),
        },
        _ => subject.fails(error, ""),
    }
}

/// Returns whether this process may access a file so. The check uses the ids that open files, because the real ids may differ.
pub fn may(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// Returns the nearest folder on the way to `path` that this process may not enter.
fn barred(path: &Path) -> Option<&Path> {
    let mut above = path.ancestors().skip(1);
    above.find(|f| fs::metadata(f).is_ok() && !may(f, Access::EXEC_OK))
}

/// Returns why this process may not enter or list a folder of programs; `None`: it may do both.
pub fn closed(folder: &Path) -> Option<Finding> {
    let user = crate::identity::effective_uid();
    let says = |folder: &Path, what: &str, mend, fails| Finding {
        says: format!("the folder {} {what} user {user}", words::path(folder)),
        mend: chmod(mend, folder),
        fails,
    };
    let enter = |folder| says(folder, "may not be entered by", "a+x", true);
    match fs::metadata(folder) {
        Err(_) => barred(folder).map(enter),
        Ok(_) if !may(folder, Access::EXEC_OK) => Some(enter(folder)),
        Ok(_) if !may(folder, Access::READ_OK) => {
            Some(says(folder, "cannot be looked through by", "a+r", false))
        }
        Ok(_) => None,
    }
}

/// Checks that `path` is a file that this process may execute. Root, too, needs one executable bit.
pub(super) fn executable(subject: Subject<'_>, path: &Path) -> Result<(), Finding> {
    if regular(subject, path)? & 0o111 == 0 {
        return Err(subject.fails("is not executable", chmod("+x", path)));
    }
    if may(path, Access::EXEC_OK) {
        return Ok(());
    }
    if statvfs(path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        let argument = words::argument(path);
        let mend =
            format!("mount -o remount,exec \"$(findmnt -no TARGET -T {argument})\", or move it");
        return Err(subject.fails("is on a file system that is mounted noexec", mend));
    }
    let user = crate::identity::effective_uid();
    Err(subject.fails(
        format!("is not executable for user {user}"),
        chmod("+x", path),
    ))
}

/// Warns if other users could replace this program: if they may write the file or any folder above it. In a sticky folder
/// (`/tmp`) only a file's owner may replace the file.
pub(super) fn writable(path: &Path) -> Vec<Finding> {
    const STICKY: u32 = 0o1000;
    let Ok(path) = path.canonicalize() else {
        return Vec::new();
    };
    let warns = |what: String, path: &Path| Finding {
        says: format!("{what} is writable by others"),
        mend: chmod("o-w", path),
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
            _ => warns(format!("the folder {}", words::path(place)), place),
        });
    }
    found
}
