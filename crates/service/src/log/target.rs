//! The target of a log: opening it, and writing lines to it.
//!
//! Decisions:
//! - Root opens a file itself only if no other user can change the path to the file; else as the configured user.
//! - Nothing here blocks for long: a FIFO need not have a reader, and a reader that does not read costs a second once.
//! - Another process may write to the same pipe or socket (the server that this one replaces): no line is mixed with others.
//! - If the disk was full and a line was cut, the line is ended before the next one.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use galgo_spawn::{
    identity::{Identity, is_root},
    trusted_path::{self, PathEnd},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2},
    io::Errno,
};

use crate::log::log_settings::LogTo;

/// Longest wait for a log that takes no bytes; then lines are given up.
const PATIENCE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Largest write to a pipe that the kernel does not mix with other writes (pipe(7)).
const PIPE_BUF: usize = 4096;

/// The open target of a log.
#[derive(Debug)]
pub(super) struct LogTarget {
    to: LogTo,
    /// `None` if the target is no file, or nothing is written to it.
    file: Option<File>,
    /// The last line that was written has no end.
    torn: bool,
    /// The target took no bytes at the last write.
    stuck: bool,
    /// The file system of a regular file: the kernel does not mix two writes to the end of a file (O_APPEND, open(2)).
    disk: Option<u64>,
}

impl LogTarget {
    /// Opens a log. If another user can change the path, root opens the log as `user`.
    pub(super) fn open(to: &LogTo, user: Option<&Identity>) -> io::Result<Self> {
        let file = match to {
            LogTo::File(path) => Some(open_for_append(path, user)?),
            LogTo::Stdout | LogTo::Stderr => None,
        };
        Ok(Self::new(to.clone(), file))
    }

    /// Returns the target of a log that is off.
    pub(super) fn disabled() -> Self {
        Self::new(LogTo::Stderr, None)
    }

    fn new(to: LogTo, file: Option<File>) -> Self {
        let stat = match (&to, &file) {
            (LogTo::File(_), Some(file)) => fstat(file),
            (LogTo::Stdout, _) => fstat(io::stdout()),
            (LogTo::Stderr | LogTo::File(_), _) => fstat(io::stderr()),
        };
        Self {
            to,
            file,
            torn: false,
            stuck: false,
            disk: stat
                .ok()
                .filter(|stat| file_type(stat) == FileType::RegularFile)
                .map(|stat| stat.st_dev),
        }
    }

    /// Returns the file system of the log; `None`: the log is no regular file, or has no file of its own.
    pub(super) fn file_system_id(&self) -> Option<u64> {
        self.disk.filter(|_| self.file.is_some())
    }

    /// Returns the first part of the lines, which is written in one call.
    fn atomic_piece<'b>(&self, lines: &'b [u8]) -> &'b [u8] {
        if self.disk.is_some() || lines.len() <= PIPE_BUF {
            return lines;
        }
        // A longer line may be mixed with other writes.
        let end = memchr::memrchr(b'\n', &lines[..PIPE_BUF]);
        let end = end.or_else(|| memchr::memchr(b'\n', lines));
        end.map_or(lines, |end| &lines[..=end])
    }

    /// Opens the log's file again, if it has one.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            // The server is its configured user by now, or has none.
            self.become_other(Self::open(&self.to, None)?);
        }
        Ok(())
    }

    /// Becomes `other`, which may be the same file.
    pub(super) fn become_other(&mut self, other: Self) {
        let same = matches!((&self.file, &other.file), (Some(a), Some(b)) if is_same(a, b));
        let torn = self.torn && same;
        *self = Self { torn, ..other };
    }

    /// Writes lines.
    ///
    /// # Errors
    /// The number of written bytes, and the reason for writing no more.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        if self.torn {
            self.write_all(b"\n")?;
            self.torn = false;
        }
        let done = self.write_all(lines);
        if let Err((written @ 1.., _)) = done {
            self.torn = lines[written - 1] != b'\n';
        }
        done
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut at = 0;
        while at < bytes.len() {
            match self.write_some(self.atomic_piece(&bytes[at..])) {
                Ok(0) => return Err((at, io::ErrorKind::WriteZero.into())),
                Ok(n) => (at, self.stuck) = (at + n, false),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !self.stuck => self.stuck = !self.wait_for_room(),
                Err(e) => return Err((at, e.into())),
            }
        }
        Ok(())
    }

    fn write_some(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let write = |fd: BorrowedFd<'_>| rustix::io::write(fd, bytes);
        match (&self.to, &self.file) {
            (LogTo::Stdout, _) => write(io::stdout().lock().as_fd()),
            (LogTo::Stderr, _) => write(io::stderr().lock().as_fd()),
            (LogTo::File(_), Some(file)) => write(file.as_fd()),
            (LogTo::File(_), None) => Ok(bytes.len()),
        }
    }

    /// Waits until something can be written. Returns false if that takes too long.
    fn wait_for_room(&self) -> bool {
        let (out, err) = (io::stdout(), io::stderr());
        let fd = match (&self.to, &self.file) {
            (LogTo::File(_), Some(file)) => file.as_fd(),
            (LogTo::Stdout, _) => out.as_fd(),
            (LogTo::Stderr | LogTo::File(_), _) => err.as_fd(),
        };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
        matches!(poll(&mut fds, Some(&PATIENCE)), Ok(1..) | Err(Errno::INTR))
    }
}

