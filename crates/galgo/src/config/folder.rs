//! Paths as they are typed, and why what is there could not be opened.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::PermissionsExt,
    },
    path::{Component, Path, PathBuf},
};

use galgo_spawn::{readable, trusted_path::read_all};

use super::{checked::Folder, error::ConfigError};

/// `typed` from `folder`, without `.` segments and doubled slashes; `..` and links stay as they are.
pub(super) fn absolute(folder: &Path, typed: &str) -> PathBuf {
    folder
        .join(typed)
        .components()
        .filter(|c| *c != Component::CurDir)
        .collect()
}

/// The text of a file.
///
/// # Errors
/// It cannot be read, or is no text.
pub(super) fn text(file: &Path) -> Result<String, ConfigError> {
    let bytes = read_all(file).map_err(|e| ConfigError::new(unopened(file, &e)))?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = e.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
        ConfigError::new(format!(
            "{}:{line}: is not UTF-8: save it as UTF-8",
            file.display()
        ))
    })
}

/// The path of a folder that is open, links resolved.
pub(super) fn of_open(folder: &Folder) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()))
}

/// What to say of a secret that everybody can read.
pub(super) fn readable_by_all(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let shown = path.display();
    (meta.permissions().mode() & 0o007 != 0)
        .then(|| format!("{shown} can be read by everybody on this machine: chmod o= {shown}"))
}

/// Why a folder or a file could not be opened, and what to do.
pub(super) fn unopened(path: &Path, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return readable::denied(path);
    }
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{path} does not exist: create it or correct the path"),
        io::ErrorKind::NotADirectory => format!("{path} is not a folder: name one"),
        io::ErrorKind::IsADirectory => format!("{path} is a folder: name a file"),
        _ => format!("{path}: {error}"),
    }
}
