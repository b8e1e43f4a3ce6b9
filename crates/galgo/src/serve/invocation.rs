//! The command that started this process, and the start of another process in its place.

use std::{
    env,
    ffi::{CString, OsString},
    os::{
        fd::BorrowedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use galgo_spawn::{EnvBlock, Limits, Sandbox, Start, inspect::can_access};
use rustix::fs::Access;

use crate::sockets::inherited::{REPLACES, REPLACES_BY_SPAWNER};

/// The command that runs the spawner.
const SPAWNER: &str = "spawner";

/// Variables that describe this process alone.
pub(crate) const OWN: [&str; 6] = [
    REPLACES,
    REPLACES_BY_SPAWNER,
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "WATCHDOG_PID",
];

/// The command that started this process: the path, the arguments and the working directory.
#[derive(Debug)]
pub struct Invocation {
    pub(super) path: PathBuf,
    args: Vec<OsString>,
    pub(super) dir: PathBuf,
}

/// A process that is to replace this one.
#[derive(Debug)]
pub(super) struct NextProcess<'a> {
    /// The file to execute.
    pub(super) path: &'a Path,
    pub(super) dir: &'a Path,
    /// The variable that tells the process why it is started.
    pub(super) told: &'static str,
    pub(super) stdio: [BorrowedFd<'a>; 3],
    pub(super) more: &'a [BorrowedFd<'a>],
}

impl Invocation {
    /// Returns the invocation of this process. Must be called before the working directory changes or the file is replaced.
    pub fn of_this_process() -> Self {
        let args: Vec<_> = env::args_os().collect();
        let dir = env::current_dir().unwrap_or_else(|_| "/".into());
        let named = args
            .first()
            .and_then(|name| find_running_file(Path::new(name), &dir));
        let path = named.or_else(|| env::current_exe().ok());
        Self {
            path: path.unwrap_or_else(|| "/proc/self/exe".into()),
            args,
            dir,
        }
    }

    /// Returns the invocation of a server with this configuration file.
    pub(crate) fn with_config(file: &Path) -> Self {
        let mut own = Self::of_this_process();
        own.args.truncate(1);
        own.args
            .extend(["serve".into(), "--config".into(), file.into()]);
        own
    }

    /// Returns the invocation of the server whose spawner this process is. Only the command differs; all other arguments, the
    /// variables and the working directory are the same.
    pub fn of_spawner() -> Self {
        let mut own = Self::of_this_process();
        if let Some(command) = own.args.get_mut(1) {
            *command = "serve".into();
        }
        own
    }

    /// Starts another process with these arguments and this process's variables, by `start`.
    pub(super) fn start_process<T, E: std::fmt::Display>(
        &self,
        next: &NextProcess<'_>,
        start: impl FnOnce(&Start<'_>) -> Result<T, E>,
    ) -> Result<T, String> {
        let failed =
            |e: &dyn std::fmt::Display| format!("cannot start {}: {e}", self.path.display());
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|e| failed(&e));
        let mut env = EnvBlock::default();
        for (name, value) in env::vars_os().filter(|(name, _)| !OWN.iter().any(|own| name == own)) {
            env.set_variable(name.as_bytes(), value.as_bytes());
        }
        let own = std::process::id().to_string();
        env.set_variable(next.told.as_bytes(), own.as_bytes());
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
                // The new process is to outlive this one.
                may_stay: true,
                is_worker: true,
                ..Limits::default()
            },
            no_new_privs: false,
            sandbox: Sandbox::Off,
        });
        started.map_err(|e| failed(&e))
    }

    /// Returns the arguments of the spawner: this process's own with another command. So the spawner knows how this process
    /// was started.
    ///
    /// # Errors
    /// Cannot fail: no argument has a NUL.
    pub(super) fn spawner_args(&self) -> Result<Vec<CString>, std::ffi::NulError> {
        let name = self.args.first().cloned();
        let name = name.unwrap_or_else(|| "galgo".into());
        let rest = self.args.iter().skip(2).cloned();
        let args = [name, SPAWNER.into()].into_iter().chain(rest);
        args.map(|arg| CString::new(arg.into_vec())).collect()
    }
}

/// Finds the file that `argv[0]` names: after an upgrade the new binary is there, also if the name is a link.
fn find_running_file(name: &Path, dir: &Path) -> Option<PathBuf> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Some(dir.join(name)).filter(|path| is_running_file(path));
    }
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|folder| dir.join(folder).join(name));
    paths.find(|path| is_running_file(path))
}

/// Whether this process executes that file.
fn is_running_file(path: &Path) -> bool {
    let id = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    let own = id(Path::new("/proc/self/exe"));
    own.is_ok() && id(path) == own && can_access(path, Access::EXEC_OK)
}
