//! The files of Unix sockets: created, taken over from a dead server, given their mode, removed.
//!
//! A server holds a lock (flock(2)) on `NAME.lock` next to the socket for as long as it listens. So a second server cannot
//! listen there, and reports an error. The holder of the lock may replace a socket that does not answer, and removes both
//! files in the end. Files of a killed server are taken over, because its lock ended with it.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
};

use galgo_front::listener::new_socket;
use galgo_spawn::{
    identity::{Identity, effective_uid},
    trusted_path,
};
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags},
    io::Errno,
    net::{self as sys, AddressFamily},
    process::geteuid,
};

use crate::config::Config;

/// The file that the bind of a Unix socket created.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub(crate) path: PathBuf,
    own: SocketFileId,
    lock: Lock,
}

/// Device and inode.
type SocketFileId = (u64, u64);

/// A lock that ends with the process, however the process ends.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: OwnedFd,
}

/// Number of tries for a lock whose file is removed at that moment.
const TRIES: usize = 100;

/// Binds a socket, which does not listen yet, and gives its file the mode and group that `config` says.
///
/// # Errors
/// Another server listens there, or a system call fails.
pub(crate) fn bind_socket(path: &Path, config: &Config) -> io::Result<(OwnedFd, SocketFile)> {
    let user = file_creator(path, config)?;
    let owner = user.map_or_else(effective_uid, |user| user.uid);
    let make = || {
        let place = trusted_path::locate(path)?;
        bind_locked(path).map(|bound| (place, bound))
    };
    let (place, (fd, lock)) = match user {
        Some(user) => user.with_file_rights(make),
        None => make(),
    }?;
    // In the folder that was checked, even if the path leads to another folder by now.
    let folder = format!("/proc/self/fd/{}", place.folder.as_raw_fd());
    let made = Path::new(&folder).join(&place.name);
    // No client can connect before listen(2), whatever the mode was until now.
    let own = permit(&made, owner, config.socket_mode, config.socket_group)?;
    let path = path.to_owned();
    Ok((fd, SocketFile { path, own, lock }))
}

/// Returns the user that creates the files instead of this one: root creates none if others can change the path.
fn file_creator<'c>(path: &Path, config: &'c Config) -> io::Result<Option<&'c Identity>> {
    match &config.identity {
        Some(user) if geteuid().is_root() && trusted_path::open_roots_folder(path)?.is_none() => {
            Ok(Some(user))
        }
        _ => Ok(None),
    }
}

/// Replaces a socket file that no process listens on any more, but no socket that answers.
fn bind_locked(path: &Path) -> io::Result<(OwnedFd, Lock)> {
    let lock = Lock::acquire(path)?;
    let fd = new_socket(AddressFamily::UNIX)?;
    let at = sys::SocketAddrUnix::new(path)?;
    match sys::bind(&fd, &at) {
        // A file that is no socket refuses connections too, but it is not ours to remove.
        Err(Errno::ADDRINUSE)
            if path.symlink_metadata()?.file_type().is_socket()
                && sys::connect(new_socket(AddressFamily::UNIX)?, &at)
                    == Err(Errno::CONNREFUSED) =>
        {
            fs::remove_file(path)?;
            sys::bind(&fd, &at)?;
        }
        done => done?,
    }
    Ok((fd, lock))
}

impl Lock {
    fn path_for(socket: &Path) -> PathBuf {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        path.into()
    }

    fn acquire(socket: &Path) -> io::Result<Self> {
        let path = Self::path_for(socket);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        for _ in 0..TRIES {
            let file = rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) => return Err(Errno::ADDRINUSE.into()),
                locked => locked?,
            }
            // The previous holder may have removed the file meanwhile: then this lock belongs to no file.
            if id_of_path(&path).is_ok_and(|now| Ok(now) == id_of_file(&file)) {
                return Ok(Self { path, file });
            }
        }
        Err(Errno::ADDRINUSE.into())
    }
}

