//! Folders and programs that are held open from when the configuration is read.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    io::Errno,
};

use crate::{beneath, trusted_path};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder that is held open. Another descriptor is equal to it where both are of the same folder now, whatever
/// is in it.
#[derive(Debug)]
pub struct Folder(OwnedFd, u64);

impl From<OwnedFd> for Folder {
    fn from(fd: OwnedFd) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(fd, NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Folder {
    /// A number that no other descriptor of this process has or gets.
    pub fn number(&self) -> u64 {
        self.1
    }

    /// Where it is, whatever was put in the place of the path that it was opened by.
    pub fn path(&self) -> Option<PathBuf> {
        let name = beneath::name(self).ok()?;
        Some(OsString::from_vec(name.into_bytes()).into())
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

/// Opens a folder of the configuration as the base of openat2(2). A kernel or a sandbox without that is noticed now and not at
/// the first request.
///
/// # Errors
/// It is no folder, or not to be used ([`trusted_path::resolve`]).
pub fn open(path: &Path) -> io::Result<Folder> {
    openat2(CWD, "/", FOLDER, Mode::empty(), ResolveFlags::empty()).map_err(explain)?;
    let found = trusted_path::resolve(path)?;
    match FileType::from_raw_mode(fstat(&found.file)?.st_mode) {
        FileType::Directory => Ok(found.file.into()),
        _ => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Opens a folder below another one; a symbolic link may not lead out of that.
pub fn open_below(base: impl AsFd, path: &Path) -> io::Result<Folder> {
    let opened = beneath::open(base, path.as_os_str().as_bytes(), FOLDER);
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

/// A folder of programs, or one program.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)]
pub enum CgiRoot {
    /// The folder and its descriptor (O_PATH), for openat2 with RESOLVE_BENEATH.
    Folder {
        path: PathBuf,
        fd: Folder,
    },
    Program {
        path: PathBuf,
    },
}

impl CgiRoot {
    /// Opens a folder of programs, or takes one program. `path` is absolute.
    ///
    /// # Errors
    /// The path does not exist, cannot be reached, or is neither folder nor file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let found = trusted_path::resolve(path)?;
        match FileType::from_raw_mode(fstat(&found.file)?.st_mode) {
            FileType::Directory => Ok(Self::Folder {
                fd: open(path)?,
                path: path.to_owned(),
            }),
            FileType::RegularFile => Ok(Self::Program {
                path: path.to_owned(),
            }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "is neither a folder nor a file",
            )),
        }
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
