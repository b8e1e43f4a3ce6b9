//! The files and calls that `sandbox = "strict"`, or a table in its place, leaves to programs.

use super::{
    changes::ListedFileWatch,
    filter,
    install::{self, FilteredThreads},
    kernel::kernel,
    listed_file::ListedFile,
    namespaces::{self, Ipc},
    network::Network,
};
use crate::{
    domain::{self, AccessRights, Ports},
    trusted_path::resolve_noting,
};
use std::{
    collections::BTreeSet,
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
};

/// Files and network that programs may use besides their own folder, their interpreters and the system's libraries and
/// programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Files and folders that programs may read, absolute.
    pub read: Vec<PathBuf>,
    /// Files and folders that programs may also change; a folder includes all below it.
    pub write: Vec<PathBuf>,
    /// Files and folders that programs may read and execute.
    pub exec: Vec<PathBuf>,
    /// The network that programs may use.
    pub network: Network,
}

/// System folders and files that every program may read and execute, if they exist.
pub(super) const SYSTEM: &[&str] = &[
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];

/// Files that the system's libraries and interpreters read besides: nothing that is one program's configuration or secret.
pub(super) const SETTINGS: &[&str] = &[
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

/// Devices that hold no data.
pub(super) const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/zero"];

/// Returns `/etc/python3.11` and the like.
fn python_settings() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let ours = all.filter(|entry| entry.file_name().as_bytes().starts_with(b"python"));
    ours.map(|entry| entry.path()).collect()
}

#[derive(Default, Clone)]
struct Rules {
    /// The rules, without any that another rule includes.
    all: Vec<ListedFile>,
    /// The steps on the way to all listed files.
    steps: BTreeSet<PathBuf>,
    /// The links on the way, and their text.
    links: Vec<(PathBuf, PathBuf)>,
}

impl Rules {
    fn add_rule(&mut self, path: &Path, access: AccessRights) -> io::Result<()> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let found = resolve_noting(path, &mut self.steps).map_err(named)?;
        self.links.extend(found.links);
        let is_said = |other: &ListedFile| {
            found.path.starts_with(&other.path) && other.access.includes(access)
        };
        if !self.all.iter().any(is_said) {
            self.all.push(ListedFile {
                path: found.path,
                file: Rc::new(found.file),
                access,
            });
        }
        Ok(())
    }

    fn make_ruleset(
        &self,
        program: Option<BorrowedFd<'_>>,
        ports: Ports,
    ) -> io::Result<Option<OwnedFd>> {
        let files = self.all.iter().map(|one| (&*one.file, one.access));
        domain::make_confining_ruleset(files, program, ports)
    }
}

/// A confinement that a process has prepared: rulesets and a filter that are entered when something is started.
#[derive(Debug)]
pub struct Prepared {
    /// The ruleset that programs enter a domain with.
    pub ruleset: Option<OwnedFd>,
    /// The ruleset that the worker of modules enters a domain with.
    pub worker: Option<OwnedFd>,
    /// The watch that reports replaced files, or the reason why there is none.
    pub changes: io::Result<ListedFileWatch>,
    network: Network,
    ipc: Ipc,
}

/// Further files that the worker of modules may use and programs may not.
#[derive(Debug, Clone, Copy)]
pub struct ForWorker<'a> {
    /// The worker's program.
    pub program: BorrowedFd<'a>,
    /// Folders that the worker may read.
    pub read: &'a [PathBuf],
    /// Folders that the worker may also change.
    pub write: &'a [PathBuf],
}

impl Confinement {
    /// Enters namespaces, if this process may, and prepares the Landlock domain that programs in the folder `own` enter.
    /// `interpreters` run these programs; `worker` is the worker of modules, if there is one. Call this in a separate process
    /// with one thread, before it gives up root's rights.
    ///
    /// # Errors
    /// A file or folder does not exist, or the kernel refuses a feature that it has.
    pub fn prepare(
        &self,
        own: &Path,
        interpreters: &[&Path],
        worker: Option<ForWorker<'_>>,
    ) -> io::Result<Prepared> {
        let network = self.network.as_supported();
        let in_namespaces = kernel().namespaces;
        if in_namespaces {
            namespaces::enter_namespaces(network == Network::Loopback)?;
        }
        let mut rules = self.collect_rules(own, interpreters)?;
        let mut of_worker = rules.clone();
        for (list, access) in worker
            .iter()
            .flat_map(|w| [(w.read, AccessRights::READ), (w.write, AccessRights::WRITE)])
        {
            list.iter()
                .try_for_each(|path| of_worker.add_rule(path, access))?;
        }
        // Files that are replaced from here on are noticed.
        let changes = ListedFileWatch::for_steps(&rules.steps);
        let mut ipc = Ipc::Machine;
        if in_namespaces {
            ipc = Ipc::Own;
            let new = namespaces::mount_own(&of_worker.all, &of_worker.links)?;
            rules.all.extend(new.iter().cloned());
            of_worker.all.extend(new);
        }
        let ports = match network {
            Network::None => Ports::NONE,
            Network::Out => Ports::CONNECT,
            Network::Loopback | Network::All => Ports::ALL,
        };
        let of_worker = worker.map(|worker| of_worker.make_ruleset(Some(worker.program), ports));
        Ok(Prepared {
            ruleset: rules.make_ruleset(None, ports)?,
            worker: of_worker.transpose()?.flatten(),
            changes,
            network,
            ipc,
        })
    }

    /// Returns the rules: the rights of programs to each file.
    fn collect_rules(&self, own: &Path, interpreters: &[&Path]) -> io::Result<Rules> {
        let own = if own.is_dir() {
            own
        } else {
            own.parent().unwrap_or(own)
        };
        let mut rules = Rules::default();
        // Folders that this system does not have are left out.
        for (list, access) in [
            (SYSTEM, AccessRights::EXECUTE),
            (SETTINGS, AccessRights::READ),
            (DEVICES, AccessRights::DEVICE),
        ] {
            for path in list {
                let _ = rules.add_rule(Path::new(path), access);
            }
        }
        for path in python_settings() {
            let _ = rules.add_rule(&path, AccessRights::READ);
        }
        rules.add_rule(own, AccessRights::EXECUTE)?;
        for path in interpreters {
            rules.add_rule(path, AccessRights::EXECUTE)?;
        }
        for (list, access) in [
            (&self.read, AccessRights::READ),
            (&self.write, AccessRights::WRITE),
            (&self.exec, AccessRights::EXECUTE),
        ] {
            list.iter()
                .try_for_each(|path| rules.add_rule(path, access))?;
        }
        Ok(rules)
    }
}

impl Prepared {
    /// Returns the IPC namespace that programs are in.
    pub fn ipc_namespace(&self) -> Ipc {
        self.ipc
    }

    /// Gives up new privileges and enters the filter of system calls, for good. This holds for this process and all that it
    /// starts.
    ///
    /// # Errors
    /// The kernel refuses a feature that it has.
    pub fn confine(&self) -> io::Result<()> {
        install::enter_filter(FilteredThreads::This, |key| {
            filter::strict(self.network, self.ipc, key)
        })
    }
}
