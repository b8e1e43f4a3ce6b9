//! Symbolic links in a folder of programs that lead out of it.

use std::{
    fs::read_link,
    io,
    path::{Path, PathBuf},
};

/// Says what to do about a link at `file` that leads out of the folder. `path` is the requested
/// path.
pub(super) fn leads_out(file: &Path, path: &Path) -> String {
    if let Some((link, to)) = find_broken_link(file) {
        return format!("{link:?} is a symbolic link to {to:?}, which does not exist");
    }
    // A PATH_INFO may follow the program's name.
    let mut ways = file.ancestors().zip(path.ancestors());
    let found = ways.find_map(|(file, path)| Some((file.canonicalize().ok()?, file, path)));
    match found {
        Some((to, file, path)) => format!(
            "{file:?} leads out of the program folder by a symbolic link, to {to:?}: give that a route of its own \
             ([[route]] path = {path:?}, cgi = {to:?}), or copy it"
        ),
        None => format!("{file:?} leads out of the program folder by a symbolic link"),
    }
}

/// Returns the link that a path ends at, and its target, if the target does not exist.
fn find_broken_link(file: &Path) -> Option<(&Path, PathBuf)> {
    // A PATH_INFO may follow the link, too.
    let mut ways = file.ancestors();
    let last = ways.find(|file| file.symlink_metadata().is_ok())?;
    let error = last.metadata().err()?;
    let to = read_link(last).ok()?;
    (error.kind() == io::ErrorKind::NotFound).then_some((last, to))
}
