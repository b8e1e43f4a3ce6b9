//! A listener that no process finds by a path.

use crate::identity::effective_uid;
use rustix::{
    fs::{AtFlags, Mode, OFlags, chmodat, fstat, open, openat, unlinkat},
    rand::{GetRandomFlags, getrandom},
};
use std::{
    fs::{DirBuilder, remove_dir},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::DirBuilderExt, net::UnixListener},
    },
    path::Path,
};

/// A Unix socket that takes connections, and whose file is gone. A process that has [`file`](Self::file) connects by
/// `/proc/self/fd/N`, as any user, and no other process can.
#[derive(Debug)]
pub struct NamelessListener {
    /// The socket that accepts connections.
    pub listener: OwnedFd,
    /// The file that clients connect to (O_PATH).
    pub file: OwnedFd,
}

impl NamelessListener {
    /// Makes a listener. While it still has a name, the name is in a folder that only this process's user may enter.
    ///
    /// # Errors
    /// The folder for temporary files does not exist or is full; no descriptors are left.
    pub fn create() -> io::Result<Self> {
        let mut random = [0; 16];
        getrandom(&mut random[..], GetRandomFlags::empty())?;
        let folder = format!("galgo-{:032x}", u128::from_ne_bytes(random));
        let folder = std::env::temp_dir().join(folder);
        DirBuilder::new().mode(0o700).create(&folder)?;
        let made = Self::bind_in_folder(&folder);
        let _ = remove_dir(&folder);
        made
    }

    fn bind_in_folder(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = open(folder, flags, Mode::empty())?;
        let stat = fstat(&folder)?;
        // If other users may rename here, another folder may be in its place by now.
        if stat.st_uid != effective_uid() || stat.st_mode & 0o077 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let name = "socket";
        let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
        let listener = UnixListener::bind(path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, name, flags, Mode::empty());
        let open_to_all = chmodat(&folder, name, Mode::from_raw_mode(0o666), AtFlags::empty());
        unlinkat(&folder, name, AtFlags::empty())?;
        open_to_all?;
        Ok(Self {
            listener: listener.into(),
            file: file?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_has_its_file_connects_and_no_path_leads_to_it() {
        let made = NamelessListener::create().unwrap();
        let door = format!("/proc/self/fd/{}", made.file.as_raw_fd());
        let _one = UnixStream::connect(&door).unwrap();
        let listener = UnixListener::from(made.listener);
        listener.accept().unwrap();
        let name = listener.local_addr().unwrap();
        // The name belongs to a descriptor that is closed.
        assert!(UnixStream::connect(name.as_pathname().unwrap()).is_err());
        // Once no process listens, the file leads to no other listener.
        drop(listener);
        assert!(UnixStream::connect(&door).is_err());
    }
}
