//! The rights that the processes of this crate give up before they read anything from outside:
//! other files, starting and executing programs, the network.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use galgo_spawn::sandbox::{OPEN_HOW, open_without_waiting};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The newest version of Landlock that is requested; an older kernel enforces as much as it can.
const LANDLOCK: ABI = ABI::V6;

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
        let files = self
            .restrict_files()
            .map_err(|e| format!("Landlock: {e}"))?;
        self.restrict_syscalls()
            .map_err(|e| format!("seccomp: {e}"))?;
        Ok(files)
    }

    fn restrict_files(&self) -> Result<Option<&'static str>, landlock::RulesetError> {
        let mut rules = Ruleset::default().handle_access(AccessFs::from_all(LANDLOCK))?;
        if !self.network {
            rules = rules.handle_access(AccessNet::from_all(LANDLOCK))?;
        }
        let mut rules = rules.scope(Scope::from_all(LANDLOCK))?.create()?;
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        // No devices, pipes or sockets, because they lead to other processes.
        let special = AccessFs::MakeChar
            | AccessFs::MakeBlock
            | AccessFs::MakeFifo
            | AccessFs::MakeSock
            | AccessFs::IoctlDev;
        let write = (AccessFs::from_all(LANDLOCK) & !special) & !AccessFs::Execute;
        let folders = self.read.iter().map(|f| (f, read));
        for (folder, access) in folders.chain(self.write.iter().map(|f| (f, write))) {
            // A missing folder needs no rule.
            if let Ok(fd) = PathFd::new(folder) {
                rules = rules.add_rule(PathBeneath::new(fd, access))?;
            }
        }
        let status = rules.restrict_self()?;
        Ok((status.ruleset == RulesetStatus::NotEnforced).then_some(
            "this kernel has no Landlock: modules are still confined by WebAssembly, their worker by its user alone",
        ))
    }

    /// Refuses (EPERM) system calls that a worker does not need.
    fn restrict_syscalls(&self) -> Result<(), seccompiler::Error> {
        let mut refused = BTreeMap::new();
        for call in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_keyctl,
            libc::SYS_mount,
            libc::SYS_setns,
            libc::SYS_unshare,
            // Limits and priority of any process: this one has set its own.
            libc::SYS_setrlimit,
            libc::SYS_setpriority,
            libc::SYS_ioprio_set,
            libc::SYS_sched_setaffinity,
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setparam,
            libc::SYS_sched_setattr,
            // These objects outlive the worker.
            libc::SYS_shmget,
            libc::SYS_msgget,
            libc::SYS_semget,
            libc::SYS_mq_open,
        ] {
            refused.insert(call, Vec::new());
        }
        refused.insert(libc::SYS_prlimit64, refused_prlimits()?);
        #[cfg(target_arch = "x86_64")]
        for call in [libc::SYS_fork, libc::SYS_vfork] {
            refused.insert(call, Vec::new());
        }
        refused.insert(libc::SYS_clone, refused_clones()?);
        refused.insert(libc::SYS_socket, self.refused_sockets()?);
        refuse_syscalls(refused, libc::EPERM)?;
        // A thread must not wait in a file that a guest opens.
        install_filter(
            [(libc::SYS_openat2, openat2_rules()?)].into(),
            SeccompAction::Trap,
        )?;
        // The flags of clone3(2) are in memory, where no filter sees them: the C library goes on
        // with clone(2).
        refuse_syscalls([(libc::SYS_clone3, Vec::new())].into(), libc::ENOSYS)
    }

    /// Returns the calls of socket(2) to refuse: with the network, all families except the Internet
    /// protocols.
    fn refused_sockets(&self) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        if !self.network {
            return Ok(Vec::new());
        }
        let other = |family: i32| {
            let family = u64::from(family.cast_unsigned());
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
        };
        let both = vec![other(libc::AF_INET)?, other(libc::AF_INET6)?];
        Ok(vec![SeccompRule::new(both)?])
    }
}

fn refuse_syscalls(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    errno: i32,
) -> Result<(), seccompiler::Error> {
    install_filter(calls, SeccompAction::Errno(errno.cast_unsigned()))
}

fn install_filter(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    action: SeccompAction,
) -> Result<(), seccompiler::Error> {
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, action, target_arch()?)?;
    seccompiler::apply_filter(&BpfProgram::try_from(filter)?)
}

/// Returns the calls of openat2(2) that libraries make.
fn openat2_rules() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let size = SeccompCondition::new(3, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, OPEN_HOW)?;
    Ok(vec![SeccompRule::new(vec![size])?])
}

/// Returns the calls of clone(2) to refuse: those without CLONE_THREAD.
fn refused_clones() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    let none = SeccompCmpOp::MaskedEq(thread);
    let none = SeccompCondition::new(0, SeccompCmpArgLen::Qword, none, 0)?;
    Ok(vec![SeccompRule::new(vec![none])?])
}

/// Returns the calls of prlimit(2) to refuse: those with a new limit.
fn refused_prlimits() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let is_given = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    Ok(vec![SeccompRule::new(vec![is_given])?])
}

fn target_arch() -> Result<TargetArch, seccompiler::BackendError> {
    std::env::consts::ARCH.try_into()
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
