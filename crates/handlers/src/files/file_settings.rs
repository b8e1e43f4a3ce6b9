//! Settings of static files.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use galgo_spawn::glob::Glob;

use crate::root::{Folder, open_folder};

/// A folder of static files, and its settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Files {
    /// Absolute path of the folder.
    pub path: PathBuf,
    /// Descriptor of the folder (O_PATH), for openat2 with RESOLVE_BENEATH.
    pub fd: Folder,
    /// Names of index files, in the order of trying.
    pub index: Vec<String>,
    /// Whether to list folders without an index.
    pub listing: bool,
    /// Whether to send `name.br`, `name.zst` or `name.gz` instead of `name` if the client accepts the coding.
    pub precompressed: bool,
    /// Media types by extension, without the dot; they precede the built-in table.
    pub types: Vec<(String, String)>,
    /// Media type of all other files.
    pub default_type: String,
    /// Patterns of names of programs, which are run and never shown.
    pub cgi_names: Vec<Glob>,
    /// Extensions of programs. Files with them are refused, because answering would show their source.
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
}

impl Files {
    /// Opens a folder of files with default settings. `path` is absolute.
    ///
    /// # Errors
    /// The path is not a folder or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(path.to_owned(), open_folder(path)?))
    }

    /// Returns default settings for the folder `fd`.
    pub fn new(path: PathBuf, fd: Folder) -> Self {
        Self {
            path,
            fd,
            index: vec!["index.html".to_owned()],
            listing: false,
            precompressed: false,
            types: Vec::new(),
            default_type: "application/octet-stream".to_owned(),
            cgi_names: Vec::new(),
            interpreters: Arc::default(),
        }
    }

    /// Returns whether a file of this name is the source of a program: `cgi_names` lists the name, or an interpreter runs its
    /// extension, in any letter case. Copies that an editor left count, too. A `files` route answers 403 for such a file instead
    /// of showing it.
    pub fn is_source(&self, path: &[u8]) -> bool {
        const COPIES: [&[u8]; 6] = [b"~", b".bak", b".old", b".orig", b".save", b".swp"];
        let ends = |path: &[u8], ending: &[u8]| {
            let at = path.len().checked_sub(ending.len());
            at.is_some_and(|at| path[at..].eq_ignore_ascii_case(ending))
        };
        let copy = COPIES.iter().find(|copy| ends(path, copy));
        let original = &path[..path.len() - copy.map_or(0, |copy| copy.len())];
        let name = original.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let mut programs = self.cgi_names.iter();
        if programs.any(|glob| glob.matches_any_case(name)) {
            return true;
        }
        // A `.wasm` file may be meant for browsers, but a `.wcgi` file is always a program. No client may see hashes of
        // passwords.
        let endings = self.interpreters.iter().map(|(ending, _)| ending.as_str());
        endings
            .chain([".wcgi", ".htpasswd"])
            .any(|ending| ends(original, ending.as_bytes()))
    }
}
