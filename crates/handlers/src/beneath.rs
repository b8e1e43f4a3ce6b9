//! Opens files beneath a folder and nowhere else, by a name that a client chose.
//!
//! openat2(RESOLVE_BENEATH) refuses each link with an absolute target, even if the link leads back into the folder. If it
//! refuses a link, only that link is followed, and its target must be in the folder. The file itself is then opened beneath
//! the folder again, so the decision is about the opened file. No answer shows files outside of the folder.
//!
//! An event loop opens nothing on another file system than the folder's (RESOLVE_NO_XDEV), because the other file system may
//! hang. If the kernel refuses a path, another thread opens it (`waiting`).

use std::{
    borrow::Cow,
    cell::Cell,
    ffi::CString,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2, readlinkat},
    io::Errno,
};

/// openat2 says EAGAIN if the tree was renamed during the call, or if a lease is being broken.
const ATTEMPTS: usize = 8;
/// Limit of the links on one path that lead back into the folder.
const LINKS: usize = 8;

/// Opens a file without the right to read: to look at it, or to run it by a program that needs no such right.
pub(crate) const NAME: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// The error for a file that this thread may have to wait for, and must not.
pub(crate) const WAITS: Errno = Errno::INPROGRESS;

thread_local! {
    static IS_EVENT_LOOP: Cell<bool> = const { Cell::new(false) };
    static HAS_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as an event loop, which waits for no file system.
pub fn waits_for_nothing() {
    IS_EVENT_LOOP.set(true);
}

/// Returns whether this thread may wait for a file system.
pub(crate) fn may_wait() -> bool {
    !IS_EVENT_LOOP.get()
}

/// Returns the error for a file system that this thread must not wait for.
pub(crate) fn refuse() -> Errno {
    HAS_REFUSED.set(true);
    WAITS
}

/// Forgets earlier refusals.
pub fn forget_refused() {
    HAS_REFUSED.set(false);
}

/// Returns whether a call was refused since [`forget_refused`], because this thread would have to wait.
pub fn has_refused() -> bool {
    HAS_REFUSED.get()
}

/// Opens `path` beneath `folder`. An empty path is the folder itself.
///
/// # Errors
/// The errors of openat2(2): EXDEV if the path leads out of the folder.
pub(crate) fn open_path(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut path = Cow::Borrowed(if path.is_empty() { &b"."[..] } else { path });
    for _ in 0..LINKS {
        match resolve(&folder, &path, flags, BENEATH) {
            Err(Errno::XDEV) => path = replace_refused_link(&folder, &path)?.into(),
            opened => return opened,
        }
    }
    Err(Errno::LOOP)
}

/// Opens a path as [`open_path`] does, if no part of the path is a link.
///
/// # Errors
/// The errors of [`open_path`]; ELOOP: a part of the path is a link.
pub(crate) fn open_without_links(
    folder: impl AsFd,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    resolve(folder, path, flags, BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Calls openat2(2), and tries again if that may help.
pub(crate) fn resolve(
    folder: impl AsFd,
    path: &[u8],
    flags: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let stays = how.contains(ResolveFlags::BENEATH) && !may_wait();
    let how = if stays {
        how | ResolveFlags::NO_XDEV
    } else {
        how
    };
    let mut tried = 1;
    loop {
        match openat2(&folder, path, flags, Mode::empty(), how) {
            Err(Errno::XDEV) if stays => return Err(refuse()),
            Err(Errno::AGAIN | Errno::INTR) if tried < ATTEMPTS => tried += 1,
            result => return result,
        }
    }
}

/// Replaces the first link in the path that openat2 refuses by its target, which must be in the folder.
fn replace_refused_link(folder: impl AsFd, path: &[u8]) -> Result<Vec<u8>, Errno> {
    let ends = (1..=path.len()).filter(|&at| path.get(at).is_none_or(|&b| b == b'/'));
    for end in ends {
        let (link, behind) = path.split_at(end);
        match resolve(&folder, link, NAME, BENEATH) {
            Ok(_) => {}
            Err(Errno::XDEV) => {
                let magic = ResolveFlags::NO_MAGICLINKS;
                // A dangling link must tell no more than a link that leads out.
                let target = openat2(&folder, link, NAME, Mode::empty(), magic);
                let inside = path_inside(&folder, target.map_err(|_| Errno::XDEV)?)?;
                return Ok([&inside, behind].concat());
            }
            Err(other) => return Err(other),
        }
    }
    Err(Errno::XDEV)
}

/// Returns the path of `target` in the folder.
pub(crate) fn path_inside(folder: impl AsFd, target: impl AsFd) -> Result<Vec<u8>, Errno> {
    let (folder, target) = (descriptor_path(folder)?, descriptor_path(target)?);
    let folder = folder.as_bytes();
    let below = target.as_bytes().strip_prefix(folder);
    match below.ok_or(Errno::XDEV)? {
        [] => Ok(b".".to_vec()),
        [b'/', below @ ..] => Ok(below.to_vec()),
        below if folder == b"/" => Ok(below.to_vec()),
        _ => Err(Errno::XDEV),
    }
}

/// Returns the kernel's name for the file of a descriptor.
pub(crate) fn descriptor_path(fd: impl AsFd) -> Result<CString, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    readlinkat(CWD, link, Vec::new()).map_err(|_| Errno::XDEV)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    #[test]
    fn absolute_links_lead_into_the_folder_and_not_out() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("in/dir/sub")).unwrap();
        fs::create_dir(at("in-side")).unwrap();
        for file in ["in/dir/file", "in/dir/sub/file", "in-side/file", "file"] {
            fs::write(at(file), file).unwrap();
        }
        let link = |to: &Path, name: &str| symlink(to, at(&format!("in/{name}"))).unwrap();
        link(&at("in/dir/file"), "file");
        link(&at("in/dir"), "folder");
        link(&at("in/chain2"), "chain1");
        link(&at("in/folder/sub"), "chain2");
        link(&at("in"), "itself");
        link(Path::new("../in/dir/file"), "round");
        link(&at("file"), "out");
        link(&at("in-side/file"), "beside");
        link(&at("in-side"), "beside-folder");
        link(&at("none"), "none");
        link(&at("in/none"), "none-inside");
        link(&at("in/loop"), "loop");
        link(Path::new("/"), "root");
        link(Path::new("/proc/self/fd/0"), "magic");
        let root = fs::File::open(at("in")).unwrap();
        let read = |path: &str| {
            let fd = open_path(&root, path.as_bytes(), OFlags::RDONLY | OFlags::CLOEXEC)?;
            Ok(std::io::read_to_string(fs::File::from(fd)).unwrap())
        };
        for (path, want) in [
            ("dir/file", "in/dir/file"),
            ("file", "in/dir/file"),
            ("folder/file", "in/dir/file"),
            ("folder/sub/file", "in/dir/sub/file"),
            ("chain1/file", "in/dir/sub/file"),
            ("itself/itself/folder/file", "in/dir/file"),
            ("round", "in/dir/file"),
        ] {
            assert_eq!(read(path).as_deref(), Ok(want), "{path}");
        }
        for (path, errno) in [
            ("out", Errno::XDEV),
            ("beside", Errno::XDEV),
            ("beside-folder/file", Errno::XDEV),
            // The error tells nothing about files outside.
            ("beside-folder/none", Errno::XDEV),
            ("none", Errno::XDEV),
            ("none-inside", Errno::XDEV),
            ("root", Errno::XDEV),
            ("root/etc/passwd", Errno::XDEV),
            ("root/none", Errno::XDEV),
            ("magic", Errno::XDEV),
            ("loop", Errno::XDEV),
            ("..", Errno::XDEV),
            ("/etc/passwd", Errno::XDEV),
            ("folder/none", Errno::NOENT),
            ("file/more", Errno::NOTDIR),
        ] {
            assert_eq!(read(path), Err(errno), "{path}");
        }
    }
}
