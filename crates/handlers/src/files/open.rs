//! Opens paths beneath the folder of the route, and nowhere else.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, SystemTime},
};

use galgo_service::body::Response;
use rustix::{
    fs::{FileType, OFlags, Stat, fstat},
    io::Errno,
};

use crate::{beneath, files::file_settings::Files, root::Folder};

#[derive(Debug)]
pub(super) enum Opened {
    File(OpenFile),
    Folder(OwnedFd),
}

/// A regular file, open for reading, with the result of fstat.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    pub(super) stat: Stat,
    /// Path of the file itself, if the requested path leads over links.
    own: Option<Vec<u8>>,
}

/// Reasons to send nothing. Clients learn no more than the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenRefusal {
    /// The file does not exist, or it is not for the web: a way out of the folder, a dotfile, a FIFO, a socket, a device.
    NotFound,
    /// The file is not for the web, or the server's user may not read it: the reason, for the log.
    Forbidden(&'static str),
    /// No descriptor or no memory is left.
    Busy,
    /// The disk or the kernel failed.
    Failed,
    /// Another thread has to look, because looking may have to wait.
    Waits,
}

impl OpenRefusal {
    /// Returns the reason, if the log is to tell it.
    pub(super) fn reason_to_log(self) -> Option<&'static str> {
        match self {
            Self::Forbidden(why) => Some(why),
            Self::NotFound | Self::Busy | Self::Failed | Self::Waits => None,
        }
    }

    pub(super) fn response(self) -> Response {
        match self {
            Self::NotFound => Response::new(404),
            Self::Forbidden(_) => Response::new(403),
            Self::Busy | Self::Waits => Response::new(503).with_field("Retry-After", "1"),
            Self::Failed => Response::new(500),
        }
    }
}

/// Message if the system refuses a file to a server's user without privileges.
pub(super) const UNREADABLE: &str =
    "the server's user cannot read the file: chmod a+r the file, a+rx its folders";

impl From<Errno> for OpenRefusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM => Self::Forbidden(UNREADABLE),
            beneath::WAITS => Self::Waits,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Self::Busy,
            // XDEV: outside the folder. LOOP: too many links, or a magic link. NXIO, NODEV: a socket or a device. INVAL: no file
            // system can hold that name.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::NAMETOOLONG
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NXIO
            | Errno::NODEV
            | Errno::INVAL => Self::NotFound,
            _ => Self::Failed,
        }
    }
}

/// Returns whether `rest` may name a file at all. Only the segment after the last slash may be empty, and no segment may begin
/// with a dot, apart from `.well-known` (RFC 8615). That covers `.` and `..` too.
pub(super) fn may_be_seen(rest: &[u8]) -> bool {
    let inner = rest.strip_suffix(b"/").unwrap_or(rest);
    let seen = |s: &[u8]| s == b".well-known" || !(s.is_empty() || s.starts_with(b"."));
    rest.is_empty() || inner.split(|&b| b == b'/').all(seen)
}

/// Opens `path` beneath `root`; an empty path is `root` itself. Links are followed if they stay beneath `root`.
pub(super) fn open_path(root: &Folder, path: &[u8]) -> Result<Opened, OpenRefusal> {
    let root = root.local_descriptor()?;
    // NONBLOCK: a FIFO without a writer must not block the thread until fstat recognizes it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let by_name = beneath::open_without_links(root, path, flags);
    let linked = matches!(by_name, Err(Errno::LOOP));
    let opened = if linked {
        beneath::open_path(root, path, flags)
    } else {
        by_name
    };
    let fd = match opened {
        // A folder that may be entered but not read can still be redirected to its slash.
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = beneath::open_path(root, path, flags)
                .map_err(|_| OpenRefusal::Forbidden(UNREADABLE))?;
            return if path.ends_with(b"/") || path.is_empty() {
                Err(OpenRefusal::Forbidden(UNREADABLE))
            } else {
                Ok(Opened::Folder(folder))
            };
        }
        opened => opened?,
    };
    let stat = fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let own = linked.then(|| own_path(&fd)).transpose()?;
            Ok(Opened::File(OpenFile { fd, stat, own }))
        }
        FileType::Directory => Ok(Opened::Folder(fd)),
        _ => Err(OpenRefusal::NotFound),
    }
}

/// Returns the path of a file, even after the file was deleted.
fn own_path(fd: impl AsFd) -> Result<Vec<u8>, OpenRefusal> {
    const DELETED: &[u8] = b" (deleted)";
    let path = beneath::descriptor_path(fd)?.into_bytes();
    Ok(path.strip_suffix(DELETED).unwrap_or(&path).to_vec())
}

impl OpenFile {
    /// Returns whether the file is the source of a program, by the requested `path` or by the path of the file itself.
    pub(super) fn is_source(&self, files: &Files, path: &[u8]) -> bool {
        let own = self.own.as_deref();
        files.is_source(path) || own.is_some_and(|own| files.is_source(own))
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// Returns when the file's bytes last changed; `None` before 1970 and after 9999.
    pub(super) fn modified(&self) -> Option<SystemTime> {
        modified(&self.stat)
    }
}

/// Returns the modification time of `stat`; `None` before 1970 and after 9999. An HTTP-date cannot express such a time, and
/// httpdate panics at it. Any user with write access to a file may set such a time.
pub(super) fn modified(stat: &Stat) -> Option<SystemTime> {
    const YEAR_10000: u64 = 253_402_300_800;
    let seconds = u64::try_from(stat.st_mtime).ok()?;
    if seconds >= YEAR_10000 {
        return None;
    }
    let nanos = u32::try_from(stat.st_mtime_nsec).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}
