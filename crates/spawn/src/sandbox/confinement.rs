//! What `sandbox = "strict"`, or a table in its place, leaves to programs.

use super::{
    changes::Changes, filter, install, kernel::kernel, namespaces::Namespaces, network::Network,
};
use crate::domain::{self, Access, Ports};
use std::{
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

/// What programs may use beside their own folder, their interpreters and the system's libraries and programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Files and folders that they may read, absolute.
    pub read: Vec<PathBuf>,
    /// Those that they may change, too; a folder with all below it.
    pub write: Vec<PathBuf>,
    /// Those that they may read and execute.
    pub exec: Vec<PathBuf>,
    /// Whom they may speak with.
    pub network: Network,
}

/// Folders and files of the system that every program may read and execute, where they are there.
const SYSTEM: &[&str] = &[
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];

/// What the system's libraries and interpreters read beside that: nothing that is one program's configuration or secret.
const SETTINGS: &[&str] = &[
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/gai.conf",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/magic.mime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/php",
    "/etc/php.d",
    "/etc/php.ini",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/dev/random",
    "/dev/urandom",
    "/sys/devices/system/cpu/online",
    "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
];

/// Devices that hold nothing.
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/zero"];

/// `/etc/python3.11` and the like.
fn python_settings() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let ours = all.filter(|entry| entry.file_name().as_bytes().starts_with(b"python"));
    ours.map(|entry| entry.path()).collect()
}

/// Paths without links in them, and what may be done there: none that another says already.
#[derive(Default)]
struct Rules(Vec<(PathBuf, Access)>);

impl Rules {
    fn add(&mut self, path: &Path, access: Access) -> io::Result<()> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let path = path.canonicalize().map_err(named)?;
        let mut all = self.0.iter();
        if !all.any(|(above, more)| path.starts_with(above) && more.holds(access)) {
            self.0.push((path, access));
        }
        Ok(())
    }
}

/// What a process has made of a confinement: what programs enter as they are started.
#[derive(Debug)]
pub struct Prepared {
    ruleset: Option<OwnedFd>,
    network: Network,
    changes: Option<Changes>,
}

impl Confinement {
    /// Enters namespaces, where that may be, and prepares the Landlock domain that programs in the folder `own` enter;
    /// `interpreters` run them. For a process of its own with one thread, before it gives up root's rights.
    ///
    /// # Errors
    /// A file or folder is not there, or the kernel refuses what it has.
    pub fn prepare(&self, own: &Path, interpreters: &[&Path]) -> io::Result<Prepared> {
        let own = match own.is_dir() {
            true => own,
            false => own.parent().unwrap_or(own),
        };
        let mut rules = Rules::default();
        // What of the system is not there nobody misses.
        for (list, access) in [
            (SYSTEM, Access::EXECUTE),
            (SETTINGS, Access::READ),
            (DEVICES, Access::DEVICE),
        ] {
            for path in list {
                let _ = rules.add(Path::new(path), access);
            }
        }
        for path in python_settings() {
            let _ = rules.add(&path, Access::READ);
        }
        rules.add(own, Access::EXECUTE)?;
        for path in interpreters {
            rules.add(path, Access::EXECUTE)?;
        }
        for (list, access) in [
            (&self.read, Access::READ),
            (&self.write, Access::WRITE),
            (&self.exec, Access::EXECUTE),
        ] {
            list.iter().try_for_each(|path| rules.add(path, access))?;
        }
        let mut rules = rules.0;
        let network = self.network.here();
        if kernel().namespaces {
            let shown = rules.iter().map(|(path, _)| path.as_path());
            let new = Namespaces::enter(shown, network == Network::Loopback)?;
            rules.extend(new.temporary.into_iter().map(|path| (path, Access::WRITE)));
            rules.extend(new.processes.map(|path| (path, Access::READ)));
        }
        let ports = match network {
            Network::None => Ports::NONE,
            Network::Out => Ports::CONNECT,
            Network::Loopback | Network::All => Ports::ALL,
        };
        // What is replaced from here on is noticed.
        let files = rules.iter().map(|(path, _)| path.as_path());
        let changes = (kernel().landlock > 0).then(|| Changes::of(files));
        let changes = changes.transpose()?;
        let ruleset = domain::confining(&rules, ports)?;
        Ok(Prepared {
            ruleset,
            network,
            changes,
        })
    }
}

impl Prepared {
    /// Gives up new privileges and enters the filter of system calls, for good: this process, and all that it starts. What
    /// programs are to enter as they are started, and what tells when other files have come in the place of those that it lists.
    ///
    /// # Errors
    /// The kernel refuses what it has.
    pub fn confine(self) -> io::Result<(Option<OwnedFd>, Option<Changes>)> {
        install::enter(|| filter::strict(self.network))?;
        Ok((self.ruleset, self.changes))
    }
}
