//! Paths as they are typed, and messages about paths that cannot be opened.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::PermissionsExt,
    },
    path::{Component, Path, PathBuf},
};

use galgo_spawn::{readable, trusted_path::read_all};

use crate::{config::Folder, config_text::config_error::ConfigError};

/// Joins `folder` and `typed`, without `.` segments and doubled slashes; `..` and links stay as they are.
pub(crate) fn make_absolute(folder: &Path, typed: &str) -> PathBuf {
    folder
        .join(typed)
        .components()
        .filter(|c| *c != Component::CurDir)
        .collect()
}

/// Reads the text of a file.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub(crate) fn read_text(file: &Path) -> Result<String, ConfigError> {
    let bytes = read_all(file).map_err(|e| ConfigError::new(describe_unopened(file, &e)))?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = e.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
        ConfigError::new(format!(
            "{}:{line}: is not UTF-8: save it as UTF-8",
            file.display()
        ))
    })
}

/// Returns the path of an open folder, with links resolved.
pub(crate) fn path_of_open(folder: &Folder) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()))
}

/// Returns a warning if every account on this machine has permissions for a secret.
pub(crate) fn readable_by_all(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let shown = path.display();
    (meta.permissions().mode() & 0o007 != 0)
        .then(|| format!("every user of this machine can read {shown}: chmod o= {shown}"))
}

/// Says why a folder or a file could not be opened, and names the fix.
pub(crate) fn describe_unopened(path: &Path, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return readable::explain_denied(path);
    }
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{path} does not exist: create it or correct the path"),
        io::ErrorKind::NotADirectory => format!("{path} is not a folder: name one"),
        io::ErrorKind::IsADirectory => format!("{path} is a folder: name a file"),
        _ => format!("{path}: {error}"),
    }
}
