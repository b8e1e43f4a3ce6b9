//! Requirements on a program, and on the folders that lead to it, before it runs as a user. They are suexec's checks. Each is
//! made on a descriptor that was opened without following a link.
//!
//! If all requirements are met, only the user and root can replace the program, or a folder on the way to it. The program is
//! then executed by its path, because a script's interpreter opens the script by path anyway, even if the kernel was given a
//! descriptor. So the executed file is the checked file, or a file that the same user has put there meanwhile.

use crate::{glob::Glob, host_name::is_host, remote::shortage::is_short, trusted_path::resolve};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2,
        statat,
    },
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

/// The reason for refusing to run a program as a user.
#[derive(Debug)]
pub struct Denied {
    /// The offending file or folder.
    pub at: PathBuf,
    /// The problem, with a way to fix it.
    pub why: CheckFailure,
}

/// The problem of a file or a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names explain themselves
pub enum CheckFailure {
    /// The file or folder could not be examined.
    System(Errno),
    NotBelow,
    /// No pattern of the route fits the name.
    OtherName,
    Hidden,
    Link,
    /// A link leads out of another account's folder.
    OthersLink,
    NotAFile,
    NotAFolder,
    /// The actual owner, and the expected one. Root would also be accepted.
    Owner(u32, u32),
    /// The actual owner. The file runs only as its owner.
    OnlyOwner(u32),
    Group,
    Others,
    NoHost,
    NoHostsName,
    SetUser,
    SetGroup,
    NotExecutable,
}

impl Denied {
    /// Returns the error if the system is short of something, which is not the program's fault.
    pub(crate) fn shortage(&self) -> Option<Errno> {
        match self.why {
            CheckFailure::System(errno) if is_short(errno) => Some(errno),
            _ => None,
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ", self.at)?;
        match self.why {
            CheckFailure::System(errno) => write!(
                f,
                "cannot be examined by the user that its programs run as: {}",
                io::Error::from(errno)
            ),
            CheckFailure::NotBelow => f.write_str("is not below the folder of its route"),
            CheckFailure::OtherName => f.write_str("has a name that `cgi_names` does not list"),
            CheckFailure::Hidden => f.write_str("has a name that begins with \".\" or ends in \"~\", and such files are not run"),
            CheckFailure::Link => f.write_str(
                "is a symbolic link, and galgo follows none to programs that run as other users: name the real path",
            ),
            CheckFailure::OthersLink => f.write_str(
                "leads through a link out of a folder that users other than root own or can change: name the real path",
            ),
            CheckFailure::NotAFile => f.write_str("is not a regular file"),
            CheckFailure::NotAFolder => f.write_str("is not a folder"),
            CheckFailure::Owner(is, wanted) => write!(
                f,
                "belongs to the user {is}, but its program runs as the user {wanted}: chown it to {wanted} or root"
            ),
            CheckFailure::OnlyOwner(is) => write!(f, "belongs to the user {is}, and can run only as that user"),
            CheckFailure::Group => f.write_str("is writable for its group: chmod g-w"),
            CheckFailure::NoHost => f.write_str("is not a host's folder of programs: such a folder is HOST/cgi-bin/ or HOST/public/"),
            CheckFailure::NoHostsName => f.write_str(
                "is a symbolic link, but not to the folder of another host beside it: link it to such a folder, or make it a folder",
            ),
            CheckFailure::Others => f.write_str("is writable for others: chmod o-w"),
            CheckFailure::SetUser => f.write_str("is set-user-ID: chmod u-s"),
            CheckFailure::SetGroup => f.write_str("is set-group-ID: chmod g-s"),
            CheckFailure::NotExecutable => f.write_str("is not executable: chmod +x"),
        }
    }
}

impl std::error::Error for Denied {}

const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The kind of a route's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A folder that the operator has named. Links on the way to it are the operator's.
    Named,
    /// The folder that holds a folder for each host. Programs lie only in the hosts' own folders.
    Hosts,
    /// `HOST/cgi-bin` or `HOST/public` in a folder of [`Hosts`](Self::Hosts). `HOST` may be a link to another host's folder
    /// beside it; the folder below is the owner's.
    Host,
}

/// The folder of a host's programs.
pub const PROGRAMS: &str = "cgi-bin";

/// The folder of a host's files, which may hold programs, too.
pub const PUBLIC: &str = "public";

/// The programs of a route.
#[derive(Debug, Clone, Copy)]
pub struct ProgramFolder<'a> {
    /// The route's folder, or the program itself, as configured.
    pub root: &'a Path,
    /// The kind of that folder.
    pub layout: Layout,
    /// Patterns for the names of programs. Empty: every file may be one.
    pub names: &'a [Glob],
}

/// A program or module to check.
#[derive(Debug, Clone, Copy)]
struct ProgramToCheck<'a> {
    folder: ProgramFolder<'a>,
    program: &'a Path,
    /// The user to run it as.
    uid: u32,
    owner: OwnedBy,
    /// Another program is executed, and reads this file.
    interpreted: bool,
}

