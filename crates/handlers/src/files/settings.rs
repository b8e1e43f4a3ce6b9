//! How files are served.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use galgo_proto::glob::Glob;

use crate::root::{Folder, open};

/// Static files.
#[derive(Debug, PartialEq)]
pub struct Files {
    /// The folder, absolute.
    pub path: PathBuf,
    /// Its descriptor (O_PATH), for openat2 with RESOLVE_BENEATH.
    pub fd: Folder,
    /// Names tried for a folder, in order.
    pub index: Vec<String>,
    /// List folders without an index.
    pub listing: bool,
    /// Send `name.br`, `name.zst`, `name.gz` beside a file where the client takes it.
    pub precompressed: bool,
    /// Media types by ending, without the dot, that come before the built-in table.
    pub types: Vec<(String, String)>,
    /// Media type of anything else.
    pub default_type: String,
    /// Files with these names are programs, which are run and never shown.
    pub cgi_names: Vec<Glob>,
    /// Files with one of these endings are programs, and are refused: their source would be shown.
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
}

impl Files {
    /// Opens a folder of files, everything else at its default. `path` is absolute.
    ///
    /// # Errors
    /// The path is not a folder or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(path.to_owned(), open(path)?))
    }

    /// The same of the folder `fd`.
    pub(super) fn with(&self, fd: Folder) -> Self {
        Self {
            path: self.path.clone(),
            fd,
            index: self.index.clone(),
            types: self.types.clone(),
            default_type: self.default_type.clone(),
            cgi_names: self.cgi_names.clone(),
            interpreters: self.interpreters.clone(),
            ..*self
        }
    }

    /// The folder `fd`, everything else at its default.
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

    /// Whether a file of this name is the source of a program, for it is one of `cgi_names` or an interpreter runs its ending, in
    /// any letter case, or a copy of one that an editor left. A `files` route answers 403 for such a
    /// file instead of showing it.
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
        if programs.any(|glob| glob.fits_in_any_case(name)) {
            return true;
        }
        // A `.wasm` file may be meant for browsers, a `.wcgi` file is a program and nothing else; no client is shown
        // hashes of passwords.
        let endings = self.interpreters.iter().map(|(ending, _)| ending.as_str());
        endings
            .chain([".wcgi", ".htpasswd"])
            .any(|ending| ends(original, ending.as_bytes()))
    }
}
