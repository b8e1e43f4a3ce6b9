//! The rights that the processes of this crate give up before they read anything from outside:
//! other files, starting and executing programs, the network.

use std::path::{Path, PathBuf};

use galgo_spawn::sandbox::{confine_worker, open_without_waiting};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// The rights that stay. No other process of the user can read the process's memory.
#[derive(Debug, Default)]
pub(crate) struct WorkerSandbox {
    pub(crate) read: Vec<PathBuf>,
    /// Folders that may be written to, too.
    pub(crate) write: Vec<PathBuf>,
    pub(crate) network: bool,
}

impl WorkerSandbox {
    /// Enters the sandbox, for good, with this thread and the threads that it starts later. Returns
    /// a warning if the kernel cannot confine files.
    ///
    /// # Errors
    /// A part of the sandbox could not be entered.
    pub(crate) fn enter(&self) -> Result<Option<&'static str>, String> {
        // No process of the same user may look into this one, among others by ptrace(2) and
        // /proc/PID/mem.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|e| format!("closing its memory: {e}"))?;
        open_without_waiting().map_err(|e| format!("handling SIGSYS: {e}"))?;
        let confined = confine_worker(&self.read, &self.write, self.network);
        let is_confined = confined.map_err(|e| format!("Landlock and seccomp: {e}"))?;
        Ok((!is_confined).then_some(
            "this kernel has no Landlock: modules are still confined by WebAssembly, their worker by its user alone",
        ))
    }
}

/// Resolves the links in a folder's path, as Landlock does.
pub(crate) fn resolve_folder_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs, io,
        net::{TcpStream, UdpSocket},
        os::unix::{net::UnixDatagram, process::CommandExt},
        process::Command,
        thread,
    };

    const DENIED: io::ErrorKind = io::ErrorKind::PermissionDenied;

    /// Runs `look` inside the sandbox, on a separate thread, because a sandbox confines only its
    /// thread.
    fn inside<T: Send>(sandbox: &WorkerSandbox, look: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let confined = scope.spawn(|| {
                assert_eq!(sandbox.enter().unwrap(), None, "a kernel without Landlock");
                look()
            });
            confined.join().unwrap()
        })
    }

    fn denied<T: std::fmt::Debug>(what: &str, done: io::Result<T>) {
        assert_eq!(done.unwrap_err().kind(), DENIED, "{what}");
    }

    #[test]
    fn only_the_folders_it_was_given_are_there() {
        let [read, write, other] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        for folder in [&read, &write, &other] {
            fs::write(folder.path().join("a"), "text").unwrap();
        }
        std::os::unix::fs::symlink(other.path(), write.path().join("out")).unwrap();
        let sandbox = WorkerSandbox {
            read: vec![read.path().to_owned(), "/nonexistent".into()],
            write: vec![write.path().to_owned()],
            network: false,
        };
        inside(&sandbox, || {
            let (read, write, other) = (read.path(), write.path(), other.path());
            assert_eq!(fs::read(read.join("a")).unwrap(), b"text");
            denied("write", fs::write(read.join("a"), "x"));
            denied("create", fs::write(read.join("b"), "x"));
            denied("remove", fs::remove_file(read.join("a")));
            fs::write(write.join("b"), "x").unwrap();
            fs::create_dir(write.join("folder")).unwrap();
            fs::rename(write.join("b"), write.join("folder/c")).unwrap();
            fs::remove_file(write.join("folder/c")).unwrap();
            for path in ["/etc/passwd".into(), other.join("a"), write.join("out/a")] {
                denied(&path.display().to_string(), fs::read(&path));
            }
            denied("list", fs::read_dir(other).map(drop));
            denied("add", fs::write(other.join("b"), "x"));
            denied("move out", fs::rename(write.join("a"), other.join("c")));
        });
        assert_eq!(fs::read(other.path().join("a")).unwrap(), b"text");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_open_waits_for_another_end() {
        use rustix::{
            fs::{CWD, FileType, Mode, OFlags, ResolveFlags, mknodat, openat2},
            io::Errno,
        };
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::write(folder.path().join("file"), "text").unwrap();
        let sandbox = WorkerSandbox {
            write: vec![folder.path().to_owned(), "/dev".into()],
            ..WorkerSandbox::default()
        };
        let held = fs::File::open(folder.path()).unwrap();
        let open = |name: &str, flags| {
            let flags = flags | OFlags::CLOEXEC;
            openat2(&held, name, flags, Mode::empty(), ResolveFlags::empty()).map(drop)
        };
        inside(&sandbox, || {
            assert_eq!(open("fifo", OFlags::RDONLY), Err(Errno::ACCESS));
            assert_eq!(open("fifo", OFlags::RDWR), Err(Errno::ACCESS));
            assert_eq!(open("fifo", OFlags::WRONLY), Err(Errno::NXIO));
            assert_eq!(open("fifo", OFlags::PATH), Ok(()));
            assert_eq!(open("file", OFlags::RDWR), Ok(()));
            assert_eq!(open(".", OFlags::DIRECTORY), Ok(()));
            assert_eq!(open("none", OFlags::RDONLY), Err(Errno::NOENT));
            assert_eq!(open("/dev/null", OFlags::RDWR), Ok(()));
        });
    }

    #[test]
    fn it_starts_threads_and_no_programs() {
        inside(&WorkerSandbox::default(), || {
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            denied("fork", Command::new("/bin/true").spawn());
            // Refused before the kernel looks for the file.
            let exec = Command::new("/nonexistent").exec();
            assert_eq!(exec.kind(), DENIED);
        });
    }

    #[test]
    fn no_limit_and_no_priority_changes() {
        use rustix::process::{Resource, getpid, getpriority_process, getrlimit, prlimit};
        let before = getrlimit(Resource::Nofile);
        inside(&WorkerSandbox::default(), || {
            assert_eq!(getrlimit(Resource::Nofile), before);
            let own = getpid();
            for pid in [None, Some(own)] {
                let refused = prlimit(pid, Resource::Nofile, before);
                denied("limit", refused.map(drop).map_err(io::Error::from));
                let nice = getpriority_process(pid).unwrap();
                let refused = rustix::process::setpriority_process(pid, nice);
                denied("priority", refused.map_err(io::Error::from));
            }
        });
    }

    #[test]
    fn sockets_are_those_of_the_internet_where_the_network_is_allowed_and_else_none() {
        inside(&WorkerSandbox::default(), || {
            denied("TCP", TcpStream::connect("127.0.0.1:1"));
            denied("UDP", UdpSocket::bind("127.0.0.1:0"));
            denied("Unix", UnixDatagram::unbound());
        });
        let network = WorkerSandbox {
            network: true,
            ..WorkerSandbox::default()
        };
        inside(&network, || {
            UdpSocket::bind("127.0.0.1:0").unwrap();
            let refused = TcpStream::connect("127.0.0.1:1").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            denied("Unix", UnixDatagram::unbound());
        });
    }
}