/// The permitted owners of programs and folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnedBy {
    /// Any user: programs run as the server's user, just as without a helper.
    Anybody,
    /// The user that the programs run as, or root.
    UserOrRoot,
    /// Like [`UserOrRoot`](Self::UserOrRoot) for folders. The program's file must belong to the user.
    User,
}

impl ProgramToCheck<'_> {
    /// Does the checks of [`may_run`].
    fn run_checks(&self) -> Result<PathBuf, Denied> {
        match self.passes_quick_checks() {
            // Drop redundant slashes and dots.
            true => Ok(self.program.components().collect()),
            false => self.look_closely(),
        }
    }

    /// Whether a program in the usual case, without a link in any name, passes all checks. Takes a third of the system calls of
    /// [`look_closely`](Self::look_closely).
    ///
    /// The program's folder is opened once, and the folders above are reached from there by `..`. No user can replace a `..`
    /// entry.
    fn passes_quick_checks(&self) -> bool {
        let plain = |path: &Path| {
            let mut parts = path.components();
            parts.next() == Some(Component::RootDir)
                && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        let usual = self.folder.layout != Layout::Hosts && self.owner != OwnedBy::Anybody;
        let (Some(folder), Some(name)) = (self.program.parent(), self.program.file_name()) else {
            return false;
        };
        let named = usual
            && plain(self.program)
            && plain(self.folder.root)
            && self.path_below_root().is_ok();
        named && self.looks_fine(folder, name).unwrap_or(false)
    }

    fn looks_fine(&self, folder: &Path, name: &OsStr) -> Result<bool, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let here = openat2(CWD, folder, flags, Mode::empty(), resolve)?;
        let stat = |name: &OsStr| statat(&here, name, AtFlags::SYMLINK_NOFOLLOW);
        let depth = |path: &Path| path.components().count();
        let own = match self.folder.layout {
            // Count from the folder of all hosts.
            Layout::Host => depth(self.folder.root).saturating_sub(2),
            Layout::Named | Layout::Hosts => depth(self.folder.root),
        };
        let mut up = OsString::from(".");
        for above in (1..=depth(folder)).rev() {
            let inside = above >= own;
            if self.check_folder(&stat(&up)?, inside).is_err() {
                return Ok(false);
            }
            up.push("/..");
        }
        Ok(self.check_file(&stat(name)?).is_ok())
    }

    /// Does the same checks step by step. Names the offending file or folder, or follows permitted links.
    fn look_closely(&self) -> Result<PathBuf, Denied> {
        let (real, whole) = self.resolve_paths()?;
        let mut at = PathBuf::from("/");
        let failed = |at: &Path, e| denied(at, CheckFailure::System(e));
        let mut here = open("/", STEP, Mode::empty()).map_err(|e| failed(&at, e))?;
        for name in whole.components().skip(1) {
            let stat = fstat(&here).map_err(|e| failed(&at, e))?;
            self.check_folder(&stat, at.starts_with(&real))
                .map_err(|why| denied(&at, why))?;
            at.push(name);
            let next = openat(&here, name.as_os_str(), STEP, Mode::empty());
            here = next.map_err(|e| failed(&at, e))?;
        }
        let stat = fstat(&here).map_err(|e| failed(&at, e))?;
        self.check_file(&stat).map_err(|why| denied(&at, why))?;
        Ok(whole)
    }

    /// Returns the folder from which all belongs to the route, and the program's path. The operator may use links to name a
    /// folder. Below that folder the program's path is taken as it is.
    fn resolve_paths(&self) -> Result<(PathBuf, PathBuf), Denied> {
        let below = self
            .path_below_root()
            .map_err(|why| denied(self.program, why))?;
        let (real, folder) = match self.folder.layout {
            Layout::Named => {
                let real = resolve_canonical(self.folder.root)?;
                (real.clone(), real)
            }
            Layout::Hosts => return Err(denied(self.folder.root, CheckFailure::NoHost)),
            Layout::Host => host_folder(self.folder.root, self.owner)?,
        };
        if self.owner == OwnedBy::Anybody {
            // The server may follow links that stay below the route's folder.
            let whole = resolve_canonical(self.program)?;
            return if whole.starts_with(&folder) {
                Ok((real, whole))
            } else {
                Err(denied(self.program, CheckFailure::NotBelow))
            };
        }
        let whole = if below.as_os_str().is_empty() {
            folder
        } else {
            folder.join(below)
        };
        Ok((real, whole))
    }

    /// Returns the path below the route's folder.
    fn path_below_root(&self) -> Result<&Path, CheckFailure> {
        let below = self.program.strip_prefix(self.folder.root);
        let below = below.map_err(|_| CheckFailure::NotBelow)?;
        for part in below.components() {
            let Component::Normal(name) = part else {
                return Err(CheckFailure::NotBelow);
            };
            let name = name.as_bytes();
            if self.owner == OwnedBy::Anybody {
                continue;
            }
            if name.starts_with(b".") || name.ends_with(b"~") {
                return Err(CheckFailure::Hidden);
            }
        }
        let name = self.program.file_name().unwrap_or_default().as_bytes();
        let mut names = self.folder.names.iter();
        if !self.folder.names.is_empty() && !names.any(|glob| glob.matches_name(name)) {
            return Err(CheckFailure::OtherName);
        }
        Ok(below)
    }

    fn check_file(&self, stat: &Stat) -> Result<(), CheckFailure> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Symlink => return Err(CheckFailure::Link),
            _ => return Err(CheckFailure::NotAFile),
        }
        if self.owner == OwnedBy::Anybody {
            return Ok(());
        }
        check_owner(stat, self.uid)?;
        match stat.st_mode {
            _ if self.owner == OwnedBy::User && stat.st_uid != self.uid => {
                Err(CheckFailure::OnlyOwner(stat.st_uid))
            }
            mode if mode & 0o002 != 0 => Err(CheckFailure::Others),
            mode if mode & 0o020 != 0 => Err(CheckFailure::Group),
            mode if mode & 0o4000 != 0 => Err(CheckFailure::SetUser),
            mode if mode & 0o2000 != 0 => Err(CheckFailure::SetGroup),
            mode if mode & 0o111 == 0 && !self.interpreted => Err(CheckFailure::NotExecutable),
            _ => Ok(()),
        }
    }

    /// Checks a folder on the way. `inside`: the folder belongs to the route.
    fn check_folder(&self, stat: &Stat, inside: bool) -> Result<(), CheckFailure> {
        const STICKY: u32 = 0o1000;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {}
            FileType::Symlink => return Err(CheckFailure::Link),
            _ => return Err(CheckFailure::NotAFolder),
        }
        if self.owner == OwnedBy::Anybody {
            return Ok(());
        }
        check_owner(stat, self.uid)?;
        // In a sticky folder no other user can move the entries.
        if !inside && stat.st_mode & STICKY != 0 {
            return Ok(());
        }
        match stat.st_mode {
            mode if mode & 0o002 != 0 => Err(CheckFailure::Others),
            mode if mode & 0o020 != 0 => Err(CheckFailure::Group),
            _ => Ok(()),
        }
    }
}

