//! How this process was started, and how another one is started in its place.

use std::{
    env,
    ffi::{CString, OsString},
    os::{
        fd::BorrowedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use galgo_spawn::{EnvBlock, Limits, Sandbox, Start, inspect::may};
use rustix::fs::Access;

use super::inherited::{REPLACES, REPLACES_BY_SPAWNER};

/// The command that is the spawner.
const SPAWNER: &str = "spawner";

/// Variables that speak of this process alone.
const OWN: [&str; 6] = [
    REPLACES,
    REPLACES_BY_SPAWNER,
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "WATCHDOG_PID",
];

/// How this process was started.
#[derive(Debug)]
pub struct Invocation {
    pub(super) path: PathBuf,
    args: Vec<OsString>,
    pub(super) dir: PathBuf,
}

/// A process that is to be started in the place of this one.
#[derive(Debug)]
pub(super) struct NextProcess<'a> {
    /// What is executed.
    pub(super) path: &'a Path,
    pub(super) dir: &'a Path,
    /// The variable that tells it what it is started for.
    pub(super) told: &'static str,
    pub(super) stdio: [BorrowedFd<'a>; 3],
    pub(super) more: &'a [BorrowedFd<'a>],
}

impl Invocation {
    /// How this one was. To be called before the working directory changes, or the file is replaced.
    pub fn of_this_process() -> Self {
        let args: Vec<_> = env::args_os().collect();
        let dir = env::current_dir().unwrap_or_else(|_| "/".into());
        let named = args.first().and_then(|name| named(Path::new(name), &dir));
        let path = named.or_else(|| env::current_exe().ok());
        Self {
            path: path.unwrap_or_else(|| "/proc/self/exe".into()),
            args,
            dir,
        }
    }

    /// How the server was whose spawner this process is: it has the same arguments but for the command, the same variables and
    /// the same working directory.
    pub fn of_spawner() -> Self {
        let mut own = Self::of_this_process();
        if let Some(command) = own.args.get_mut(1) {
            *command = "serve".into();
        }
        own
    }

    /// Starts another process with these arguments and this process's variables, by `start`.
    pub(super) fn start<T, E: std::fmt::Display>(
        &self,
        next: &NextProcess<'_>,
        start: impl FnOnce(&Start<'_>) -> Result<T, E>,
    ) -> Result<T, String> {
        let failed =
            |e: &dyn std::fmt::Display| format!("cannot start {}: {e}", self.path.display());
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|e| failed(&e));
        let mut env = EnvBlock::default();
        for (name, value) in env::vars_os().filter(|(name, _)| !OWN.iter().any(|own| name == own)) {
            env.put(name.as_bytes(), value.as_bytes());
        }
        let own = std::process::id().to_string();
        env.put(next.told.as_bytes(), own.as_bytes());
        let args = self.args.iter().map(|arg| text(arg.as_bytes()));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        let started = start(&Start {
            path: &text(next.path.as_os_str().as_bytes())?,
            args: &args,
            env: &env,
            dir: &text(next.dir.as_os_str().as_bytes())?,
            stdio: next.stdio,
            more: next.more,
            limits: Limits {
                // It is to outlive this process.
                may_stay: true,
                ..Limits::default()
            },
            no_new_privs: false,
            sandbox: Sandbox::Off,
        });
        started.map_err(|e| failed(&e))
    }

    /// The arguments of the spawner: those of this process but for the command, so that it knows how this process was started.
    ///
    /// # Errors
    /// None: no argument has a NUL.
    pub(super) fn spawner_args(&self) -> Result<Vec<CString>, std::ffi::NulError> {
        let name = self.args.first().cloned();
        let name = name.unwrap_or_else(|| "galgo".into());
        let rest = self.args.iter().skip(2).cloned();
        let args = [name, SPAWNER.into()].into_iter().chain(rest);
        args.map(|arg| CString::new(arg.into_vec())).collect()
    }
}

/// The file that `argv[0]` names: what is there after an upgrade is the new binary, also where it is a link.
fn named(name: &Path, dir: &Path) -> Option<PathBuf> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Some(dir.join(name)).filter(|path| runs(path));
    }
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|folder| dir.join(folder).join(name));
    paths.find(|path| runs(path))
}

/// Whether this is the file that this process executes.
fn runs(path: &Path) -> bool {
    let id = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    let own = id(Path::new("/proc/self/exe"));
    own.is_ok() && id(path) == own && may(path, Access::EXEC_OK)
}
