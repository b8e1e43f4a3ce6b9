//! Files without a name: the system frees their space when the last descriptor is closed, however the server ends.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, fstat, open, openat, unlinkat},
    io::Errno,
};

/// Number of names that are tried if the file system has no files without a name.
const TRIES: usize = 8;

/// No process can open such a file for writing a second time: programs get a description of the file that can only be read.
pub(super) const MODE: Mode = Mode::RUSR;

const TEMPORARY: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::TMPFILE);

/// Makes a file in `folder`. Returns the server's descriptor for writing, and a descriptor for programs, which can only be
/// read.
pub(super) fn create_unnamed_file(folder: &Path) -> io::Result<(File, OwnedFd)> {
    match openat(CWD, folder, TEMPORARY, MODE).and_then(|fd| Ok((reopen_read_only(&fd)?, fd))) {
        Ok((readable, fd)) => Ok((fd.into(), readable)),
        // NFS, and older kernels for FUSE and overlays (open(2)). Without /proc, a file can be opened twice only by its name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            create_unlinked_file(folder)
        }
        Err(e) => Err(e.into()),
    }
}

/// Whether each file gets a name for a moment.
pub(super) fn needs_named_files(folder: &Path) -> bool {
    let file = openat(CWD, folder, TEMPORARY, MODE);
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

/// Makes a file and removes its name at once.
fn create_unlinked_file(folder: &Path) -> io::Result<(File, OwnedFd)> {
    // Each step happens in the same folder, even if its name leads elsewhere by then.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder: OwnedFd = openat(CWD, folder, flags, Mode::empty())?;
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let new = flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    for _ in 0..TRIES {
        let name = random_file_name()?;
        match openat(&folder, &name, new, MODE) {
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
                return Ok((fd.into(), readable));
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

    use super::*;

    #[test]
    fn both_ways_give_a_file_that_nobody_finds_and_programs_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        for (mut file, readable) in [
            create_unnamed_file(dir.path()).unwrap(),
            create_unlinked_file(dir.path()).unwrap(),
        ] {
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            file.write_all(b"kept").unwrap();
            let mut readable = File::from(readable);
            let mut got = String::new();
            readable.read_to_string(&mut got).unwrap();
            assert_eq!(got, "kept");
            assert!(readable.write(b"more").is_err() && readable.set_len(0).is_err());
            assert_eq!(
                fstat(&readable).unwrap().st_mode & 0o777,
                MODE.as_raw_mode()
            );
        }
        assert!(create_unnamed_file(&dir.path().join("none")).is_err());
        assert!(!needs_named_files(dir.path()) && needs_named_files(Path::new("/proc")));
    }
}
