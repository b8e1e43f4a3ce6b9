//! What the processes of this crate give up before they look at anything from outside: files they
//! were not given, executing programs, the network.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The newest Landlock that is asked for; an older kernel does what it can.
const LANDLOCK: ABI = ABI::V6;

/// What is left.
#[derive(Debug, Default)]
pub(crate) struct Sandbox {
    /// Folders that may be read.
    pub(crate) read: Vec<PathBuf>,
    /// Folders that may be written to, too.
    pub(crate) write: Vec<PathBuf>,
    /// May connect to other machines.
    pub(crate) network: bool,
}

impl Sandbox {
    /// Enters it, for good, with this thread and those it starts later. Words where the kernel
    /// cannot confine files.
    ///
    /// # Errors
    /// A part of it could not be entered.
    pub(crate) fn enter(&self) -> Result<Option<&'static str>, String> {
        let files = self.files().map_err(|e| format!("Landlock: {e}"))?;
        self.calls().map_err(|e| format!("seccomp: {e}"))?;
        Ok(files)
    }

    fn files(&self) -> Result<Option<&'static str>, landlock::RulesetError> {
        let mut rules = Ruleset::default().handle_access(AccessFs::from_all(LANDLOCK))?;
        if !self.network {
            rules = rules.handle_access(AccessNet::from_all(LANDLOCK))?;
        }
        let mut rules = rules.scope(Scope::from_all(LANDLOCK))?.create()?;
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        // No devices, pipes or sockets: those are ways to others.
        let special = AccessFs::MakeChar
            | AccessFs::MakeBlock
            | AccessFs::MakeFifo
            | AccessFs::MakeSock
            | AccessFs::IoctlDev;
        let write = (AccessFs::from_all(LANDLOCK) & !special) & !AccessFs::Execute;
        let folders = self.read.iter().map(|f| (f, read));
        for (folder, access) in folders.chain(self.write.iter().map(|f| (f, write))) {
            // A folder that is not there is nobody's to see.
            if let Ok(fd) = PathFd::new(folder) {
                rules = rules.add_rule(PathBeneath::new(fd, access))?;
            }
        }
        let status = rules.restrict_self()?;
        Ok((status.ruleset == RulesetStatus::NotEnforced).then_some(
            "this kernel has no Landlock: modules are still confined by WebAssembly, their worker by its user alone",
        ))
    }

    /// Refuses (EPERM) system calls that none of this needs.
    fn calls(&self) -> Result<(), seccompiler::Error> {
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
        ] {
            refused.insert(call, Vec::new());
        }
        refused.insert(libc::SYS_socket, self.sockets()?);
        let filter = SeccompFilter::new(
            refused,
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM.cast_unsigned()),
            arch()?,
        )?;
        seccompiler::apply_filter(&BpfProgram::try_from(filter)?)
    }

    /// Which sockets are refused: with the network all but those of the Internet protocols.
    fn sockets(&self) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
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

fn arch() -> Result<TargetArch, seccompiler::BackendError> {
    std::env::consts::ARCH.try_into()
}

/// A folder with its links resolved, as Landlock sees it.
pub(crate) fn folder(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
