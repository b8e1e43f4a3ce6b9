//! Files without a name: when the last descriptor is closed their space is free again, however the server ends.

use std::{fs::File, io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat},
    io::Errno,
};

/// Names that are tried where the file system knows no files without one.
const TRIES: usize = 8;

/// A file in `folder` for this server's user alone.
pub(super) fn nameless(folder: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    match openat(CWD, folder, flags, mode) {
        Ok(fd) => Ok(fd.into()),
        // NFS, and older kernels for FUSE and overlays (open(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => unlinked(folder, mode),
        Err(e) => Err(e.into()),
    }
}

/// A file whose name is removed at once.
fn unlinked(folder: &Path, mode: Mode) -> io::Result<File> {
    // Both steps in the same folder, whatever its name leads to by then.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder: OwnedFd = openat(CWD, folder, flags, Mode::empty())?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    for _ in 0..TRIES {
        let name = name()?;
        match openat(&folder, &name, flags, mode) {
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
            Ok(fd) => {
                unlinkat(&folder, &name, AtFlags::empty())?;
                return Ok(fd.into());
            }
        }
    }
    Err(Errno::EXIST.into())
}

fn name() -> io::Result<String> {
    let mut random = [0; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    if rustix::rand::getrandom(&mut random, flags)? < random.len() {
        return Err(Errno::INTR.into());
    }
    Ok(format!(".galgo-{:032x}", u128::from_ne_bytes(random)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn both_ways_give_a_file_that_nobody_finds() {
        let dir = tempfile::tempdir().unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        for mut file in [
            nameless(dir.path()).unwrap(),
            unlinked(dir.path(), mode).unwrap(),
        ] {
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            file.write_all(b"kept").unwrap();
            file.rewind().unwrap();
            let mut got = String::new();
            file.read_to_string(&mut got).unwrap();
            assert_eq!(got, "kept");
        }
        assert!(nameless(&dir.path().join("none")).is_err());
    }
}
