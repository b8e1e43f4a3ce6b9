//! A Landlock domain for each program (landlock(7)). From inside a process can neither signal, trace nor look into a process
//! outside, nor connect to an abstract Unix socket that was made outside. The server is outside of all domains, so it can do
//! all of that to its programs.
//!
//! The domain of the standard sandbox also forbids writing to files outside of some folders ([`make_standard_ruleset`]). A strict
//! sandbox forbids more ([`make_confining_ruleset`]), and so does a server that starts nothing itself ([`make_files_ruleset`]).

use crate::raw::syscall;
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, open},
    io::Errno,
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    path::PathBuf,
};

/// The kernel's `struct landlock_ruleset_attr`.
#[repr(C)]
struct Attributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET` and `LANDLOCK_SCOPE_SIGNAL`.
const SCOPED: u64 = 1 << 0 | 1 << 1;

/// Makes the ruleset of a program's domain in the standard sandbox. The program may write to these files, and to all files below
/// these folders (`true`); if there are none, to all files. `None` if the kernel has no scopes, which came with Landlock's ABI 6,
/// Linux 6.12. `execve` closes the descriptor.
///
/// # Errors
/// Descriptors or memory are short: whether there are scopes is not known.
pub(crate) fn make_standard_ruleset(writable: &[(PathBuf, bool)]) -> io::Result<Option<OwnedFd>> {
    let handled = AccessRights::FILE_WRITE | AccessRights::REFER;
    let made = create_ruleset(&Attributes {
        handled_access_fs: if writable.is_empty() { 0 } else { handled },
        handled_access_net: 0,
        scoped: SCOPED,
    })?;
    let Some(ruleset) = made else {
        return Ok(None);
    };
    for (path, is_folder) in writable {
        // Nothing here asks the file system about the file, which may hang.
        let held = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match open(path, held, Mode::empty()) {
            Ok(file) => add_rule(&ruleset, file.as_fd(), *is_folder, handled)?,
            Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(e.into()),
            // The file has gone meanwhile.
            Err(_) => {}
        }
    }
    Ok(Some(ruleset))
}

fn create_ruleset(attributes: &Attributes) -> io::Result<Option<OwnedFd>> {
    let (at, size) = (
        std::ptr::from_ref(attributes) as usize,
        size_of::<Attributes>(),
    );
    // SAFETY: the kernel reads `size` bytes of `attributes`, which outlives the call.
    let made = unsafe { syscall(libc::SYS_landlock_create_ruleset, [at, size, 0, 0, 0, 0]) };
    match made {
        // SAFETY: a new descriptor that no other code knows.
        0.. => Ok(Some(unsafe { OwnedFd::from_raw_fd(made as RawFd) })),
        _ => match Errno::from_raw_os_error(-made as i32) {
            e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(e.into()),
            // The kernel has no such call, has it switched off, or has an older version; or a filter of system calls refuses
            // it.
            _ => Ok(None),
        },
    }
}

/// Returns whether the kernel keeps programs apart from each other and from this process.
pub fn keeps_apart() -> bool {
    landlock_abi() >= 6
}

/// Returns the version of Landlock's interface; 0: no Landlock.
pub(crate) fn landlock_abi() -> u32 {
    const VERSION: usize = 1; // LANDLOCK_CREATE_RULESET_VERSION
    // SAFETY: with that flag the kernel reads no memory.
    let abi = unsafe { syscall(libc::SYS_landlock_create_ruleset, [0, 0, VERSION, 0, 0, 0]) };
    u32::try_from(abi).unwrap_or(0)
}

/// Rights to a file, or to all below a folder (`LANDLOCK_ACCESS_FS_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccessRights(u64);

impl AccessRights {
    const FILE_EXECUTE: u64 = 1 << 0;
    const FILE_WRITE: u64 = 1 << 1;
    const FILE_READ: u64 = 1 << 2;
    const FOLDER_READ: u64 = 1 << 3;
    /// Remove folders and files.
    const REMOVE: u64 = 1 << 4 | 1 << 5;
    /// Make folders, files and links.
    const MAKE_FILE: u64 = 1 << 7 | 1 << 8 | 1 << 12;
    /// Make Unix sockets and FIFOs.
    const MAKE_SOCKET: u64 = 1 << 9 | 1 << 10;
    const MAKE_DEVICE: u64 = 1 << 6 | 1 << 11;
    /// Rename from folder to folder: ABI 2.
    const REFER: u64 = 1 << 13;
    /// Truncate files: ABI 3.
    const TRUNCATE: u64 = 1 << 14;
    /// Call ioctl(2) on devices: ABI 5.
    const IOCTL: u64 = 1 << 15;
    /// Rights that apply to a file that is not a folder.
    const OF_FILES: u64 =
        Self::FILE_EXECUTE | Self::FILE_WRITE | Self::FILE_READ | Self::TRUNCATE | Self::IOCTL;

    pub(crate) const READ: Self = Self(Self::FILE_READ | Self::FOLDER_READ);
    pub(crate) const EXECUTE: Self = Self(Self::READ.0 | Self::FILE_EXECUTE);
    /// Write without Unix sockets and FIFOs, which lead to other processes.
    pub(crate) const STORE: Self = Self(
        Self::READ.0
            | Self::FILE_WRITE
            | Self::REMOVE
            | Self::MAKE_FILE
            | Self::REFER
            | Self::TRUNCATE,
    );
    pub(crate) const WRITE: Self = Self(Self::STORE.0 | Self::MAKE_SOCKET);
    pub(crate) const CHANGE: Self = Self(Self::FILE_READ | Self::FILE_WRITE);
    pub(crate) const DEVICE: Self = Self(Self::FILE_READ | Self::FILE_WRITE | Self::IOCTL);