fn is_same(a: &File, b: &File) -> bool {
    let id = |file| fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((id(a), id(b)), (Ok(a), Ok(b)) if a == b)
}

const APPEND: OFlags = OFlags::WRONLY
    .union(OFlags::APPEND)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const MODE: Mode = Mode::from_raw_mode(0o640);

/// Opens a file for appending.
fn open_for_append(path: &Path, user: Option<&Identity>) -> io::Result<File> {
    let opened = if !is_root() {
        open_by_name(path)
    } else {
        match (trusted_path::locate_for_root(path), user) {
            (Ok(Some(place)), _) => open_at_place(&place),
            (Ok(None), Some(user)) => user.with_file_rights(|| open_by_name(path)).map_err(|e| {
                let words =
                    "opened as the configured user, because users other than root can change its path";
                io::Error::new(e.kind(), format!("{e} ({words})"))
            }),
            (Ok(None), None) => open_without_links(path),
            (Err(e), _) => Err(e),
        }
    };
    opened.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn open_at_place(place: &PathEnd) -> io::Result<File> {
    match &place.entry {
        Some(entry) => reopen_for_append(entry),
        None => {
            let flags = APPEND | OFlags::CREATE | OFlags::EXCL;
            Ok(openat(&place.folder, &place.name, flags, MODE)?.into())
        }
    }
}

/// Opens a file with the rights of the caller. No link leads out of another account's folder.
fn open_by_name(path: &Path) -> io::Result<File> {
    open_at_place(&trusted_path::locate(path)?)
}

/// Opens a file as root without a configured user, on a path that others can change: neither by a link, nor a file with
/// another name.
fn open_without_links(path: &Path) -> io::Result<File> {
    let resolve = ResolveFlags::NO_SYMLINKS;
    let entry = match openat2(CWD, path, HOLD, Mode::empty(), resolve) {
        Err(Errno::NOENT) => {
            let flags = APPEND | OFlags::CREATE | OFlags::EXCL;
            return Ok(openat2(CWD, path, flags, MODE, resolve)?.into());
        }
        Err(Errno::LOOP) => {
            return Err(io::Error::other(
                "a symbolic link is on the path, and users other than root can change the path",
            ));
        }
        entry => entry?,
    };
    let stat = fstat(&entry)?;
    match file_type(&stat) {
        FileType::RegularFile if stat.st_nlink == 1 => reopen_for_append(&entry),
        FileType::Fifo => reopen_for_append(&entry),
        _ => Err(io::Error::other(
            "users other than root can change its path, and it is not a file with this name only",
        )),
    }
}

/// Opens the file of an O_PATH descriptor for writing, and no other file.
fn reopen_for_append(entry: &OwnedFd) -> io::Result<File> {
    let flags = match file_type(&fstat(entry)?) {
        // open(2) cannot open a socket.
        FileType::Socket => {
            return Err(io::Error::other(
                "is a socket, and galgo writes no log to sockets: name a file, \"-\" or \"stderr\"",
            ));
        }
        // With our own reader: so the FIFO opens before its reader is there, and stays open when the reader goes.
        FileType::Fifo => APPEND.difference(OFlags::WRONLY) | OFlags::RDWR,
        _ => APPEND,
    };
    let name = format!("/proc/self/fd/{}", entry.as_raw_fd());
    Ok(open(name, flags, Mode::empty())?.into())
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{RenameFlags, chown, renameat_with};
    use std::{
        fs,
        io::{Read, Write},
        os::unix::fs::{MetadataExt, lchown, symlink},
        path::PathBuf,
        sync::atomic::{AtomicBool, Ordering},
    };

    fn is_root(test: &str) -> bool {
        let root = rustix::process::geteuid().is_root();
        if !root {
            eprintln!("skipped {test}: it needs root");
        }
        root
    }

    /// Creates a folder of root's that others may enter. In it are a folder of the user `nobody`, and a folder that this
    /// user cannot open.
    fn scene() -> (tempfile::TempDir, Identity, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let [theirs, secret] = ["theirs", "secret"].map(|name| folder.path().join(name));
        for (path, bits) in [(&theirs, 0o755), (&secret, 0o700)] {
            fs::create_dir(path).unwrap();
            mode(path, bits);
        }
        mode(folder.path(), 0o755);
        let nobody = galgo_spawn::identity::resolve_identity("nobody", None).unwrap();
        give(&theirs, &nobody);
        (folder, nobody, theirs, secret)
    }

    fn give(path: &Path, user: &Identity) {
        lchown(path, Some(user.uid), Some(user.gid)).unwrap();
    }

    /// Exchanges two names again and again.
    fn swap(folder: &Path, [a, b]: [&str; 2], stop: &AtomicBool) {
        let (a, b) = (folder.join(a), folder.join(b));
        while !stop.load(Ordering::Relaxed) {
            renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
        }
    }

    #[test]
    fn root_is_led_nowhere_while_names_are_swapped() {
        if !is_root("root_is_led_nowhere_while_names_are_swapped") {
            return;
        }
        let (_folder, nobody, theirs, secret) = scene();
        fs::write(secret.join("log"), "").unwrap();
        // Each name is a file or a link to one, or a folder or a link to one. The links are root's, so the code might trust
        // them.
        fs::write(theirs.join("log"), "").unwrap();
        symlink(secret.join("made"), theirs.join("link")).unwrap();
        fs::create_dir(theirs.join("folder")).unwrap();
        symlink(&secret, theirs.join("way")).unwrap();
        for name in ["log", "folder"] {
            give(&theirs.join(name), &nobody);
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| swap(&theirs, ["log", "link"], &stop));
            threads.spawn(|| swap(&theirs, ["folder", "way"], &stop));
            for user in [Some(&nobody), None] {
                for _ in 0..10_000 {
                    for name in ["log", "folder/log", "folder/new"] {
                        if let Ok(mut file) = open_for_append(&theirs.join(name), user) {
                            file.write_all(b"x").unwrap();
                        }
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(&secret).unwrap().count(), 1);
        assert_eq!(fs::read(secret.join("log")).unwrap(), b"");
        assert_eq!(rustix::process::geteuid().as_raw(), 0);
    }

    #[test]
    fn what_is_made_in_a_folder_of_others_is_the_users() {
        if !is_root("what_is_made_in_a_folder_of_others_is_the_users") {
            return;
        }
        let (folder, nobody, theirs, secret) = scene();
        open_for_append(&theirs.join("log"), Some(&nobody)).unwrap();
        open_for_append(&folder.path().join("log"), Some(&nobody)).unwrap();
        assert_eq!(fs::metadata(theirs.join("log")).unwrap().uid(), nobody.uid);
        assert_eq!(fs::metadata(folder.path().join("log")).unwrap().uid(), 0);
        // Opened with the rights of `nobody`, which end at root's folder.
        symlink(&secret, theirs.join("way")).unwrap();
        let e = open_for_append(&theirs.join("way/log"), Some(&nobody)).unwrap_err();
        assert!(e.to_string().contains("as the configured user"), "{e}");
        assert_eq!(fs::read_dir(&secret).unwrap().count(), 0);
        // Without a user, links are not followed, and a file with another name is refused.
        let e = open_for_append(&theirs.join("way/log"), None).unwrap_err();
        assert!(e.to_string().contains("symbolic link"), "{e}");
        fs::write(secret.join("other"), "").unwrap();
        fs::hard_link(secret.join("other"), theirs.join("other")).unwrap();
        let e = open_for_append(&theirs.join("other"), None).unwrap_err();
        assert!(e.to_string().contains("with this name only"), "{e}");
        // In a sticky folder, root's own folders stay root's.
        let sticky = folder.path().join("sticky");
        fs::create_dir(&sticky).unwrap();
        rustix::fs::chmod(&sticky, Mode::from_raw_mode(0o1777)).unwrap();
        fs::create_dir(sticky.join("roots")).unwrap();
        open_for_append(&sticky.join("roots/log"), Some(&nobody)).unwrap();
        open_for_append(&sticky.join("log"), Some(&nobody)).unwrap();
        let owner = |name: &str| fs::metadata(sticky.join(name)).unwrap().uid();
        assert_eq!((owner("roots/log"), owner("log")), (0, nobody.uid));
    }

    #[test]
    fn root_follows_links_of_root_only() {
        if !is_root("root_follows_links_of_root_only") {
            return;
        }
        let (folder, nobody, ..) = scene();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        symlink(
            "./../".to_owned() + folder.path().file_name().unwrap().to_str().unwrap() + "/file",
            &link,
        )
        .unwrap();
        open_for_append(&link, None)
            .unwrap()
            .write_all(b"one\n")
            .unwrap();
        give(&link, &nobody);
        open_for_append(&link, None).unwrap_err();
        open_for_append(&file, None)
            .unwrap()
            .write_all(b"two\n")
            .unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        chown(&file, None, None).unwrap();
        open_for_append(Path::new("/dev/null"), None).unwrap();
        open_for_append(Path::new("/proc/self/fd/2"), None).unwrap();
    }

    #[test]
    fn two_that_write_to_a_pipe_mix_no_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = fs::OpenOptions::new().read(true).write(true).open(&path);
        let mut reader = reader.unwrap();
        std::thread::scope(|threads| {
            for letter in [b'a', b'b'] {
                let mut target = LogTarget::open(&LogTo::File(path.clone()), None).unwrap();
                threads.spawn(move || {
                    let lines = [vec![letter; 99], vec![b'\n']].concat().repeat(300);
                    for _ in 0..50 {
                        target.write(&lines).unwrap();
                    }
                });
            }
            let mut line = [0; 100];
            for _ in 0..2 * 50 * 300 {
                reader.read_exact(&mut line).unwrap();
                let same = line[..99].iter().all(|b| *b == line[0]);
                assert!(same && line[99] == b'\n', "{}", line.escape_ascii());
            }
        });
    }

    #[test]
    fn a_fifo_needs_no_reader_and_a_torn_line_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut target = LogTarget::open(&LogTo::File(path.clone()), None).unwrap();
        // Two and a half lines of half a pipe each: the third line is cut.
        let line = [vec![b'x'; 30_000], vec![b'\n']].concat();
        let (written, e) = target.write(&line.repeat(3)).unwrap_err();
        assert!(
            written > 2 * line.len() && written < 3 * line.len(),
            "{written}"
        );
        assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
        let mut reader = fs::File::open(&path).unwrap();
        reader.read_exact(&mut vec![0; written]).unwrap();
        target.write(b"next\n").unwrap();
        let mut next = [0; 6];
        reader.read_exact(&mut next).unwrap();
        assert_eq!(&next, b"\nnext\n");
    }
}