/// Returns the folder that holds all hosts' folders, and the program folder of one host. `root` is the configured path of the
/// latter (`HOST/cgi-bin`). `HOST` may be a link: a user with the right to put a link there could create a folder just as well.
///
/// # Errors
/// The folder is missing, or a link leads elsewhere.
pub(crate) fn host_folder(root: &Path, owner: OwnedBy) -> Result<(PathBuf, PathBuf), Denied> {
    let known = [PROGRAMS, PUBLIC].map(OsStr::new);
    let own = root.file_name().filter(|name| known.contains(name));
    let host = own.and_then(|_| root.parent());
    let name = host.and_then(Path::file_name).and_then(OsStr::to_str);
    let sites = host.and_then(Path::parent);
    let (Some(sites), Some(name)) = (sites, name.filter(|name| is_host(name))) else {
        return Err(denied(root, CheckFailure::NoHost));
    };
    let sites = resolve_canonical(sites)?;
    let named = sites.join(name);
    let meant = resolve_canonical(&named)?;
    let host = meant.file_name().and_then(OsStr::to_str);
    if meant.parent() != Some(&sites) || !host.is_some_and(is_host) {
        return Err(denied(&named, CheckFailure::NoHostsName));
    }
    let folder = meant.join(own.unwrap_or_default());
    let real = resolve_canonical(&folder)?;
    match owner {
        OwnedBy::Anybody if real.starts_with(&meant) => Ok((sites, real)),
        OwnedBy::Anybody => Err(denied(&folder, CheckFailure::NotBelow)),
        _ if real == folder => Ok((sites, folder)),
        _ => Err(denied(&folder, CheckFailure::Link)),
    }
}

/// Resolves links, and refuses a link that leads out of another account's folder.
fn resolve_canonical(path: &Path) -> Result<PathBuf, Denied> {
    let failed = |e: io::Error| match Errno::from_io_error(&e) {
        Some(errno) => CheckFailure::System(errno),
        None => CheckFailure::OthersLink,
    };
    let found = resolve(path).map_err(|e| denied(path, failed(e)))?;
    Ok(found.path)
}

pub(crate) fn denied(at: &Path, why: CheckFailure) -> Denied {
    Denied {
        at: at.to_owned(),
        why,
    }
}

fn check_owner(stat: &Stat, uid: u32) -> Result<(), CheckFailure> {
    match stat.st_uid {
        0 => Ok(()),
        owner if owner == uid => Ok(()),
        owner => Err(CheckFailure::Owner(owner, uid)),
    }
}

/// Checks that a program or module of `folder` may run as the user `uid`. Returns the path with links resolved. `interpreted`:
/// another program is executed, and reads the file.
///
/// # Errors
/// The first failed check.
pub fn may_run(
    folder: ProgramFolder<'_>,
    program: &Path,
    uid: u32,
    owner: OwnedBy,
    interpreted: bool,
) -> Result<PathBuf, Denied> {
    let asked = ProgramToCheck {
        folder,
        program,
        uid,
        owner,
        interpreted,
    };
    asked.run_checks()
}
