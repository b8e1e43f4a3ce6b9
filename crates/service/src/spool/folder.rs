//! Files without a name: the system frees their space when the last descriptor is closed, however the server ends.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, fchmod, fstat, open, openat, unlinkat},
    io::Errno,
};

/// Number of names that are tried if the file system has no files without a name.
const TRIES: usize = 8;

/// The mode of a file while it may have a name.
const NAMED: Mode = Mode::RUSR;
/// The mode of a file without a name, on disk and in memory, whatever the umask. Programs of any user can open their standard
/// input by name (`/dev/stdin`), for reading only. No other process finds the file: only the server and the program have it,
/// and to look at their descriptors takes the right to trace them.
pub(super) const NAMELESS: Mode = NAMED.union(Mode::RGRP).union(Mode::ROTH);

/// With O_EXCL nobody can give the file a name (linkat(2)).
const TEMPORARY: OFlags = OFlags::RDWR
    .union(OFlags::CLOEXEC)
    .union(OFlags::TMPFILE)
    .union(OFlags::EXCL);

/// Makes a file in `folder`. Returns the server's descriptor for writing, and a descriptor for programs, which can only be
/// read.
pub(super) fn create_unnamed_file(folder: &Path) -> io::Result<(File, OwnedFd)> {
    let made = openat(CWD, folder, TEMPORARY, NAMED);
    let (readable, fd) = match made.and_then(|fd| Ok((reopen_read_only(&fd)?, fd))) {
        // NFS, and older kernels for FUSE and overlays (open(2)). Without /proc, a file can be opened twice only by its name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            create_unlinked_file(folder)?
        }
        made => made?,
    };
    fchmod(&fd, NAMELESS)?;
    Ok((fd.into(), readable))
}

/// Whether each file gets a name for a moment.
pub(super) fn needs_named_files(folder: &Path) -> bool {
    let file = openat(CWD, folder, TEMPORARY, NAMED);
    file.and_then(|fd| reopen_read_only(&fd)).is_err()
}

/// Opens a file once more, for reading only.
///
/// # Errors
/// NOENT: there is no /proc.
pub(super) fn reopen_read_only(fd: &impl AsRawFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Makes a file and removes its name at once. Returns a descriptor for reading only, and another.
fn create_unlinked_file(folder: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
    // Each step happens in the same folder, even if its name leads elsewhere by then.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder: OwnedFd = openat(CWD, folder, flags, Mode::empty())?;
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let new = flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    for _ in 0..TRIES {
        let name = random_file_name()?;
        match openat(&folder, &name, new, NAMED) {
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
            Ok(fd) => {
                let readable = openat(&folder, &name, flags | OFlags::RDONLY, Mode::empty());
                unlinkat(&folder, &name, AtFlags::empty())?;
                let readable = readable?;
                // Other users may write to that folder, too.
                let [ours, theirs] = [fstat(&fd)?, fstat(&readable)?].map(|s| (s.st_dev, s.st_ino));
                if ours != theirs {
                    return Err(Errno::STALE.into());
                }
                return Ok((readable, fd));
            }
        }
    }
    Err(Errno::EXIST.into())
}

fn random_file_name() -> io::Result<String> {
    let mut random = [0; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    if rustix::rand::getrandom(&mut random, flags)? < random.len() {
        return Err(Errno::INTR.into());
    }
    Ok(format!(".galgo-{:032x}", u128::from_ne_bytes(random)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::fs::linkat;

    use super::*;

    #[test]
    fn both_ways_give_a_file_that_nobody_finds_and_programs_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        let (readable, unlinked) = create_unlinked_file(dir.path()).unwrap();
        let mode = |fd: &OwnedFd| fstat(fd).unwrap().st_mode & 0o777;
        assert_eq!(mode(&readable), NAMED.as_raw_mode());
        fchmod(&unlinked, NAMELESS).unwrap();
        for (mut file, readable) in [
            create_unnamed_file(dir.path()).unwrap(),
            (unlinked.into(), readable),
        ] {
            assert_eq!(mode(&readable), NAMELESS.as_raw_mode());
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let name = dir.path().join("name");
            assert!(linkat(CWD, path, CWD, name, AtFlags::SYMLINK_FOLLOW).is_err());
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            file.write_all(b"kept").unwrap();
            let mut readable = File::from(readable);
            let mut got = String::new();
            readable.read_to_string(&mut got).unwrap();
            assert_eq!(got, "kept");
            assert!(readable.write(b"more").is_err() && readable.set_len(0).is_err());
        }
        assert!(create_unnamed_file(&dir.path().join("none")).is_err());
        assert!(!needs_named_files(dir.path()) && needs_named_files(Path::new("/proc")));
    }
}