impl SocketFile {
    /// Rebuilds the file of an inherited socket and lock from the words of [`SocketFile::prepare_handover`]. `None`: the words are
    /// malformed.
    pub(crate) fn from_handover(words: &[u8], lock: OwnedFd) -> Option<Self> {
        let mut words = words.splitn(3, |&b| b == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
        let own = (number()?, number()?);
        let path: PathBuf = OsStr::from_bytes(words.next()?).into();
        let lock = Lock {
            path: Lock::path_for(&path),
            file: lock,
        };
        Some(Self { path, own, lock })
    }

    /// Returns the file's id and path in words, and the descriptor of its lock.
    pub(crate) fn prepare_handover(&self) -> io::Result<(Vec<u8>, OwnedFd)> {
        let (device, inode) = self.own;
        let mut words = format!("{device} {inode} ").into_bytes();
        words.extend_from_slice(self.path.as_os_str().as_bytes());
        Ok((words, self.lock.file.try_clone()?))
    }

    /// Removes the file, unless another server has put its own there meanwhile, and then the lock.
    pub(crate) fn remove(&self) {
        // The folder may be closed to the user that the server became.
        if id_of_path(&self.path).is_ok_and(|now| now == self.own) {
            let _ = fs::remove_file(&self.path);
        }
        if id_of_path(&self.lock.path).is_ok_and(|now| Ok(now) == id_of_file(&self.lock.file)) {
            let _ = fs::remove_file(&self.lock.path);
        }
    }
}

fn id_of_path(path: &Path) -> io::Result<SocketFileId> {
    let stat = path.symlink_metadata()?;
    Ok((stat.dev(), stat.ino()))
}

fn id_of_file(file: impl AsFd) -> Result<SocketFileId, Errno> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Gives the file of a newly bound socket its mode and group, by its descriptor. If others may write to the folder, the name
/// may belong to something else by now, and this process may be root.
fn permit(path: &Path, owner: u32, mode: u32, group: Option<u32>) -> io::Result<SocketFileId> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    if !is_socket || stat.st_uid != owner {
        return Err(io::Error::other(
            "another file has replaced the socket: chmod go-w its folder",
        ));
    }
    if let Some(group) = group {
        let group = Some(Gid::from_raw(group));
        rustix::fs::chownat(&file, "", None, group, AtFlags::EMPTY_PATH)?;
    }
    // chmod(2) does not work on a descriptor of this kind, but on its name in /proc (open(2), O_PATH).
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmod(name, Mode::from_raw_mode(mode))?;
    Ok(id_of_file(&file)?)
}

#[cfg(test)]
mod tests {
    use crate::sockets::socket_file::*;
    use std::{
        fs,
        os::unix::{fs::PermissionsExt, net::UnixListener},
    };

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// Plays a program that may write to the folder, and that wins the race between bind(2) and the mode.
    #[test]
    fn only_a_socket_is_given_the_mode_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, socket] = ["file", "link", "socket"].map(|name| folder.path().join(name));
        let me = geteuid().as_raw();
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        for other in [&link, &file] {
            assert!(permit(other, me, 0o666, None).is_err());
            assert_eq!(mode(&file), 0o600);
        }
        assert!(permit(&socket, me + 1, 0o666, None).is_err());
        let own = rustix::process::getegid().as_raw();
        permit(&socket, me, 0o610, Some(own)).unwrap();
        assert_eq!(mode(&socket), 0o610);
    }

    /// Many threads ask at once: the lock never has two holders, whichever thread removes the file.
    #[test]
    fn a_lock_has_one_holder() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let holders = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for _ in 0..2_000 {
                        let Ok(lock) = Lock::acquire(&socket) else {
                            continue;
                        };
                        let order = std::sync::atomic::Ordering::SeqCst;
                        assert_eq!(holders.fetch_add(1, order), 0);
                        holders.fetch_sub(1, order);
                        fs::remove_file(&lock.path).unwrap();
                    }
                });
            }
        });
        assert!(Lock::acquire(&socket).is_ok());
    }
}
