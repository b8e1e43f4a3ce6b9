//! Folders and programs that are held open from the time when the configuration is read.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use galgo_spawn::{hanging::look_at, trusted_path};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2},
    io::Errno,
};

use crate::beneath;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Magic numbers of file systems that answer by themselves (statfs(2)). Other file systems may wait for another machine or
/// process, as NFS and FUSE do.
const LOCAL: [u32; 16] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x794C_7630, // overlayfs
    0x2FC1_2FC1, // zfs
    0xF2F5_2010, // f2fs
    0xCA45_1A4E, // bcachefs
    0x7371_7368, // squashfs
    0xE0F5_E1E2, // erofs
    0x8584_58F6, // ramfs
    0x9660,      // isofs
    0x4D44,      // vfat
    0x2011_BAB0, // exfat
    0x3153_464A, // jfs
    0x9FA0,      // proc
];

/// Returns whether a file is on a file system that answers by itself.
pub(crate) fn is_local(file: impl AsFd) -> Result<bool, Errno> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // magic numbers have 32 bits
    Ok(LOCAL.contains(&(fstatfs(file)?.f_type as u32)))
}

/// A folder that is held open. Two descriptors are equal if both belong to the same folder now, whatever its contents.
#[derive(Debug, Clone)]
pub struct Folder {
    fd: Arc<OwnedFd>,
    number: u64,
    id: (u64, u64),
    owner: u32,
    is_local: bool,
    is_closed: bool,
}

impl Folder {
    fn new(fd: OwnedFd) -> Result<Self, Errno> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let stat = fstat(&fd)?;
        Ok(Self {
            is_local: is_local(&fd)?,
            fd: Arc::new(fd),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            id: (stat.st_dev, stat.st_ino),
            owner: stat.st_uid,
            is_closed: trusted_path::is_closed(&stat),
        })
    }

    /// Returns a number that no other descriptor of this process has or gets.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the user that the folder belongs to.
    pub(crate) fn owner_uid(&self) -> u32 {
        self.owner
    }

    /// Returns whether no other account can replace a name in the folder, or mount something on it.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the folder's descriptor, for this thread to look into.
    ///
    /// # Errors
    /// [`beneath::WAITS`]: this thread must not wait for its file system.
    pub(crate) fn local_descriptor(&self) -> Result<BorrowedFd<'_>, Errno> {
        if self.is_local || beneath::may_wait() {
            Ok(self.fd.as_fd())
        } else {
            Err(beneath::refuse())
        }
    }

    /// Returns the folder's present path, even if another file has taken the path that it was opened by.
    pub fn current_path(&self) -> Option<PathBuf> {
        let name = beneath::descriptor_path(self).ok()?;
        Some(OsString::from_vec(name.into_bytes()).into())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PartialEq for Folder {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// Opens a folder of the configuration as the base of openat2(2). A kernel or a sandbox without openat2 is noticed now and not
/// at the first request.
///
/// # Errors
/// The path is no folder, or must not be used ([`trusted_path::resolve`]).
pub fn open_folder(path: &Path) -> io::Result<Folder> {
    openat2(CWD, "/", FOLDER, Mode::empty(), ResolveFlags::empty()).map_err(explain)?;
    let found = trusted_path::resolve(path)?;
    look_at(path, || {
        match FileType::from_raw_mode(fstat(&found.file)?.st_mode) {
            FileType::Directory => Ok(Folder::new(found.file)?),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    })
}

/// Opens a folder below another folder. A symbolic link must not lead out of the other folder.
pub fn open_below(base: &Folder, path: &Path) -> io::Result<Folder> {
    let opened = beneath::open_path(
        base.local_descriptor()?,
        path.as_os_str().as_bytes(),
        FOLDER,
    );
    opened.and_then(Folder::new).map_err(explain)
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
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum CgiRoot {
    /// The folder and its descriptor (O_PATH), for openat2 with RESOLVE_BENEATH.
    Folder { path: PathBuf, fd: Folder },
    /// The program, and its folder if its file system may hang, or others may replace or mount something on the path.
    Program {
        path: PathBuf,
        waits: Option<Folder>,
    },
}

impl CgiRoot {
    /// Opens a folder of programs, or takes one program. `path` is absolute.
    ///
    /// # Errors
    /// The path does not exist, cannot be reached, or is neither folder nor file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let found = trusted_path::resolve(path)?;
        let kind = look_at(path, || Ok(fstat(&found.file)?))?.st_mode;
        match FileType::from_raw_mode(kind) {
            FileType::Directory => Ok(Self::Folder {
                fd: open_folder(path)?,
                path: path.to_owned(),
            }),
            FileType::RegularFile => {
                let may_hang =
                    found.bound.is_some() || look_at(path, || Ok(!is_local(&found.file)?))?;
                let folder = path.parent().filter(|_| may_hang);
                Ok(Self::Program {
                    path: path.to_owned(),
                    waits: folder.map(open_folder).transpose()?,
                })
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "is neither a folder nor a file",
            )),
        }
    }

    /// Returns the folder of programs, or the program.
    pub fn path(&self) -> &Path {
        match self {
            Self::Folder { path, .. } | Self::Program { path, .. } => path,
        }
    }

    /// Returns the folder of programs, or the folder of the program.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Folder { path, .. } => path,
            Self::Program { path, .. } => path.parent().unwrap_or(path),
        }
    }
}
