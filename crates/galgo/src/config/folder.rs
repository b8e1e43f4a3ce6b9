//! Folders and programs, opened when the configuration is read.

use std::{
    fmt::Display,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2},
    io::Errno,
};

use super::{CgiRoot, Files};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder that is held open. Another descriptor is equal to it where both are of the same folder now, whatever
/// is in it.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl From<OwnedFd> for Folder {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PartialEq for Folder {
    fn eq(&self, other: &Self) -> bool {
        let identity = |folder: &Self| fstat(folder).map(|stat| (stat.st_dev, stat.st_ino));
        identity(self).is_ok_and(|own| identity(other) == Ok(own))
    }
}

/// Opens a folder as the base of openat2(2). openat2 serves here too, so that a kernel or a sandbox
/// without it is noticed now and not at the first request.
pub(super) fn open(path: &Path) -> io::Result<Folder> {
    let opened = openat2(CWD, path, FOLDER, Mode::empty(), ResolveFlags::empty());
    opened.map(Folder::from).map_err(explain)
}

/// Opens a folder below another one; a symbolic link may not lead out of that.
pub(super) fn open_below(base: impl AsFd, path: &Path) -> io::Result<Folder> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = openat2(base, path, FOLDER, Mode::empty(), inside);
    opened.map(Folder::from).map_err(explain)
}

fn explain(errno: Errno) -> io::Error {
    match errno {
        Errno::NOSYS | Errno::PERM => io::Error::new(
            io::ErrorKind::Unsupported,
            "openat2(2) is not available: galgo needs Linux 5.10 or later and a sandbox that allows it",
        ),
        _ => errno.into(),
    }
}

/// `typed` from `folder`, without `.` segments and doubled slashes; `..` and links stay as they are.
pub(super) fn absolute(folder: &Path, typed: &str) -> PathBuf {
    folder
        .join(typed)
        .components()
        .filter(|c| *c != Component::CurDir)
        .collect()
}

/// Why a folder or a file could not be opened, and what to do.
pub(super) fn unopened(path: &Path, error: &io::Error) -> impl Display {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{path} does not exist: create it or correct the path"),
        io::ErrorKind::NotADirectory => format!("{path} is not a folder: name one"),
        io::ErrorKind::IsADirectory => format!("{path} is a folder: name a file"),
        io::ErrorKind::PermissionDenied => {
            format!(
                "{path} may not be entered by this user: check the permissions on the way to it"
            )
        }
        _ => format!("{path}: {error}"),
    }
}

impl CgiRoot {
    /// Opens a folder of programs, or takes one program. `path` is absolute.
    ///
    /// # Errors
    /// The path does not exist, cannot be reached, or is neither folder nor file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let kind = path.metadata()?.file_type();
        let path = path.to_owned();
        if kind.is_dir() {
            let fd = open(&path)?;
            return Ok(Self::Folder { path, fd });
        }
        if kind.is_file() {
            return Ok(Self::Program { path });
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "is neither a folder nor a file",
        ))
    }

    /// The folder of programs, or the program.
    pub fn path(&self) -> &Path {
        match self {
            Self::Folder { path, .. } | Self::Program { path } => path,
        }
    }

    /// The folder of programs, or the folder the program is in.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Folder { path, .. } => path,
            Self::Program { path } => path.parent().unwrap_or(path),
        }
    }
}

impl Files {
    /// Opens a folder of files, everything else at its default. `path` is absolute.
    ///
    /// # Errors
    /// The path is not a folder or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(path.to_owned(), open(path)?))
    }

    pub(super) fn new(path: PathBuf, fd: Folder) -> Self {
        Self {
            path,
            fd,
            index: vec!["index.html".to_owned()],
            listing: false,
            precompressed: false,
            types: Vec::new(),
            default_type: "application/octet-stream".to_owned(),
            headers: Vec::new(),
            interpreters: Arc::default(),
        }
    }
}
