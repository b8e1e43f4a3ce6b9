//! Where a path leads, as long as root alone decides that.
//!
//! A server that is still root must not open or make a file where another user's link sends it. So root walks
//! the path from folder to folder, on descriptors, and stops at the first step that another user could change.
//! What lies behind that step is for the configured user to open: with that user's rights a link leads nowhere
//! that user could not go anyway.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Component, Path},
};

use rustix::{
    fs::{
        FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, open, openat, readlinkat,
    },
    io::Errno,
};

/// Links that are followed; as many as the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The end of a path that only root can change.
#[derive(Debug)]
pub struct TrustedEntry {
    /// The folder.
    pub folder: OwnedFd,
    /// The name in it.
    pub name: OsString,
    /// What the name stands for, opened with O_PATH and never a link; `None`: nothing yet.
    pub entry: Option<OwnedFd>,
}

/// Walks `path`. `None`: another user than root can change where it leads.
///
/// # Errors
/// A folder is missing, or the system's error.
pub fn place(path: &Path) -> io::Result<Option<TrustedEntry>> {
    let mut left = Vec::new();
    let mut folder = root()?;
    push(&mut left, &std::path::absolute(path)?);
    let mut links = 0;
    while let Some(name) = left.pop() {
        let above = fstat(&folder)?;
        let mut entry = match hold(&folder, &name, OFlags::NOFOLLOW) {
            Err(Errno::NOENT) if left.is_empty() => {
                let entry = None;
                let place = TrustedEntry {
                    folder,
                    name,
                    entry,
                };
                return Ok(only_root_writes(&above).then_some(place));
            }
            found => found?,
        };
        let stat = fstat(&entry)?;
        if !stays(&above, &stat) {
            return Ok(None);
        }
        if kind(&stat) == FileType::Symlink {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            if fstatfs(&folder)?.f_type == PROC_SUPER_MAGIC {
                // The kernel's own, as behind /dev/stdout: its text need not be a path.
                entry = hold(&folder, &name, OFlags::empty())?;
            } else {
                let target = OsString::from_vec(readlinkat(&entry, "", Vec::new())?.into_bytes());
                if Path::new(&target).has_root() {
                    folder = root()?;
                }
                push(&mut left, Path::new(&target));
                continue;
            }
        }
        if left.is_empty() {
            let entry = Some(entry);
            return Ok(Some(TrustedEntry {
                folder,
                name,
                entry,
            }));
        }
        folder = entry;
    }
    Err(Errno::ISDIR.into())
}

/// The folder in which the last name of `path` stands; `None` as in [`place`], or where another user could put or
/// replace that name.
///
/// # Errors
/// As [`place`].
pub fn folder(path: &Path) -> io::Result<Option<OwnedFd>> {
    let path = std::path::absolute(path)?;
    let place = match path.parent() {
        Some(above) if above.parent().is_some() => place(above)?.and_then(|place| place.entry),
        _ => Some(root()?),
    };
    let roots = |folder: &OwnedFd| fstat(folder).is_ok_and(|stat| only_root_writes(&stat));
    Ok(place.filter(roots))
}

/// A file that root alone can change or replace, opened with O_PATH; `None`: it is not there, or others can.
///
/// # Errors
/// As [`place`].
pub fn roots_own(path: &Path) -> io::Result<Option<OwnedFd>> {
    let file = place(path)?.and_then(|place| place.entry);
    let Some(file) = file else { return Ok(None) };
    let stat = fstat(&file)?;
    let is_roots = kind(&stat) == FileType::RegularFile && only_root_writes(&stat);
    Ok(is_roots.then_some(file))
}

fn root() -> Result<OwnedFd, Errno> {
    open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn hold(folder: &OwnedFd, name: &OsStr, more: OFlags) -> Result<OwnedFd, Errno> {
    openat(
        folder,
        name,
        OFlags::PATH | OFlags::CLOEXEC | more,
        Mode::empty(),
    )
}

/// Puts the steps of `path` before those that are left, which stand in reverse.
fn push(left: &mut Vec<OsString>, path: &Path) {
    let steps = path.components().rev().filter_map(|step| match step {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    left.extend(steps);
}

/// Whether only root can put something else in the place of this entry of a folder.
fn stays(folder: &Stat, entry: &Stat) -> bool {
    // In a sticky folder others can neither rename nor remove what is root's. They can put a file or a link of
    // root's there that lay elsewhere, but no folder: to move one takes the right to write to it.
    let sticky = folder.st_uid == 0 && folder.st_mode & Mode::SVTX.as_raw_mode() != 0;
    match kind(entry) {
        FileType::Symlink => only_root_writes(folder) && entry.st_uid == 0,
        FileType::Directory => only_root_writes(folder) || sticky && entry.st_uid == 0,
        _ => only_root_writes(folder),
    }
}

fn only_root_writes(folder: &Stat) -> bool {
    folder.st_uid == 0 && folder.st_mode & 0o022 == 0
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