    /// Returns all rights that a kernel with this ABI knows.
    fn known_to_abi(abi: u32) -> u64 {
        let of_first = Self::EXECUTE.0
            | Self::FILE_WRITE
            | Self::REMOVE
            | Self::MAKE_FILE
            | Self::MAKE_SOCKET
            | Self::MAKE_DEVICE;
        let later = [(2, Self::REFER), (3, Self::TRUNCATE), (5, Self::IOCTL)];
        let later = later.into_iter().filter(|(since, _)| abi >= *since);
        later.fold(of_first, |all, (_, access)| all | access)
    }

    /// Returns whether these rights allow writing to a file.
    pub(crate) fn allows_writing(self) -> bool {
        self.0 & Self::FILE_WRITE != 0
    }

    /// Returns whether these rights include `other`.
    pub(crate) fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Rights to TCP ports (`LANDLOCK_ACCESS_NET_…`): ABI 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports(u64);

impl Ports {
    const BIND_TCP: u64 = 1 << 0;
    const CONNECT_TCP: u64 = 1 << 1;
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const CONNECT: Self = Self(Self::CONNECT_TCP);
    pub(crate) const ALL: Self = Self(Self::BIND_TCP | Self::CONNECT_TCP);
}

/// Makes the ruleset of programs that may see only the listed files, and have the scopes of a program. Rights that the kernel
/// does not know are left out; `None`: the kernel has no Landlock.
///
/// # Errors
/// The kernel refuses a feature that it has.
pub(crate) fn make_confining_ruleset<F: AsFd>(
    files: impl Iterator<Item = (F, AccessRights)>,
    program: Option<BorrowedFd<'_>>,
    ports: Ports,
) -> io::Result<Option<OwnedFd>> {
    let abi = landlock_abi();
    let ports = if abi >= 4 { Ports::ALL.0 & !ports.0 } else { 0 };
    let scoped = if abi >= 6 { SCOPED } else { 0 };
    let ruleset = build_ruleset(abi, files, ports, scoped)?;
    if let (Some(ruleset), Some(program)) = (&ruleset, program) {
        let access = AccessRights::EXECUTE.0 & AccessRights::known_to_abi(abi);
        allow_access(ruleset, program, access)?;
    }
    Ok(ruleset)
}

/// Makes the ruleset of a process that may see only these files, without further restrictions.
///
/// # Errors
/// The same errors as [`make_confining_ruleset`].
pub(crate) fn make_files_ruleset(
    files: impl Iterator<Item = (OwnedFd, AccessRights)>,
) -> io::Result<Option<OwnedFd>> {
    build_ruleset(landlock_abi(), files, 0, 0)
}

fn build_ruleset<F: AsFd>(
    abi: u32,
    files: impl Iterator<Item = (F, AccessRights)>,
    handled_access_net: u64,
    scoped: u64,
) -> io::Result<Option<OwnedFd>> {
    if abi == 0 {
        return Ok(None);
    }
    let known = AccessRights::known_to_abi(abi);
    let made = create_ruleset(&Attributes {
        handled_access_fs: known,
        handled_access_net,
        scoped,
    })?;
    let ruleset = made.ok_or(io::ErrorKind::Unsupported)?;
    for (file, access) in files {
        allow_access(&ruleset, file.as_fd(), access.0 & known)?;
    }
    Ok(Some(ruleset))
}

/// Moves the calling thread, and all that it starts from now on, into a domain. The thread must have given up new privileges.
///
/// # Errors
/// The kernel refuses the domain.
pub(crate) fn enter_domain(ruleset: &OwnedFd) -> io::Result<()> {
    let ruleset = ruleset.as_raw_fd() as usize;
    // SAFETY: numbers only.
    match unsafe { syscall(libc::SYS_landlock_restrict_self, [ruleset, 0, 0, 0, 0, 0]) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno as i32)),
    }
}

/// The kernel's `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed_access: u64,
    parent: RawFd,
}

fn allow_access(ruleset: &OwnedFd, file: BorrowedFd<'_>, access: u64) -> io::Result<()> {
    let kind = FileType::from_raw_mode(fstat(file)?.st_mode);
    add_rule(ruleset, file, kind == FileType::Directory, access)
}

fn add_rule(
    ruleset: &OwnedFd,
    file: BorrowedFd<'_>,
    is_folder: bool,
    access: u64,
) -> io::Result<()> {
    const PATH_BENEATH: usize = 1; // LANDLOCK_RULE_PATH_BENEATH
    let allowed_access = if is_folder {
        access
    } else {
        access & AccessRights::OF_FILES
    };
    let rule = Beneath {
        allowed_access,
        parent: file.as_raw_fd(),
    };
    let (ruleset, rule) = (ruleset.as_raw_fd() as usize, &raw const rule as usize);
    // SAFETY: the kernel reads `rule`, which has the layout it asks for and outlives the call.
    let done = unsafe {
        syscall(
            libc::SYS_landlock_add_rule,
            [ruleset, PATH_BENEATH, rule, 0, 0, 0],
        )
    };
    match done {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno as i32)),
    }
}
