//! Symbolic links in a folder of programs that lead out of it.

use std::path::Path;

/// Says what to do about a link at `file` that leads out of the folder. `path` is the requested
/// path.
pub(super) fn leads_out(file: &Path, path: &Path) -> String {
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
